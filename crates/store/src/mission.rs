//! Missions with their hops, steps and assets, as commands on them need them: bounded by what is live, whatever the
//! session has behind it.

use crate::connect::Store;
use crate::entity::{asset, asset_version, hop, mission, tool_call, tool_step};
use crate::error::StoreError;
use chrono::{DateTime, Utc};
use instar_core::id::{AgentId, AssetId, HopId, MissionId, SessionId, StepId};
use sea_orm::{ColumnTrait, ConnectionTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect, Statement, Value};
use uuid::Uuid;

/// Why a person should look at a mission: its agent takes no work until somebody starts it.
pub const AGENT_STOPPED: &str = "agent_stopped";

/// What belongs to some missions: the hops that can still move, their steps, all assets and the calls under way.
#[derive(Clone, Debug, Default)]
pub struct MissionRows {
    pub missions: Vec<mission::Model>,
    pub hops: Vec<hop::Model>,
    /// Of those hops, in sequence order; without deleted ones.
    pub steps: Vec<tool_step::Model>,
    /// Without deleted ones.
    pub assets: Vec<asset::Model>,
    /// Of those steps, without a result.
    pub calls: Vec<tool_call::Model>,
}

impl Store {
    pub async fn mission(&self, id: MissionId) -> Result<Option<mission::Model>, StoreError> {
        Ok(mission::Entity::find_by_id(id.uuid()).one(&self.db).await?)
    }

    pub async fn hop(&self, id: HopId) -> Result<Option<hop::Model>, StoreError> {
        Ok(hop::Entity::find_by_id(id.uuid()).one(&self.db).await?)
    }

    pub async fn step(&self, id: StepId) -> Result<Option<tool_step::Model>, StoreError> {
        Ok(tool_step::Entity::find_by_id(id.uuid()).one(&self.db).await?)
    }

    pub async fn asset(&self, id: AssetId) -> Result<Option<asset::Model>, StoreError> {
        Ok(asset::Entity::find_by_id(id.uuid()).one(&self.db).await?)
    }

    /// A version of an asset's content, without looking where the content is kept.
    pub async fn asset_version(&self, id: AssetId, number: i64) -> Result<Option<asset_version::Model>, StoreError> {
        let of = asset_version::Entity::find().filter(asset_version::Column::AssetId.eq(id.uuid()));
        Ok(of.filter(asset_version::Column::Number.eq(number)).one(&self.db).await?)
    }

    /// Steps of a hop in sequence order; without deleted ones.
    pub async fn steps_of(&self, hop: HopId) -> Result<Vec<tool_step::Model>, StoreError> {
        self.steps_of_hops(&[hop.uuid()]).await
    }

    /// Assets of a mission, oldest first; without deleted ones.
    pub async fn assets_of(&self, mission: MissionId) -> Result<Vec<asset::Model>, StoreError> {
        self.assets_of_missions(&[mission.uuid()]).await
    }

    /// Missions that an agent works on: those that wait for it before those that wait for others, oldest first.
    pub async fn missions_of(&self, agent: AgentId, limit: u64) -> Result<Vec<mission::Model>, StoreError> {
        let of = mission::Entity::find().filter(mission::Column::AgentId.eq(agent.uuid()));
        let of = of.filter(mission::Column::EndedAt.is_null());
        let of = of.order_by_desc(mission::Column::Awaits.eq("agent")).order_by_asc(mission::Column::Id);
        Ok(of.limit(limit).all(&self.db).await?)
    }

    /// One mission, if this agent works on it.
    pub async fn mission_of(&self, agent: AgentId, id: MissionId) -> Result<Option<mission::Model>, StoreError> {
        let mission = self.mission(id).await?;
        Ok(mission.filter(|row| row.agent_id == Some(agent.uuid()) && row.ended_at.is_none()))
    }

    /// The number that a hop's next step gets: one is given once.
    pub async fn next_step_number(&self, hop: HopId) -> Result<i64, StoreError> {
        let sql = "SELECT COALESCE(MAX(sequence), 0) FROM tool_steps WHERE hop_id = $1";
        let statement = Statement::from_sql_and_values(self.backend(), sql, [Value::from(hop.uuid())]);
        let row = self.db.query_one_raw(statement).await?;
        let last: i64 = row.map(|row| row.try_get_by_index(0)).transpose()?.unwrap_or_default();
        Ok(last + 1)
    }

