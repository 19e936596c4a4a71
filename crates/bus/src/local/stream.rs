//! One stream in memory: messages, remembered ids, and how far each consumer is.
//!
//! Pure bookkeeping under the caller's lock: it is told the time and never waits.
//! Must not know: tasks, timers, message types.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Wake;
use crate::consumer::{self, ConsumerSpec};
use crate::delivery::Decision;
use crate::error::BusError;
use crate::pattern;
use crate::publish::{Outgoing, Receipt};
use crate::topology::{Discard, Retention, StreamSpec};

pub(crate) struct Stored {
    pub(crate) subject: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) payload: Bytes,
    /// Microseconds since 1970 UTC.
    pub(crate) stored_at: i64,
    age_from: Instant,
}

pub(super) enum Take {
    Got {
        sequence: u64,
        deliveries: u64,
        stored: Arc<Stored>,
    },
    /// Nothing now; look again at that time or when woken.
    Wait(Option<Instant>),
}

struct Consumer {
    spec: ConsumerSpec,
    /// Not delivered yet, in order.
    ready: VecDeque<u64>,
    /// Delivered and undecided: how often, and when it comes again.
    pending: HashMap<u64, (u64, Instant)>,
    /// The same by time.
    due: BTreeSet<(Instant, u64)>,
    wake: Wake,
}

pub(super) struct Stream {
    spec: StreamSpec,
    last: u64,
    bytes: u64,
    messages: BTreeMap<u64, Arc<Stored>>,
    ids: HashMap<String, u64>,
    ids_by_age: VecDeque<(Instant, String)>,
    consumers: HashMap<String, Consumer>,
}

impl Stream {
    pub(super) fn new(spec: StreamSpec) -> Self {
        Self {
            spec,
            last: 0,
            bytes: 0,
            messages: BTreeMap::new(),
            ids: HashMap::new(),
            ids_by_age: VecDeque::new(),
            consumers: HashMap::new(),
        }
    }

    pub(super) fn takes(&self, subject: &str) -> bool {
        self.spec.subjects.iter().any(|pattern| pattern::matches(pattern, subject))
    }

    pub(super) fn publish(&mut self, out: Outgoing, now: Instant) -> Result<Receipt, BusError> {
        self.forget(now);
        if let Some(&sequence) = self.ids.get(&out.id).filter(|_| !out.id.is_empty()) {
            return Ok(Receipt { sequence, duplicate: true });
        }
        let bytes = out.payload.len() as u64;
        while self.bytes + bytes > self.spec.bytes_max {
            match (self.spec.discard, self.messages.keys().next().copied()) {
                (Discard::Old, Some(oldest)) => self.remove(oldest),
                _ => return Err(BusError::Full { subject: out.subject }),
            }
        }

        self.last += 1;
        let sequence = self.last;
        if !out.id.is_empty() {
            self.ids.insert(out.id.clone(), sequence);
            self.ids_by_age.push_back((now, out.id));
        }
        for consumer in self.consumers.values_mut() {
            if wants(&consumer.spec, &out.subject) {
                consumer.ready.push_back(sequence);
                consumer.wake.notify_one();
            }
        }
        self.bytes += bytes;
        let stored = Stored {
            subject: out.subject,
            headers: out.headers,
            payload: out.payload,
            stored_at: micros(),
            age_from: now,
        };
        self.messages.insert(sequence, Arc::new(stored));
        Ok(Receipt { sequence, duplicate: false })
    }

    /// Makes sure of a consumer; those who join under the same name share its messages.
    pub(super) fn join(&mut self, spec: &ConsumerSpec) -> Result<Wake, BusError> {
        if self.spec.retention == Retention::WorkQueue {
            for other in self.consumers.values() {
                if let Some(subject) = consumer::overlap(spec, &other.spec) {
                    return Err(BusError::Overlap {
                        first: spec.name.clone(),
                        second: other.spec.name.clone(),
                        subject: subject.to_owned(),
                    });
                }
            }
        }
        if let Some(known) = self.consumers.get_mut(&spec.name) {
            let mut filters = known.spec.filters.clone();
            filters.extend(spec.filters.iter().filter(|it| !known.spec.filters.contains(it)).cloned());
            known.spec = ConsumerSpec { filters, ..spec.clone() };
            return Ok(known.wake.clone());
        }
        let wanted = self.messages.iter().filter(|(_, it)| wants(spec, &it.subject));
        let consumer = Consumer {
            spec: spec.clone(),
            ready: wanted.map(|(sequence, _)| *sequence).collect(),
            pending: HashMap::new(),
            due: BTreeSet::new(),
            wake: Arc::new(Notify::new()),
        };
        let wake = consumer.wake.clone();
        self.consumers.insert(spec.name.clone(), consumer);
        Ok(wake)
    }

