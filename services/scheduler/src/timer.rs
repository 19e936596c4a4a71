//! Timers that are due. One is removed only when what it was set for is done, so that a scheduler
//! that dies in between leaves it to the next one.

use crate::{BATCH, Desk, archive, birth, clock, family, nudge, plan, relaunch, span, step};
use anyhow::Result;
use futures::StreamExt;
use instar_core::id::{BroadcastId, CallId, SessionId, TurnId};
use instar_core::machine::tool_call as call_machine;
use instar_runtime::flow::{
    APPROVAL_TIMER, BIRTH_TIMER, BROADCAST_TIMER, CLOCK_TIMER, DAY_TIMER, DISMISS_TIMER, NUDGE_TIMER, ORPHANS_TIMER,
    PLAN_TIMER, RELAUNCH_TIMER, RESUME_TIMER, WAIT_TIMER,
};
use instar_runtime::step::STEP_TIMER;
use instar_runtime::{ARCHIVE_TIMER, Act, ActError, Done, hold};
use instar_store::entity::timer;
use serde_json::json;
use std::time::Duration;
use tracing::Instrument;
use uuid::Uuid;

/// How long a scheduler has a timer to itself.
const HOLD: Duration = Duration::from_secs(10);
/// How soon an approval of a session that is held is looked at again at the earliest.
const HELD: chrono::Duration = chrono::Duration::seconds(1);
/// Timers carried out at once: commits of one moment share a transaction.
const AT_ONCE: usize = 32;

pub(crate) async fn fire(desk: Desk) -> Result<()> {
    loop {
        let due = desk.hub.store().claim_timers(HOLD, BATCH).await?;
        let all = due.len() as u64 == BATCH;
        if due.is_empty() {
            return Ok(());
        }
        instar_crashpoint::crash_point!("scheduler.timer.before");
        let fired = futures::stream::iter(due).map(|timer| carry_out(&desk, timer)).buffer_unordered(AT_ONCE);
        let done: Vec<Uuid> = fired.filter_map(std::future::ready).collect().await;
        instar_crashpoint::crash_point!("scheduler.timer.after");
        if !done.is_empty() {
            desk.hub.store().forget_timers(done).await?;
        }
        if !all {
            return Ok(());
        }
    }
}

/// The timer, if it is done with.
async fn carry_out(desk: &Desk, timer: timer::Model) -> Option<Uuid> {
    let done = match timer.kind.as_str() {
        APPROVAL_TIMER => approval(desk, &timer).await,
        BIRTH_TIMER => birth::look(desk, &timer).await,
        ARCHIVE_TIMER => archive::requested(desk, &timer).await,
        RESUME_TIMER => resume(desk, &timer).await,
        WAIT_TIMER => wait_over(desk, &timer).await,
        ORPHANS_TIMER => family::orphans(desk, &timer).await,
        NUDGE_TIMER => nudge::fire(desk, &timer).await,
        DAY_TIMER => nudge::new_day(desk, &timer).await,
        RELAUNCH_TIMER => relaunch::fire(desk, &timer).await,
        STEP_TIMER => step::attempt(desk, &timer).await,
        CLOCK_TIMER => clock::ring(desk, &timer).await,
        PLAN_TIMER => plan::wall_time(desk, &timer).await,
        DISMISS_TIMER => plan::dismiss(desk, &timer).await,
        BROADCAST_TIMER => broadcast(desk, &timer).await,
        other => {
            tracing::warn!(kind = other, "a timer of an unknown kind; a newer scheduler will know it");
            Ok(false)
        }
    };
    // It comes up again when its hold is over; the others need not wait for that.
    let done = done.unwrap_or_else(|error| {
        tracing::warn!(timer = %timer.id, %error, "the timer could not be carried out now");
        false
    });
    done.then_some(timer.id)
}

/// Nobody decided in time. That is no denial: the result says timeout. Only time in which the session was
/// not held counts.
async fn approval(desk: &Desk, timer: &timer::Model) -> Result<bool> {
    let Ok(call) = timer.entity.parse::<CallId>() else { return Ok(true) };
    let (store, id) = (desk.hub.store(), SessionId::from(timer.session_id));
    let Some(session) = store.session(id).await? else { return Ok(true) };
    let given = timer.payload.as_ref().and_then(|payload| payload["allowed_us"].as_i64());
    let allowed = given.map_or(timer.due_at - timer.created_at, chrono::Duration::microseconds);
    let now = store.now().await?;
    let (left, held) = (hold::left(&session, timer.created_at, allowed, now), hold::is_held(&session.status));
    if held || left > chrono::Duration::zero() {
        // However soon it is released, the clock cannot run out before that.
        let wait = if held { left.max(HELD) } else { left };
        store.put_off(timer.id, now + wait, json!({"allowed_us": allowed.num_microseconds()})).await?;
        return Ok(false);
    }
    let Some(row) = store.call(call).await? else { return Ok(true) };
    let mut act = Act::new(id, call, &call_machine::TABLE, "approval_timeout", desk.actor.clone());
    act.traceparent = row.traceparent.clone();
    let told = json!({"phase": "approval"});
    let act = act.reason("nobody decided about the call in time").telling("tool.result", told).while_session("active");
    match act.carry_out(&desk.hub).instrument(span::rings(timer, &row)).await {
        Ok(Done::Moved { runes }) => desk.hub.follow(&runes),
        // Decided meanwhile.
        Ok(Done::Ignored) | Err(ActError::Refused(_) | ActError::Absent(_)) => {}
        Err(ActError::Contended) => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    Ok(true)
}

/// A wait that a provider asked for is over.
async fn resume(desk: &Desk, timer: &timer::Model) -> Result<bool> {
    let Ok(id) = timer.entity.parse::<TurnId>() else { return Ok(true) };
    if let Some(turn) = desk.hub.store().turn(id).await? {
        desk.tell_turn("timer", "wait_over", &turn, None);
    }
    Ok(true)
}

/// A call has waited for agents as long as it wanted to. Should nobody hear this, a sweep finds the call.
async fn wait_over(desk: &Desk, timer: &timer::Model) -> Result<bool> {
    let Ok(id) = timer.entity.parse::<CallId>() else { return Ok(true) };
    if let Some(call) = desk.hub.store().call(id).await?.filter(|call| call.ended_at.is_none()) {
        desk.tell_call("timer", &timer.kind, &call);
    }
    Ok(true)
}

/// A broadcast that the API has begun reaches everybody, whatever became of the API.
async fn broadcast(desk: &Desk, timer: &timer::Model) -> Result<bool> {
    let Ok(id) = timer.entity.parse::<BroadcastId>() else { return Ok(true) };
    if let Some(row) = desk.hub.store().broadcast(id).await? {
        desk.hub.finish_broadcast(&row).await?;
    }
    Ok(true)
}
