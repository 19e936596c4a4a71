//! Sessions that close, and the chain over their logs.

use crate::{BATCH, Desk};
use anyhow::Result;
use chrono::Duration;
use instar_core::machine::session as session_machine;
use instar_runtime::{Act, ActError, Snapshot};

/// How long what a closing session contains may take to end by itself.
const GRACE: i64 = 30;
/// Sessions sealed per look.
const SEALED: u64 = 200;

/// A closing session is closed when nothing in it is open, or by force when its grace is over.
pub(crate) async fn close(desk: Desk) -> Result<()> {
    let store = desk.hub.store();
    let now = store.now().await?;
    for (id, since) in store.sessions_in("closing", BATCH).await? {
        let Some(snapshot) = Snapshot::load(store, id).await? else { continue };
        let ended = |a: &instar_store::entity::agent::Model| ["terminated", "failed"].contains(&a.lifecycle.as_str());
        let empty = snapshot.turns.is_empty() && snapshot.calls.is_empty() && snapshot.agents.values().all(ended);
        let event = match () {
            () if empty => "cleanup_complete",
            () if now - since > Duration::seconds(GRACE) => "cleanup_timeout",
            () => continue,
        };
        let act = Act::new(id, id, &session_machine::TABLE, event, desk.actor.clone());
        match act.carry_out(&desk.hub).await {
            Ok(_) => drop(store.seal(id).await?),
            Err(ActError::Refused(_) | ActError::Contended) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

pub(crate) async fn seal(desk: Desk) -> Result<()> {
    let store = desk.hub.store();
    for session in store.unsealed_sessions(SEALED).await? {
        if let Err(broken) = store.seal(session).await? {
            tracing::error!(%session, seq = broken, "the runelog has a hole or a changed rune here; it is not sealed");
        }
    }
    Ok(())
}
