//! The streams as data, and what may be done when the server has something else.
//!
//! Only what loses nothing is applied by itself: a missing stream, a further subject, a larger
//! limit. Everything else is a difference that a person resolves; nothing is ever deleted.
//! Must not know: async-nats.

use std::fmt;
use std::time::Duration;

use crate::subject::Namespace;

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const MIB: u64 = 1024 * 1024;

/// What a stream is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    Transition,
    Work,
    Dead,
}

impl Role {
    pub const fn token(self) -> &'static str {
        match self {
            Self::Transition => "transition",
            Self::Work => "work",
            Self::Dead => "dead",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retention {
    /// Messages stay until age or size removes them.
    Limits,
    /// A message is removed when it is acknowledged.
    WorkQueue,
    /// Not one of ours; only ever found on a server.
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discard {
    /// A full stream drops its oldest messages.
    Old,
    /// A full stream refuses new messages, loudly.
    New,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    File,
    Memory,
}

/// How much each stream may hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamLimits {
    pub transition_age_max: Duration,
    pub transition_bytes_max: u64,
    pub work_age_max: Duration,
    pub work_bytes_max: u64,
    pub dead_age_max: Duration,
    pub dead_bytes_max: u64,
    /// How long a message id is remembered. Longer than the scheduler waits before it publishes
    /// again, so that its repeats are recognised.
    pub duplicate_window: Duration,
    /// Copies of each stream in a NATS cluster.
    pub replicas: usize,
}

impl Default for StreamLimits {
    fn default() -> Self {
        Self {
            transition_age_max: 3 * DAY,
            transition_bytes_max: 1024 * MIB,
            work_age_max: DAY,
            work_bytes_max: 256 * MIB,
            dead_age_max: 30 * DAY,
            dead_bytes_max: 256 * MIB,
            duplicate_window: 2 * MINUTE,
            replicas: 1,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamSpec {
    pub role: Role,
    pub name: String,
    pub subjects: Vec<String>,
    pub retention: Retention,
    pub discard: Discard,
    pub storage: Storage,
    pub age_max: Duration,
    pub bytes_max: u64,
    pub duplicate_window: Duration,
    pub replicas: usize,
    /// Whether subjects we don't declare may stay if they lie in our namespace. Rune kinds grow from
    /// version to version and two versions share the stream during an upgrade, so the older one
    /// must neither remove nor refuse what the newer one added.
    pub open: bool,
}

/// All streams of a namespace.
pub fn streams(space: &Namespace, limits: &StreamLimits) -> Vec<StreamSpec> {
    let root = space.root();
    let spec = |role: Role, subjects| StreamSpec {
        role,
        name: space.stream(role.token()),
        subjects,
        retention: Retention::Limits,
        discard: Discard::Old,
        storage: Storage::File,
        age_max: limits.transition_age_max,
        bytes_max: limits.transition_bytes_max,
        duplicate_window: limits.duplicate_window,
        replicas: limits.replicas,
        open: false,
    };
    vec![
        StreamSpec { open: true, ..spec(Role::Transition, space.transitions()) },
        StreamSpec {
            retention: Retention::WorkQueue,
            discard: Discard::New,
            // Hints, which rows make good: a server that restarts without them loses a moment, and storing them
            // would cost more than all that is done with them.
            storage: Storage::Memory,
            age_max: limits.work_age_max,
            bytes_max: limits.work_bytes_max,
            ..spec(Role::Work, vec![format!("{root}.work.>"), format!("{root}.owner.>")])
        },
        StreamSpec {
            age_max: limits.dead_age_max,
            bytes_max: limits.dead_bytes_max,
            ..spec(Role::Dead, vec![format!("{root}.dead.>")])
        },
    ]
}

/// One property of a stream that is not as declared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    pub property: &'static str,
    pub declared: String,
    pub found: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {} but should be {}", self.property, self.found, self.declared)
    }
}

/// What to do about a stream that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    Keep,
    /// Additive changes only: the stream as it shall be.
    Extend(Box<StreamSpec>),
    Refuse(Vec<Difference>),
}

/// Compares a declared stream with the one the server has.
pub fn plan(space: &Namespace, declared: &StreamSpec, found: &StreamSpec) -> Plan {
    let mut differences = Vec::new();
    let mut differ = |property, declared: String, found: String| {
        differences.push(Difference { property, declared, found });
    };
    if found.retention != declared.retention {
        differ("retention", debug(&declared.retention), debug(&found.retention));
    }
    if found.discard != declared.discard {
        differ("discard", debug(&declared.discard), debug(&found.discard));
    }
    if found.storage != declared.storage {
        differ("storage", debug(&declared.storage), debug(&found.storage));
    }
    if found.replicas != declared.replicas {
        differ("replicas", debug(&declared.replicas), debug(&found.replicas));
    }
    if found.age_max > declared.age_max {
        differ("max_age", debug(&declared.age_max), debug(&found.age_max));
    }
    if found.bytes_max > declared.bytes_max {
        differ("max_bytes", debug(&declared.bytes_max), debug(&found.bytes_max));
    }
    if found.duplicate_window > declared.duplicate_window {
        let (declared, found) = (declared.duplicate_window, found.duplicate_window);
        differ("duplicate_window", debug(&declared), debug(&found));
    }
    for extra in found.subjects.iter().filter(|subject| !declared.subjects.contains(subject)) {
        if !(declared.open && space.owns(extra)) {
            differ("a subject", "absent".into(), extra.clone());
        }
    }
    if !differences.is_empty() {
        return Plan::Refuse(differences);
    }

    let mut subjects = found.subjects.clone();
    subjects.extend(declared.subjects.iter().filter(|it| !found.subjects.contains(it)).cloned());
    let wanted = StreamSpec { subjects, ..declared.clone() };
    if wanted == (StreamSpec { open: declared.open, ..found.clone() }) {
        Plan::Keep
    } else {
        Plan::Extend(Box::new(wanted))
    }
}

fn debug(value: &impl fmt::Debug) -> String {
    format!("{value:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(kinds: &[&'static str]) -> (Namespace, Vec<StreamSpec>) {
        let space = Namespace::new("instar", kinds.iter().copied()).unwrap();
        let streams = streams(&space, &StreamLimits::default());
        (space, streams)
    }

    #[test]
    fn no_two_streams_take_the_same_subject() {
        let (_, streams) = declared(&["turn.completed", "tool.call", "turn.completed.late"]);
        let all: Vec<_> = streams.iter().flat_map(|stream| &stream.subjects).collect();
        for (i, one) in all.iter().enumerate() {
            for other in &all[i + 1..] {
                assert!(!crate::pattern::overlap(one, other), "{one} and {other}");
            }
        }
    }

    #[test]
    fn an_unchanged_stream_is_kept() {
        let (space, streams) = declared(&["turn.completed"]);
        for stream in &streams {
            assert_eq!(plan(&space, stream, stream), Plan::Keep);
        }
    }

    #[test]
    fn a_new_kind_and_a_larger_limit_are_added() {
        let (_, old) = declared(&["turn.completed"]);
        let (space, mut new) = declared(&["turn.completed", "turn.failed"]);
        new[0].bytes_max *= 2;
        let Plan::Extend(wanted) = plan(&space, &new[0], &old[0]) else { panic!() };
        assert_eq!(wanted.subjects, ["instar.v1.turn.completed.*", "instar.v1.turn.failed.*"]);
        assert_eq!(wanted.bytes_max, new[0].bytes_max);
    }

    #[test]
    fn an_older_version_leaves_the_kinds_of_a_newer_one_alone() {
        let (space, old) = declared(&["turn.completed"]);
        let (_, new) = declared(&["turn.completed", "turn.failed"]);
        assert_eq!(plan(&space, &old[0], &new[0]), Plan::Keep);
    }

    #[test]
    fn what_could_lose_messages_is_refused_with_every_difference() {
        let (space, streams) = declared(&["turn.completed"]);
        let work = &streams[1];
        let mut found = work.clone();
        found.retention = Retention::Limits;
        found.storage = Storage::File;
        found.bytes_max += 1;
        found.subjects.push("instar.v1.extra.>".into());
        let Plan::Refuse(differences) = plan(&space, work, &found) else { panic!() };
        let properties: Vec<_> = differences.iter().map(|it| it.property).collect();
        assert_eq!(properties, ["retention", "storage", "max_bytes", "a subject"]);
        assert_eq!(differences[0].to_string(), "retention is Limits but should be WorkQueue");
    }

    #[test]
    fn a_foreign_subject_on_an_open_stream_is_refused() {
        let (space, streams) = declared(&["turn.completed"]);
        let mut found = streams[0].clone();
        found.subjects.push("other.v1.turn.*".into());
        assert!(matches!(plan(&space, &streams[0], &found), Plan::Refuse(_)));
    }
}
