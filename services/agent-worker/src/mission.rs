//! Which proposals an agent can make now: a tool of a mission is offered only in the state that waits for it.

use crate::held::Held;
use crate::worker::Worker;
use anyhow::Result;
use instar_core::id::HopId;
use instar_runtime::mission::{Task, may_replan, mission_of};
use instar_tools::{Kind, Native, Tool};
use std::sync::Arc;

/// Missions of one agent that are looked at beside that of the turn.
const MISSIONS_MAX: u64 = 20;

/// Costs nothing to agents that have no such tools.
pub(crate) async fn offered(worker: &Worker, held: &Held, mut tools: Vec<Arc<Tool>>) -> Result<Vec<Arc<Tool>>> {
    let native = |tool: &Tool| Native::named(tool.name()).filter(|_| tool.spec().kind == Kind::Native);
    let of_mission = |tool: &Tool| native(tool).is_some_and(Native::is_of_mission);
    if !tools.iter().any(|tool| of_mission(tool)) {
        return Ok(tools);
    }
    let store = worker.hub.store();
    let mut wanted = vec![Native::ProposeMission.name()];
    let mut missions = store.missions_of(held.agent_id(), MISSIONS_MAX).await?;
    // That of the turn comes first, however many others there are.
    if let Some(id) = mission_of(&held.turn).filter(|id| !missions.iter().any(|mission| mission.id == id.uuid())) {
        missions.extend(store.mission_of(held.agent_id(), id).await?);
    }
    for mission in missions {
        let hop = match mission.current_hop_id {
            Some(hop) => store.hop(HopId::from(hop)).await?,
            None => None,
        };
        if let Some(task) = Task::of(&mission, hop.as_ref()) {
            wanted.extend([task.tool(), Native::AskPerson.name()]);
            wanted.extend(task.failure().map(|_| Native::FailHop.name()));
        }
        if hop.is_some_and(|hop| may_replan(&mission, &hop)) {
            wanted.push(Native::ReplanHop.name());
        }
    }
    tools.retain(|tool| !of_mission(tool) || wanted.contains(&tool.name()));
    Ok(tools)
}
