//! Sessions that fail too often or close, and the chain over their logs.

use crate::{BATCH, Desk, go_on};
use anyhow::Result;
use chrono::Duration;
use instar_core::id::{CallId, MissionId, SessionId};
use instar_core::machine::{mission, session as session_machine, tool_call};
use instar_runtime::{Act, ActError, Done, Snapshot};
use serde_json::json;

/// Sessions sealed per look.
const SEALED: u64 = 200;

/// A session in which too many drives have failed lately is suspended, so that a person looks.
pub(crate) async fn suspend(desk: Desk) -> Result<()> {
    let settings = &desk.config.scheduler;
    if settings.error_threshold == 0 {
        return Ok(());
    }
    let window = Duration::milliseconds(i64::try_from(settings.error_window_ms)?);
    let store = desk.hub.store();
    let since = store.now().await? - window;
    for (id, errors) in store.failing_sessions(since, settings.error_threshold.into(), BATCH).await? {
        go_on(id, suspend_one(&desk, id, errors, window).await)?;
    }
    Ok(())
}

async fn suspend_one(desk: &Desk, id: SessionId, errors: u64, window: Duration) -> Result<()> {
    let act = Act::new(id, id, &session_machine::TABLE, "error_threshold", desk.actor.clone());
    let errors = json!({"drive_errors": errors, "window_ms": window.num_milliseconds()});
    let told = json!({"reason": "error_threshold", "budget_info": errors});
    match act.reason("error_threshold").telling("session.suspended", told).carry_out(&desk.hub).await {
        Ok(Done::Moved { runes }) => desk.hub.follow(&runes),
        Ok(Done::Ignored) | Err(ActError::Refused(_) | ActError::Contended) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// A closing session is closed when nothing in it is open, or by force when its grace is over.
///
/// A close ends agents, turns and attached missions in its own commit. What can be left is a step that runs for a
/// mission that is detached: it may end by itself for as long as the grace lasts. A mission cannot outlive its session,
/// in which nobody could do anything about it any more: what has not ended then is cancelled.
pub(crate) async fn close(desk: Desk) -> Result<()> {
    let store = desk.hub.store();
    let now = store.now().await?;
    let grace = Duration::milliseconds(i64::try_from(desk.config.scheduler.close_grace_ms)?);
    for (id, since) in store.sessions_in("closing", BATCH).await? {
        go_on(id, close_one(&desk, id, now - since > grace).await)?;
    }
    Ok(())
}

async fn close_one(desk: &Desk, id: SessionId, late: bool) -> Result<()> {
    let store = desk.hub.store();
    let Some(snapshot) = Snapshot::load(store, id, id.into()).await? else { return Ok(()) };
    let ended = |a: &instar_store::entity::agent::Model| ["terminated", "failed"].contains(&a.lifecycle.as_str());
    let empty = snapshot.turns.is_empty() && snapshot.calls.is_empty() && snapshot.agents.values().all(ended);
    let (event, forced) = match () {
        () if empty => ("cleanup_complete", false),
        () if late => ("cleanup_timeout", true),
        () => return Ok(()),
    };
    // Commits of their own, before: what follows from a result in its hop and mission must not come after the
    // last rune of the log. Should this process die in between, the next look finds nothing open.
    if forced && !end_calls(desk, &snapshot).await? {
        return Ok(());
    }
    if !end_missions(desk, &snapshot).await? {
        return Ok(());
    }
    let told = json!({"final_stats": store.statistics(id).await?, "forced": forced});
    let act = Act::new(id, id, &session_machine::TABLE, event, desk.actor.clone()).telling("session.closed", told);
    match act.carry_out(&desk.hub).await {
        Ok(_) => seal_one(desk, id).await?,
        Err(ActError::Refused(_) | ActError::Contended) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Cancels missions that were detached; false if somebody moved one meanwhile.
async fn end_missions(desk: &Desk, snapshot: &Snapshot) -> Result<bool> {
    let session = SessionId::from(snapshot.session.id);
    let live = snapshot.missions.missions.values().filter(|row| row.ended_at.is_none());
    for id in live.map(|row| MissionId::from(row.id)) {
        let act = Act::new(session, id, &mission::TABLE, "session_closing", desk.actor.clone());
        match act.reason("session_closed").carry_out(&desk.hub).await {
            Ok(Done::Moved { runes }) => desk.hub.follow(&runes),
            Ok(Done::Ignored) => {}
            Err(ActError::Refused(_) | ActError::Contended | ActError::Absent(_)) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

/// Gives what still runs its result; false if somebody moved it meanwhile.
async fn end_calls(desk: &Desk, snapshot: &Snapshot) -> Result<bool> {
    let session = SessionId::from(snapshot.session.id);
    for call in &snapshot.calls {
        let id = CallId::from(call.id);
        let act = Act::new(session, id, &tool_call::TABLE, "cancelled", desk.actor.clone()).reason("session_closed");
        match act.carry_out(&desk.hub).await {
            Ok(Done::Moved { runes }) => desk.hub.follow(&runes),
            Ok(Done::Ignored) => {}
            Err(ActError::Refused(_) | ActError::Contended | ActError::Absent(_)) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

pub(crate) async fn seal(desk: Desk) -> Result<()> {
    for session in desk.hub.store().unsealed_sessions(SEALED).await? {
        go_on(session, seal_one(&desk, session).await)?;
    }
    Ok(())
}

async fn seal_one(desk: &Desk, session: SessionId) -> Result<()> {
    instar_crashpoint::crash_point!("scheduler.seal.before");
    let sealed = desk.hub.store().seal(session).await?;
    instar_crashpoint::crash_point!("scheduler.seal.after");
    if let Err(broken) = sealed {
        tracing::error!(%session, seq = broken, "the runelog has a hole or a changed rune here; it is not sealed");
    }
    Ok(())
}
