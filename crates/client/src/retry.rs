//! How often and how soon a request is made again.

use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub struct Retry {
    /// In all, the first one included.
    pub attempts: u32,
    /// Before the second one; each further pause is twice as long.
    pub first: Duration,
    pub pause_max: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Retry { attempts: 4, first: Duration::from_millis(100), pause_max: Duration::from_secs(5) }
    }
}

impl Retry {
    /// Each failure is the caller's.
    pub fn never() -> Retry {
        Retry { attempts: 1, ..Retry::default() }
    }

    pub(crate) fn pause(&self, failures: u32) -> Duration {
        let doubled = 1u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        self.first.saturating_mul(doubled).min(self.pause_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_limit() {
        let retry = Retry::default();
        assert_eq!([1, 2, 3].map(|n| retry.pause(n).as_millis()), [100, 200, 400]);
        assert_eq!(retry.pause(40), retry.pause_max);
    }
}
