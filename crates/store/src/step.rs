//! Steps that could go on, and the versions of assets.

use crate::connect::Store;
use crate::entity::{asset, asset_version, tool_call, tool_step};
use crate::error::StoreError;
use chrono::{DateTime, Utc};
use instar_core::id::{AssetId, MissionId, StepId};
use sea_orm::{
    ColumnTrait, ConnectionTrait, EntityTrait, FromQueryResult, QueryFilter, QueryOrder, QuerySelect, Statement, Value,
};

/// Calls of one step that are looked at together.
const CALLS_SEEN: u64 = 8;

impl Store {
    /// The newest calls of a step, oldest first.
    pub async fn last_calls_of_step(&self, step: StepId) -> Result<Vec<tool_call::Model>, StoreError> {
        let calls = tool_call::Entity::find().filter(tool_call::Column::StepId.eq(step.uuid()));
        let mut calls = calls.order_by_desc(tool_call::Column::Id).limit(CALLS_SEEN).all(&self.db).await?;
        calls.reverse();
        Ok(calls)
    }

    async fn found<M: FromQueryResult>(&self, sql: &str, values: Vec<Value>) -> Result<Vec<M>, StoreError> {
        let rows = self.db.query_all_raw(Statement::from_sql_and_values(self.backend(), sql, values)).await?;
        rows.iter().map(|row| Ok(M::from_query_result(row, "")?)).collect()
    }

    /// Steps that nobody has gone on with since `before`: one that runs and has no call though its next attempt is
    /// due, or the next one of a hop in which none runs.
    pub async fn idle_steps(&self, before: DateTime<Utc>, limit: u64) -> Result<Vec<tool_step::Model>, StoreError> {
        let sql = "SELECT s.* FROM missions m JOIN hops h ON h.id = m.current_hop_id \
                   JOIN sessions e ON e.id = m.session_id JOIN tool_steps s ON s.hop_id = h.id \
                   WHERE m.awaits = 'steps' AND m.updated_at < $1 AND h.status = 'EXECUTING' AND e.status = 'active' \
                   AND ((s.status = 'EXECUTING' AND (s.next_at IS NULL OR s.next_at <= $2) AND NOT EXISTS \
                   (SELECT 1 FROM tool_calls c WHERE c.id = s.call_id AND c.ended_at IS NULL)) \
                   OR (s.status = 'READY_TO_EXECUTE' AND NOT EXISTS (SELECT 1 FROM tool_steps o \
                   WHERE o.hop_id = s.hop_id AND o.sequence < s.sequence \
                   AND o.status IN ('EXECUTING', 'READY_TO_EXECUTE')))) ORDER BY s.id LIMIT $3";
        self.found(sql, vec![before.into(), self.now().await?.into(), (limit as i64).into()]).await
    }

    /// Assets whose time is over, in sessions that can still say so.
    pub async fn expired_assets(&self, limit: u64) -> Result<Vec<asset::Model>, StoreError> {
        let sql = "SELECT a.* FROM assets a JOIN sessions e ON e.id = a.session_id \
                   WHERE a.expires_at IS NOT NULL AND a.status NOT IN ('EXPIRED', 'deleted') AND a.expires_at <= $1 \
                   AND e.status NOT IN ('closing', 'closed', 'archived') ORDER BY a.expires_at LIMIT $2";
        self.found(sql, vec![self.now().await?.into(), (limit as i64).into()]).await
    }

    /// The versions of an asset, newest first, without their content.
    pub async fn versions_of(&self, asset: AssetId, limit: u64) -> Result<Vec<asset_version::Model>, StoreError> {
        let sql = "SELECT id, session_id, asset_id, number, hash, bytes, media_type, summary, NULL AS content, \
                   content_of, step_id, call_id, author, lineage, created_at, version FROM asset_versions \
                   WHERE asset_id = $1 ORDER BY number DESC LIMIT $2";
        self.found(sql, vec![asset.uuid().into(), (limit as i64).into()]).await
    }

    /// All versions of a mission's assets, without their content: how its assets came to be.
    pub async fn versions_in(&self, mission: MissionId, limit: u64) -> Result<Vec<asset_version::Model>, StoreError> {
        let sql = "SELECT v.id, v.session_id, v.asset_id, v.number, v.hash, v.bytes, v.media_type, v.summary, \
                   NULL AS content, v.content_of, v.step_id, v.call_id, v.author, v.lineage, v.created_at, v.version \
                   FROM assets a JOIN asset_versions v ON v.asset_id = a.id WHERE a.mission_id = $1 \
                   ORDER BY v.id LIMIT $2";
        self.found(sql, vec![mission.uuid().into(), (limit as i64).into()]).await
    }

    /// The hops of some steps.
    pub async fn hops_of_steps(
        &self,
        steps: impl IntoIterator<Item = uuid::Uuid>,
    ) -> Result<Vec<(uuid::Uuid, uuid::Uuid)>, StoreError> {
        let rows = tool_step::Entity::find().select_only().filter(tool_step::Column::Id.is_in(steps));
        let rows = rows.columns([tool_step::Column::Id, tool_step::Column::HopId]).order_by_asc(tool_step::Column::Id);
        Ok(rows.into_tuple().all(&self.db).await?)
    }
}
