//! The database's time, as far as this process knows it.
//!
//! Times in rows are written and compared by several machines, whose own clocks may be minutes apart. So every time
//! that goes into a row, or is held against one, is [`now`]: what the database last said, and what this process's
//! monotonic clock has counted since. No other clock is read for it; `clippy.toml` sees to that.
//!
//! One clock per process: a process works for one database. Until that has spoken, this machine's clock is taken.

use crate::connect::Store;
use crate::error::StoreError;
use chrono::{DateTime, Utc};
use sea_orm::{ConnectionTrait, DbBackend, Statement};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

/// A machine whose clock is this far from the database's is worth a word.
const APART: Duration = Duration::from_secs(1);

static CLOCK: LazyLock<Clock> = LazyLock::new(|| Clock::started(Instant::now(), own()));

/// What time it is by the database's clock, in whole microseconds, as the database keeps times.
pub fn now() -> DateTime<Utc> {
    CLOCK.at(Instant::now())
}

/// This machine's clock.
#[expect(clippy::disallowed_methods, reason = "where nothing is known of the database's clock, and for SQLite")]
fn own() -> DateTime<Utc> {
    Utc::now() + chrono::Duration::milliseconds(instar_crashpoint::clock_shift_ms())
}

struct Clock {
    began: Instant,
    /// The database's time at `began`, in microseconds.
    base_us: AtomicI64,
}

impl Clock {
    fn started(began: Instant, at: DateTime<Utc>) -> Clock {
        Clock { began, base_us: AtomicI64::new(at.timestamp_micros()) }
    }

    fn since(&self, at: Instant) -> i64 {
        at.saturating_duration_since(self.began).as_micros() as i64
    }

    fn at(&self, moment: Instant) -> DateTime<Utc> {
        let us = self.base_us.load(Ordering::Relaxed) + self.since(moment);
        DateTime::from_timestamp_micros(us).unwrap_or_default()
    }

    /// The database's clock said `said` at some moment between the two: what is known is moved by as much as contradicts
    /// that, so that an answer that was long on its way spoils nothing. Says by how much, in microseconds.
    fn hear(&self, said: DateTime<Utc>, asked: Instant, answered: Instant) -> i64 {
        let said = said.timestamp_micros();
        let (least, most) = (said - self.since(answered), said - self.since(asked));
        let before =
            self.base_us.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |base| Some(base.clamp(least, most)));
        let before = before.unwrap_or_else(|base| base);
        before.clamp(least, most) - before
    }
}

/// Sets the clock by what the database said in answer to a question that was asked then.
pub(crate) fn hear(said: DateTime<Utc>, asked: Instant) {
    let moved_us = CLOCK.hear(said, asked, Instant::now());
    if moved_us.unsigned_abs() > APART.as_micros() as u64 {
        let by_ms = moved_us / 1000;
        tracing::warn!(by_ms, "this machine's clock and the database's are apart; the database's is used");
    }
}

impl Store {
    /// Asks the database for its time. [`now`] knows it without asking; each answer sets it right.
    pub async fn now(&self) -> Result<DateTime<Utc>, StoreError> {
        let asked = Instant::now();
        let said = if self.is_postgres() {
            let statement = Statement::from_string(DbBackend::Postgres, "SELECT clock_timestamp()");
            let row = self.db.query_one_raw(statement).await?;
            let row = row.ok_or_else(|| StoreError::Unavailable("the database did not say the time".into()))?;
            row.try_get_by_index(0)?
        } else {
            // It is used by one process only, whose clock then is the database's.
            own()
        };
        hear(said, asked);
        Ok(said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn ten_minutes_off() -> (Clock, Instant, DateTime<Utc>) {
        let (began, at) = (Instant::now(), DateTime::from_timestamp_micros(1_000_000_000_000).unwrap());
        (Clock::started(began, at - chrono::Duration::minutes(10)), began, at)
    }

    #[test]
    fn the_database_is_believed_however_wrong_the_own_clock_is() {
        let (clock, began, at) = ten_minutes_off();
        clock.hear(at, began, began + 20 * MS);
        let known = clock.at(began + 20 * MS);
        assert!(known >= at && known <= at + chrono::Duration::milliseconds(20), "{known}");
        assert_eq!(clock.at(began + 1020 * MS) - known, chrono::Duration::seconds(1));
    }

    #[test]
    fn a_slow_answer_spoils_nothing_and_a_quick_one_sharpens() {
        let (clock, began, at) = ten_minutes_off();
        clock.hear(at, began, began + 20 * MS);
        clock.hear(at + chrono::Duration::milliseconds(30), began + 29 * MS, began + 31 * MS);
        let known = clock.at(began + 30 * MS);
        assert!(
            (known - at - chrono::Duration::milliseconds(30)).abs() <= chrono::Duration::milliseconds(1),
            "{known}"
        );
        assert_eq!(clock.hear(at + chrono::Duration::seconds(1), began + 40 * MS, began + 3000 * MS), 0);
        assert_eq!(clock.at(began + 30 * MS), known);
    }
}
