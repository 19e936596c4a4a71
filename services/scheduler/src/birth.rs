//! Agents in the making that wait for MCP servers to say what they offer.

use crate::Desk;
use anyhow::Result;
use chrono::Duration;
use instar_core::id::{AgentId, SessionId};
use instar_runtime::{Ready, TOOLS_FRESH, flow, is_unheard};
use instar_store::Answer;
use instar_store::entity::timer;
use serde_json::json;

/// How soon it is looked at again. A server that does not say anything fails after its `start_timeout_ms`, and one whose
/// runner is gone is not waited for: this ends.
const AGAIN: Duration = Duration::milliseconds(300);

pub(crate) async fn look(desk: &Desk, timer: &timer::Model) -> Result<bool> {
    let Ok(id) = timer.entity.parse::<AgentId>() else { return Ok(true) };
    let store = desk.hub.store();
    let Some(agent) = store.agent(id).await?.filter(|agent| agent.lifecycle == "spawning") else { return Ok(true) };
    let Some(session) = store.session(SessionId::from(agent.session_id)).await? else { return Ok(true) };
    let put_off = async |wait: Duration, heard: bool| -> Result<bool> {
        store.put_off(timer.id, store.now().await? + wait, json!({"heard": heard})).await?;
        Ok(false)
    };
    if is_unheard(store, &agent.tools()).await? {
        return put_off(AGAIN, false).await;
    }
    if timer.payload.as_ref().is_none_or(|payload| payload["heard"] != true) {
        // A worker that looked a moment ago does not know them yet.
        return put_off(Duration::from_std(TOOLS_FRESH)? + AGAIN, true).await;
    }
    let Answer::Moved(_) = desk.hub.commit(flow::ready(&session, &agent, desk.actor.clone())?).await? else {
        return put_off(AGAIN, true).await;
    };
    // What was said to it meanwhile has a turn that nobody could claim.
    if let Some(turn) = store.last_turn(agent.id).await?.filter(|turn| turn.status == "queued") {
        desk.hub.wake_turn(Ready::of(&turn, "queued"), agent.owner, turn.traceparent.as_deref());
    }
    Ok(true)
}
