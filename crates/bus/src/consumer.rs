//! Consumers as data: who reads which part of which stream, and how patiently.
//!
//! On a work queue the filters of two consumers must not overlap. They don't by construction: the
//! consumer of a lane, class or worker filters exactly its own subject, and is named after it.
//! Must not know: async-nats, message types.

use std::time::Duration;

use crate::error::SubjectError;
use crate::subject::{Namespace, token};
use crate::topology::Role;

/// How a consumer pulls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pull {
    /// A delivery without a decision or a sign of progress for this long comes again.
    pub ack_wait: Duration,
    /// Undecided deliveries over all instances of this consumer; at this many it pauses.
    pub ack_pending_max: usize,
    /// Messages asked for ahead of `next`. They wait in this process and their `ack_wait` runs.
    pub prefetch: usize,
    /// No message and no heartbeat for this long on a live connection: the consumer is rebuilt.
    pub silence_max: Duration,
    /// A message delivered more often than this goes to the dead letters: whatever it meant, the
    /// database knows and the scheduler sends it again.
    pub deliveries_max: u64,
}

impl Default for Pull {
    fn default() -> Self {
        Self {
            ack_wait: Duration::from_secs(30),
            ack_pending_max: 4096,
            prefetch: 32,
            silence_max: Duration::from_secs(10),
            deliveries_max: 1000,
        }
    }
}

/// How long the consumer of a worker that is gone stays on the server.
const OWNER_IDLE: Duration = Duration::from_secs(10 * 60);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerSpec {
    pub role: Role,
    /// Durable name: instances that use the same one share the messages.
    pub name: String,
    pub filters: Vec<String>,
    /// Removed by the server after this long without an instance.
    pub idle_max: Option<Duration>,
    pub pull: Pull,
}

impl ConsumerSpec {
    pub fn work_turn(space: &Namespace, lane: &str, pull: Pull) -> Result<Self, SubjectError> {
        let filter = space.work_turn(lane)?.as_str().to_owned();
        Ok(Self::work(format!("turn-{lane}"), filter, None, pull))
    }

    pub fn work_tool(space: &Namespace, class: &str, pull: Pull) -> Result<Self, SubjectError> {
        let filter = space.work_tool(class)?.as_str().to_owned();
        Ok(Self::work(format!("tool-{class}"), filter, None, pull))
    }

    pub fn owner_turn(space: &Namespace, worker: &str, pull: Pull) -> Result<Self, SubjectError> {
        let filter = space.owner_turn(worker)?.as_str().to_owned();
        Ok(Self::work(format!("owner-{worker}"), filter, Some(OWNER_IDLE), pull))
    }

    /// Reads transitions of `kinds` from the oldest kept one on; `name` keeps the place.
    pub fn transition(space: &Namespace, name: &str, kinds: &[&str], pull: Pull) -> Result<Self, SubjectError> {
        let filters = kinds.iter().map(|kind| space.transition_pattern(kind)).collect::<Result<_, _>>()?;
        let name = format!("reader-{}", token("reader", name)?);
        Ok(Self { role: Role::Transition, name, filters, idle_max: None, pull })
    }

    pub fn dead(space: &Namespace, name: &str, pull: Pull) -> Result<Self, SubjectError> {
        let name = format!("dead-{}", token("reader", name)?);
        let filters = vec![format!("{}.dead.*", space.root())];
        Ok(Self { role: Role::Dead, name, filters, idle_max: None, pull })
    }

    fn work(name: String, filter: String, idle_max: Option<Duration>, pull: Pull) -> Self {
        Self { role: Role::Work, name, filters: vec![filter], idle_max, pull }
    }
}

/// A subject both consumers would receive.
pub(crate) fn overlap<'a>(one: &'a ConsumerSpec, other: &ConsumerSpec) -> Option<&'a str> {
    let meets = |filter: &&String| other.filters.iter().any(|it| crate::pattern::overlap(filter.as_str(), it));
    (one.role == other.role && one.name != other.name)
        .then(|| one.filters.iter().find(meets).map(String::as_str))
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consumers_of_the_work_queue_never_share_a_subject() {
        let space = Namespace::new("instar", []).unwrap();
        // Names chosen to collide if one were built carelessly.
        let names = ["turn", "tool", "default", "owner", "w-1", "w_1"];
        let specs: Vec<_> = names
            .iter()
            .flat_map(|name| {
                [
                    ConsumerSpec::work_turn(&space, name, Pull::default()).unwrap(),
                    ConsumerSpec::work_tool(&space, name, Pull::default()).unwrap(),
                    ConsumerSpec::owner_turn(&space, name, Pull::default()).unwrap(),
                ]
            })
            .collect();
        for (i, one) in specs.iter().enumerate() {
            for other in &specs[i + 1..] {
                assert_ne!(one.name, other.name);
                assert_eq!(overlap(one, other), None);
            }
        }
    }
}
