//! The bus over NATS JetStream. The only place that knows async-nats.
//!
//! A link is one connection and what keeps it useful: a publisher task, a task that gives dropped
//! deliveries back, and a supervisor that makes sure of the streams after each reconnect.
//! Must not know: message types.

mod connect;
mod ensure;
mod listen;
mod publisher;
mod pull;
mod returns;
mod source;

use std::sync::{Arc, Weak};
use std::time::Duration;

use async_nats::jetstream;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::consumer::ConsumerSpec;
use crate::error::BusError;
use crate::options::{Connection, Options};
use crate::publish::{Outgoing, Receipt, Sent};
use crate::stats::Counters;
use crate::subject::Namespace;
use crate::topology::{Role, StreamSpec};
use crate::version;

pub use connect::SILENCE_NOTICED;
use publisher::Publisher;
use returns::Returns;
pub(crate) use source::{Source, Ticket};

/// What a connection went through, so that others notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Health {
    connected: bool,
    /// The server of this connection was found to have the streams.
    pub(crate) usable: bool,
    /// How often it was established.
    connects: u64,
    /// How often streams were found to be new ones. A decision about a message of an earlier
    /// generation is not sent: its number now belongs to another message.
    generation: u64,
}

/// How long a server that cannot be used as it is is left alone. Nobody has to start anything anew once it can.
const UNSUITABLE: Duration = Duration::from_secs(5);

/// The last repair that succeeded. None: no server was reached yet.
#[derive(Default)]
struct Repaired {
    begun: Option<Instant>,
    born: Vec<i128>,
}

pub(crate) struct Link {
    space: Namespace,
    client: async_nats::Client,
    context: jetstream::Context,
    streams: Vec<StreamSpec>,
    counters: Arc<Counters>,
    health: Arc<watch::Sender<Health>>,
    publisher: Publisher,
    returns: Returns,
    repaired: tokio::sync::Mutex<Repaired>,
}

impl Link {
    pub(crate) async fn open(
        space: Namespace,
        connection: &Connection,
        options: &Options,
        streams: Vec<StreamSpec>,
        counters: Arc<Counters>,
    ) -> Result<Arc<Self>, BusError> {
        let deadline = Instant::now() + connection.within;
        let health = Arc::new(watch::Sender::new(Health::default()));
        let (client, reached) = connect::dial(connection, deadline, health.clone()).await?;
        let context = jetstream::context::ContextBuilder::new()
            .timeout(options.publish_within)
            .max_ack_inflight(options.in_flight_max.max(1) * 2)
            .build(client.clone());
        let (begun, connects) = (Instant::now(), health.borrow().connects);
        let mut repaired = Repaired::default();
        if reached {
            match connect::until(deadline, || ensure::streams(&context, &space, &streams)).await {
                Ok(found) => {
                    repaired = Repaired { begun: Some(begun), born: found.born };
                    health.send_if_modified(|health| health.found(connects));
                }
                Err(error) if error.retryable() => {
                    tracing::warn!(%error, "the bus is down; it is joined as soon as that is possible");
                }
                Err(error) => return Err(error),
            }
        }
        let missing = Arc::new(Notify::new());
        let publisher =
            Publisher::start(context.clone(), health.subscribe(), options, counters.clone(), missing.clone());
        let link = Arc::new(Self {
            returns: Returns::start(client.clone()),
            space,
            client,
            context,
            streams,
            counters,
            health,
            publisher,
            repaired: tokio::sync::Mutex::new(repaired),
        });
        tokio::spawn(supervise(Arc::downgrade(&link), link.health.subscribe(), missing));
        Ok(link)
    }

    pub(crate) fn connected(&self) -> bool {
        self.health.borrow().connected
    }

    pub(crate) fn health(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }

    pub(crate) fn payload_bytes_max(&self) -> usize {
        // The server counts headers as well; ours are a few hundred bytes.
        self.client.max_payload().saturating_sub(4096)
    }

    pub(crate) fn publish_soon(&self, out: Outgoing) -> Result<Sent, BusError> {
        self.publisher.hand_over(vec![out])
    }

    /// In this order; the receipt is that of the last.
    pub(crate) fn publish_all_soon(&self, outs: Vec<Outgoing>) -> Result<Sent, BusError> {
        self.publisher.hand_over(outs)
    }

