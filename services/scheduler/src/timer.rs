//! Timers that are due. One is removed only when what it was set for is done, so that a scheduler
//! that dies in between leaves it to the next one.

use crate::{BATCH, Desk};
use anyhow::Result;
use instar_core::id::{CallId, SessionId, TurnId};
use instar_core::machine::tool_call as call_machine;
use instar_runtime::flow::{APPROVAL_TIMER, RESUME_TIMER};
use instar_runtime::{Act, ActError, Done, Ready};
use instar_store::entity::{session, timer};
use sea_orm::{EntityTrait, IntoActiveModel, Set};
use std::time::Duration;

/// How long a scheduler has a timer to itself.
const HOLD: Duration = Duration::from_secs(10);
/// A paused session's approvals are looked at again after this.
const PAUSED: i64 = 5;

pub(crate) async fn fire(desk: Desk) -> Result<()> {
    loop {
        let due = desk.hub.store().claim_timers(HOLD, BATCH).await?;
        let all = due.len() as u64 == BATCH;
        for timer in due {
            let done = match timer.kind.as_str() {
                APPROVAL_TIMER => approval(&desk, &timer).await,
                RESUME_TIMER => resume(&desk, &timer).await,
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
            if done {
                timer::Entity::delete_by_id(timer.id).exec(desk.hub.store().db()).await?;
            }
        }
        if !all {
            return Ok(());
        }
    }
}

/// Nobody decided in time. That is no denial: the result says timeout.
async fn approval(desk: &Desk, timer: &timer::Model) -> Result<bool> {
    let Ok(call) = timer.entity.parse::<CallId>() else { return Ok(true) };
    let session = session::Entity::find_by_id(timer.session_id).one(desk.hub.store().db()).await?;
    if session.is_some_and(|session| ["paused", "suspended"].contains(&session.status.as_str())) {
        // The clock stands still while the session does.
        let mut later = timer.clone().into_active_model();
        later.due_at = Set(desk.hub.store().now().await? + chrono::Duration::seconds(PAUSED));
        later.claimed_until = Set(None);
        timer::Entity::update(later).exec(desk.hub.store().db()).await?;
        return Ok(false);
    }
    let id = SessionId::from(timer.session_id);
    let act = Act::new(id, call, &call_machine::TABLE, "approval_timeout", desk.actor.clone());
    match act.reason("nobody decided about the call in time").carry_out(&desk.hub).await {
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
        desk.hub.wake_turn(Ready::of(&turn, "wait_over"), None, turn.traceparent.as_deref());
    }
    Ok(true)
}
