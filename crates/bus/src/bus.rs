//! The bus as services use it: publish, consume, cast, listen. One API over NATS JetStream and over
//! the in-process implementation.
//!
//! The bus is a hint, the database is the truth: a caller on the critical path uses `publish_soon`
//! and goes on. Must not know: what messages lead to, machines, the store.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use instar_proto::v1::{DeadLetter, Rune, WorkTool, WorkTurn};

use crate::consumer::{ConsumerSpec, Pull};
use crate::deliveries::{Deliveries, Source};
use crate::delivery::{Delivery, Held, Parcel};
use crate::error::BusError;
use crate::live::{Listener, Mailbox};
use crate::local::Local;
use crate::nats::Link;
use crate::options::{Connection, Options};
use crate::publish::{Outgoing, Receipt, Sent, Stamp};
use crate::stats::{BusStats, Counters};
use crate::subject::{Namespace, Subject, Topic};
use crate::topology;
use crate::watch::Watch;
use crate::wire::Wire;

pub(crate) enum Backend {
    Nats(Arc<Link>),
    Local(Arc<Local>),
}

/// What all handles of one bus share.
pub(crate) struct Core {
    pub(crate) space: Namespace,
    pub(crate) counters: Arc<Counters>,
    options: Options,
    backend: Backend,
}

impl Core {
    /// Stores a message and waits for the receipt.
    pub(crate) async fn deposit(&self, out: Outgoing) -> Result<Receipt, BusError> {
        match &self.backend {
            Backend::Nats(link) => link.publish(out).await,
            Backend::Local(local) => local.publish(out),
        }
    }

    pub(crate) fn payload_bytes_max(&self) -> usize {
        match &self.backend {
            Backend::Nats(link) => self.options.payload_bytes_max.min(link.payload_bytes_max()),
            Backend::Local(_) => self.options.payload_bytes_max,
        }
    }

    fn encode<T: Wire>(&self, subject: &str, message: &T) -> Result<Bytes, BusError> {
        self.fits(subject, message.encoded_len())?;
        Ok(Bytes::from(message.encode_to_vec()))
    }

    fn fits(&self, subject: &str, bytes: usize) -> Result<(), BusError> {
        let bytes_max = self.payload_bytes_max();
        if bytes > bytes_max {
            return Err(BusError::TooLarge { subject: subject.to_owned(), bytes, bytes_max });
        }
        Ok(())
    }
}

/// A handle on the bus; cheap to clone.
#[derive(Clone)]
pub struct Bus {
    core: Arc<Core>,
}

impl Bus {
    /// Connects to NATS, refuses a server that is too old, and makes sure of the streams. Where no server answers in
    /// time, the bus is there all the same, down, and joins one as soon as there is one: see [`Bus::watch`].
    pub async fn connect(space: Namespace, connection: &Connection, options: Options) -> Result<Self, BusError> {
        let counters = Arc::new(Counters::default());
        let streams = topology::streams(&space, &options.streams);
        let link = Link::open(space.clone(), connection, &options, streams, counters.clone()).await?;
        Ok(Self::new(space, options, counters, Backend::Nats(link)))
    }

    /// A bus inside this process, with the same behaviour and nothing on disk.
    pub fn local(space: Namespace, options: Options) -> Self {
        let counters = Arc::new(Counters::default());
        let streams = topology::streams(&space, &options.streams);
        let local = Arc::new(Local::new(streams, counters.clone()));
        Self::new(space, options, counters, Backend::Local(local))
    }

    fn new(space: Namespace, options: Options, counters: Arc<Counters>, backend: Backend) -> Self {
        Self { core: Arc::new(Core { space, counters, options, backend }) }
    }

    /// Where subjects are made.
    pub fn space(&self) -> &Namespace {
        &self.core.space
    }

    pub fn stats(&self) -> BusStats {
        self.core.counters.snapshot()
    }

    /// Whether the server can be reached at this moment.
    pub fn connected(&self) -> bool {
        match &self.core.backend {
            Backend::Nats(link) => link.connected(),
            Backend::Local(_) => true,
        }
    }

