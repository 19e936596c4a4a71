//! What nobody takes care of, found by its state: the scheduler's way to whatever a hint did not
//! reach. Each look is bounded and goes by the partial indexes over live rows.

use crate::connect::Store;
use crate::entity::{agent, idempotency_key, tool_call, turn, worker};
use crate::error::StoreError;
use chrono::{DateTime, Utc};
use instar_core::id::{AgentId, SessionId};
use sea_orm::{ColumnTrait, ConnectionTrait, EntityTrait, FromQueryResult, QueryFilter, QueryResult, Statement, Value};
use std::time::Duration;

/// A turn that somebody should take up, with the worker that last had its agent.
#[derive(Clone, Debug)]
pub struct Due {
    pub turn: turn::Model,
    pub owner: Option<uuid::Uuid>,
}

/// Where a page of live turns begins: after this one, in the order of the index over them. Some of what a look
/// finds waits for good reason, and must not hide the rest.
#[derive(Clone, Copy, Debug, Default)]
pub struct After {
    session: uuid::Uuid,
    turn: uuid::Uuid,
}

impl After {
    pub fn turn(row: &turn::Model) -> After {
        After { session: row.session_id, turn: row.id }
    }

    pub(crate) fn parts(self) -> (uuid::Uuid, uuid::Uuid) {
        (self.session, self.turn)
    }
}

impl Store {
    pub(crate) async fn sweep(&self, sql: &str, values: Vec<Value>) -> Result<Vec<QueryResult>, StoreError> {
        Ok(self.db.query_all_raw(Statement::from_sql_and_values(self.backend(), sql, values)).await?)
    }

    pub(crate) fn dues(rows: &[QueryResult]) -> Result<Vec<Due>, StoreError> {
        let read = |row: &QueryResult| {
            Ok(Due { turn: turn::Model::from_query_result(row, "")?, owner: row.try_get("", "agent_owner")? })
        };
        rows.iter().map(read).collect()
    }

    /// Streaming turns whose owner is gone, and those whose wait for the provider is over.
    pub async fn ownerless_turns(&self, after: After, limit: u64) -> Result<Vec<Due>, StoreError> {
        let sql = "SELECT t.*, a.owner AS agent_owner FROM turns t JOIN agents a ON a.id = t.agent_id \
                   LEFT JOIN workers w ON w.id = a.owner AND w.lease_until > $1 \
                   WHERE t.ended_at IS NULL AND t.status = 'streaming' AND w.id IS NULL AND (t.control IS NULL \
                   OR t.control->>'action' <> 'wait' OR t.control->>'until' <= $3) \
                   AND (t.session_id, t.id) > ($4, $5) ORDER BY t.session_id, t.id LIMIT $2";
        let now = self.now().await?;
        // As text, since that is how it is kept inside the control.
        let moment = now.to_rfc3339_opts(chrono::SecondsFormat::Micros, true);
        let values = vec![now.into(), (limit as i64).into(), moment.into(), after.session.into(), after.turn.into()];
        let rows = self.sweep(sql, values).await?;
        Self::dues(&rows)
    }

    /// Turns that could go on and have not since `before`: queued ones whose session and agent are
    /// free, those whose last call has its result, and those of which something was asked.
    pub async fn idle_turns(&self, before: DateTime<Utc>, after: After, limit: u64) -> Result<Vec<Due>, StoreError> {
        let sql = "SELECT t.*, a.owner AS agent_owner FROM turns t JOIN agents a ON a.id = t.agent_id \
                   JOIN sessions s ON s.id = t.session_id WHERE t.ended_at IS NULL AND t.updated_at < $1 AND ( \
                   (t.status = 'queued' AND s.status = 'active' AND a.lifecycle = 'idle' AND a.drive = 'running') \
                   OR (t.status = 'tool_executing' AND (t.open_calls = 0 OR t.control->>'action' = 'interrupt'))) \
                   AND (t.session_id, t.id) > ($3, $4) ORDER BY t.session_id, t.id LIMIT $2";
        let values = vec![before.into(), (limit as i64).into(), after.session.into(), after.turn.into()];
        let rows = self.sweep(sql, values).await?;
        Self::dues(&rows)
    }

    /// Streaming turns that wrote nothing since `before`. Their owner lives; whether it still knows of
    /// them, only it can say.
    pub async fn quiet_turns(&self, before: DateTime<Utc>, after: After, limit: u64) -> Result<Vec<Due>, StoreError> {
        let sql = "SELECT t.*, a.owner AS agent_owner FROM turns t JOIN agents a ON a.id = t.agent_id \
                   WHERE t.ended_at IS NULL AND t.status = 'streaming' AND t.updated_at < $1 AND a.owner IS NOT NULL \
                   AND (t.session_id, t.id) > ($3, $4) ORDER BY t.session_id, t.id LIMIT $2";
        let values = vec![before.into(), (limit as i64).into(), after.session.into(), after.turn.into()];
        let rows = self.sweep(sql, values).await?;
        Self::dues(&rows)
    }

