//! What was told lately: a hint that is on its way, or waits in a full queue, is not repeated at
//! every look.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// From one telling to the next, doubled each time: what many tellings did not move waits for something
/// else.
const SPACING: Duration = Duration::from_secs(5);
const SPACING_MAX: Duration = Duration::from_secs(300);
const KNOWN_MAX: usize = 100_000;

/// What, in which epoch, was told when, and how long that keeps it quiet.
type Told = HashMap<(Uuid, i64), (Instant, Duration)>;

#[derive(Clone, Default)]
pub(crate) struct Repeats(Arc<Mutex<Told>>);

impl Repeats {
    /// Whether to tell of this now; if so, that is noted. A new epoch is a new thing to tell.
    pub(crate) fn due(&self, id: Uuid, epoch: i64) -> bool {
        let (id, now) = ((id, epoch), Instant::now());
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() >= KNOWN_MAX {
            told.retain(|_, (at, spacing)| now - *at < *spacing);
        }
        match told.get(&id) {
            Some((at, spacing)) if now - *at < *spacing => false,
            told_before => {
                let spacing = told_before.map_or(SPACING, |(_, spacing)| (*spacing * 2).min(SPACING_MAX));
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
        let repeats = Repeats::default();
        let (one, two) = (Uuid::from_u128(1), Uuid::from_u128(2));
        assert_eq!([repeats.due(one, 1), repeats.due(one, 1), repeats.due(two, 1)], [true, false, true]);
        assert!(repeats.due(one, 2), "it has moved since");
    }
}