    /// Tells when the bus goes down and when it is up again: the server is connected and has the streams. One that
    /// stopped is known at once, one that is silent after [a second and a half](crate::SILENCE_NOTICED).
    pub fn watch(&self) -> Watch {
        Watch::new(match &self.core.backend {
            Backend::Nats(link) => Some(link.health()),
            Backend::Local(_) => None,
        })
    }

    /// Stores a message and waits until the server has it.
    pub async fn publish<T: Wire>(
        &self,
        subject: &Subject<T>,
        message: &T,
        stamp: Stamp<'_>,
    ) -> Result<Receipt, BusError> {
        self.core.deposit(self.outgoing(subject, message, stamp)?).await
    }

    /// Hands a message over and returns at once. Never waits: when too many are on their way it
    /// refuses, and the scheduler publishes later what the database shows as unpublished.
    pub fn publish_soon<T: Wire>(&self, subject: &Subject<T>, message: &T, stamp: Stamp<'_>) -> Result<Sent, BusError> {
        let out = self.outgoing(subject, message, stamp)?;
        match &self.core.backend {
            Backend::Nats(link) => link.publish_soon(out),
            Backend::Local(local) => Ok(Sent::done(local.publish(out))),
        }
    }

    /// Hands over a message whose loss or repeat does no harm: no id, no receipt, nobody waits. It is stored
    /// if the server can be reached at this moment.
    pub fn hint<T: Wire>(&self, subject: &Subject<T>, message: &T, traceparent: Option<&str>) -> Result<(), BusError> {
        let payload = self.core.encode(subject.as_str(), message)?;
        let stamp = Stamp::nameless().trace(traceparent.unwrap_or_default());
        let out = Outgoing::nameless(subject.as_str(), T::NAME, payload, stamp);
        match &self.core.backend {
            Backend::Nats(link) => link.hint(out),
            Backend::Local(local) => drop(local.publish(out)?),
        }
        Ok(())
    }

    /// Publishes a transition to the subject of its kind and session, under its own id and trace.
    pub async fn publish_rune(&self, rune: &Rune) -> Result<Receipt, BusError> {
        let subject = self.core.space.transition(&rune.kind, &rune.session_id)?;
        self.publish(&subject, rune, Stamp::new(&rune.id).trace(&rune.traceparent)).await
    }

    /// Transitions that follow each other, without waiting, see [`publish_soon`](Self::publish_soon). One
    /// receipt for all: they go the same way in this order, so that whoever has the last has them all.
    pub fn publish_runes_soon(&self, runes: &[Rune]) -> Result<Sent, BusError> {
        let out = |rune: &Rune| {
            let subject = self.core.space.transition(&rune.kind, &rune.session_id)?;
            self.outgoing(&subject, rune, Stamp::new(&rune.id).trace(&rune.traceparent))
        };
        let outs = runes.iter().map(out).collect::<Result<Vec<_>, _>>()?;
        match &self.core.backend {
            Backend::Nats(link) => link.publish_all_soon(outs),
            Backend::Local(local) => {
                let mut last = Err(BusError::Closed);
                for out in outs {
                    last = Ok(local.publish(out)?);
                }
                Ok(Sent::done(last))
            }
        }
    }

    /// Publishes bytes as they are, for an operator who sends a dead letter's payload again.
    pub async fn publish_raw(&self, subject: &str, payload: Bytes, id: &str) -> Result<Receipt, BusError> {
        self.core.space.parse(subject)?;
        self.core.fits(subject, payload.len())?;
        let mut out = Outgoing::new(subject, "", payload, Stamp::new(id))?;
        out.headers.retain(|(_, value)| !value.is_empty());
        self.core.deposit(out).await
    }

    /// Waits until everything handed over has its receipt or failed. For a drain before exit.
    pub async fn flush(&self, within: Duration) -> Result<(), BusError> {
        match &self.core.backend {
            Backend::Nats(link) => link.flush(within).await,
            Backend::Local(_) => Ok(()),
        }
    }

    /// Turns of a lane that are ready to claim.
    pub async fn work_turn(&self, lane: &str, pull: Pull) -> Result<Deliveries<WorkTurn>, BusError> {
        self.consume(ConsumerSpec::work_turn(&self.core.space, lane, pull)?).await
    }