    /// Stores a message. If its stream is gone, the streams are made again and it is sent once more.
    pub(crate) async fn publish(&self, out: Outgoing) -> Result<Receipt, BusError> {
        match self.publisher.deliver(out.clone()).await {
            Err(BusError::NoStream { .. }) => {
                self.repair().await?;
                self.publisher.deliver(out).await
            }
            result => result,
        }
    }

    pub(crate) async fn flush(&self, within: Duration) -> Result<(), BusError> {
        let flush = async {
            self.publisher.settled().await;
            self.returns.settled().await;
            self.client.flush().await
        };
        match tokio::time::timeout(within, flush).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(link_error("flush", &error)),
            Err(_) => Err(BusError::Timeout { what: "flush".into(), within }),
        }
    }

    pub(crate) async fn consume(self: &Arc<Self>, spec: ConsumerSpec) -> Result<Source, BusError> {
        Source::open(self.clone(), spec).await
    }

    /// Makes sure of the streams again. Calls that arrive during a repair share the next one.
    async fn repair(&self) -> Result<(), BusError> {
        let asked = Instant::now();
        let mut repaired = self.repaired.lock().await;
        if repaired.begun.is_some_and(|begun| begun >= asked) {
            return Ok(());
        }
        version::check(&self.client.server_info().version)?;
        let begun = Instant::now();
        let found = match ensure::streams(&self.context, &self.space, &self.streams).await {
            Ok(found) => found,
            // It was as declared once. Somebody edits a live stream: say so, and go on working.
            Err(error @ BusError::Drift { .. }) if repaired.begun.is_some() => {
                tracing::error!(%error, "stream changed while in use");
                repaired.begun = Some(begun);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if found.created > 0 && repaired.begun.is_some() {
            tracing::warn!(created = found.created, "streams were missing and have been made again");
            self.counters.topology_repairs.add(found.created);
        }
        if found.born != repaired.born {
            self.health.send_modify(|health| health.generation += 1);
        }
        *repaired = Repaired { begun: Some(begun), born: found.born };
        Ok(())
    }

    fn stream_name(&self, role: Role) -> &str {
        self.streams.iter().find(|it| it.role == role).map_or("", |it| it.name.as_str())
    }
}

/// After each connect, and when a publish finds no stream: make sure of the streams.
async fn supervise(link: Weak<Link>, mut health: watch::Receiver<Health>, missing: Arc<Notify>) {
    loop {
        let now = *health.borrow_and_update();
        if now.connected && !now.usable {
            let Some(()) = mend(&link, now.connects).await else { return };
        }
        tokio::select! {
            changed = health.changed() => if changed.is_err() {
                return;
            },
            () = missing.notified() => {
                let connects = health.borrow_and_update().connects;
                let Some(()) = mend(&link, connects).await else { return };
            }
        }
    }
}

/// Until the server of this connection has the streams, or there is another; `None` when the link is gone.
async fn mend(link: &Weak<Link>, connects: u64) -> Option<()> {
    let mut failures = 0;
    loop {
        let link = link.upgrade()?;
        if !link.connected() {
            return Some(());
        }
        let outcome = link.repair().await;
        let now = *link.health.borrow();
        if !now.connected || now.connects != connects {
            return Some(());
        }
        let Err(error) = outcome else {
            link.health.send_if_modified(|health| !health.usable && health.found(connects));
            return Some(());
        };
        link.health.send_if_modified(|health| std::mem::take(&mut health.usable));
        tracing::warn!(%error, failures, "the bus cannot be used; it is tried again");
        let pause = if error.retryable() { backoff(failures) } else { UNSUITABLE };
        drop(link);
        tokio::time::sleep(pause).await;
        failures += 1;
    }
}

impl Health {
    /// The streams were found over this connection; whether that is still the one there is.
    fn found(&mut self, connects: u64) -> bool {
        self.usable = self.connected && self.connects == connects;
        self.usable
    }
}

fn header_map(headers: &[(&'static str, String)]) -> async_nats::HeaderMap {
    let mut map = async_nats::HeaderMap::new();
    for (name, value) in headers {
        map.insert(async_nats::HeaderName::from_static(name), value.as_str());
    }
    map
}

/// 50 ms, doubling, at most half a second: an outage ends when the server is back, not a pause later.
fn backoff(failures: usize) -> Duration {
    Duration::from_millis(50 << failures.min(4)).min(Duration::from_millis(500))
}

fn link_error(what: &str, error: &dyn std::error::Error) -> BusError {
    BusError::Link { what: what.to_owned(), reason: error.to_string() }
}
