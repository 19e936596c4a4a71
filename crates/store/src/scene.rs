//! What a worker or runner reads before it decides: few round trips, each bounded by an index.

use crate::connect::Store;
use crate::entity::{agent, message, session, tool_call, turn};
use crate::error::StoreError;
use instar_core::id::{AgentId, CallId, MessageId, SessionId, TurnId};
use sea_orm::{
    ColumnTrait, ConnectionTrait, DbBackend, EntityTrait, FromQueryResult, IdenStatic, Iterable, QueryFilter,
    QueryOrder, QuerySelect, Statement, Value,
};
use std::sync::LazyLock;

/// The most messages that one turn takes up: fewer than a provider call may see, so that none of them
/// is taken and not seen.
pub const TAKEN_MAX: i64 = 20;

/// Messages of a turn's own: those that it takes up, its answers, and some room for messages that are older than an
/// answer they waited behind.
const OWN_MAX: i64 = 2 * TAKEN_MAX + 10;

/// A turn with its agent and the state of its session, read at one moment.
#[derive(Clone, Debug)]
pub struct Scene {
    pub session_status: String,
    /// How many messages no turn had taken up, at the moment of `agent.version`.
    pub waiting: i64,
    /// The agent has not begun a turn yet, and its session has a broadcast that may still stand.
    pub standing: bool,
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
         (SELECT count(*) FROM messages m WHERE m.agent_id = a.id AND m.turn_id IS NULL) AS waiting, \
         (SELECT b.id FROM broadcasts b WHERE a.epoch = 0 AND b.session_id = s.id AND b.standing \
         ORDER BY b.id DESC LIMIT 1) AS standing FROM turns t JOIN agents a ON a.id = t.agent_id \
         JOIN sessions s ON s.id = t.session_id WHERE t.id = $1",
        columns::<turn::Entity>("t", "t_"),
        columns::<agent::Entity>("a", "a_"),
    )
});

/// The newest messages that turns have taken up, and the newest summary.
fn said(only: &str) -> String {
    format!(
        "SELECT * FROM (SELECT * FROM messages WHERE agent_id = $1 AND turn_id IS NOT NULL {only}\
         ORDER BY id DESC LIMIT $2) said UNION ALL SELECT * FROM (SELECT * FROM messages \
         WHERE agent_id = $1 AND source = 'summary' {only}ORDER BY id DESC LIMIT 1) summary"
    )
}

static MESSAGES: LazyLock<String> = LazyLock::new(|| {
    format!(
        "{} UNION ALL SELECT * FROM (SELECT * FROM messages WHERE agent_id = $1 AND turn_id IS NULL \
         ORDER BY id LIMIT $3) waiting",
        said("")
    )
});

