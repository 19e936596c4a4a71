//! When a session was held, paused or suspended: clocks of approvals stand still in those times.
//!
//! The session's row keeps them as pairs, written by the very commit that holds or releases it. How much
//! of a clock is left is worked out from them when it is looked at, so that nothing has to be moved when a
//! session with a thousand approvals is paused.

use chrono::{DateTime, Duration, Utc};
use instar_core::machine::Move;
use instar_store::Change;
use instar_store::entity::session;
use serde_json::json;

/// From, and until; the last one may be open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holds(Vec<(i64, Option<i64>)>);

pub fn is_held(status: &str) -> bool {
    matches!(status, "paused" | "suspended")
}

impl Holds {
    pub fn of(row: &session::Model) -> Holds {
        let pairs = row.holds.clone().and_then(|pairs| serde_json::from_value(pairs).ok());
        Holds(pairs.unwrap_or_default())
    }

    fn begin(&mut self, at: DateTime<Utc>) {
        if self.0.last().is_none_or(|(_, until)| until.is_some()) {
            self.0.push((at.timestamp_micros(), None));
        }
    }

    fn end(&mut self, at: DateTime<Utc>) {
        if let Some((_, until @ None)) = self.0.last_mut() {
            *until = Some(at.timestamp_micros());
        }
    }

    /// Forgets what was over before `first`: no clock that still runs was set earlier.
    fn forget_before(&mut self, first: Option<DateTime<Utc>>) {
        let first = first.map_or(i64::MAX, |first| first.timestamp_micros());
        self.0.retain(|(_, until)| until.is_none_or(|until| until > first));
    }

    /// How long it was held between two moments.
    pub fn within(&self, from: DateTime<Utc>, to: DateTime<Utc>) -> Duration {
        let (from, to) = (from.timestamp_micros(), to.timestamp_micros());
        let overlap = |(a, b): &(i64, Option<i64>)| (b.unwrap_or(to).min(to) - (*a).max(from)).max(0);
        Duration::microseconds(self.0.iter().map(overlap).sum())
    }
}

/// What is left of a clock that was set at `set` and may run for `allowed`; none or less when it is over.
pub fn left(row: &session::Model, set: DateTime<Utc>, allowed: Duration, now: DateTime<Utc>) -> Duration {
    allowed - ((now - set) - Holds::of(row).within(set, now))
}

/// The columns that go with a session's move: whether its clocks stand, and which errors count.
/// `oldest`: when the oldest clock that runs was set.
pub fn dress(
    change: Change,
    row: &session::Model,
    mv: &Move,
    oldest: Option<DateTime<Utc>>,
    at: DateTime<Utc>,
) -> Change {
    let (before, after) = (mv.from().is_some_and(is_held), is_held(mv.to()));
    let change = if mv.event() == "reset" { change.set(session::Column::ResetAt, at) } else { change };
    if before == after {
        return change;
    }
    let mut holds = Holds::of(row);
    if after {
        holds.begin(at);
    } else {
        holds.end(at);
    }
    holds.forget_before(oldest);
    change.set(session::Column::Holds, json!(holds.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(seconds, 0).unwrap()
    }

    #[test]
    fn only_the_time_between_the_two_moments_counts() {
        let mut holds = Holds::default();
        for (from, to) in [(10, 20), (30, 40)] {
            holds.begin(at(from));
            holds.begin(at(from + 1));
            holds.end(at(to));
            holds.end(at(to + 1));
        }
        holds.begin(at(90));
        let within = |from, to| holds.within(at(from), at(to)).num_seconds();
        assert_eq!([within(0, 5), within(0, 100), within(15, 35), within(20, 30)], [0, 30, 10, 0]);
        assert_eq!(within(95, 100), 5, "it is still held");
        holds.forget_before(Some(at(25)));
        assert_eq!(holds.within(at(0), at(50)).num_seconds(), 10);
        holds.forget_before(None);
        assert_eq!(holds.0, [(90_000_000, None)]);
    }
}
