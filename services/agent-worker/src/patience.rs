//! What becomes of a turn whose provider call failed: made again at once, later, or not at all.
//!
//! Failures before anything of the answer was seen were already repeated by whoever made the call, so that only
//! streams that broke are repeated here. Everything else is a row and a timer, and longer each time: a fleet
//! must be able to sit out an outage without a process that holds anything.

use chrono::Duration;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// How often an answer that broke off is asked for again at once.
const BROKEN_MAX: u32 = 2;
/// Waits up to this long are sat out.
const SIT_OUT_MAX: Duration = Duration::seconds(2);
const LONGEST: Duration = Duration::minutes(5);
/// How often a turn may wait for one provider call before it gives up: more than an hour altogether.
const WAITS_MAX: i64 = 20;

/// A provider call that failed and may be repeated.
pub(crate) struct Failure {
    /// Something of the answer had come.
    pub(crate) broken: bool,
    /// Answers of this call that broke off before, in a row.
    pub(crate) retries: u32,
    /// How often the turn has waited for it.
    pub(crate) waits: i64,
    /// How long it is to wait at least.
    pub(crate) told: Option<Duration>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Now(Duration),
    Later(Duration),
    Never,
}

impl Failure {
    /// `chance` is 0..1, and spreads those that failed together.
    pub(crate) fn judge(&self, chance: f64) -> Verdict {
        let told = self.told.unwrap_or_else(Duration::zero);
        if self.broken && told <= SIT_OUT_MAX && self.retries < BROKEN_MAX {
            return Verdict::Now(told.max(Duration::milliseconds(200 << self.retries)));
        }
        if self.waits >= WAITS_MAX {
            return Verdict::Never;
        }
        let doublings = u32::try_from(self.waits).unwrap_or(0).min(16);
        let grown = (SIT_OUT_MAX * (1 << doublings)).min(LONGEST);
        let spread = Duration::milliseconds((grown.num_milliseconds() as f64 * 0.25 * chance.clamp(0.0, 1.0)) as i64);
        Verdict::Later(told.max(grown) + spread)
    }
}

/// What ended a wait that is sat out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Rested {
    Over,
    /// The lease is gone.
    Lost,
    /// The process ends.
    Drained,
    /// Somebody said that the turn's row has news.
    Told,
}

pub(crate) async fn rest(
    until: Instant,
    lost: &CancellationToken,
    draining: &CancellationToken,
    told: impl Future<Output = ()>,
) -> Rested {
    tokio::select! {
        biased;
        () = lost.cancelled() => Rested::Lost,
        () = draining.cancelled() => Rested::Drained,
        () = told => Rested::Told,
        () = sleep_until(until) => Rested::Over,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};

    #[tokio::test]
    async fn a_wait_ends_early_when_the_process_ends_the_lease_is_lost_or_the_turn_has_news() {
        let (no, yes) = (CancellationToken::new(), CancellationToken::new());
        yes.cancel();
        let never = Instant::now() + std::time::Duration::from_secs(3_600);
        assert_eq!(rest(never, &yes, &yes, pending()).await, Rested::Lost);
        assert_eq!(rest(never, &no, &yes, pending()).await, Rested::Drained);
        assert_eq!(rest(never, &no, &no, ready(())).await, Rested::Told);
        assert_eq!(rest(Instant::now(), &no, &no, pending()).await, Rested::Over);
    }

    fn failure(waits: i64) -> Failure {
        Failure { broken: false, retries: 0, waits, told: None }
    }

    #[test]
    fn waits_grow_up_to_a_few_minutes_and_outlast_an_hour() {
        let mut all = Vec::new();
        while let Verdict::Later(wait) = failure(all.len() as i64).judge(0.0) {
            all.push(wait.num_seconds());
        }
        assert_eq!(all[..9], [2, 4, 8, 16, 32, 64, 128, 256, 300]);
        assert!(all.iter().sum::<i64>() > 3_600 && all.iter().all(|wait| *wait <= 300), "{all:?}");
        assert_eq!(failure(1).judge(1.0), Verdict::Later(Duration::seconds(5)));
    }

    #[test]
    fn what_the_provider_says_is_obeyed() {
        let told = Failure { told: Some(Duration::seconds(40)), ..failure(0) };
        assert_eq!(told.judge(0.0), Verdict::Later(Duration::seconds(40)));
        let told = Failure { told: Some(Duration::seconds(1)), ..failure(2) };
        assert_eq!(told.judge(0.0), Verdict::Later(Duration::seconds(8)));
    }

    #[test]
    fn only_an_answer_that_broke_off_is_asked_for_at_once_and_not_for_ever() {
        let broken = |retries| Failure { broken: true, retries, ..failure(0) };
        assert_eq!(broken(0).judge(0.0), Verdict::Now(Duration::milliseconds(200)));
        assert_eq!(broken(1).judge(0.0), Verdict::Now(Duration::milliseconds(400)));
        assert_eq!(broken(2).judge(0.0), Verdict::Later(Duration::seconds(2)));
        let told = Failure { told: Some(Duration::seconds(3)), ..broken(0) };
        assert_eq!(told.judge(0.0), Verdict::Later(Duration::seconds(3)));
    }
}
