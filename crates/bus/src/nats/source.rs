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
use futures::future::BoxFuture;
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
    /// What the server is being asked for. Callers may stop waiting for a message at any moment, and the next one
    /// that waits goes on with it.
    under_way: Option<BoxFuture<'static, Outcome>>,
}

enum Outcome {
    /// Whether the consumer was missing after a reconnect.
    Looked(Health, Result<bool, BusError>),
    Built(Box<Result<Built, BusError>>),
}

struct Built {
    puller: Puller,
    over: Health,
    missing: bool,
}

impl Source {
    pub(super) async fn open(link: Arc<Link>, spec: ConsumerSpec) -> Result<Self, BusError> {
        let health = link.health.subscribe();
        let seen = *health.borrow();
        let mut source = Self { link, spec, puller: None, health, seen, failures: 0, built: false, under_way: None };
        // While nobody can be asked, it is built as soon as somebody can.
        if seen.usable {
            match build(&source.link, &source.spec).await {
                Ok(built) => source.take(built),
                Err(error) if !error.retryable() || source.health.borrow().usable => return Err(error),
                Err(_) => {}
            }
        }
        Ok(source)
    }

    /// The next message. Safe to cancel.
    pub(crate) async fn next(&mut self) -> Parcel {
        loop {
            if let Some(under_way) = &mut self.under_way {
                let outcome = under_way.await;
                self.under_way = None;
                self.goes_on(outcome);
                continue;
            }
            let now = *self.health.borrow_and_update();
            if now != self.seen {
                self.look_after(now);
                continue;
            }
            let Some(puller) = self.puller.as_mut() else {
                self.rebuild();
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
                _ = self.health.changed() => {}
            }
        }
    }

    async fn failed(&mut self, broken: Broken) {
        if !self.link.connected() {
            // Nothing to rebuild yet; what is missing shows after the reconnect.
            let _ = self.health.wait_for(|health| health.connected).await;
            return;
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
    fn look_after(&mut self, now: Health) {
        if now.generation != self.seen.generation {
            // What was fetched belongs to a stream that no longer exists.
            self.puller = None;
        }
        if self.puller.is_none() || !now.connected || now.connects == self.seen.connects {
            self.seen = now;
            return;
        }
        let (link, spec) = (self.link.clone(), self.spec.clone());
        self.under_way = Some(Box::pin(async move {
            let missing = ensure::consumer(&link.context, link.stream_name(spec.role), &spec).await;
            Outcome::Looked(now, missing)
        }));
    }

    fn rebuild(&mut self) {
        let (link, spec, failures) = (self.link.clone(), self.spec.clone(), self.failures);
        self.failures += 1;
        self.under_way = Some(Box::pin(async move {
            // What is asked of nobody would wait in the client until somebody is there, once for every try.
            let _ = link.health.subscribe().wait_for(|health| health.usable).await;
            // Failures count until a message arrives: one that is rebuilt only to break again must not spin.
            if failures > 0 {
                sleep(backoff(failures)).await;
            }
            Outcome::Built(Box::new(build(&link, &spec).await))
        }));
    }

    fn goes_on(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Looked(over, missing) => {
                self.seen = over;
                match missing {
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
            Outcome::Built(built) => match *built {
                Ok(built) => self.take(built),
                Err(error) => {
                    tracing::warn!(consumer = self.spec.name, %error, "consumer could not be rebuilt yet");
                }
            },
        }
    }

    fn take(&mut self, built: Built) {
        if built.missing && self.built {
            self.link.counters.topology_repairs.add(1);
        }
        (self.puller, self.seen, self.built) = (Some(built.puller), built.over, true);
    }

    fn abandon(&mut self, reason: &str) {
        tracing::warn!(consumer = self.spec.name, reason, "consumer is rebuilt");
        if let Some(puller) = self.puller.take() {
            self.link.returns.puller(puller);
        }
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

/// The consumer, made if it is missing, and a puller that nothing was asked of yet.
async fn build(link: &Link, spec: &ConsumerSpec) -> Result<Built, BusError> {
    link.repair().await?;
    let over = *link.health.borrow();
    let stream = link.stream_name(spec.role);
    let missing = ensure::consumer(&link.context, stream, spec).await?;
    let puller = Puller::open(link.client.clone(), stream, &spec.name, &spec.pull).await?;
    Ok(Built { puller, over, missing })
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
