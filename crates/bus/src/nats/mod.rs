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

use publisher::Publisher;
use returns::Returns;
pub(crate) use source::{Source, Ticket};

/// What a connection went through, so that others notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Health {
    connected: bool,
    /// How often it was established.
    connects: u64,
    /// How often streams were found to be new ones. A decision about a message of an earlier
    /// generation is not sent: its number now belongs to another message.
    generation: u64,
}

/// The last repair that succeeded.
struct Repaired {
    begun: Instant,
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
        let client = connect::dial(connection, deadline, health.clone()).await?;
        let context = jetstream::context::ContextBuilder::new()
            .timeout(options.publish_within)
            .max_ack_inflight(options.in_flight_max.max(1) * 2)
            .build(client.clone());
        let begun = Instant::now();
        let found = connect::until(deadline, || ensure::streams(&context, &space, &streams)).await?;

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
            repaired: tokio::sync::Mutex::new(Repaired { begun, born: found.born }),
        });
        tokio::spawn(supervise(Arc::downgrade(&link), link.health.subscribe(), missing));
        Ok(link)
    }

    pub(crate) fn connected(&self) -> bool {
        self.health.borrow().connected
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
        if repaired.begun >= asked {
            return Ok(());
        }
        let begun = Instant::now();
        let found = match ensure::streams(&self.context, &self.space, &self.streams).await {
            Ok(found) => found,
            // Was checked at start. Somebody edits a live stream: say so, and go on working.
            Err(error @ BusError::Drift { .. }) => {
                tracing::error!(%error, "stream changed while in use");
                repaired.begun = begun;
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if found.created > 0 {
            tracing::warn!(created = found.created, "streams were missing and have been made again");
            self.counters.topology_repairs.add(found.created);
        }
        if found.born != repaired.born {
            self.health.send_modify(|health| health.generation += 1);
        }
        *repaired = Repaired { begun, born: found.born };
        Ok(())
    }

    fn stream_name(&self, role: Role) -> &str {
        self.streams.iter().find(|it| it.role == role).map_or("", |it| it.name.as_str())
    }
}

/// After each reconnect, and when a publish finds no stream: make sure of the streams.
async fn supervise(link: Weak<Link>, mut health: watch::Receiver<Health>, missing: Arc<Notify>) {
    let mut connects = health.borrow_and_update().connects;
    loop {
        tokio::select! {
            changed = health.changed() => {
                let now = *health.borrow_and_update();
                if changed.is_err() {
                    return;
                }
                if !now.connected || now.connects == connects {
                    continue;
                }
                connects = now.connects;
            }
            () = missing.notified() => {}
        }
        let mut failures = 0;
        loop {
            let Some(link) = link.upgrade() else { return };
            if let Err(error) = version::check(&link.client.server_info().version) {
                tracing::error!(%error, "reconnected to an unsuitable server");
            }
            match link.repair().await {
                Ok(()) => break,
                Err(_) if !link.connected() => break,
                Err(error) => {
                    tracing::warn!(%error, failures, "streams could not be checked");
                    drop(link);
                    tokio::time::sleep(backoff(failures)).await;
                    failures += 1;
                }
            }
        }
    }
}

fn header_map(headers: &[(&'static str, String)]) -> async_nats::HeaderMap {
    let mut map = async_nats::HeaderMap::new();
    for (name, value) in headers {
        map.insert(async_nats::HeaderName::from_static(name), value.as_str());
    }
    map
}

/// 50 ms, doubling, at most a second: an outage ends when the server is back, not a pause later.
fn backoff(failures: usize) -> Duration {
    Duration::from_millis(50 << failures.min(5)).min(Duration::from_secs(1))
}

fn link_error(what: &str, error: &dyn std::error::Error) -> BusError {
    BusError::Link { what: what.to_owned(), reason: error.to_string() }
}