    /// Tool calls of a class that are ready to claim.
    pub async fn work_tool(&self, class: &str, pull: Pull) -> Result<Deliveries<WorkTool>, BusError> {
        self.consume(ConsumerSpec::work_tool(&self.core.space, class, pull)?).await
    }

    /// Turns of agents that `worker` owns.
    pub async fn owner_turn(&self, worker: &str, pull: Pull) -> Result<Deliveries<WorkTurn>, BusError> {
        self.consume(ConsumerSpec::owner_turn(&self.core.space, worker, pull)?).await
    }

    /// Transitions of these kinds, each to one of the readers with this name. The place is kept
    /// under the name; a new name starts at the oldest transition still stored. During an upgrade
    /// it may also deliver kinds that only the newer version asked for: ignore what is unknown.
    pub async fn transitions(&self, name: &str, kinds: &[&str], pull: Pull) -> Result<Deliveries<Rune>, BusError> {
        self.consume(ConsumerSpec::transition(&self.core.space, name, kinds, pull)?).await
    }

    /// What a delivery would have told, found without one: nobody delivers it again, and no decision about it is sent.
    pub fn found<T: Wire>(&self, value: T) -> Delivery<T> {
        Delivery::new(value, Held::new(Parcel::found(), self.core.clone()))
    }

    /// What could not be handled, for an operator.
    pub async fn dead_letters(&self, name: &str, pull: Pull) -> Result<Deliveries<DeadLetter>, BusError> {
        self.consume(ConsumerSpec::dead(&self.core.space, name, pull)?).await
    }

    /// Sends a live message to whoever listens now. Never waits; without a connection it is lost.
    pub fn cast<T: Wire>(&self, topic: &Topic<T>, message: &T) -> Result<(), BusError> {
        let payload = self.core.encode(topic.as_str(), message)?;
        match &self.core.backend {
            Backend::Nats(link) => link.cast(topic.as_str(), T::NAME, payload),
            Backend::Local(local) => local.cast(topic.as_str(), T::NAME, &payload),
        }
        Ok(())
    }

    /// Listens to a topic; what is cast after this returned arrives or is reported as a gap.
    pub async fn listen<T: Wire>(&self, topic: &Topic<T>) -> Result<Listener<T>, BusError> {
        self.listen_all(vec![topic.as_str().to_owned()]).await
    }

    /// Hears transitions of these kinds as they are published, every listener each of them. Lossy:
    /// a reader that shows them reads the runelog after a gap.
    pub async fn listen_transitions(&self, kinds: &[&str]) -> Result<Listener<Rune>, BusError> {
        let pattern = |kind: &&str| self.core.space.transition_pattern(kind);
        self.listen_all(kinds.iter().map(pattern).collect::<Result<_, _>>()?).await
    }

    /// Hears every transition of one session as it is published. Lossy, as above.
    pub async fn listen_session(&self, session: &str) -> Result<Listener<Rune>, BusError> {
        self.listen_all(self.core.space.session_patterns(session)?).await
    }

    fn outgoing<T: Wire>(&self, subject: &Subject<T>, message: &T, stamp: Stamp<'_>) -> Result<Outgoing, BusError> {
        let payload = self.core.encode(subject.as_str(), message)?;
        Outgoing::new(subject.as_str(), T::NAME, payload, stamp)
    }

    async fn consume<T: Wire>(&self, spec: ConsumerSpec) -> Result<Deliveries<T>, BusError> {
        let deliveries_max = spec.pull.deliveries_max;
        let source = match &self.core.backend {
            Backend::Nats(link) => Source::Nats(Box::new(link.consume(spec).await?)),
            Backend::Local(local) => Source::Local(local.consume(spec)?),
        };
        Ok(Deliveries::new(self.core.clone(), source, deliveries_max))
    }

    async fn listen_all<T: Wire>(&self, patterns: Vec<String>) -> Result<Listener<T>, BusError> {
        let mailbox = Mailbox::new(self.core.options.mailbox_max);
        let pump = match &self.core.backend {
            Backend::Nats(link) => Some(link.listen(patterns, mailbox.clone()).await?),
            Backend::Local(local) => {
                local.listen(patterns, &mailbox);
                None
            }
        };
        Ok(Listener::new(self.core.clone(), mailbox, pump))
    }
}
