//! Pulling from one consumer: asks ahead, counts what the server still owes, hears its heartbeats,
//! and can end without leaving messages behind.
//!
//! Our own instead of the client library's stream for two reasons: that one can't be closed without
//! losing, until `ack_wait`, what is on the wire; and its stalls are what a watchdog is for.
//! Must not know: message types, how a consumer is rebuilt.

use std::time::Duration;

use async_nats::{Client, Message, StatusCode, Subject, Subscriber};
use bytes::Bytes;
use futures::StreamExt;
use tokio::time::{Instant, sleep_until, timeout};

use super::link_error;
use crate::consumer::Pull;
use crate::error::BusError;

/// How long one request stays at the server.
const EXPIRES: Duration = Duration::from_secs(30);
const CLOSE_WITHIN: Duration = Duration::from_millis(500);
const PENDING: &str = "Nats-Pending-Messages";

pub(super) struct Puller {
    client: Client,
    subject: String,
    inbox: Subject,
    subscriber: Subscriber,
    request: Bytes,
    batch: usize,
    /// Messages the server still owes for requests it has.
    owed: usize,
    silence_max: Duration,
    /// The last sign of life.
    heard: Instant,
}

/// Why a puller can't go on.
pub(super) enum Broken {
    /// Neither a message nor a heartbeat for too long.
    Silent,
    Ended(String),
}

impl Puller {
    pub(super) async fn open(client: Client, stream: &str, consumer: &str, pull: &Pull) -> Result<Self, BusError> {
        let inbox = Subject::from(client.new_inbox());
        let subscriber = client.subscribe(inbox.clone()).await;
        let batch = pull.prefetch.max(1);
        let expires = EXPIRES.max(pull.silence_max * 2);
        // Two heartbeats fit into the silence we bear, so that one may be late.
        let heartbeat = pull.silence_max / 2;
        let request = format!(
            r#"{{"batch":{batch},"expires":{},"idle_heartbeat":{}}}"#,
            expires.as_nanos(),
            heartbeat.as_nanos()
        );
        Ok(Self {
            subject: format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"),
            inbox,
            subscriber: subscriber.map_err(|error| link_error("opening a consumer", &error))?,
            request: request.into(),
            batch,
            owed: 0,
            silence_max: pull.silence_max,
            heard: Instant::now(),
            client,
        })
    }

    /// The server forgot our requests, as it does when the connection is lost.
    pub(super) fn forgotten(&mut self) {
        self.owed = 0;
        self.heard = Instant::now();
    }

    /// The next message. Safe to cancel.
    pub(super) async fn next(&mut self) -> Result<Message, Broken> {
        loop {
            if self.owed <= self.batch / 2 {
                self.ask().await?;
            }
            // Biased: after a long absence of the caller, what has arrived is read before the
            // silence is judged.
            let message = tokio::select! {
                biased;
                message = self.subscriber.next() => message,
                () = sleep_until(self.heard + self.silence_max) => return Err(Broken::Silent),
            };
            let Some(message) = message else { return Err(Broken::Ended("its inbox was closed".into())) };
            self.heard = Instant::now();
            match message.status {
                None | Some(StatusCode::OK) => {
                    self.owed = self.owed.saturating_sub(1);
                    return Ok(message);
                }
                Some(status) => self.status(status, &message)?,
            }
        }
    }

    async fn ask(&mut self) -> Result<(), Broken> {
        // A caller that was away takes no harm from the old request's end: silence counts from here.
        if self.owed == 0 {
            self.heard = Instant::now();
        }
        let (subject, inbox) = (self.subject.clone(), self.inbox.clone());
        let asked = self.client.publish_with_reply(subject, inbox, self.request.clone()).await;
        asked.map_err(|error| Broken::Ended(error.to_string()))?;
        self.owed += self.batch;
        Ok(())
    }

    fn status(&mut self, status: StatusCode, message: &Message) -> Result<(), Broken> {
        let text = message.description.as_deref().unwrap_or_default();
        match status {
            StatusCode::IDLE_HEARTBEAT => Ok(()),
            // A request is over: by time, or because another server leads now. Ask again.
            StatusCode::TIMEOUT => {
                self.settle(message);
                Ok(())
            }
            StatusCode::REQUEST_TERMINATED if text.contains("Leadership") => {
                self.settle(message);
                Ok(())
            }
            StatusCode::NO_RESPONDERS => Err(Broken::Ended("the server has no such consumer".into())),
            status => Err(Broken::Ended(format!("{status} {text}"))),
        }
    }

    fn settle(&mut self, message: &Message) {
        let pending = message.headers.as_ref().and_then(|headers| headers.get(PENDING));
        let pending = pending.and_then(|it| it.as_str().parse().ok()).unwrap_or(self.owed);
        self.owed = self.owed.saturating_sub(pending);
    }

    /// Ends the subscription and hands out the reply addresses of all that had arrived or was on the
    /// wire. Only then may they be given back: sooner, they would come to this very inbox again.
    pub(super) async fn close(mut self) -> Vec<Subject> {
        let mut replies = Vec::new();
        let drain = async {
            if self.subscriber.drain().await.is_ok() {
                while let Some(message) = self.subscriber.next().await {
                    let delivered = matches!(message.status, None | Some(StatusCode::OK));
                    replies.extend(message.reply.filter(|_| delivered));
                }
            }
        };
        // Without a connection it doesn't end; then the server delivers again by itself.
        let _ = timeout(CLOSE_WITHIN, drain).await;
        replies
    }
}
