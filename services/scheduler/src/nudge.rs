//! Autonomous agents: when its pause is over, a free one gets a turn of its own. The timer that ends its
//! pause may be lost; then the agent stands still, and is found by that.

use crate::{BATCH, Desk};
use anyhow::Result;
use futures::StreamExt;
use instar_core::id::{AgentId, SessionId};
use instar_runtime::{Ready, flow};
use instar_store::entity::{agent, timer};
use instar_store::{Addressee, Answer, clock};
use uuid::Uuid;

/// How often a nudge is worked out anew because somebody wrote the same rows.
const LOOKS_MAX: usize = 4;
/// Nudges under way at once: commits of one moment share a transaction.
const AT_ONCE: usize = 32;
/// An agent that rests this much longer than its pause has lost its timer.
const LOST_AFTER: chrono::Duration = chrono::Duration::seconds(3);

/// The pause of an agent is over. True when there is nothing left to do.
pub(crate) async fn fire(desk: &Desk, timer: &timer::Model) -> Result<bool> {
    let Ok(id) = timer.entity.parse::<AgentId>() else { return Ok(true) };
    let epoch = timer.payload.as_ref().and_then(|payload| payload["epoch"].as_i64());
    for _ in 0..LOOKS_MAX {
        let Some(found) = desk.hub.store().addressee(id).await? else { return Ok(true) };
        // A turn was claimed since: its end has set a timer of its own.
        if epoch != Some(found.agent.epoch) || !may_go_on(desk, &found).await? {
            return Ok(true);
        }
        if nudge(desk, &found.agent, Some(timer.id)).await? {
            return Ok(false);
        }
    }
    Ok(false)
}

/// Whether the agent is free and nothing else is there for it to do.
async fn may_go_on(desk: &Desk, found: &Addressee) -> Result<bool> {
    let Addressee { session, agent, busy, .. } = found;
    let free = session.status == "active" && agent.lifecycle == "idle" && agent.drive == "running" && !busy;
    Ok(free && flow::is_autonomous(agent) && desk.hub.store().waiting(AgentId::from(agent.id)).await?.is_empty())
}

/// False if somebody wrote the agent's row meanwhile.
async fn nudge(desk: &Desk, agent: &agent::Model, fired: Option<Uuid>) -> Result<bool> {
    let (session, id) = (SessionId::from(agent.session_id), AgentId::from(agent.id));
    let ceiling = flow::Ceiling::of(agent, flow::Ceiling::usual(&desk.config.agents));
    if ceiling.is_reached(flow::Today::of(agent, clock::now())) {
        let commit = flow::rest_for_today(agent, fired, desk.actor.clone())?;
        return Ok(matches!(desk.hub.commit(commit).await?, Answer::Moved(_)));
    }
    let (commit, turn) = flow::nudge(agent, fired, desk.actor.clone())?;
    let Answer::Moved(_) = desk.hub.commit(commit).await? else { return Ok(false) };
    let ready = Ready { session, agent: id, turn, epoch: agent.epoch, reason: "queued", news: None };
    desk.hub.wake_turn(ready, agent.owner, None);
    Ok(true)
}

/// Agents whose loop has come to a stop, because a timer was lost or a turn was ended by somebody who sets none.
pub(crate) async fn sweep(desk: Desk) -> Result<()> {
    let before = desk.hub.store().now().await? - desk.config.scheduler.nudge_pause() - LOST_AFTER;
    let still = desk.hub.store().still_agents(before, BATCH).await?;
    let nudged = futures::stream::iter(still).map(|agent| {
        let desk = desk.clone();
        async move { nudge(&desk, &agent, None).await }
    });
    let nudged = nudged.buffer_unordered(AT_ONCE);
    let failed = nudged.filter_map(|done| std::future::ready(done.err())).collect::<Vec<_>>().await;
    failed.into_iter().next().map_or(Ok(()), Err)
}

/// The day for which the agent has rested is over. True when there is nothing left to do.
pub(crate) async fn new_day(desk: &Desk, timer: &timer::Model) -> Result<bool> {
    let Ok(id) = timer.entity.parse::<AgentId>() else { return Ok(true) };
    for _ in 0..LOOKS_MAX {
        let Some(agent) = desk.hub.store().agent(id).await? else { return Ok(true) };
        // Somebody else has started or ended it.
        if agent.lifecycle != "idle" || !flow::rests_for_today(&agent) {
            return Ok(true);
        }
        if let Answer::Moved(landed) = desk.hub.commit(flow::new_day(&agent, desk.actor.clone())?).await? {
            desk.hub.follow(&landed.runes);
            return Ok(true);
        }
    }
    Ok(false)
}
