//! How often a key may be used: so many requests a second, and a second's worth at once.
//!
//! Each process counts for itself. It must not know what is asked for.

use crate::problem::Problem;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Keys that are counted; beyond this those that are not over their limit are forgotten.
const COUNTED_MAX: usize = 10_000;

pub(crate) struct Pace {
    /// 0: any number.
    per_second_max: u32,
    /// Until when what each key has asked for would take at the highest pace.
    busy_until: Mutex<HashMap<Uuid, Instant>>,
}

impl Pace {
    pub(crate) fn new(per_second_max: u32) -> Pace {
        Pace { per_second_max, busy_until: Mutex::default() }
    }

    /// Counts a request of this key, or refuses it.
    pub(crate) fn take(&self, key: Uuid, now: Instant) -> Result<(), Problem> {
        if self.per_second_max == 0 {
            return Ok(());
        }
        let mut busy_until = self.busy_until.lock().unwrap_or_else(PoisonError::into_inner);
        if busy_until.len() >= COUNTED_MAX {
            busy_until.retain(|_, until| *until > now);
        }
        let until = busy_until.get(&key).copied().unwrap_or(now).max(now);
        let next = until + Duration::from_secs(1) / self.per_second_max;
        if next > now + Duration::from_secs(1) {
            let what = format!("this key may make {} requests a second; wait a moment", self.per_second_max);
            return Err(Problem::too_many(&what, 1));
        }
        busy_until.insert(key, next);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_as_many_requests_as_it_may_and_each_key_its_own() {
        let (pace, now) = (Pace::new(4), Instant::now());
        let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let taken = (0..10).filter(|_| pace.take(one, now).is_ok()).count();
        assert_eq!(taken, 4);
        assert!(pace.take(other, now).is_ok());
        assert!(pace.take(one, now + Duration::from_millis(249)).is_err());
        assert!(pace.take(one, now + Duration::from_millis(251)).is_ok());
        let free = Pace::new(0);
        assert!((0..1_000).all(|_| free.take(one, now).is_ok()));
    }
}
