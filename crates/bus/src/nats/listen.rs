//! Live messages over core NATS: cast without waiting, listen through a bounded mailbox.
//!
//! Must not know: message types, streams.

use std::sync::Arc;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::client::RequestErrorKind;
use bytes::Bytes;
use futures::stream::select_all;
use futures::{FutureExt, StreamExt};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::task::coop::unconstrained;
use tokio::time::timeout;

use super::{Health, Link, header_map, link_error};
use crate::error::BusError;
use crate::live::{Cast, Mailbox};
use crate::publish::{MESSAGE_TYPE, Outgoing};
use crate::stats::Counters;

const SUBSCRIBE_WITHIN: Duration = Duration::from_secs(2);

impl Link {
    pub(crate) fn cast(&self, subject: &str, name: &str, payload: Bytes) {
        let mut headers = HeaderMap::new();
        headers.insert(MESSAGE_TYPE, name);
        self.send_now(subject.to_owned(), headers, payload);
    }

    /// A stream has the subject and stores what arrives; nobody hears whether it did.
    pub(crate) fn hint(&self, out: Outgoing) {
        let headers = header_map(&out.headers);
        self.send_now(out.subject, headers, out.payload);
    }

    fn send_now(&self, subject: String, headers: HeaderMap, payload: Bytes) {
        // Sent only if there is room at this very moment: a live message that has to wait is old.
        let sent = self.connected().then(|| {
            let send = self.client.publish_with_headers(subject, headers, payload);
            unconstrained(send).now_or_never()
        });
        if !matches!(sent, Some(Some(Ok(())))) {
            self.counters.dropped.add(1);
        }
    }

    pub(crate) async fn listen(&self, patterns: Vec<String>, mailbox: Arc<Mailbox>) -> Result<AbortHandle, BusError> {
        let health = self.health.subscribe();
        let subscribe = async {
            let mut subscribers = Vec::with_capacity(patterns.len());
            for pattern in patterns {
                let subscriber = self.client.subscribe(pattern).await;
                subscribers.push(subscriber.map_err(|error| link_error("listening", &error))?);
            }
            Ok::<_, BusError>(subscribers)
        };
        let Ok(subscribers) = timeout(SUBSCRIBE_WITHIN, subscribe).await else {
            let (what, within) = ("listening".to_owned(), SUBSCRIBE_WITHIN);
            return Err(BusError::Timeout { what, within });
        };
        // The server has read our subscriptions once it answered a later request. If it can't answer
        // now, listening still works from the reconnect on, with a gap at the beginning.
        if !self.connected() || !self.round_trip().await {
            mailbox.interrupt();
        }
        let pump = pump(select_all(subscribers?), mailbox, health, self.counters.clone());
        Ok(tokio::spawn(pump).abort_handle())
    }

    async fn round_trip(&self) -> bool {
        let nobody = format!("{}.sync", self.space.root());
        let asked = timeout(SUBSCRIBE_WITHIN, self.client.request(nobody, Bytes::new()));
        match asked.await {
            Ok(Err(error)) => error.kind() == RequestErrorKind::NoResponders,
            Ok(Ok(_)) => true,
            Err(_) => false,
        }
    }
}

/// Always reads as fast as messages arrive, so that only the mailbox, which tells, ever overflows.
async fn pump(
    mut messages: impl futures::Stream<Item = async_nats::Message> + Unpin,
    mailbox: Arc<Mailbox>,
    mut health: watch::Receiver<Health>,
    counters: Arc<Counters>,
) {
    let mut connects = health.borrow_and_update().connects;
    loop {
        tokio::select! {
            message = messages.next() => {
                let Some(message) = message else { return mailbox.interrupt() };
                let name = message.headers.as_ref().and_then(|it| it.get(MESSAGE_TYPE));
                let message_type = name.map(ToString::to_string);
                if mailbox.put(Cast { message_type, payload: message.payload }) {
                    counters.dropped.add(1);
                }
            }
            changed = health.changed() => {
                let now = *health.borrow_and_update();
                if changed.is_err() {
                    return;
                }
                if now.connected && now.connects != connects {
                    connects = now.connects;
                    mailbox.interrupt();
                }
            }
        }
    }
}
