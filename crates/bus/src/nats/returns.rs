//! Giving messages back without waiting. A delivery may be dropped anywhere: outside a runtime, in a
//! panic, while the runtime shuts down. So `Drop` only puts a note into a channel, and this task,
//! if it still lives, sends it; if not, the server delivers again after `ack_wait`.
//!
//! The channel is unbounded but holds no more than what was delivered and undecided.
//! Must not know: message types.

use async_nats::jetstream::AckKind;
use async_nats::{Client, Subject};
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use super::pull::Puller;

enum Note {
    Message(Subject, AckKind),
    /// A consumer that is no longer read, with what it had fetched ahead.
    Puller(Box<Puller>),
    Barrier(oneshot::Sender<()>),
}

pub(super) struct Returns(mpsc::UnboundedSender<Note>);

impl Returns {
    pub(super) fn start(client: Client) -> Self {
        let (sender, notes) = mpsc::unbounded_channel();
        tokio::spawn(run(client, notes));
        Self(sender)
    }

    pub(super) fn message(&self, reply: Subject, kind: AckKind) {
        // An error means that the task ended with its runtime: the server will deliver again.
        let _ = self.0.send(Note::Message(reply, kind));
    }

    pub(super) fn puller(&self, puller: Puller) {
        let _ = self.0.send(Note::Puller(Box::new(puller)));
    }

    pub(super) async fn settled(&self) {
        let (sender, done) = oneshot::channel();
        if self.0.send(Note::Barrier(sender)).is_ok() {
            let _ = done.await;
        }
    }
}

async fn run(client: Client, mut notes: mpsc::UnboundedReceiver<Note>) {
    while let Some(note) = notes.recv().await {
        match note {
            Note::Message(reply, kind) => send(&client, reply, kind).await,
            Note::Puller(puller) => {
                for reply in puller.close().await {
                    send(&client, reply, AckKind::Nak(None)).await;
                }
            }
            Note::Barrier(done) => {
                let _ = done.send(());
            }
        }
    }
}

async fn send(client: &Client, reply: Subject, kind: AckKind) {
    if let Err(error) = client.publish(reply, Bytes::from(kind)).await {
        tracing::debug!(%error, "delivery could not be given back, it comes again after ack_wait");
    }
}
