//! Plans with their tasks, the agents that are free for them, and what they have cost.

use crate::connect::Store;
use crate::entity::{agent, critique, plan, plan_turn, task, turn};
use crate::error::StoreError;
use chrono::{DateTime, Utc};
use instar_core::id::{PlanId, RuneId, SessionId, TurnId};
use sea_orm::{ColumnTrait, ConnectionTrait, EntityTrait, FromQueryResult, QueryFilter, QueryOrder, QuerySelect};
use sea_orm::{QueryResult, Statement, Value};
use std::collections::{HashMap, HashSet};
use uuid::Uuid;

/// How far back in a log evidence is looked for.
const EVIDENCE_RUNES: i64 = 50_000;
/// Pieces of evidence that one turn yields by itself, the newest.
const EVIDENCE_MAX: u64 = 50;

/// An agent with nothing to do, of `a` in a query.
const FREE: &str = "a.lifecycle = 'idle' AND a.drive IN ('idle', 'running') \
                    AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.agent_id = a.id AND t.ended_at IS NULL) \
                    AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.agent_id = a.id AND m.turn_id IS NULL)";

impl Store {
    pub async fn plan(&self, id: PlanId) -> Result<Option<plan::Model>, StoreError> {
        Ok(plan::Entity::find_by_id(id.uuid()).one(&self.db).await?)
    }

    /// In the order in which they were added.
    pub async fn tasks_of(&self, plan: PlanId) -> Result<Vec<task::Model>, StoreError> {
        let tasks = task::Entity::find().filter(task::Column::PlanId.eq(plan.uuid()));
        Ok(tasks.order_by_asc(task::Column::Id).all(&self.db).await?)
    }

    /// What a turn does for a plan; `None`: it works on none.
    pub async fn plan_turn(&self, turn: TurnId) -> Result<Option<plan_turn::Model>, StoreError> {
        Ok(plan_turn::Entity::find_by_id(turn.uuid()).one(&self.db).await?)
    }

    /// Oldest first.
    pub async fn critiques_of(&self, plan: PlanId) -> Result<Vec<critique::Model>, StoreError> {
        let said = critique::Entity::find().filter(critique::Column::PlanId.eq(plan.uuid()));
        Ok(said.order_by_asc(critique::Column::Id).all(&self.db).await?)
    }

    /// Plans of a session that have not ended.
    pub async fn live_plans(&self, session: SessionId) -> Result<Vec<PlanId>, StoreError> {
        let live = plan::Entity::find()
            .filter(plan::Column::SessionId.eq(session.uuid()))
            .filter(plan::Column::EndedAt.is_null())
            .order_by_asc(plan::Column::Id);
        let ids: Vec<Uuid> = live.select_only().column(plan::Column::Id).into_tuple().all(&self.db).await?;
        Ok(ids.into_iter().map(PlanId::from).collect())
    }

