//! Reading a JetStream consumer for ever, whatever happens to the server.
//!
//! Rebuilt when its messages end or fail, when streams had to be made again, when its consumer is
//! gone after a reconnect, and when it is silent on a live connection (the watchdog: pull consumers
//! have been seen to stall without an error).
//! Must not know: message types.

use std::sync::Arc;
use std::time::Duration;

use async_nats::Subject;
use async_nats::jetstream::{AckKind, Message};
use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::sleep;

use super::pull::{Broken, Puller};
use super::{Health, Link, backoff, ensure, link_error};
use crate::consumer::ConsumerSpec;
use crate::delivery::{self, Decision, Parcel};
use crate::error::BusError;

pub(crate) struct Source {
    link: Arc<Link>,
    spec: ConsumerSpec,
    puller: Option<Puller>,
    health: watch::Receiver<Health>,
    /// The connection this source has already looked after.
    seen: Health,
    failures: usize,
    /// Its consumer was there once: a missing one was lost.
    built: bool,
}

impl Source {
    pub(super) async fn open(link: Arc<Link>, spec: ConsumerSpec) -> Result<Self, BusError> {
        let health = link.health.subscribe();
        let seen = *health.borrow();
        let mut source = Self { link, spec, puller: None, health, seen, failures: 0, built: false };
        // While nobody can be asked, it is built as soon as somebody can.
        if seen.usable {
            match source.build().await {
                Err(error) if !error.retryable() || source.health.borrow().usable => return Err(error),
                _ => {}
            }
        }
        Ok(source)
    }

    pub(crate) async fn next(&mut self) -> Parcel {
        loop {
            let Some(puller) = self.puller.as_mut() else {
                self.rebuild().await;
                continue;
            };
            tokio::select! {
                pulled = puller.next() => match pulled {
                    Ok(message) => {
                        self.failures = 0;
                        return self.parcel(message);
                    }
                    Err(broken) => self.failed(broken).await,
                },
                _ = self.health.changed() => self.look_after().await,
            }
        }
    }

    async fn failed(&mut self, broken: Broken) {
        if !self.link.connected() {
            // Nothing to rebuild yet; what is missing shows after the reconnect.
            let _ = self.health.wait_for(|health| health.connected).await;
            return self.look_after().await;
        }
        match broken {
            Broken::Silent => {
                self.link.counters.watchdog_restarts.add(1);
                self.abandon("it was silent");
            }
            Broken::Ended(reason) => self.abandon(&reason),
        }
    }

    /// After a change of the connection: are stream and consumer still those we read?
    async fn look_after(&mut self) {
        let now = *self.health.borrow_and_update();
        let seen = std::mem::replace(&mut self.seen, now);
        if now.generation != seen.generation {
            // What was fetched belongs to a stream that no longer exists.
            self.puller = None;
        } else if now.connected && now.connects != seen.connects {
            let stream = self.link.stream_name(self.spec.role);
            match ensure::consumer(&self.link.context, stream, &self.spec).await {
                Ok(false) => {
                    if let Some(puller) = &mut self.puller {
                        puller.forgotten();
                    }
                }
                Ok(true) => {
                    self.link.counters.topology_repairs.add(1);
                    self.abandon("its consumer was missing");
                }
                Err(error) => self.abandon(&error.to_string()),
            }
        }
    }

    fn abandon(&mut self, reason: &str) {
        tracing::warn!(consumer = self.spec.name, reason, "consumer is rebuilt");
        if let Some(puller) = self.puller.take() {
            self.link.returns.puller(puller);
        }
    }

    async fn rebuild(&mut self) {
        // What is asked of nobody would wait in the client until somebody is there, once for every try.
        let _ = self.health.wait_for(|health| health.usable).await;
        // Failures count until a message arrives: one that is rebuilt only to break again must not spin.
        if self.failures > 0 {
            sleep(backoff(self.failures)).await;
        }
        self.failures += 1;
        if let Err(error) = self.build().await {
            tracing::warn!(consumer = self.spec.name, %error, "consumer could not be rebuilt yet");
        }
    }

    async fn build(&mut self) -> Result<(), BusError> {
        self.link.repair().await?;
        self.seen = *self.health.borrow_and_update();
        let stream = self.link.stream_name(self.spec.role);
        let missing = ensure::consumer(&self.link.context, stream, &self.spec).await?;
        if missing && self.built {
            self.link.counters.topology_repairs.add(1);
        }
        let client = self.link.client.clone();
        self.puller = Some(Puller::open(client, stream, &self.spec.name, &self.spec.pull).await?);
        self.built = true;
        Ok(())
    }

    fn parcel(&self, message: async_nats::Message) -> Parcel {
        let role = self.spec.role;
        let message = Message { message, context: self.link.context.clone() };
        let (deliveries, sequence, stored_at) = match message.info() {
            Ok(info) => (
                u64::try_from(info.delivered).unwrap_or(1),
                info.stream_sequence,
                i64::try_from(info.published.unix_timestamp_nanos() / 1000).unwrap_or(0),
            ),
            Err(_) => (1, 0, 0),
        };
        let async_nats::Message { subject, reply, payload, headers, .. } = message.message;
        let headers = headers.iter().flat_map(|headers| headers.iter());
        let last = |(name, values): (&async_nats::HeaderName, &Vec<async_nats::HeaderValue>)| {
            values.last().map(|value| (name.to_string(), value.to_string()))
        };
        Parcel {
            role,
            subject: subject.to_string(),
            headers: headers.filter_map(last).collect(),
            payload,
            deliveries,
            origin: format!("{}:{sequence}:{stored_at}", role.token()),
            stored_at,
            ticket: delivery::Ticket::Nats(Ticket { link: self.link.clone(), reply, generation: self.seen.generation }),
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if let Some(puller) = self.puller.take() {
            self.link.returns.puller(puller);
        }
    }
}

/// The address at which the server takes the decision about one delivery.
pub(crate) struct Ticket {
    link: Arc<Link>,
    reply: Option<Subject>,
    generation: u64,
}

impl Ticket {
    pub(crate) async fn decide(&self, decision: Decision) -> Result<(), BusError> {
        let Some(reply) = self.reply.clone().filter(|_| self.valid()) else { return Ok(()) };
        let kind = match decision {
            Decision::Ack => AckKind::Ack,
            Decision::Nak(delay) => nak(delay),
            Decision::Progress => AckKind::Progress,
            Decision::Term => AckKind::Term,
        };
        let sent = self.link.client.publish(reply, Bytes::from(kind)).await;
        sent.map_err(|error| link_error("a decision about a delivery", &error))
    }

    pub(crate) fn give_back(&self, delay: Duration) {
        if let Some(reply) = self.reply.clone().filter(|_| self.valid()) {
            self.link.returns.message(reply, nak(delay));
        }
    }

    fn valid(&self) -> bool {
        self.link.health.borrow().generation == self.generation
    }
}

fn nak(delay: Duration) -> AckKind {
    AckKind::Nak((!delay.is_zero()).then_some(delay))
}
