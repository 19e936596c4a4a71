//! Logs of closed sessions: moved to cold storage when asked to or after a while, and removed here.

use crate::Desk;
use anyhow::Result;
use chrono::Duration;
use instar_core::id::SessionId;
use instar_runtime::LogError;
use instar_store::entity::timer;
use serde_json::json;

/// Sessions archived by themselves in one look, and those whose runes are removed.
const ARCHIVED: u64 = 20;
const PRUNED: u64 = 50;
/// How long an archiving that was asked for may take before it is begun again.
const AGAIN: Duration = Duration::minutes(10);

/// Sessions that were closed long enough ago.
pub(crate) async fn age(desk: Desk) -> Result<()> {
    let after = desk.config.archive.after_ms;
    if after == 0 {
        return Ok(());
    }
    let store = desk.hub.store();
    let before = store.now().await? - Duration::milliseconds(i64::try_from(after)?);
    for session in store.closed_before(before, ARCHIVED).await? {
        one(&desk, SessionId::from(session.id)).await?;
    }
    Ok(())
}

/// One that was asked for, by a request whose process may be gone. It may take long, and other timers are due.
pub(crate) async fn requested(desk: &Desk, timer: &timer::Model) -> Result<bool> {
    let store = desk.hub.store();
    store.put_off(timer.id, store.now().await? + AGAIN, json!({})).await?;
    let (desk, timer) = (desk.clone(), timer.clone());
    tokio::spawn(async move {
        let id = SessionId::from(timer.session_id);
        let done = match one(&desk, id).await {
            Ok(()) => desk.hub.store().forget_timers(vec![timer.id]).await.map_err(Into::into),
            Err(error) => Err(error),
        };
        if let Err(error) = done {
            tracing::warn!(session = %id, %error, "the session could not be archived now; it is tried again");
        }
    });
    Ok(false)
}

async fn one(desk: &Desk, id: SessionId) -> Result<()> {
    match desk.hub.archive_session(id, desk.actor.clone(), None).await {
        Ok(_) => tracing::info!(session = %id, "archived"),
        // Somebody else was first.
        Err(LogError::Refused(_) | LogError::Contended | LogError::Absent(_)) => {}
        // It will not mend by itself, and must not keep the others from it.
        Err(error @ LogError::Broken(_)) => tracing::error!(session = %id, %error, "not archived"),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Runes that are in cold storage take up no room here.
pub(crate) async fn prune(desk: Desk) -> Result<()> {
    let gone = desk.hub.prune(PRUNED).await?;
    if gone > 0 {
        tracing::info!(runes = gone, "removed what is archived");
    }
    Ok(())
}
