//! Rows of the caller's namespace. What belongs to another is not there.

use crate::call::Call;
use crate::problem::Problem;
use instar_core::id::{AgentId, AssetId, CallId, HopId, MissionId, PlanId, SessionId, StepId, TurnId};
use instar_store::entity::{agent, asset, hop, mission, plan, session, tool_call, tool_step, turn};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QuerySelect, RelationDef};

pub(crate) async fn session(call: &Call) -> Result<session::Model, Problem> {
    session_by(call, call.id::<SessionId>("session")?).await
}

pub(crate) async fn session_by(call: &Call, id: SessionId) -> Result<session::Model, Problem> {
    let found = session::Entity::find_by_id(id.uuid())
        .filter(session::Column::Namespace.eq(&*call.caller.namespace))
        .one(call.api.db())
        .await?;
    let found = found.ok_or_else(|| Problem::absent("session", &id.to_string()))?;
    let _ = call.session.set(id);
    Ok(found)
}

pub(crate) async fn agent(call: &Call) -> Result<(agent::Model, session::Model), Problem> {
    with_session::<agent::Entity>(call, call.id::<AgentId>("agent")?.uuid(), "agent").await
}

pub(crate) async fn turn(call: &Call) -> Result<(turn::Model, session::Model), Problem> {
    with_session::<turn::Entity>(call, call.id::<TurnId>("turn")?.uuid(), "turn").await
}

pub(crate) async fn tool_call(call: &Call) -> Result<(tool_call::Model, session::Model), Problem> {
    with_session::<tool_call::Entity>(call, call.id::<CallId>("tool call")?.uuid(), "tool call").await
}

pub(crate) async fn mission(call: &Call) -> Result<(mission::Model, session::Model), Problem> {
    with_session::<mission::Entity>(call, call.id::<MissionId>("mission")?.uuid(), "mission").await
}

pub(crate) async fn hop(call: &Call) -> Result<(hop::Model, session::Model), Problem> {
    with_session::<hop::Entity>(call, call.id::<HopId>("hop")?.uuid(), "hop").await
}

pub(crate) async fn step(call: &Call) -> Result<(tool_step::Model, session::Model), Problem> {
    with_session::<tool_step::Entity>(call, call.id::<StepId>("tool step")?.uuid(), "tool step").await
}

pub(crate) async fn asset(call: &Call) -> Result<(asset::Model, session::Model), Problem> {
    with_session::<asset::Entity>(call, call.id::<AssetId>("asset")?.uuid(), "asset").await
}

pub(crate) async fn plan(call: &Call) -> Result<(plan::Model, session::Model), Problem> {
    with_session::<plan::Entity>(call, call.id::<PlanId>("plan")?.uuid(), "plan").await
}

/// What belongs to a session.
pub(crate) trait Owned: EntityTrait {
    const SESSION_ID: Self::Column;
    const ID: Self::Column;
}

macro_rules! owned {
    ($($entity:ident),+) => {$(
        impl Owned for $entity::Entity {
            const SESSION_ID: $entity::Column = $entity::Column::SessionId;
            const ID: $entity::Column = $entity::Column::Id;
        }
    )+};
}
owned!(agent, turn, tool_call, mission, hop, tool_step, asset, plan);

pub(crate) fn to_session<E: Owned>() -> RelationDef {
    E::belongs_to(session::Entity).from(E::SESSION_ID).to(session::Column::Id).into()
}

async fn with_session<E: Owned>(
    call: &Call,
    id: uuid::Uuid,
    what: &str,
) -> Result<(E::Model, session::Model), Problem> {
    let found = E::find()
        .join(sea_orm::JoinType::InnerJoin, to_session::<E>())
        .select_also(session::Entity)
        .filter(E::ID.eq(id))
        .filter(session::Column::Namespace.eq(&*call.caller.namespace))
        .one(call.api.db())
        .await?;
    match found {
        Some((row, Some(session))) => {
            let _ = call.session.set(SessionId::from(session.id));
            Ok((row, session))
        }
        _ => Err(Problem::absent(what, call.part("id"))),
    }
}
