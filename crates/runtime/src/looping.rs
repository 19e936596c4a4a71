//! Autonomous agents whose session goes on: their timers ran out while it stood still.

use crate::flow::NUDGE_TIMER;
use crate::hub::Hub;
use chrono::SubsecRound;
use instar_core::id::{AgentId, SessionId};
use instar_store::StoreError;
use instar_store::entity::{agent, timer};
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, EntityTrait, IntoActiveModel, QueryFilter, QuerySelect};
use serde_json::json;
use uuid::Uuid;

/// Timers in one statement.
const ROWS_MAX: usize = 500;

impl Hub {
    /// Has the scheduler look at every autonomous agent of the session that is free. More than needed does no
    /// harm, since a timer is about one epoch; fewer are made good by a sweep.
    pub async fn nudge_session(&self, session: SessionId) -> Result<(), StoreError> {
        let loops = agent::Entity::find()
            .filter(agent::Column::SessionId.eq(session.uuid()))
            .filter(agent::Column::Drive.eq("running"))
            .filter(Expr::cust("config->>'loop' = 'autonomous'"))
            .filter(agent::Column::Lifecycle.eq("idle"))
            .select_only()
            .columns([agent::Column::Id, agent::Column::Epoch])
            .into_tuple::<(Uuid, i64)>()
            .all(self.store().db())
            .await?;
        let now = self.store().now().await?.trunc_subsecs(6);
        let row = |(id, epoch): &(Uuid, i64)| timer::Model {
            id: Uuid::now_v7(),
            session_id: session.uuid(),
            kind: NUDGE_TIMER.into(),
            entity: AgentId::from(*id).to_string(),
            due_at: now,
            claimed_until: None,
            payload: Some(json!({"epoch": epoch})),
            version: 0,
            created_at: now,
        };
        for some in loops.chunks(ROWS_MAX) {
            let rows = some.iter().map(|agent| row(agent).into_active_model());
            timer::Entity::insert_many(rows).exec_without_returning(self.store().db()).await?;
        }
        Ok(())
    }
}
