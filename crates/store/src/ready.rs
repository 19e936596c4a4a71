//! What a process can take up now, found by its state: its way to work while nobody can be told of any.

use crate::clock;
use crate::connect::Store;
use crate::entity::tool_call;
use crate::error::StoreError;
use crate::sweep::{After, Due};
use chrono::Duration;
use instar_core::id::{CallId, WorkerId};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QuerySelect, Value};
use uuid::Uuid;

/// How long a turn is left to its agent's owner, who knows the agent.
const OWNERS_FIRST: Duration = Duration::milliseconds(300);
/// Calls that are asked about at once: a statement has only so many parameters.
const CALLS_MAX: usize = 10_000;

impl Store {
    /// Turns that `worker` may take up: those that could go on, and those that nobody has any more. What others own is
    /// left to them for a moment.
    pub async fn ready_turns(&self, worker: WorkerId, after: After, limit: u64) -> Result<Vec<Due>, StoreError> {
        let sql = "SELECT t.*, a.owner AS agent_owner FROM turns t JOIN agents a ON a.id = t.agent_id \
                   JOIN sessions s ON s.id = t.session_id LEFT JOIN workers w ON w.id = a.owner AND w.lease_until > $2 \
                   WHERE t.ended_at IS NULL AND ( \
                   (t.status = 'queued' AND s.status = 'active' AND a.lifecycle = 'idle' AND a.drive = 'running') \
                   OR (t.status = 'tool_executing' AND (t.open_calls = 0 OR t.control->>'action' = 'interrupt')) \
                   OR (t.status = 'streaming' AND w.id IS NULL AND (t.control IS NULL \
                   OR t.control->>'action' <> 'wait' OR t.control->>'until' <= $3))) \
                   AND (w.id IS NULL OR w.id = $4 OR t.updated_at < $5) \
                   AND (t.session_id, t.id) > ($6, $7) ORDER BY t.session_id, t.id LIMIT $1";
        let (limit, now, (session, turn)) = (i64::try_from(limit).unwrap_or(i64::MAX), clock::now(), after.parts());
        // As text, since that is how it is kept inside the control.
        let moment = now.to_rfc3339_opts(chrono::SecondsFormat::Micros, true);
        let before = now - OWNERS_FIRST;
        let values: Vec<Value> = vec![
            limit.into(),
            now.into(),
            moment.into(),
            worker.uuid().into(),
            before.into(),
            session.into(),
            turn.into(),
        ];
        Self::dues(&self.sweep(sql, values).await?)
    }

    /// Those of these calls that have ended.
    pub async fn ended_calls(&self, calls: &[CallId]) -> Result<Vec<CallId>, StoreError> {
        let mut ended = Vec::new();
        for some in calls.chunks(CALLS_MAX) {
            let ids = tool_call::Entity::find()
                .select_only()
                .column(tool_call::Column::Id)
                .filter(tool_call::Column::Id.is_in(some.iter().map(|id| id.uuid())))
                .filter(tool_call::Column::EndedAt.is_not_null())
                .into_tuple::<Uuid>()
                .all(&self.db)
                .await?;
            ended.extend(ids.into_iter().map(CallId::from));
        }
        Ok(ended)
    }
}
