//! What a worker or runner reads before it decides: few round trips, each bounded by an index.

use crate::connect::Store;
use crate::entity::{agent, message, tool_call, turn};
use crate::error::StoreError;
use instar_core::id::{AgentId, CallId, MessageId, TurnId};
use sea_orm::{
    ColumnTrait, ConnectionTrait, DbBackend, EntityTrait, FromQueryResult, IdenStatic, Iterable, QueryFilter,
    QueryOrder, Statement, Value,
};
use std::sync::LazyLock;

/// The most messages that one turn takes up: fewer than a provider call may see, so that none of them
/// is taken and not seen.
pub const TAKEN_MAX: i64 = 20;

/// A turn with its agent and the state of its session, read at one moment.
#[derive(Clone, Debug)]
pub struct Scene {
    pub session_status: String,
    /// How many messages no turn had taken up, at the moment of `agent.version`.
    pub waiting: i64,
    pub agent: agent::Model,
    pub turn: turn::Model,
}

pub(crate) fn columns<E: EntityTrait>(alias: &str, prefix: &str) -> String
where
    E::Column: Iterable + IdenStatic,
{
    let name = |column: E::Column| format!("{alias}.{0} AS {prefix}{0}", column.as_str());
    E::Column::iter().map(name).collect::<Vec<_>>().join(", ")
}

static SCENE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT s.status AS session_status, {}, {}, \
         (SELECT count(*) FROM messages m WHERE m.agent_id = a.id AND m.turn_id IS NULL) AS waiting FROM turns t JOIN agents a ON a.id = t.agent_id \
         JOIN sessions s ON s.id = t.session_id WHERE t.id = $1",
        columns::<turn::Entity>("t", "t_"),
        columns::<agent::Entity>("a", "a_"),
    )
});

impl Store {
    pub(crate) fn backend(&self) -> DbBackend {
        if self.is_postgres() { DbBackend::Postgres } else { DbBackend::Sqlite }
    }

    /// `None`: there is no such turn.
    pub async fn scene(&self, turn: TurnId) -> Result<Option<Scene>, StoreError> {
        let values = [Value::from(turn.uuid())];
        let statement = Statement::from_sql_and_values(self.backend(), SCENE.as_str(), values);
        let Some(row) = self.db.query_one_raw(statement).await? else { return Ok(None) };
        Ok(Some(Scene {
            session_status: row.try_get("", "session_status")?,
            waiting: row.try_get("", "waiting")?,
            agent: agent::Model::from_query_result(&row, "a_")?,
            turn: turn::Model::from_query_result(&row, "t_")?,
        }))
    }

    pub async fn agent(&self, id: AgentId) -> Result<Option<agent::Model>, StoreError> {
        Ok(agent::Entity::find_by_id(id.uuid()).one(&self.db).await?)
    }

    pub async fn turn(&self, id: TurnId) -> Result<Option<turn::Model>, StoreError> {
        Ok(turn::Entity::find_by_id(id.uuid()).one(&self.db).await?)
    }

    pub async fn call(&self, id: CallId) -> Result<Option<tool_call::Model>, StoreError> {
        Ok(tool_call::Entity::find_by_id(id.uuid()).one(&self.db).await?)
    }

    /// Messages that no turn has taken up, as many as one turn takes: those that steer or interrupt
    /// first, else by age.
    pub async fn waiting(&self, agent: AgentId) -> Result<Vec<MessageId>, StoreError> {
        let sql = "SELECT id FROM messages WHERE agent_id = $1 AND turn_id IS NULL \
                   ORDER BY CASE WHEN mode = 'queue' THEN 1 ELSE 0 END, id LIMIT $2";
        let values: [Value; 2] = [agent.uuid().into(), TAKEN_MAX.into()];
        let rows = self.db.query_all_raw(Statement::from_sql_and_values(self.backend(), sql, values)).await?;
        rows.iter().map(|row| Ok(MessageId::from(row.try_get_by_index::<uuid::Uuid>(0)?))).collect()
    }

    /// The newest messages of an agent that turns have taken up, in the order in which they were said,
    /// and then the oldest of those that wait.
    pub async fn messages(&self, agent: AgentId, limit: u64) -> Result<Vec<message::Model>, StoreError> {
        let sql = "SELECT * FROM (SELECT * FROM messages WHERE agent_id = $1 AND turn_id IS NOT NULL \
                   ORDER BY id DESC LIMIT $2) said UNION ALL SELECT * FROM (SELECT * FROM messages \
                   WHERE agent_id = $1 AND turn_id IS NULL ORDER BY id LIMIT $3) waiting";
        let values: [Value; 3] = [agent.uuid().into(), (limit as i64).into(), TAKEN_MAX.into()];
        let rows = self.db.query_all_raw(Statement::from_sql_and_values(self.backend(), sql, values)).await?;
        let read = |row| message::Model::from_query_result(row, "");
        let mut newest: Vec<_> = rows.iter().map(read).collect::<Result<_, _>>()?;
        // A message that waited is older than the answer it waited behind.
        newest.sort_by_key(|m| (m.turn_id.is_none(), m.turn_id, m.id));
        Ok(newest)
    }

    /// The calls of a turn, in the order in which they were asked for.
    pub async fn calls_of(&self, turn: TurnId) -> Result<Vec<tool_call::Model>, StoreError> {
        let calls = tool_call::Entity::find().filter(tool_call::Column::TurnId.eq(turn.uuid()));
        let calls = calls.order_by_asc(tool_call::Column::Iteration).order_by_asc(tool_call::Column::Position);
        Ok(calls.all(&self.db).await?)
    }
}
