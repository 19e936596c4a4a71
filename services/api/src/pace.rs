//! How often something may be done: so many times within a while, and a while's worth at once.
//!
//! Each process counts for itself. It must not know what is counted.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Those that are counted; beyond this the ones that have done nothing lately are forgotten.
const COUNTED_MAX: usize = 10_000;

pub(crate) struct Pace<K> {
    /// 0: any number.
    most: u32,
    within: Duration,
    /// Until when what each has done would take at the highest pace.
    busy_until: Mutex<HashMap<K, Instant>>,
}

impl<K: Hash + Eq> Pace<K> {
    pub(crate) fn new(most: u32, within: Duration) -> Pace<K> {
        Pace { most, within, busy_until: Mutex::default() }
    }

    pub(crate) fn most(&self) -> u32 {
        self.most
    }

    /// Counts one more, or says how long to wait.
    pub(crate) fn take(&self, who: K, now: Instant) -> Result<(), Duration> {
        self.count(who, now, true)
    }

    /// Whether one more would be counted.
    pub(crate) fn has_room(&self, who: K, now: Instant) -> Result<(), Duration> {
        self.count(who, now, false)
    }

    fn count(&self, who: K, now: Instant, takes: bool) -> Result<(), Duration> {
        if self.most == 0 {
            return Ok(());
        }
        let mut busy_until = self.busy_until.lock().unwrap_or_else(PoisonError::into_inner);
        if busy_until.len() >= COUNTED_MAX {
            busy_until.retain(|_, until| *until > now);
        }
        let until = busy_until.get(&who).copied().unwrap_or(now).max(now);
        let next = until + self.within / self.most;
        if next > now + self.within {
            return Err(next - now - self.within);
        }
        if takes {
            busy_until.insert(who, next);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_while_has_as_many_as_it_may_and_everybody_their_own() {
        let (pace, now) = (Pace::new(4, SECOND), Instant::now());
        let taken = (0..10).filter(|_| pace.take("one", now).is_ok()).count();
        assert_eq!(taken, 4);
        assert!(pace.take("other", now).is_ok());
        assert_eq!(pace.has_room("one", now), Err(Duration::from_millis(250)));
        assert!(pace.take("one", now + Duration::from_millis(249)).is_err());
        assert!(pace.has_room("one", now + Duration::from_millis(251)).is_ok());
        assert!(pace.take("one", now + Duration::from_millis(251)).is_ok());
        assert!(pace.take("one", now + Duration::from_millis(251)).is_err(), "looking takes nothing, taking does");
        let free = Pace::new(0, SECOND);
        assert!((0..1_000).all(|_| free.take("one", now).is_ok()));
    }
}
