//! Lifecycle × drive: an agent has one state of each, never one merged status.

use crate::decide::NUDGES_MAX;
use crate::machine::agent_drive::State as Drive;
use crate::machine::agent_lifecycle::State as Lifecycle;

/// How long a turn may outlive the stop that ends it.
pub const STOP_GRACE_MS: u32 = 5_000;

/// The drives each lifecycle may have. A drive is deleted only after the lifecycle has ended.
pub static PAIRS: &[(Lifecycle, &[Drive])] = &[
    (Lifecycle::Spawning, &[Drive::Idle, Drive::Running, Drive::Stopped]),
    (Lifecycle::Idle, &[Drive::Idle, Drive::Running, Drive::Stopped, Drive::Errored]),
    (Lifecycle::RunningTurn, &[Drive::Running, Drive::Stopped]),
    (Lifecycle::Terminated, &[Drive::Stopped, Drive::Errored, Drive::Deleted]),
    (Lifecycle::Failed, &[Drive::Errored, Drive::Deleted]),
];

pub fn pair_allowed(lifecycle: &str, drive: &str) -> bool {
    let (Some(lifecycle), Some(drive)) = (Lifecycle::parse(lifecycle), Drive::parse(drive)) else {
        return false;
    };
    PAIRS.iter().any(|(l, drives)| *l == lifecycle && drives.contains(&drive))
}

/// Allowed, but only for [`STOP_GRACE_MS`]: the stop is durable before the turn it cancels has ended.
pub fn pair_transient(lifecycle: &str, drive: &str) -> bool {
    lifecycle == Lifecycle::RunningTurn.token() && drive == Drive::Stopped.token()
}

/// The one word for people: of the two states, the one that explains most. A spawning agent shows
/// what its drive says.
pub fn badge(lifecycle: &str, drive: &str) -> &'static str {
    let ended = [Lifecycle::Terminated, Lifecycle::Failed];
    let held = [Drive::Errored, Drive::Stopped];
    let token = |state: Drive| (state.token() == drive).then(|| state.token());
    let life = |state: Lifecycle| (state.token() == lifecycle).then(|| state.token());
    token(Drive::Deleted)
        .or_else(|| ended.into_iter().find_map(life))
        .or_else(|| held.into_iter().find_map(token))
        .or_else(|| life(Lifecycle::RunningTurn))
        .or_else(|| token(Drive::Running))
        .unwrap_or(Drive::Idle.token())
}

/// Why nothing more comes of the agent until a person looks at it: it erred, or it rests because it has caused as much
/// today as it may (`full`), because its nudges led to nothing, or because it and others only wrote to each other. A start
/// or a message of a person sets the last two counts back. An agent that a letter wakes is running: one that rests and has
/// had some was put to rest.
pub fn attention(drive: &str, full: bool, nudge_count: i64, letter_count: i64) -> Option<&'static str> {
    if drive == Drive::Errored.token() {
        return Some("error");
    }
    let whys = [(full, "daily_limit"), (nudge_count >= NUDGES_MAX, "nudge_limit"), (letter_count > 0, "letter_limit")];
    whys.into_iter().find(|(holds, _)| *holds && drive == Drive::Idle.token()).map(|(_, why)| why)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows spawning, idle, running_turn, terminated, failed; columns as the drive lists them.
    const EXPECTED: [(&str, [bool; 5], [&str; 5]); 5] = [
        ("spawning", [true, true, true, false, false], ["idle", "running", "stopped", "errored", "deleted"]),
        ("idle", [true, true, true, true, false], ["idle", "running", "stopped", "errored", "deleted"]),
        (
            "running_turn",
            [false, true, true, false, false],
            ["running_turn", "running_turn", "stopped", "errored", "deleted"],
        ),
        (
            "terminated",
            [false, false, true, true, true],
            ["terminated", "terminated", "terminated", "terminated", "deleted"],
        ),
        ("failed", [false, false, false, true, true], ["failed", "failed", "failed", "failed", "deleted"]),
    ];

    #[test]
    fn every_pair_of_lifecycle_and_drive_is_answered_as_specified() {
        for (lifecycle, allowed, badges) in EXPECTED {
            for (i, drive) in ["idle", "running", "stopped", "errored", "deleted"].into_iter().enumerate() {
                assert_eq!(pair_allowed(lifecycle, drive), allowed[i], "{lifecycle} × {drive}");
                assert_eq!(badge(lifecycle, drive), badges[i], "{lifecycle} × {drive}");
            }
        }
        assert_eq!((EXPECTED.len(), Drive::ALL.len()), (Lifecycle::ALL.len(), 5));
    }

    #[test]
    fn only_a_turn_that_is_being_stopped_is_transient() {
        for l in Lifecycle::ALL {
            for d in Drive::ALL {
                let transient = pair_transient(l.token(), d.token());
                assert_eq!(transient, (l.token(), d.token()) == ("running_turn", "stopped"));
                assert!(!transient || pair_allowed(l.token(), d.token()));
            }
        }
    }

    #[test]
    fn a_word_that_is_no_state_is_never_allowed() {
        assert!(!pair_allowed("idle", "asleep"));
        assert!(!pair_allowed("", "idle"));
    }
}
