//! Missions that could go on by themselves and do not, and gates that nobody has opened in time.

use crate::{BATCH, Desk, go_on};
use anyhow::Result;
use chrono::Duration;
use uuid::Uuid;

/// What a command left to do was not done for this long: whoever made it is gone.
const UNHEARD_MS: i64 = 1_000;

pub(crate) async fn advance(desk: Desk) -> Result<()> {
    let store = desk.hub.store();
    let before = store.now().await? - Duration::milliseconds(UNHEARD_MS);
    let mut from = Uuid::nil();
    loop {
        let idle = store.idle_missions(before, from, BATCH).await?;
        for mission in &idle {
            // One that cannot be helped must not keep the others from it.
            if let Err(error) = desk.hub.advance_mission(*mission, desk.actor.clone()).await {
                tracing::warn!(%mission, %error, "the mission does not go on");
            }
        }
        match idle.last() {
            Some(last) if idle.len() as u64 == BATCH => from = last.uuid(),
            _ => return Ok(()),
        }
    }
}

pub(crate) async fn remind(desk: Desk) -> Result<()> {
    let store = desk.hub.store();
    for mission in store.overdue_gates(store.now().await?, BATCH).await? {
        go_on(mission, desk.hub.remind(mission, desk.actor.clone()).await.map_err(Into::into))?;
    }
    Ok(())
}
