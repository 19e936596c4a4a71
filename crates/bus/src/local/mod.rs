//! The bus inside one process: the same promises as NATS, kept by a lock and timers.
//!
//! It forgets everything with the process, like a broker whose data folder is deleted at each
//! start: the database brings back what was unfinished.
//! Must not know: message types.

mod source;
mod stream;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::consumer::ConsumerSpec;
use crate::error::BusError;
use crate::live::{Cast, Mailbox};
use crate::pattern;
use crate::publish::{Outgoing, Receipt};
use crate::stats::Counters;
use crate::topology::{Role, StreamSpec};

pub(crate) use source::{Source, Ticket};
use stream::Stream;

/// Memory is scarcer than disk: each stream holds at most this much, whatever its limit says.
const BYTES_MAX: u64 = 64 * 1024 * 1024;

struct Ear {
    /// What stands before a last token that may be anything: there may be one per kind of rune, and
    /// every message is held against them.
    any_last: HashSet<String>,
    others: Vec<String>,
    mailbox: Weak<Mailbox>,
}

impl Ear {
    fn new(patterns: Vec<String>, mailbox: &Arc<Mailbox>) -> Ear {
        let (mut any_last, mut others) = (HashSet::new(), Vec::new());
        for pattern in patterns {
            match pattern.strip_suffix(".*") {
                Some(before) if !before.contains(['*', '>']) => drop(any_last.insert(before.to_owned())),
                _ => others.push(pattern),
            }
        }
        Ear { any_last, others, mailbox: Arc::downgrade(mailbox) }
    }

    fn hears(&self, subject: &str) -> bool {
        subject.rsplit_once('.').is_some_and(|(before, _)| self.any_last.contains(before))
            || self.others.iter().any(|pattern| pattern::matches(pattern, subject))
    }
}

pub(crate) struct Local {
    streams: Vec<(Role, Mutex<Stream>)>,
    ears: Mutex<Vec<Ear>>,
    counters: Arc<Counters>,
}

impl Local {
    pub(crate) fn new(specs: Vec<StreamSpec>, counters: Arc<Counters>) -> Self {
        let stream = |mut spec: StreamSpec| {
            spec.bytes_max = spec.bytes_max.min(BYTES_MAX);
            (spec.role, Mutex::new(Stream::new(spec)))
        };
        let streams = specs.into_iter().map(stream).collect();
        Self { streams, ears: Mutex::default(), counters }
    }

    pub(crate) fn publish(&self, out: Outgoing) -> Result<Receipt, BusError> {
        let (subject, headers, payload) = (out.subject.clone(), out.headers.clone(), out.payload.clone());
        let result = self.store(out);
        self.counters.receipt(&result);
        if matches!(result, Ok(receipt) if !receipt.duplicate) {
            let name = headers.iter().find(|(name, _)| *name == crate::publish::MESSAGE_TYPE);
            self.shout(&subject, name.map(|(_, value)| value.as_str()), &payload);
        }
        result
    }

    fn store(&self, out: Outgoing) -> Result<Receipt, BusError> {
        for (_, stream) in &self.streams {
            let mut stream = lock(stream);
            if stream.takes(&out.subject) {
                return stream.publish(out, Instant::now());
            }
        }
        Err(BusError::NoStream { subject: out.subject })
    }

    pub(crate) fn consume(self: &Arc<Self>, spec: ConsumerSpec) -> Result<Source, BusError> {
        let wake = self.stream(spec.role)?.join(&spec)?;
        Ok(Source::new(self.clone(), spec, wake))
    }

    pub(crate) fn cast(&self, subject: &str, name: &str, payload: &Bytes) {
        self.shout(subject, Some(name), payload);
    }

    pub(crate) fn listen(&self, patterns: Vec<String>, mailbox: &Arc<Mailbox>) {
        let mut ears = lock(&self.ears);
        ears.retain(|ear| ear.mailbox.strong_count() > 0);
        ears.push(Ear::new(patterns, mailbox));
    }

    fn shout(&self, subject: &str, name: Option<&str>, payload: &Bytes) {
        for ear in lock(&self.ears).iter() {
            if let Some(mailbox) = ear.mailbox.upgrade().filter(|_| ear.hears(subject)) {
                let message_type = name.map(str::to_owned);
                if mailbox.put(Cast { message_type, payload: payload.clone() }) {
                    self.counters.dropped.add(1);
                }
            }
        }
    }

    fn stream(&self, role: Role) -> Result<MutexGuard<'_, Stream>, BusError> {
        let found = self.streams.iter().find(|(it, _)| *it == role);
        found.map(|(_, stream)| lock(stream)).ok_or(BusError::Closed)
    }
}

/// A panic elsewhere leaves the data whole, every change here is made in one piece: go on with it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

type Wake = Arc<Notify>;
