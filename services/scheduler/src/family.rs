//! Agents around one whose turn has ended, where nobody heard of that end.

use crate::repeat::Why;
use crate::{BATCH, Desk};
use anyhow::Result;
use chrono::Duration;
use instar_core::id::{AgentId, SessionId};
use instar_core::machine::agent_lifecycle;
use instar_runtime::{Act, ActError, Done};
use instar_store::entity::timer;

/// A task that waited for this long may have missed its place.
const UNHEARD: i64 = 2;

pub(crate) async fn look(desk: Desk) -> Result<()> {
    let store = desk.hub.store();
    let before = store.now().await? - Duration::seconds(UNHEARD);
    for parent in store.crowded_agents(before, BATCH).await? {
        // One family that cannot be helped must not keep the others from it.
        if let Err(error) = desk.hub.release_children(parent, desk.config.agents.children_at_work_max).await {
            tracing::warn!(%parent, %error, "its children could not be released; it is tried again");
        }
    }
    for call in store.due_waits(before, BATCH).await? {
        if desk.repeats.due(Why::Idle, call.id, call.version) {
            desk.hub.wake_call_row(&call, true);
        }
    }
    Ok(())
}

/// An agent has ended after its turn: what it made ends too.
pub(crate) async fn orphans(desk: &Desk, timer: &timer::Model) -> Result<bool> {
    let Ok(parent) = timer.entity.parse::<AgentId>() else { return Ok(true) };
    let session = SessionId::from(timer.session_id);
    for child in desk.hub.store().live_children(parent).await? {
        let id = AgentId::from(child.agent.id);
        let act = Act::new(session, id, &agent_lifecycle::TABLE, "parent_closed", desk.actor.clone());
        match act.carry_out(&desk.hub).await {
            Ok(Done::Moved { runes }) => desk.hub.follow(&runes),
            Ok(Done::Ignored) | Err(ActError::Refused(_) | ActError::Absent(_)) => {}
            Err(ActError::Contended) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}