    /// These turns, as they are now.
    pub async fn turns_by_id(&self, ids: Vec<Uuid>) -> Result<Vec<turn::Model>, StoreError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        Ok(turn::Entity::find().filter(turn::Column::Id.is_in(ids)).all(&self.db).await?)
    }

    async fn ask(&self, sql: &str, values: Vec<Value>) -> Result<Vec<QueryResult>, StoreError> {
        Ok(self.db.query_all_raw(Statement::from_sql_and_values(self.backend(), sql, values)).await?)
    }

    /// Agents of a role that have nothing to do, oldest first.
    pub async fn free_agents(
        &self,
        session: SessionId,
        role: &str,
        limit: u64,
    ) -> Result<Vec<agent::Model>, StoreError> {
        let sql = format!(
            "SELECT a.* FROM agents a WHERE a.session_id = $1 AND a.role = $2 AND {FREE} AND NOT EXISTS (SELECT 1 \
             FROM plans p JOIN tasks k ON k.plan_id = p.id WHERE p.session_id = $1 AND p.ended_at IS NULL \
             AND k.owner_id = a.id AND k.status IN ('assigned', 'running')) ORDER BY a.id LIMIT $3"
        );
        let rows = self.ask(&sql, vec![session.uuid().into(), role.into(), (limit as i64).into()]).await?;
        rows.iter().map(|row| Ok(agent::Model::from_query_result(row, "")?)).collect()
    }

    /// The same of one agent, if it is free.
    pub async fn free_agent(&self, id: Uuid) -> Result<Option<agent::Model>, StoreError> {
        let rows = self.ask(&format!("SELECT a.* FROM agents a WHERE a.id = $1 AND {FREE}"), vec![id.into()]).await?;
        rows.first().map(|row| Ok(agent::Model::from_query_result(row, "")?)).transpose()
    }

    /// How many agents of a role take work, be they busy or not.
    pub async fn agents_at_hand(&self, session: SessionId, role: &str) -> Result<u64, StoreError> {
        let sql = "SELECT count(*) FROM agents WHERE session_id = $1 AND role = $2 \
                   AND lifecycle NOT IN ('terminated', 'failed') AND drive IN ('idle', 'running')";
        let rows = self.ask(sql, vec![session.uuid().into(), role.into()]).await?;
        let count: Option<i64> = rows.first().map(|row| row.try_get_by_index(0)).transpose()?;
        Ok(count.unwrap_or_default() as u64)
    }

    /// Agents of a session that take work, be they busy or not, oldest first.
    pub async fn living_agents(&self, session: SessionId, limit: u64) -> Result<Vec<agent::Model>, StoreError> {
        let sql = "SELECT * FROM agents WHERE session_id = $1 AND lifecycle NOT IN ('terminated', 'failed') \
                   AND drive IN ('idle', 'running') ORDER BY id LIMIT $2";
        let rows = self.ask(sql, vec![session.uuid().into(), (limit as i64).into()]).await?;
        rows.iter().map(|row| Ok(agent::Model::from_query_result(row, "")?)).collect()
    }

    /// Agents that plans of a session that have not ended count on.
    pub async fn planned_on(&self, session: SessionId) -> Result<HashSet<Uuid>, StoreError> {
        let live = "p.session_id = $1 AND p.ended_at IS NULL";
        let sql = format!(
            "SELECT p.orchestrator_id FROM plans p WHERE {live} AND p.orchestrator_id IS NOT NULL \
             UNION SELECT p.critic_id FROM plans p WHERE {live} AND p.critic_id IS NOT NULL \
             UNION SELECT k.owner_id FROM plans p JOIN tasks k ON k.plan_id = p.id WHERE {live} \
             AND k.owner_id IS NOT NULL AND k.status IN ('assigned', 'running')"
        );
        let rows = self.ask(&sql, vec![session.uuid().into()]).await?;
        rows.iter().map(|row| Ok(row.try_get_by_index::<Uuid>(0)?)).collect()
    }

    /// Tokens and tool calls that the turns of a plan have used.
    pub async fn plan_usage(&self, plan: PlanId) -> Result<(u64, u64), StoreError> {
        let sql = "SELECT CAST(coalesce(sum(coalesce(CAST(t.usage->>'input_tokens' AS bigint), 0) \
                   + coalesce(CAST(t.usage->>'output_tokens' AS bigint), 0)), 0) AS bigint), \
                   CAST(coalesce(sum((SELECT count(*) FROM tool_calls c WHERE c.turn_id = t.id)), 0) AS bigint) \
                   FROM plan_turns p JOIN turns t ON t.id = p.id WHERE p.plan_id = $1";
        let rows = self.ask(sql, vec![plan.uuid().into()]).await?;
        let Some(row) = rows.first() else { return Ok((0, 0)) };
        let read = |at: usize| row.try_get_by_index::<i64>(at).map(|n| n.max(0) as u64);
        Ok((read(0)?, read(1)?))
    }

    /// Runes that bear out what was done in a turn: the results of its calls, or else what its model said.
    pub async fn evidence_of(&self, session: SessionId, turn: TurnId) -> Result<Vec<RuneId>, StoreError> {
        let sql = "SELECT id, kind FROM runes WHERE session_id = $1 AND turn_id = $2 AND seq > (SELECT head_seq \
                   FROM sessions WHERE id = $1) - $3 AND kind IN ('tool.result', 'turn.tool_calls_received') \
                   ORDER BY seq DESC LIMIT $4";
        let values =
            vec![session.uuid().into(), turn.uuid().into(), EVIDENCE_RUNES.into(), (EVIDENCE_MAX as i64).into()];
        let mut found: Vec<(RuneId, bool)> = Vec::new();
        for row in self.ask(sql, values).await? {
            let kind: String = row.try_get_by_index(1)?;
            found.push((RuneId::from(row.try_get_by_index::<Uuid>(0)?), kind == "tool.result"));
        }
        let results = found.iter().any(|(_, result)| *result);
        found.retain(|(_, result)| *result == results);
        found.reverse();
        Ok(found.into_iter().map(|(id, _)| id).collect())
    }

    /// Kind and payload of these runes, as far as they are in a session's log and anybody may read them; of each so
    /// many characters at the most.
    pub async fn rune_texts(
        &self,
        session: SessionId,
        ids: &[RuneId],
        chars_max: usize,
    ) -> Result<HashMap<RuneId, (String, String)>, StoreError> {
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let places: Vec<String> = (4..4 + ids.len()).map(|n| format!("${n}")).collect();
        let sql = format!(
            "SELECT id, kind, substr(payload, 1, $3) FROM runes WHERE session_id = $1 AND visibility <> 'secret' \
             AND seq > (SELECT head_seq FROM sessions WHERE id = $1) - $2 AND id IN ({})",
            places.join(", ")
        );
        let chars = i32::try_from(chars_max).unwrap_or(i32::MAX);
        let mut values: Vec<Value> = vec![session.uuid().into(), EVIDENCE_RUNES.into(), chars.into()];
        values.extend(ids.iter().map(|id| Value::from(id.uuid())));
        let rows = self.ask(&sql, values).await?;
        let read = |row: &QueryResult| {
            let id = RuneId::from(row.try_get_by_index::<Uuid>(0)?);
            Ok((id, (row.try_get_by_index(1)?, row.try_get_by_index(2)?)))
        };
        rows.iter().map(read).collect()
    }

    /// Those of these runes that are in a session's log.
    pub async fn runes_there(&self, session: SessionId, ids: &[RuneId]) -> Result<Vec<RuneId>, StoreError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let places: Vec<String> = (3..3 + ids.len()).map(|n| format!("${n}")).collect();
        let sql = format!(
            "SELECT id FROM runes WHERE session_id = $1 AND seq > (SELECT head_seq FROM sessions WHERE id = $1) - $2 \
             AND id IN ({})",
            places.join(", ")
        );
        let mut values: Vec<Value> = vec![session.uuid().into(), EVIDENCE_RUNES.into()];
        values.extend(ids.iter().map(|id| Value::from(id.uuid())));
        let rows = self.ask(&sql, values).await?;
        rows.iter().map(|row| Ok(RuneId::from(row.try_get_by_index::<Uuid>(0)?))).collect()
    }

    /// Live plans of active sessions that may go on and that nobody wrote since `before`, after `from` in the order
    /// of ids. Those that wait for a person or for a turn that runs are not among them; `late`: a task that was
    /// assigned before this should have begun.
    pub async fn due_plans(
        &self,
        before: DateTime<Utc>,
        late: DateTime<Utc>,
        from: Uuid,
        limit: u64,
    ) -> Result<Vec<plan::Model>, StoreError> {
        let over =
            |turn: &str| format!("NOT EXISTS (SELECT 1 FROM turns t WHERE t.id = {turn} AND t.ended_at IS NULL)");
        let (plan_over, task_over) = (over("p.turn_id"), over("k.turn_id"));
        let sql = format!(
            "SELECT p.* FROM plans p JOIN sessions s ON s.id = p.session_id \
             WHERE p.ended_at IS NULL AND s.status = 'active' AND p.updated_at < $1 AND p.id > $3 AND ( \
             p.status IN ('goal_received', 'blocked') \
             OR (p.status = 'planning' AND p.drafted AND p.autonomy = 'auto') \
             OR (p.status = 'planning' AND NOT p.drafted AND {plan_over}) \
             OR (p.status = 'reviewing' AND {plan_over}) \
             OR (p.status = 'executing' AND ( \
                NOT EXISTS (SELECT 1 FROM tasks k WHERE k.plan_id = p.id AND k.status IN ('assigned', 'running')) \
                OR EXISTS (SELECT 1 FROM tasks k LEFT JOIN agents a ON a.id = k.owner_id WHERE k.plan_id = p.id AND ( \
                k.status IN ('pending', 'failed') OR (k.status = 'assigned' AND k.assigned_at < $2) \
                OR (k.status IN ('assigned', 'running') AND ({task_over} \
                OR a.lifecycle IN ('terminated', 'failed') OR a.drive IN ('stopped', 'errored', 'deleted')))))))) \
             ORDER BY p.id LIMIT $4"
        );
        let values = vec![before.into(), late.into(), from.into(), (limit as i64).into()];
        let rows = self.ask(&sql, values).await?;
        rows.iter().map(|row| Ok(plan::Model::from_query_result(row, "")?)).collect()
    }
}
