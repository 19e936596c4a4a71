//! Whether the bus carries anything at this moment, for those who have another way while it does not.
//!
//! Must not know: what that other way is.

use tokio::sync::watch::Receiver;

use crate::nats::Health;

/// What a process knows of its bus: see [`Bus::watch`](crate::Bus::watch). The one inside the process is always up.
#[derive(Clone, Debug)]
pub struct Watch(Option<Receiver<Health>>);

impl Watch {
    pub(crate) fn new(health: Option<Receiver<Health>>) -> Self {
        Self(health)
    }

    pub fn is_up(&self) -> bool {
        self.0.as_ref().is_none_or(|health| health.borrow().usable)
    }

    /// Returns once the bus is known to be down; at once if it is. Safe to cancel.
    pub async fn down(&mut self) {
        self.becomes(false).await;
    }

    /// Returns once the bus is up; at once if it is. Safe to cancel.
    pub async fn up(&mut self) {
        if self.0.is_some() {
            self.becomes(true).await;
        }
    }

    async fn becomes(&mut self, usable: bool) {
        let reached = match &mut self.0 {
            Some(health) => health.wait_for(|health| health.usable == usable).await.is_ok(),
            None => false,
        };
        // Nobody will ever say so any more.
        if !reached {
            std::future::pending::<()>().await;
        }
    }
}