    /// Missions that can go on by themselves and were not written since `before`: a gate that opens by policy, an
    /// agent that is free to be asked, or gone, or that takes no work and nobody was told, or does again; after `from`
    /// in the order of ids.
    pub async fn idle_missions(
        &self,
        before: DateTime<Utc>,
        from: Uuid,
        limit: u64,
    ) -> Result<Vec<MissionId>, StoreError> {
        let sql = "SELECT m.id FROM missions m JOIN sessions s ON s.id = m.session_id \
                   LEFT JOIN agents a ON a.id = m.agent_id \
                   WHERE m.awaits IN ('agent', 'policy') AND s.status = 'active' AND m.updated_at < $1 AND m.id > $2 \
                   AND (m.awaits = 'policy' OR a.lifecycle IN ('terminated', 'failed') \
                   OR (a.drive IN ('stopped', 'errored')) <> (COALESCE(m.attention ->> 'reason', '') = $3) \
                   OR (a.lifecycle = 'idle' \
                   AND a.drive IN ('idle', 'running') AND NOT EXISTS (SELECT 1 FROM turns t \
                   WHERE t.session_id = a.session_id AND t.agent_id = a.id AND t.ended_at IS NULL))) \
                   ORDER BY m.id LIMIT $4";
        self.mission_ids(sql, vec![before.into(), from.into(), AGENT_STOPPED.into(), (limit as i64).into()]).await
    }

    /// Missions at a gate that nobody has opened in time.
    pub async fn overdue_gates(&self, now: DateTime<Utc>, limit: u64) -> Result<Vec<MissionId>, StoreError> {
        let sql = "SELECT id FROM missions WHERE gate_due_at IS NOT NULL AND gate_due_at <= $1 \
                   ORDER BY gate_due_at LIMIT $2";
        self.mission_ids(sql, vec![now.into(), (limit as i64).into()]).await
    }

    async fn mission_ids(&self, sql: &str, values: Vec<Value>) -> Result<Vec<MissionId>, StoreError> {
        let rows = self.db.query_all_raw(Statement::from_sql_and_values(self.backend(), sql, values)).await?;
        rows.iter().map(|row| Ok(MissionId::from(row.try_get_by_index::<Uuid>(0)?))).collect()
    }

    async fn steps_of_hops(&self, hops: &[Uuid]) -> Result<Vec<tool_step::Model>, StoreError> {
        let of = tool_step::Entity::find().filter(tool_step::Column::HopId.is_in(hops.iter().copied()));
        let of = of.filter(tool_step::Column::Status.ne("deleted"));
        let of = of.order_by_asc(tool_step::Column::HopId).order_by_asc(tool_step::Column::Sequence);
        Ok(of.all(&self.db).await?)
    }

    async fn assets_of_missions(&self, missions: &[Uuid]) -> Result<Vec<asset::Model>, StoreError> {
        let of = asset::Entity::find().filter(asset::Column::MissionId.is_in(missions.iter().copied()));
        let of = of.filter(asset::Column::Status.ne("deleted")).order_by_asc(asset::Column::Id);
        Ok(of.all(&self.db).await?)
    }

    /// A mission with its current hop, and another hop of it that a command is about.
    pub async fn mission_rows(&self, id: MissionId, about: Option<HopId>) -> Result<MissionRows, StoreError> {
        match self.mission(id).await? {
            Some(mission) => self.rows_of(vec![mission], about.map(HopId::uuid)).await,
            None => Ok(MissionRows::default()),
        }
    }

    /// Every live mission of a session, with what is theirs.
    pub async fn live_missions(&self, session: SessionId) -> Result<MissionRows, StoreError> {
        let live = mission::Entity::find().filter(mission::Column::SessionId.eq(session.uuid()));
        let live = live.filter(mission::Column::EndedAt.is_null()).order_by_asc(mission::Column::Id);
        let missions = live.all(&self.db).await?;
        self.rows_of(missions, None).await
    }

    async fn rows_of(&self, missions: Vec<mission::Model>, about: Option<Uuid>) -> Result<MissionRows, StoreError> {
        if missions.is_empty() {
            return Ok(MissionRows::default());
        }
        let mut hops: Vec<Uuid> = missions.iter().filter_map(|m| m.current_hop_id).chain(about).collect();
        hops.sort_unstable();
        hops.dedup();
        let ids: Vec<Uuid> = missions.iter().map(|m| m.id).collect();
        let assets = self.assets_of_missions(&ids).await?;
        if hops.is_empty() {
            return Ok(MissionRows { missions, assets, ..MissionRows::default() });
        }
        let found = hop::Entity::find().filter(hop::Column::Id.is_in(hops.iter().copied()));
        let found = found.order_by_asc(hop::Column::Id).all(&self.db).await?;
        let steps = self.steps_of_hops(&hops).await?;
        // A step names the call of its latest attempt; earlier ones have their results.
        let calls: Vec<Uuid> = steps.iter().filter_map(|step| step.call_id).collect();
        let calls = if calls.is_empty() {
            Vec::new()
        } else {
            let open = tool_call::Entity::find().filter(tool_call::Column::Id.is_in(calls));
            open.filter(tool_call::Column::EndedAt.is_null()).all(&self.db).await?
        };
        Ok(MissionRows { missions, hops: found, steps, assets, calls })
    }
}