    /// Turns past their deadline that no worker will end: parked ones that wait for no person, agent or account, and
    /// streaming ones that were due `grace` ago.
    pub async fn overdue_turns(
        &self,
        grace: Duration,
        after: After,
        limit: u64,
    ) -> Result<Vec<turn::Model>, StoreError> {
        let sql = "SELECT t.* FROM turns t WHERE t.ended_at IS NULL AND ( \
                   (t.status = 'tool_executing' AND t.deadline_at < $1 AND NOT EXISTS (SELECT 1 FROM tool_calls c \
                   WHERE c.turn_id = t.id AND (c.status = 'awaiting_approval' OR (c.waits_for IS NOT NULL AND c.owner IS \
                   NULL AND c.ended_at IS NULL)))) \
                   OR (t.status = 'streaming' AND t.deadline_at < $2)) \
                   AND (t.session_id, t.id) > ($4, $5) ORDER BY t.session_id, t.id LIMIT $3";
        let now = self.now().await?;
        let late = now - chrono::Duration::from_std(grace).unwrap_or_default();
        let values = vec![now.into(), late.into(), (limit as i64).into(), after.session.into(), after.turn.into()];
        let rows = self.sweep(sql, values).await?;
        rows.iter().map(|row| Ok(turn::Model::from_query_result(row, "")?)).collect()
    }

    /// Calls whose runner is gone, after `from` in the order of ids: one that cannot be settled must not hide the rest.
    pub async fn orphaned_calls(&self, from: uuid::Uuid, limit: u64) -> Result<Vec<tool_call::Model>, StoreError> {
        let sql = "SELECT c.* FROM tool_calls c LEFT JOIN workers w ON w.id = c.owner AND w.lease_until > $1 \
                   WHERE c.ended_at IS NULL AND c.status = 'executing' AND c.owner IS NOT NULL AND w.id IS NULL \
                   AND c.id > $3 ORDER BY c.id LIMIT $2";
        let rows = self.sweep(sql, vec![self.now().await?.into(), (limit as i64).into(), from.into()]).await?;
        rows.iter().map(|row| Ok(tool_call::Model::from_query_result(row, "")?)).collect()
    }

    /// Calls that could run and that nobody has begun since `before`, after `from` in the order of ids:
    /// some of them wait behind others, and must not hide the rest.
    pub async fn idle_calls(
        &self,
        before: DateTime<Utc>,
        from: uuid::Uuid,
        limit: u64,
    ) -> Result<Vec<tool_call::Model>, StoreError> {
        let sql = "SELECT c.* FROM tool_calls c WHERE c.ended_at IS NULL AND c.status = 'executing' \
                   AND c.owner IS NULL AND c.waits_for IS NULL AND c.updated_at < $1 AND c.id > $3 ORDER BY c.id LIMIT $2";
        let rows = self.sweep(sql, vec![before.into(), (limit as i64).into(), from.into()]).await?;
        rows.iter().map(|row| Ok(tool_call::Model::from_query_result(row, "")?)).collect()
    }

    /// Free agents with messages that no turn has taken up since `before`.
    pub async fn waited_for_agents(&self, before: DateTime<Utc>, limit: u64) -> Result<Vec<AgentId>, StoreError> {
        let sql = "SELECT DISTINCT a.id FROM messages m JOIN agents a ON a.id = m.agent_id \
                   WHERE m.turn_id IS NULL AND m.created_at < $1 AND a.lifecycle = 'idle' AND a.drive = 'running' \
                   AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.agent_id = a.id AND t.ended_at IS NULL) LIMIT $2";
        let rows = self.sweep(sql, vec![before.into(), (limit as i64).into()]).await?;
        rows.iter().map(|row| Ok(AgentId::from(row.try_get_by_index::<uuid::Uuid>(0)?))).collect()
    }

    /// Autonomous agents that take work, are free, and were not written since `before`.
    pub async fn still_agents(&self, before: DateTime<Utc>, limit: u64) -> Result<Vec<agent::Model>, StoreError> {
        // By the partial index over agents that loop; a live turn is looked for among those of the session.
        let sql = "SELECT a.* FROM agents a JOIN sessions s ON s.id = a.session_id \
                   WHERE a.drive = 'running' AND a.config->>'loop' = 'autonomous' AND a.lifecycle = 'idle' \
                   AND a.updated_at < $1 AND s.status = 'active' \
                   AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.session_id = a.session_id AND t.agent_id = a.id \
                   AND t.ended_at IS NULL) \
                   AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.agent_id = a.id AND m.turn_id IS NULL) \
                   ORDER BY a.id LIMIT $2";
        let rows = self.sweep(sql, vec![before.into(), (limit as i64).into()]).await?;
        rows.iter().map(|row| Ok(agent::Model::from_query_result(row, "")?)).collect()
    }

