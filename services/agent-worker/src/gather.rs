//! What a turn sees of earlier ones besides what was said. Read only where it is needed, and never by a worker
//! that knows the agent already.

use crate::held::Held;
use crate::worker::Worker;
use anyhow::Result;
use instar_core::id::MessageId;
use instar_core::rune::payload::{CallSummary, TurnInput};
use instar_runtime::context::{self, CALLS_MAX, Frozen};
use instar_runtime::flow;
use instar_store::entity::{message, tool_call};

/// `queued`: messages that wait will be part of the turn.
pub(crate) async fn earlier(worker: &Worker, held: &mut Held, queued: bool) -> Result<()> {
    let waits = queued && held.transcript.iter().any(|m| m.turn_id.is_none() && context::is_prompt(m));
    if waits || context::is_prompted(&held.turn, &held.transcript) {
        return latest_loop(worker, held, queued).await;
    }
    // Nobody prompted it: it goes on with the last prompt, and sees what was done about it.
    let (store, turns) = (worker.hub.store(), u64::from(worker.config.history_messages_max));
    let (agent, turn) = (held.agent_id(), held.turn_id());
    held.earlier = store.calls_before(agent, turn, turns, CALLS_MAX).await?;
    let mut epoch = context::epoch(&held.turn, &held.transcript);
    if epoch.is_none() {
        // It is further back than the window; the turn before knows.
        let before = store.turn_before(agent, turn).await?;
        epoch = before.and_then(|before| Frozen::of(&before).epoch);
    }
    let Some(epoch) = epoch else { return Ok(()) };
    if !held.transcript.iter().any(|m| m.id == epoch.uuid())
        && let Some(prompt) = store.message(epoch).await?
    {
        held.transcript.insert(0, prompt);
    }
    let mut frozen = Frozen::of(&held.turn);
    frozen.epoch = Some(epoch);
    frozen.write(&mut held.turn);
    Ok(())
}

/// A broadcast that stood before the agent was there goes before what its first turn is there for.
pub(crate) async fn briefing(worker: &Worker, held: &mut Held) -> Result<()> {
    let store = worker.hub.store();
    let standing = store.standing_broadcast(held.session_id(), store.now().await?).await?;
    let Some(standing) = standing else { return Ok(()) };
    let message = flow::brief(&standing, &held.turn);
    // One that is as old as the broadcast was sent it.
    if store.message(MessageId::from(message.id)).await?.is_some() {
        return Ok(());
    }
    held.transcript.push(message.clone());
    held.transcript.sort_by_key(|m| (m.turn_id.is_none(), m.turn_id, m.id));
    held.briefing = Some(message);
    Ok(())
}

/// A turn that has begun was read together with it.
async fn latest_loop(worker: &Worker, held: &mut Held, queued: bool) -> Result<()> {
    let spoke = held.transcript.iter().any(|m| m.turn_id.is_some_and(|turn| turn != held.turn.id));
    if queued && spoke && context::has_tools(&held.agent) {
        let turns = u64::from(worker.config.history_messages_max);
        held.earlier = worker.hub.store().calls_seen(held.agent_id(), held.turn_id(), turns).await?;
    }
    Ok(())
}

/// The message with which the turn's prompt begins; `waiting` are those that it is about to take up.
pub(crate) fn prompt(held: &Held, waiting: &[MessageId]) -> Option<MessageId> {
    if waiting.is_empty() {
        return context::epoch(&held.turn, &held.transcript);
    }
    // One that has waited may be older than the one that the turn was queued for.
    let own = |m: &&message::Model| m.turn_id == Some(held.turn.id) && context::is_prompt(m);
    let own = held.transcript.iter().filter(own).map(|m| MessageId::from(m.id));
    own.chain(waiting.iter().copied()).min()
}

/// What the turn takes up, in words for its rune.
pub(crate) fn inputs(held: &Held, waiting: &[MessageId]) -> Vec<TurnInput> {
    let taken = |m: &&message::Model| m.turn_id == Some(held.turn.id) || waiting.contains(&MessageId::from(m.id));
    flow::inputs(held.transcript.iter().filter(taken).filter(|m| context::is_prompt(m)))
}

/// What came of the calls of the last answer.
pub(crate) fn results(held: &Held) -> Vec<CallSummary> {
    let last = |call: &&tool_call::Model| {
        call.turn_id == Some(held.turn.id) && call.iteration == held.turn.iterations && call.ended_at.is_some()
    };
    flow::results(held.calls.iter().filter(last))
}
