//! Which processes are alive, as the database last said: where to send a hint.
//!
//! Only a hint is decided by this picture. Who may write is decided by epochs.

use instar_core::id::WorkerId;
use instar_store::Store;
use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// How old the picture may be.
const REFRESH_EVERY: Duration = Duration::from_millis(500);

#[derive(Clone, Default)]
pub(crate) struct Live(Arc<RwLock<HashSet<WorkerId>>>);

impl Live {
    /// Keeps the picture fresh for as long as somebody has it.
    pub(crate) fn watch(store: Store) -> Live {
        let live = Live::default();
        let picture = Arc::downgrade(&live.0);
        tokio::spawn(async move {
            let mut tick = tokio::time::interval(REFRESH_EVERY);
            tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                tick.tick().await;
                let Some(picture) = picture.upgrade() else { return };
                match store.live_workers("agent-worker").await {
                    Ok(now) => *picture.write().unwrap_or_else(PoisonError::into_inner) = now.into_iter().collect(),
                    Err(error) => tracing::debug!(%error, "who is alive could not be read"),
                }
            }
        });
        live
    }

    pub(crate) fn has(&self, worker: WorkerId) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains(&worker)
    }
}
