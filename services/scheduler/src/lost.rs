//! What a dead process had: its turns go to another worker, its calls run again or end as unknown.

use crate::repeat::Why;
use crate::{BATCH, Desk, go_on, next, span, sweep};
use anyhow::Result;
use chrono::Duration;
use instar_core::id::{AgentId, CallId, SessionId, TurnId};
use instar_core::machine::tool_call as call_machine;
use instar_runtime::{Act, ActError, Done, Ready, flow};
use instar_store::entity::tool_call;
use instar_store::{After, Answer};
use tracing::Instrument;
use uuid::Uuid;

/// A turn that streams and wrote nothing for this long may have been forgotten by its owner.
const QUIET: i64 = 15;

/// Turns that streamed when their owner died. The worker that takes one up bumps the epoch.
pub(crate) async fn turns(desk: Desk) -> Result<()> {
    let store = desk.hub.store();
    let mut page = Some(After::default());
    while let Some(after) = page {
        let lost = store.ownerless_turns(after, BATCH).await?;
        for due in lost.iter().filter(|due| desk.repeats.due(Why::OwnerLost, due.turn.id, due.turn.epoch)) {
            desk.tell_turn("take_over", "owner_lost", &due.turn, None);
        }
        page = next(&lost, |due| After::turn(&due.turn));
    }
    let before = store.now().await? - Duration::seconds(QUIET);
    let mut page = Some(After::default());
    while let Some(after) = page {
        let quiet = store.quiet_turns(before, after, BATCH).await?;
        for due in quiet.iter().filter(|due| desk.repeats.due(Why::Quiet, due.turn.id, due.turn.epoch)) {
            desk.tell_turn("take_over", "quiet", &due.turn, due.owner);
        }
        page = next(&quiet, |due| After::turn(&due.turn));
    }
    Ok(())
}

/// A step's call whose runner is gone and that must not run again: what that means for step, hop and mission.
async fn give_up(desk: &Desk, call: &tool_call::Model) -> Result<()> {
    let (session, id, epoch) = (SessionId::from(call.session_id), CallId::from(call.id), call.epoch);
    let act = Act::new(session, id, &call_machine::TABLE, "worker_lost", desk.actor.clone()).reason(flow::RUNNER_LOST);
    let act = act.provided(move |snapshot| match snapshot.call(id.uuid()) {
        Some(row) if row.epoch == epoch => Ok(()),
        _ => Err(ActError::Contended),
    });
    match act.carry_out(&desk.hub).await {
        Ok(Done::Moved { runes }) => {
            metrics::counter!("instar.lease.expirations").increment(1);
            desk.hub.follow(&runes);
        }
        Ok(Done::Ignored) | Err(ActError::Refused(_) | ActError::Absent(_) | ActError::Contended) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

pub(crate) async fn calls(desk: Desk) -> Result<()> {
    let mut page = Some(Uuid::nil());
    while let Some(from) = page {
        let lost = desk.hub.store().orphaned_calls(from, BATCH).await?;
        for call in &lost {
            let settled = settle(&desk, call).instrument(span::left(call)).await;
            go_on(CallId::from(call.id), settled)?;
        }
        page = next(&lost, |call| call.id);
    }
    Ok(())
}

/// It runs again, or has the result that nobody knows; then whoever waited for it is told.
async fn settle(desk: &Desk, call: &tool_call::Model) -> Result<()> {
    if flow::kills_runners(call)
        && let Some(turn) = call.turn_id
        && let Some(turn) = desk.hub.store().turn(TurnId::from(turn)).await?
    {
        // The model would only ask for it again, and cost more runners.
        sweep::end(desk, &turn, "tool_crash", "tool_crash").await?;
        return Ok(());
    }
    if call.step_id.is_some() && !flow::runs_again(call) {
        give_up(desk, call).await?;
        return Ok(());
    }
    let (commit, again) = flow::lost(call, desk.actor.clone())?;
    let Answer::Moved(landed) = desk.hub.commit(commit).await? else { return Ok(()) };
    metrics::counter!("instar.lease.expirations").increment(1);
    if again {
        desk.hub.wake_call_row(call, true);
        return Ok(());
    }
    let Some(turn) = call.turn_id else { return Ok(()) };
    if landed.counter(turn).is_none_or(|open| open == 0) {
        let (session, agent) = (SessionId::from(call.session_id), AgentId::from(call.agent_id));
        let owner = desk.hub.store().agent(agent).await?.and_then(|agent| agent.owner);
        let ready = Ready { session, agent, turn: TurnId::from(turn), epoch: 0, reason: "tools_finished", news: None };
        desk.hub.wake_turn(ready, owner, call.traceparent.as_deref());
    } else {
        // The worker tells the runners of what this call held up.
        let (session, agent) = (SessionId::from(call.session_id), AgentId::from(call.agent_id));
        let ready = Ready { session, agent, turn: TurnId::from(turn), epoch: 0, reason: "call_lost", news: None };
        desk.hub.wake_turn(ready, None, call.traceparent.as_deref());
    }
    Ok(())
}
