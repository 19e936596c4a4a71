//! An agent among those it made, and those that wait for one of them.

use crate::connect::Store;
use crate::entity::{agent, message, tool_call, turn};
use crate::error::StoreError;
use crate::scene::columns;
use chrono::{DateTime, Utc};
use instar_core::id::{AgentId, PlanId};
use sea_orm::{ColumnTrait, ConnectionTrait, EntityTrait, FromQueryResult, QueryFilter, QueryOrder, QueryResult};
use sea_orm::{Statement, Value};
use std::sync::LazyLock;
use uuid::Uuid;

/// An agent and what it has to do.
#[derive(Clone, Debug)]
pub struct Kin {
    pub agent: agent::Model,
    /// It has a turn that is queued or runs.
    pub busy: bool,
    /// It has messages that no turn has taken up.
    pub waiting: bool,
}

impl Kin {
    /// Whether it does nothing more by itself: it has ended, it is held, or nothing is left to do.
    pub fn rests(&self) -> bool {
        match (self.agent.lifecycle.as_str(), self.agent.drive.as_str()) {
            ("terminated" | "failed", _) => true,
            ("idle", "errored" | "stopped") => true,
            ("idle", _) => !self.busy && !self.waiting,
            _ => false,
        }
    }
}

/// The same as [`Kin::rests`], to the database, of an agent `a`: the two are held against each other by a test.
const RESTS: &str = "(a.lifecycle IN ('terminated', 'failed') OR (a.lifecycle = 'idle' AND (a.drive IN ('errored', \
                     'stopped') OR (NOT EXISTS (SELECT 1 FROM turns t WHERE t.agent_id = a.id AND t.ended_at IS NULL) \
                     AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.agent_id = a.id AND m.turn_id IS NULL)))))";

static KIN: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {}, CASE WHEN EXISTS (SELECT 1 FROM turns t WHERE t.agent_id = a.id AND t.ended_at IS NULL) \
         THEN 1 ELSE 0 END AS busy, CASE WHEN EXISTS (SELECT 1 FROM messages m WHERE m.agent_id = a.id AND m.turn_id \
         IS NULL) THEN 1 ELSE 0 END AS waiting FROM agents a",
        columns::<agent::Entity>("a", "a_")
    )
});

fn read(row: &QueryResult) -> Result<Kin, StoreError> {
    Ok(Kin {
        agent: agent::Model::from_query_result(row, "a_")?,
        busy: row.try_get::<i32>("", "busy")? != 0,
        waiting: row.try_get::<i32>("", "waiting")? != 0,
    })
}

impl Store {
    async fn kin(&self, which: &str, values: Vec<Value>) -> Result<Vec<Kin>, StoreError> {
        let sql = format!("{} WHERE {which} ORDER BY a.id", *KIN);
        let rows = self.db.query_all_raw(Statement::from_sql_and_values(self.backend(), sql, values)).await?;
        rows.iter().map(read).collect()
    }

    /// Agents that this one made and that have not ended, oldest first.
    pub async fn live_children(&self, parent: AgentId) -> Result<Vec<Kin>, StoreError> {
        self.kin("a.parent_id = $1 AND a.lifecycle NOT IN ('terminated', 'failed')", vec![parent.uuid().into()]).await
    }

    /// Agents that had a turn for a plan and have not ended, oldest first.
    pub async fn at_work_on(&self, plan: PlanId) -> Result<Vec<Kin>, StoreError> {
        let which = "a.id IN (SELECT t.agent_id FROM plan_turns p JOIN turns t ON t.id = p.id WHERE p.plan_id = $1) \
                     AND a.lifecycle NOT IN ('terminated', 'failed')";
        self.kin(which, vec![plan.uuid().into()]).await
    }

    /// Everybody whom an agent may address: its parent, its children, and the other children of its parent.
    pub async fn circle(&self, agent: &agent::Model) -> Result<Vec<Kin>, StoreError> {
        let id = Value::from(agent.id);
        match agent.parent_id {
            None => self.kin("a.parent_id = $1", vec![id]).await,
            Some(parent) => {
                let which = "a.id <> $1 AND (a.parent_id = $1 OR a.id = $2 OR a.parent_id = $2)";
                self.kin(which, vec![id, parent.into()]).await
            }
        }
    }

    /// These agents, whatever has become of them.
    pub async fn kin_of(&self, agents: &[Uuid]) -> Result<Vec<Kin>, StoreError> {
        let places: Vec<String> = (1..=agents.len()).map(|n| format!("${n}")).collect();
        let which = format!("a.id IN ({})", places.join(", "));
        self.kin(&which, agents.iter().map(|id| Value::from(*id)).collect()).await
    }

    /// The newest turn of an agent.
    pub async fn last_turn(&self, agent: Uuid) -> Result<Option<turn::Model>, StoreError> {
        let turns = turn::Entity::find().filter(turn::Column::AgentId.eq(agent));
        let newest = turns.order_by_desc(turn::Column::AgentId).order_by_desc(turn::Column::Id);
        Ok(newest.one(&self.db).await?)
    }

    /// Calls of an agent that wait for others.
    pub async fn waiting_calls(&self, agent: AgentId) -> Result<Vec<tool_call::Model>, StoreError> {
        let calls = tool_call::Entity::find().filter(tool_call::Column::AgentId.eq(agent.uuid()));
        let calls = calls.filter(tool_call::Column::WaitsFor.is_not_null());
        Ok(calls.filter(tool_call::Column::EndedAt.is_null()).all(&self.db).await?)
    }

    /// Calls whose wait is over and that nobody was told of since `before`: all of those they wait for rest, or
    /// their time is up.
    pub async fn due_waits(&self, before: DateTime<Utc>, limit: u64) -> Result<Vec<tool_call::Model>, StoreError> {
        let awaited = match self.is_postgres() {
            true => "jsonb_array_elements_text(c.waits_for->'agents') w(id) JOIN agents a ON a.id = w.id::uuid",
            false => "json_each(c.waits_for, '$.agents') w JOIN agents a ON a.id = unhex(w.value)",
        };
        let sql = format!(
            "SELECT c.* FROM tool_calls c WHERE c.waits_for IS NOT NULL AND c.ended_at IS NULL AND c.updated_at < $1 \
             AND c.waits_for->'agents' IS NOT NULL \
             AND (c.expires_at <= $2 OR NOT EXISTS (SELECT 1 FROM {awaited} WHERE NOT {RESTS})) ORDER BY c.id LIMIT $3"
        );
        let values: [Value; 3] = [before.into(), self.now().await?.into(), (limit as i64).into()];
        let rows = self.db.query_all_raw(Statement::from_sql_and_values(self.backend(), sql, values)).await?;
        rows.iter().map(|row| Ok(tool_call::Model::from_query_result(row, "")?)).collect()
    }

    /// The oldest message of an agent that no turn has taken up.
    pub async fn first_waiting(&self, agent: Uuid) -> Result<Option<message::Model>, StoreError> {
        let waiting = message::Entity::find().filter(message::Column::AgentId.eq(agent));
        let waiting = waiting.filter(message::Column::TurnId.is_null()).order_by_asc(message::Column::Id);
        Ok(waiting.one(&self.db).await?)
    }
}
