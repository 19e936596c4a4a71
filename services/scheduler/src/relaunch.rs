//! Agents whose provider failed and that shall not wait for a person.

use crate::Desk;
use anyhow::Result;
use instar_core::id::AgentId;
use instar_runtime::flow;
use instar_store::Answer;
use instar_store::entity::{agent, timer};

/// How often a start is worked out anew because somebody wrote the same row.
const LOOKS_MAX: usize = 4;

/// True when there is nothing left to do.
pub(crate) async fn fire(desk: &Desk, timer: &timer::Model) -> Result<bool> {
    let Ok(id) = timer.entity.parse::<AgentId>() else { return Ok(true) };
    let epoch = timer.payload.as_ref().and_then(|payload| payload["epoch"].as_i64());
    for _ in 0..LOOKS_MAX {
        let Some(agent) = desk.hub.store().agent(id).await? else { return Ok(true) };
        // Somebody else has started or ended it, or it is no longer to be.
        let waits = agent.drive == "errored" && agent.lifecycle == "idle" && epoch == Some(agent.epoch);
        if !waits || flow::relaunch_after(&agent).is_none() || is_in_vain(desk, &agent).await? {
            return Ok(true);
        }
        if let Answer::Moved(landed) = desk.hub.commit(flow::relaunch(&agent, desk.actor.clone())?).await? {
            desk.hub.follow(&landed.runes);
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether it was started as often as it may be, and each time came to nothing.
async fn is_in_vain(desk: &Desk, agent: &agent::Model) -> Result<bool> {
    let tried = flow::RELAUNCHES_MAX + 1;
    let latest = desk.hub.store().latest_turns(AgentId::from(agent.id), tried).await?;
    Ok(latest.len() as u64 == tried && latest.iter().all(|turn| turn.status == "error"))
}