    /// Agents with children whose tasks wait for a place since before `before`.
    pub async fn crowded_agents(&self, before: DateTime<Utc>, limit: u64) -> Result<Vec<AgentId>, StoreError> {
        let sql = "SELECT DISTINCT a.parent_id FROM messages m JOIN agents a ON a.id = m.agent_id \
                   WHERE m.turn_id IS NULL AND m.created_at < $1 AND a.parent_id IS NOT NULL \
                   AND a.lifecycle = 'spawning' LIMIT $2";
        let rows = self.sweep(sql, vec![before.into(), (limit as i64).into()]).await?;
        rows.iter().map(|row| Ok(AgentId::from(row.try_get_by_index::<uuid::Uuid>(0)?))).collect()
    }

    /// Sessions in this state, least recently changed first.
    pub async fn sessions_in(&self, status: &str, limit: u64) -> Result<Vec<(SessionId, DateTime<Utc>)>, StoreError> {
        let sql = "SELECT id, updated_at FROM sessions WHERE status = $1 ORDER BY updated_at LIMIT $2";
        let rows = self.sweep(sql, vec![status.into(), (limit as i64).into()]).await?;
        let read =
            |row: &QueryResult| Ok((SessionId::from(row.try_get_by_index::<uuid::Uuid>(0)?), row.try_get_by_index(1)?));
        rows.iter().map(read).collect()
    }

    /// Active sessions in which this many drives or more have failed since `since`; errors before a reset do
    /// not count. Bounded by the errors of that time.
    pub async fn failing_sessions(
        &self,
        since: DateTime<Utc>,
        errors: u64,
        limit: u64,
    ) -> Result<Vec<(SessionId, u64)>, StoreError> {
        let sql = "SELECT s.id, s.reset_at, count(*) FROM runes r JOIN sessions s ON s.id = r.session_id \
                   AND s.status = 'active' WHERE r.kind = 'agent.drive_errored' AND r.at_us > $1 \
                   GROUP BY s.id, s.reset_at HAVING count(*) >= $2 LIMIT $3";
        let values = vec![since.timestamp_micros().into(), (errors as i64).into(), (limit as i64).into()];
        let mut failing = Vec::new();
        for row in self.sweep(sql, values).await? {
            let id = SessionId::from(row.try_get_by_index::<uuid::Uuid>(0)?);
            let reset: Option<DateTime<Utc>> = row.try_get_by_index(1)?;
            let count = match reset.filter(|reset| *reset > since) {
                None => row.try_get_by_index::<i64>(2)? as u64,
                Some(reset) => self.drive_errors(id, reset).await?,
            };
            failing.extend((count >= errors).then_some((id, count)));
        }
        Ok(failing)
    }

    async fn drive_errors(&self, session: SessionId, since: DateTime<Utc>) -> Result<u64, StoreError> {
        let sql = "SELECT count(*) FROM runes WHERE kind = 'agent.drive_errored' AND at_us > $1 AND session_id = $2";
        let rows = self.sweep(sql, vec![since.timestamp_micros().into(), session.uuid().into()]).await?;
        let count: Option<i64> = rows.first().map(|row| row.try_get_by_index(0)).transpose()?;
        Ok(count.unwrap_or_default() as u64)
    }

    /// Sessions with runes that no seal covers yet.
    pub async fn unsealed_sessions(&self, limit: u64) -> Result<Vec<SessionId>, StoreError> {
        let sql = "SELECT id FROM sessions WHERE sealed_seq < head_seq ORDER BY updated_at LIMIT $1";
        let rows = self.sweep(sql, vec![(limit as i64).into()]).await?;
        rows.iter().map(|row| Ok(SessionId::from(row.try_get_by_index::<uuid::Uuid>(0)?))).collect()
    }

    /// Forgets the answers to commands older than `before`: nobody repeats them any more. Says how many.
    pub async fn forget_answers(&self, before: DateTime<Utc>) -> Result<u64, StoreError> {
        let old = idempotency_key::Column::CreatedAt.lt(before);
        let gone = idempotency_key::Entity::delete_many().filter(old).exec(&self.db).await?;
        Ok(gone.rows_affected)
    }

    /// Forgets processes whose lease ran out before `before`. Says how many.
    pub async fn forget_workers(&self, before: DateTime<Utc>) -> Result<u64, StoreError> {
        let gone = worker::Entity::delete_many().filter(worker::Column::LeaseUntil.lt(before)).exec(&self.db).await?;
        Ok(gone.rows_affected)
    }
}