static MESSAGES_UP_TO: LazyLock<String> = LazyLock::new(|| said("AND turn_id <= $3 AND id <= $4 "));

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
            standing: row.try_get::<Option<uuid::Uuid>>("", "standing")?.is_some(),
            agent: agent::Model::from_query_result(&row, "a_")?,
            turn: turn::Model::from_query_result(&row, "t_")?,
        }))
    }

    pub async fn session(&self, id: SessionId) -> Result<Option<session::Model>, StoreError> {
        Ok(session::Entity::find_by_id(id.uuid()).one(&self.db).await?)
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

    /// Messages that no turn has taken up, as many as one turn takes, by age: those that steer or interrupt, if there
    /// are any, since they are the next input before anything that was queued; else all.
    pub async fn waiting(&self, agent: AgentId) -> Result<Vec<MessageId>, StoreError> {
        let sql = "SELECT id FROM messages WHERE agent_id = $1 AND turn_id IS NULL \
                   AND (mode <> 'queue' OR NOT EXISTS (SELECT 1 FROM messages m WHERE m.agent_id = $1 \
                   AND m.turn_id IS NULL AND m.mode <> 'queue')) ORDER BY id LIMIT $2";
        let values: [Value; 2] = [agent.uuid().into(), TAKEN_MAX.into()];
        let rows = self.db.query_all_raw(Statement::from_sql_and_values(self.backend(), sql, values)).await?;
        rows.iter().map(|row| Ok(MessageId::from(row.try_get_by_index::<uuid::Uuid>(0)?))).collect()
    }

    /// The newest messages of an agent that turns have taken up, in the order in which they were said,
    /// and then the oldest of those that wait. At least `limit` of those that were said before the newest
    /// turn, if there are so many; and the newest summary, however old it is.
    pub async fn messages(&self, agent: AgentId, limit: u64) -> Result<Vec<message::Model>, StoreError> {
        let said_max = i64::try_from(limit).unwrap_or(i64::MAX - OWN_MAX).saturating_add(OWN_MAX);
        let values: [Value; 3] = [agent.uuid().into(), said_max.into(), TAKEN_MAX.into()];
        self.in_order(Statement::from_sql_and_values(self.backend(), MESSAGES.as_str(), values)).await
    }

    /// The same as a turn of the past found them: without what later turns took up, and without what waits.
    /// `latest` is an id that is newer than everything of the turn.
    pub async fn messages_up_to(
        &self,
        agent: AgentId,
        turn: TurnId,
        latest: MessageId,
        limit: u64,
    ) -> Result<Vec<message::Model>, StoreError> {
        let said_max = i64::try_from(limit).unwrap_or(i64::MAX - OWN_MAX).saturating_add(OWN_MAX);
        let values: [Value; 4] = [agent.uuid().into(), said_max.into(), turn.uuid().into(), latest.uuid().into()];
        self.in_order(Statement::from_sql_and_values(self.backend(), MESSAGES_UP_TO.as_str(), values)).await
    }

    /// The newest messages of an agent that are younger than `after` and that turns have taken up, in order: `limit` at
    /// the most.
    pub async fn said_after(
        &self,
        agent: AgentId,
        after: MessageId,
        limit: u64,
    ) -> Result<Vec<message::Model>, StoreError> {
        let sql = "SELECT * FROM messages WHERE agent_id = $1 AND id > $2 AND turn_id IS NOT NULL \
                   ORDER BY id DESC LIMIT $3";
        let values: [Value; 3] = [agent.uuid().into(), after.uuid().into(), (limit as i64).into()];
        self.in_order(Statement::from_sql_and_values(self.backend(), sql, values)).await
    }

    async fn in_order(&self, statement: Statement) -> Result<Vec<message::Model>, StoreError> {
        let rows = self.db.query_all_raw(statement).await?;
        let read = |row| message::Model::from_query_result(row, "");
        let mut found: Vec<_> = rows.iter().map(read).collect::<Result<_, _>>()?;
        // A message that waited is older than the answer it waited behind.
        found.sort_by_key(|m| (m.turn_id.is_none(), m.turn_id, m.id));
        // The newest summary may be one of the newest messages.
        found.dedup_by_key(|m| m.id);
        Ok(found)
    }

    pub async fn message(&self, id: MessageId) -> Result<Option<message::Model>, StoreError> {
        Ok(message::Entity::find_by_id(id.uuid()).one(&self.db).await?)
    }

    /// The calls of a turn, and those of the last answer with calls among the `turns` before it.
    pub async fn calls_seen(
        &self,
        agent: AgentId,
        turn: TurnId,
        turns: u64,
    ) -> Result<Vec<tool_call::Model>, StoreError> {
        let sql = "SELECT * FROM tool_calls WHERE turn_id = $2 UNION ALL SELECT c.* FROM tool_calls c JOIN \
                   (SELECT turn_id, iteration FROM tool_calls WHERE turn_id IN (SELECT id FROM turns \
                   WHERE agent_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3) \
                   ORDER BY turn_id DESC, iteration DESC LIMIT 1) latest \
                   ON c.turn_id = latest.turn_id AND c.iteration = latest.iteration";
        let values: [Value; 3] = [agent.uuid().into(), turn.uuid().into(), (turns as i64).into()];
        self.as_asked(Statement::from_sql_and_values(self.backend(), sql, values)).await
    }

    /// The newest calls of the `turns` before a turn, `calls` at the most.
    pub async fn calls_before(
        &self,
        agent: AgentId,
        turn: TurnId,
        turns: u64,
        calls: u64,
    ) -> Result<Vec<tool_call::Model>, StoreError> {
        let sql = "SELECT * FROM tool_calls WHERE turn_id IN (SELECT id FROM turns WHERE agent_id = $1 AND id < $2 \
                   ORDER BY id DESC LIMIT $3) ORDER BY turn_id DESC, iteration DESC, position DESC LIMIT $4";
        let values: [Value; 4] =
            [agent.uuid().into(), turn.uuid().into(), (turns as i64).into(), (calls as i64).into()];
        self.as_asked(Statement::from_sql_and_values(self.backend(), sql, values)).await
    }

    async fn as_asked(&self, statement: Statement) -> Result<Vec<tool_call::Model>, StoreError> {
        let rows = self.db.query_all_raw(statement).await?;
        let read = |row| tool_call::Model::from_query_result(row, "");
        let mut calls: Vec<_> = rows.iter().map(read).collect::<Result<_, _>>()?;
        calls.sort_by_key(|c| (c.turn_id, c.iteration, c.position));
        Ok(calls)
    }

    /// The turn of an agent before another.
    pub async fn turn_before(&self, agent: AgentId, turn: TurnId) -> Result<Option<turn::Model>, StoreError> {
        let before = turn::Entity::find().filter(turn::Column::AgentId.eq(agent.uuid()));
        let before = before.filter(turn::Column::Id.lt(turn.uuid())).order_by_desc(turn::Column::Id);
        Ok(before.one(&self.db).await?)
    }

    /// How the newest turns of an agent went, newest first.
    pub async fn latest_turns(&self, agent: AgentId, limit: u64) -> Result<Vec<turn::Model>, StoreError> {
        let latest = turn::Entity::find().filter(turn::Column::AgentId.eq(agent.uuid()));
        Ok(latest.order_by_desc(turn::Column::Id).limit(limit).all(&self.db).await?)
    }

    /// The calls of a turn, in the order in which they were asked for.
    pub async fn calls_of(&self, turn: TurnId) -> Result<Vec<tool_call::Model>, StoreError> {
        let calls = tool_call::Entity::find().filter(tool_call::Column::TurnId.eq(turn.uuid()));
        let calls = calls.order_by_asc(tool_call::Column::Iteration).order_by_asc(tool_call::Column::Position);
        Ok(calls.all(&self.db).await?)
    }
}
