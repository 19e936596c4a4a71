//! When to try again, and when to let the caller park the turn instead.
//!
//! Must not know: HTTP beyond two headers, or what is being tried.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, SystemTime};

use crate::error::ModelError;

/// How often and how long. A sleeping worker holds a lease and a slot, so only short waits happen
/// here; longer ones are the caller's durable timer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    pub retries_max: u32,
    pub first: Duration,
    pub longest: Duration,
    pub inline_wait_max: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            retries_max: 2,
            first: Duration::from_millis(500),
            longest: Duration::from_secs(8),
            inline_wait_max: Duration::from_secs(2),
        }
    }
}

impl Retry {
    /// The wait before retry `number` (from 0): doubling, less up to a quarter. `chance` is 0..1.
    pub fn backoff(&self, number: u32, chance: f64) -> Duration {
        let grown = self.first.saturating_mul(1u32.checked_shl(number).unwrap_or(u32::MAX));
        grown.min(self.longest).mul_f64(1.0 - 0.25 * chance.clamp(0.0, 1.0))
    }

    /// Runs `attempt` until it succeeds, must not be repeated, or would have to wait too long. What
    /// fails for good says when it may be tried again.
    pub(crate) async fn run<T, F: Future<Output = Result<T, ModelError>>>(
        &self,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T, ModelError> {
        let mut number = 0;
        loop {
            let error = match attempt().await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            let wait = error.wait().unwrap_or_else(|| self.backoff(number, chance()));
            if !error.retryable() || number >= self.retries_max || wait > self.inline_wait_max {
                return Err(error.parked(wait));
            }
            metrics::counter!("instar.model.retries", "class" => error.class.as_str()).increment(1);
            tracing::debug!(class = error.class.as_str(), wait_ms = wait.as_millis() as u64, "model call retried");
            tokio::time::sleep(wait).await;
            number += 1;
        }
    }
}

/// What `retry-after-ms` or, failing that, `retry-after` says: seconds with fractions, or a date.
/// Nothing, or a value that is not above zero, means unknown.
pub(crate) fn retry_after(millis: Option<&str>, value: Option<&str>, now: SystemTime) -> Option<Duration> {
    let number = |text: Option<&str>| text?.trim().parse::<f64>().ok().filter(|number| number.is_finite());
    let from = |seconds: f64| (seconds > 0.0).then(|| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
    if let Some(millis) = number(millis) {
        return from(millis / 1000.0);
    }
    if let Some(seconds) = number(value) {
        return from(seconds);
    }
    let at = httpdate::parse_http_date(value?.trim()).ok()?;
    at.duration_since(now).ok().filter(|wait| !wait.is_zero())
}

/// A number of 0..1 that differs between workers. Spreading them needs no better chance than the
/// seed that the standard library draws for its maps.
pub fn chance() -> f64 {
    (random() >> 11) as f64 / (1u64 << 53) as f64
}

pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(0)
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::error::Class;

    #[test]
    fn waits_double_up_to_the_longest_and_lose_at_most_a_quarter() {
        let retry = Retry::default();
        let millis = |number, chance| retry.backoff(number, chance).as_millis();
        assert_eq!([0, 1, 2, 3, 4, 40].map(|n| millis(n, 0.0)), [500, 1000, 2000, 4000, 8000, 8000]);
        assert_eq!(millis(0, 1.0), 375);
        let drawn = chance();
        assert!((0.0..1.0).contains(&drawn));
    }

    #[test]
    fn the_wait_is_read_in_every_form() {
        let now = UNIX_EPOCH + Duration::from_secs(784_111_777);
        let read = |millis, value| retry_after(millis, value, now).map(|wait| wait.as_millis());
        assert_eq!(read(Some("1500"), Some("7")), Some(1500));
        assert_eq!(read(None, Some("7")), Some(7000));
        assert_eq!(read(None, Some("0.25")), Some(250));
        assert_eq!(read(None, Some("Sun, 06 Nov 1994 08:49:47 GMT")), Some(10_000));
        for unknown in ["", "0", "-1", "soon", "NaN", "Sun, 06 Nov 1994 08:49:00 GMT"] {
            assert_eq!(read(None, Some(unknown)), None, "{unknown}");
        }
        assert!(read(None, Some("1e300")).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_tried_three_times_and_then_parked() {
        let mut tries = 0;
        let outcome: Result<(), _> = Retry::default()
            .run(|| {
                tries += 1;
                async { Err(ModelError::transient("x")) }
            })
            .await;
        assert_eq!(tries, 3);
        assert!(outcome.unwrap_err().retry_in.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_wait_is_not_slept_here() {
        let started = tokio::time::Instant::now();
        let mut tries = 0;
        let mut error = ModelError::new(Class::RateLimited, "x");
        error.retry_after = Some(Duration::from_millis(2001));
        let outcome: Result<(), _> = Retry::default()
            .run(|| {
                tries += 1;
                let error = error.clone();
                async { Err(error) }
            })
            .await;
        assert_eq!((tries, started.elapsed()), (1, Duration::ZERO));
        assert!(outcome.unwrap_err().retry_in.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_succeed_is_tried_once() {
        for class in [Class::Permanent, Class::QuotaExhausted, Class::ContextOverflow] {
            let mut tries = 0;
            let outcome: Result<(), _> = Retry::default()
                .run(|| {
                    tries += 1;
                    async move { Err(ModelError::new(class, "x")) }
                })
                .await;
            assert_eq!((tries, outcome.unwrap_err().retry_in), (1, None));
        }
    }
}