    pub(super) fn take(&mut self, name: &str, now: Instant) -> Take {
        self.forget(now);
        let Some(consumer) = self.consumers.get_mut(name) else { return Take::Wait(None) };
        // What was promised to come again comes before what is new.
        while let Some(&(due, sequence)) = consumer.due.first() {
            if due > now {
                break;
            }
            consumer.due.pop_first();
            let deliveries = consumer.pending.remove(&sequence).map_or(1, |(n, _)| n + 1);
            if let Some(stored) = self.messages.get(&sequence) {
                consumer.hold(sequence, deliveries, now);
                return Take::Got { sequence, deliveries, stored: stored.clone() };
            }
        }
        while consumer.pending.len() < consumer.spec.pull.ack_pending_max {
            let Some(sequence) = consumer.ready.pop_front() else { break };
            if let Some(stored) = self.messages.get(&sequence) {
                consumer.hold(sequence, 1, now);
                return Take::Got { sequence, deliveries: 1, stored: stored.clone() };
            }
        }
        Take::Wait(consumer.due.first().map(|(due, _)| *due))
    }

    pub(super) fn decide(&mut self, name: &str, sequence: u64, decision: Decision, now: Instant) {
        let Some(consumer) = self.consumers.get_mut(name) else { return };
        let Some(&(deliveries, due)) = consumer.pending.get(&sequence) else { return };
        consumer.due.remove(&(due, sequence));
        let room = consumer.pending.len() >= consumer.spec.pull.ack_pending_max;
        let wake = consumer.wake.clone();
        match decision {
            Decision::Ack | Decision::Term => {
                consumer.pending.remove(&sequence);
                if self.spec.retention == Retention::WorkQueue {
                    self.remove(sequence);
                }
            }
            Decision::Progress => {
                let due = now + consumer.spec.pull.ack_wait;
                consumer.again(sequence, deliveries, due);
            }
            Decision::Nak(delay) => consumer.again(sequence, deliveries, now + delay),
        }
        if room {
            wake.notify_one();
        }
    }

    fn remove(&mut self, sequence: u64) {
        if let Some(stored) = self.messages.remove(&sequence) {
            self.bytes -= stored.payload.len() as u64;
        }
    }

    fn forget(&mut self, now: Instant) {
        while let Some((_, stored)) = self.messages.first_key_value() {
            if now.duration_since(stored.age_from) < self.spec.age_max {
                break;
            }
            if let Some((_, stored)) = self.messages.pop_first() {
                self.bytes -= stored.payload.len() as u64;
            }
        }
        while let Some((seen, _)) = self.ids_by_age.front() {
            if now.duration_since(*seen) < self.spec.duplicate_window {
                break;
            }
            if let Some((_, id)) = self.ids_by_age.pop_front() {
                self.ids.remove(&id);
            }
        }
    }
}

impl Consumer {
    fn hold(&mut self, sequence: u64, deliveries: u64, now: Instant) {
        self.again(sequence, deliveries, now + self.spec.pull.ack_wait);
    }

    fn again(&mut self, sequence: u64, deliveries: u64, due: Instant) {
        // Something comes sooner than those who wait have set their timers to. Rare under load, where
        // an earlier one is nearly always pending.
        if self.due.first().is_none_or(|(first, _)| due < *first) {
            self.wake.notify_waiters();
        }
        self.pending.insert(sequence, (deliveries, due));
        self.due.insert((due, sequence));
    }
}

fn wants(spec: &ConsumerSpec, subject: &str) -> bool {
    spec.filters.iter().any(|filter| pattern::matches(filter, subject))
}

#[expect(clippy::disallowed_methods, reason = "a bus within one process")]
fn micros() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
