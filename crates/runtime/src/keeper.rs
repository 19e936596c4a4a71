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
    /// It has run out, or was not renewed for so long that it may have: whatever this process owned may have a new
    /// owner.
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
        let task = tokio::spawn(renew(store.clone(), id, ttl, lease.trusted_until, tell));
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

async fn renew(store: Store, id: WorkerId, ttl: Duration, until: Instant, tell: watch::Sender<LeaseState>) {
    let mut pause = ttl / 3;
    // Until when it may be relied on; none once that was taken back.
    let mut trusted = Some(until);
    loop {
        let wait = pause;
        let attempt = async {
            tokio::time::sleep(wait).await;
            store.renew_lease(id, ttl).await
        };
        tokio::pin!(attempt);
        let renewed = loop {
            tokio::select! {
                biased;
                renewed = &mut attempt => break renewed,
                // Whoever cannot ask does not know either: the database may be out of this process's reach alone.
                () = over(trusted) => {
                    tracing::warn!(worker = %id, "the lease was not renewed in time; it is not relied on any more");
                    trusted = None;
                    tell.send_replace(LeaseState::Lost);
                }
            }
        };
        pause = ttl / 3;
        match renewed {
            // An answer that was too long on its way says nothing about now.
            Ok(Some(lease)) if lease.trusted_until <= Instant::now() => pause = Duration::ZERO,
            Ok(Some(lease)) => {
                trusted = Some(lease.trusted_until);
                tell.send_replace(LeaseState::Held { trusted_until: lease.trusted_until });
            }
            Ok(None) => {
                tracing::warn!(worker = %id, "the lease has run out");
                tell.send_replace(LeaseState::Lost);
                return;
            }
            Err(error) => {
                tracing::warn!(worker = %id, %error, "the lease was not renewed");
                // What is left of it is short.
                pause = ttl / 10;
            }
        }
    }
}

async fn over(trusted: Option<Instant>) {
    match trusted {
        Some(until) => tokio::time::sleep_until(until.into()).await,
        None => std::future::pending().await,
    }
}
