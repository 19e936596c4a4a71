//! A budget's time is up.

use crate::Desk;
use anyhow::Result;
use chrono::Duration;
use instar_core::id::SessionId;
use instar_runtime::{flow, hold};
use instar_store::entity::timer;
use serde_json::json;
use uuid::Uuid;

/// How soon the clock of a session that is held is looked at again at the earliest.
const HELD: Duration = Duration::seconds(1);

/// Only time in which the session was not held counts.
pub(crate) async fn ring(desk: &Desk, timer: &timer::Model) -> Result<bool> {
    let Ok(id) = timer.entity.parse::<Uuid>() else { return Ok(true) };
    let store = desk.hub.store();
    let Some(mut row) = store.budget(id).await? else { return Ok(true) };
    let Some(session) = store.session(SessionId::from(row.session_id)).await? else { return Ok(true) };
    let now = store.now().await?;
    let spent = flow::spent(&row, &session, now);
    let left = Duration::milliseconds(row.cap - spent);
    if row.since.is_some() && (left > Duration::zero() || hold::is_held(&session.status)) {
        let wait = if hold::is_held(&session.status) { left.max(HELD) } else { left };
        store.put_off(timer.id, now + wait, json!({})).await?;
        return Ok(false);
    }
    if spent < row.cap {
        return Ok(true);
    }
    // It stands before anything follows: should this process die here, the timer comes up again.
    if row.since.is_some() && !store.stop_clock(&row, spent).await? {
        // Raised or lifted since: what that means is seen at the next look.
        store.put_off(timer.id, now, json!({})).await?;
        return Ok(false);
    }
    (row.used, row.since) = (spent, None);
    desk.hub.exhaust(&row, None, &desk.actor).await?;
    Ok(true)
}
