//! How much waits, in the whole installation: a few numbers for whoever watches it.

use crate::connect::Store;
use crate::error::StoreError;
use sea_orm::{ConnectionTrait, Statement};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    pub turns_queued: i64,
    /// Tool calls that wait for a person.
    pub approvals_pending: i64,
    pub runes_unpublished: i64,
    /// When the oldest of them was written, in microseconds since 1970.
    pub oldest_unpublished_us: Option<i64>,
}

impl Store {
    /// Goes by the indexes over what is alive; only sessions are looked at one by one, as
    /// [`trailing`](Store::trailing) does.
    pub async fn backlog(&self) -> Result<Backlog, StoreError> {
        let sql = "SELECT (SELECT count(*) FROM turns WHERE ended_at IS NULL AND status = 'queued'), \
                   (SELECT count(*) FROM tool_calls WHERE ended_at IS NULL AND status = 'awaiting_approval'), \
                   CAST(coalesce(sum(s.head_seq - s.published_seq), 0) AS BIGINT), min(r.at_us) FROM sessions s \
                   JOIN runes r ON r.session_id = s.id AND r.seq = s.published_seq + 1 \
                   WHERE s.published_seq < s.head_seq";
        let found = self.db.query_one_raw(Statement::from_string(self.backend(), sql)).await?;
        let Some(row) = found else { return Ok(Backlog::default()) };
        Ok(Backlog {
            turns_queued: row.try_get_by_index(0)?,
            approvals_pending: row.try_get_by_index(1)?,
            runes_unpublished: row.try_get_by_index(2)?,
            oldest_unpublished_us: row.try_get_by_index(3)?,
        })
    }
}
