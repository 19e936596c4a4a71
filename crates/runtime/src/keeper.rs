//! Keeps a process's lease: renews it well before its end, and says when it must not be relied on.

use instar_core::id::WorkerId;
use instar_store::{Store, StoreError};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinHandle;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// Work may be claimed and written until then, if nothing newer is said.
    Held { trusted_until: Instant },
    /// Ran out: whatever this process owned may have a new owner.
    Lost,
}

impl LeaseState {
    pub fn is_held(self) -> bool {
        matches!(self, LeaseState::Held { trusted_until } if Instant::now() < trusted_until)
    }
}

/// A registered process. Dropping it stops the renewals; [`Keeper::release`] also ends the lease.
pub struct Keeper {
    id: WorkerId,
    store: Store,
    state: watch::Receiver<LeaseState>,
    task: JoinHandle<()>,
}

impl Keeper {
    pub async fn register(
        store: Store,
        id: WorkerId,
        service: &str,
        ttl: Duration,
        info: serde_json::Value,
    ) -> Result<Keeper, StoreError> {
        let lease = store.register_worker(id, service, ttl, info).await?;
        let (tell, state) = watch::channel(LeaseState::Held { trusted_until: lease.trusted_until });
        let task = tokio::spawn(renew(store.clone(), id, ttl, tell));
        Ok(Keeper { id, store, state, task })
    }

    pub fn id(&self) -> WorkerId {
        self.id
    }

    pub fn state(&self) -> LeaseState {
        *self.state.borrow()
    }

    pub fn watch(&self) -> watch::Receiver<LeaseState> {
        self.state.clone()
    }

    /// Ends the lease at once, so that nobody has to wait for it to run out.
    pub async fn release(self) -> Result<(), StoreError> {
        self.task.abort();
        self.store.release_lease(self.id).await
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn renew(store: Store, id: WorkerId, ttl: Duration, tell: watch::Sender<LeaseState>) {
    let mut pause = ttl / 3;
    loop {
        tokio::time::sleep(pause).await;
        pause = ttl / 3;
        match store.renew_lease(id, ttl).await {
            Ok(Some(lease)) => drop(tell.send_replace(LeaseState::Held { trusted_until: lease.trusted_until })),
            Ok(None) => {
                tracing::warn!(worker = %id, "the lease has run out");
                tell.send_replace(LeaseState::Lost);
                return;
            }
            // The lease may still be good: whoever relies on it looks at `trusted_until`.
            Err(error) => {
                tracing::warn!(worker = %id, %error, "the lease was not renewed");
                // What is left of it is short.
                pause = ttl / 10;
            }
        }
    }
}
