//! A message in the hands of a handler, who decides exactly once what becomes of it.
//!
//! A delivery that is dropped undecided (the handler returned early, panicked, was cancelled) goes
//! back, so that forgetting can't lose work.
//! Must not know: which implementation delivered it, what the message means.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::bus::Core;
use crate::dead;
use crate::error::BusError;
use crate::publish::{MESSAGE_TYPE, TRACEPARENT};
use crate::topology::Role;
use crate::{local, nats};

/// What becomes of a delivered message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    Ack,
    /// Deliver it again, after this long.
    Nak(Duration),
    /// Keep waiting: the `ack_wait` starts anew.
    Progress,
    /// Never deliver it again.
    Term,
}

pub(crate) enum Ticket {
    Nats(nats::Ticket),
    Local(local::Ticket),
    /// Nobody waits for a decision.
    Found,
}

impl Ticket {
    async fn decide(&self, decision: Decision) -> Result<(), BusError> {
        match self {
            Self::Nats(ticket) => ticket.decide(decision).await,
            Self::Local(ticket) => {
                ticket.decide(decision);
                Ok(())
            }
            Self::Found => Ok(()),
        }
    }

    /// Without waiting and without a runtime, for `Drop`.
    fn give_back(&self, delay: Duration) {
        match self {
            Self::Nats(ticket) => ticket.give_back(delay),
            Self::Local(ticket) => ticket.decide(Decision::Nak(delay)),
            Self::Found => {}
        }
    }
}

/// A delivered message before it is decoded.
pub(crate) struct Parcel {
    pub(crate) role: Role,
    pub(crate) subject: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) payload: Bytes,
    pub(crate) deliveries: u64,
    /// Names this message among all that the stream ever held.
    pub(crate) origin: String,
    /// When the stream stored it: microseconds since 1970 UTC.
    pub(crate) stored_at: i64,
    pub(crate) ticket: Ticket,
}

impl Parcel {
    /// Of no stream.
    pub(crate) fn found() -> Self {
        Self {
            role: Role::Work,
            subject: String::new(),
            headers: Vec::new(),
            payload: Bytes::new(),
            deliveries: 1,
            origin: String::new(),
            stored_at: 0,
            ticket: Ticket::Found,
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(it, _)| it == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn message_type(&self) -> Option<&str> {
        self.header(MESSAGE_TYPE)
    }
}

/// A parcel that goes back by itself unless somebody decided.
pub(crate) struct Held {
    pub(crate) parcel: Parcel,
    core: Arc<Core>,
    decided: bool,
}

impl Held {
    pub(crate) fn new(parcel: Parcel, core: Arc<Core>) -> Self {
        Self { parcel, core, decided: false }
    }

    pub(crate) async fn decide(&mut self, decision: Decision) -> Result<(), BusError> {
        self.parcel.ticket.decide(decision).await?;
        // Only now: a decision whose sending was cancelled leaves the parcel undecided.
        self.decided = decision != Decision::Progress;
        Ok(())
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.decided {
            self.core.counters.returned.add(1);
            self.parcel.ticket.give_back(drop_delay(self.parcel.deliveries));
        }
    }
}

/// At once the first time, then ever later: a handler that panics on a message must not spin on it.
fn drop_delay(deliveries: u64) -> Duration {
    match deliveries {
        0 | 1 => Duration::ZERO,
        n => Duration::from_millis(100 << (n - 2).min(7)).min(Duration::from_secs(10)),
    }
}

/// A decoded message and the duty to decide: [`ack`](Self::ack), [`nak`](Self::nak) or
/// [`dead_letter`](Self::dead_letter). Dropping it gives it back.
#[must_use = "a dropped delivery comes again"]
pub struct Delivery<T> {
    value: T,
    held: Held,
}

impl<T> Delivery<T> {
    pub(crate) fn new(value: T, held: Held) -> Self {
        Self { value, held }
    }

    pub fn value(&self) -> &T {
        &self.value
    }

    pub fn subject(&self) -> &str {
        &self.held.parcel.subject
    }

    /// How often this message was delivered, this time included.
    pub fn deliveries(&self) -> u64 {
        self.held.parcel.deliveries
    }

    pub fn traceparent(&self) -> Option<&str> {
        self.held.parcel.header(TRACEPARENT)
    }

    /// Claimed, finished or moot: it doesn't come again. An error means that it may.
    pub async fn ack(mut self) -> Result<(), BusError> {
        self.held.decide(Decision::Ack).await
    }

    /// Not now: it comes again after `delay`, to whoever is free then.
    pub async fn nak(mut self, delay: Duration) -> Result<(), BusError> {
        self.held.decide(Decision::Nak(delay)).await
    }

    /// Still at it: `ack_wait` starts anew.
    pub async fn progress(&mut self) -> Result<(), BusError> {
        self.held.decide(Decision::Progress).await
    }

    /// Can never be handled: kept in the dead-letter stream with the reason, and not delivered again.
    pub async fn dead_letter(self, reason: &str) -> Result<(), BusError> {
        dead::bury(self.held, reason).await
    }
}

impl<T> Deref for Delivery<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Delivery<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Delivery")
            .field("value", &self.value)
            .field("subject", &self.subject())
            .field("deliveries", &self.deliveries())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_is_dropped_again_and_again_comes_ever_later_up_to_a_limit() {
        let delays: Vec<_> = (1..=12).map(drop_delay).collect();
        assert_eq!(delays[0], Duration::ZERO);
        assert!(delays.is_sorted());
        assert_eq!(delays[11], Duration::from_secs(10));
        assert_eq!(drop_delay(u64::MAX), Duration::from_secs(10));
    }
}
