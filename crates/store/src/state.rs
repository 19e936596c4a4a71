//! The rows of a session as replay sees them: which machine is in which state.

use crate::connect::Store;
use crate::entity::{agent, asset, hop, mission, plan, session, task, tool_call, tool_step, turn};
use crate::error::StoreError;
use instar_core::id::{Entity, Kind, SessionId};
use instar_core::machine::{self, Table as Machine};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QuerySelect};
use uuid::Uuid;

/// A machine, the entity and the state that its row shows.
pub type State = (&'static Machine, Entity, String);

impl Store {
    /// Every state that the rows of a session show, to compare with what its runes fold to.
    pub async fn states(&self, session: SessionId) -> Result<Vec<State>, StoreError> {
        let db = &self.db;
        let id = session.uuid();
        let mut states = Vec::new();
        let mut add = |machine: &'static Machine, kind: Kind, rows: Vec<(Uuid, String)>| {
            states.extend(rows.into_iter().map(|(id, state)| (machine, Entity::new(kind, id), state)));
        };
        use machine::{
            agent_drive, agent_lifecycle, session as session_machine, tool_call as call_machine, turn as turn_machine,
        };

        let rows = session::Entity::find_by_id(id).select_only();
        let rows = rows.columns([session::Column::Id, session::Column::Status]).into_tuple().all(db).await?;
        add(&session_machine::TABLE, Kind::Session, rows);
        let agents = || agent::Entity::find().select_only().filter(agent::Column::SessionId.eq(id));
        let rows = agents().columns([agent::Column::Id, agent::Column::Lifecycle]).into_tuple().all(db).await?;
        add(&agent_lifecycle::TABLE, Kind::Agent, rows);
        let rows = agents().columns([agent::Column::Id, agent::Column::Drive]).into_tuple().all(db).await?;
        add(&agent_drive::TABLE, Kind::Agent, rows);
        let rows = turn::Entity::find().select_only().filter(turn::Column::SessionId.eq(id));
        let rows = rows.columns([turn::Column::Id, turn::Column::Status]).into_tuple().all(db).await?;
        add(&turn_machine::TABLE, Kind::Turn, rows);
        let rows = tool_call::Entity::find().select_only().filter(tool_call::Column::SessionId.eq(id));
        let rows = rows.columns([tool_call::Column::Id, tool_call::Column::Status]).into_tuple().all(db).await?;
        add(&call_machine::TABLE, Kind::ToolCall, rows);
        macro_rules! states_of {
            ($($entity:ident $kind:ident),+) => {$(
                let rows = $entity::Entity::find().select_only().filter($entity::Column::SessionId.eq(id));
                let rows = rows.columns([$entity::Column::Id, $entity::Column::Status]).into_tuple().all(db).await?;
                add(&machine::$entity::TABLE, Kind::$kind, rows);
            )+};
        }
        states_of!(mission Mission, hop Hop, tool_step ToolStep, asset Asset, plan Plan, task Task);
        Ok(states)
    }
}
