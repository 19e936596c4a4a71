//! What was told lately: a hint that is on its way, or waits in a full queue, is not repeated at
//! every look.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// From one telling to the next, doubled each time: what many tellings did not move waits for something
/// else.
const SPACING: Duration = Duration::from_secs(5);
const SPACING_MAX: Duration = Duration::from_secs(30);
const KNOWN_MAX: usize = 100_000;

/// Why something is told of. One reason does not keep another quiet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Why {
    /// Nobody has it any more: it can wait for nothing but the one who hears of it.
    OwnerLost,
    /// Its owner lives, and wrote nothing for a while.
    Quiet,
    /// It could go on, and does not.
    Idle,
}

impl Why {
    fn spacing_max(self) -> Duration {
        match self {
            Why::OwnerLost => SPACING,
            Why::Quiet | Why::Idle => SPACING_MAX,
        }
    }
}

/// What, in which epoch or version, was told for which reason and when, and how long that keeps it quiet.
type Told = HashMap<(Why, Uuid, i64), (Instant, Duration)>;

#[derive(Clone, Default)]
pub(crate) struct Repeats(Arc<Mutex<Told>>);

impl Repeats {
    /// Whether to tell of this now; if so, that is noted. A new epoch or version is a new thing to tell.
    pub(crate) fn due(&self, why: Why, id: Uuid, epoch: i64) -> bool {
        self.due_at(Instant::now(), why, id, epoch)
    }

    fn due_at(&self, now: Instant, why: Why, id: Uuid, epoch: i64) -> bool {
        let id = (why, id, epoch);
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() >= KNOWN_MAX {
            told.retain(|_, (at, spacing)| now - *at < *spacing);
        }
        match told.get(&id) {
            Some((at, spacing)) if now - *at < *spacing => false,
            told_before => {
                let spacing = told_before.map_or(SPACING, |(_, spacing)| (*spacing * 2).min(why.spacing_max()));
                told.insert(id, (now, spacing));
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_thing_is_told_once_within_the_spacing() {
        let (repeats, why) = (Repeats::default(), Why::Idle);
        let (one, two) = (Uuid::from_u128(1), Uuid::from_u128(2));
        assert_eq!([repeats.due(why, one, 1), repeats.due(why, one, 1), repeats.due(why, two, 1)], [true, false, true]);
        assert!(repeats.due(why, one, 2), "it has moved since");
    }

    /// The seconds at which something is told of that is looked at every second.
    fn told(repeats: &Repeats, begun: Instant, why: Why, seconds: std::ops::Range<u64>) -> Vec<u64> {
        let due = |at: &u64| repeats.due_at(begun + Duration::from_secs(*at), why, Uuid::from_u128(1), 1);
        seconds.filter(due).collect()
    }

    #[test]
    fn a_turn_that_was_long_quiet_is_told_of_at_once_when_its_owner_is_lost_and_soon_again() {
        let (repeats, begun) = (Repeats::default(), Instant::now());
        assert_eq!(told(&repeats, begun, Why::Quiet, 0..100), [0, 5, 15, 35, 65, 95]);
        assert_eq!(told(&repeats, begun, Why::OwnerLost, 100..120), [100, 105, 110, 115]);
    }
}
