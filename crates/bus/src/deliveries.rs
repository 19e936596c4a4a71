//! The endless stream of deliveries that one consumer reads.
//!
//! Must not know: how an implementation finds the next message, or recovers its connection.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::bus::Core;
use crate::dead;
use crate::delivery::{Delivery, Held, Parcel};
use crate::wire::{self, Wire};
use crate::{local, nats};

pub(crate) enum Source {
    Nats(Box<nats::Source>),
    Local(local::Source),
}

impl Source {
    async fn next(&mut self) -> Parcel {
        match self {
            Self::Nats(source) => source.next().await,
            Self::Local(source) => source.next().await,
        }
    }
}

/// Messages of type `T`, for ever. Several of the same name share the messages; dropping one gives
/// back what it had fetched ahead.
pub struct Deliveries<T> {
    core: Arc<Core>,
    source: Source,
    deliveries_max: u64,
    carries: PhantomData<fn() -> T>,
}

impl<T: Wire> Deliveries<T> {
    pub(crate) fn new(core: Arc<Core>, source: Source, deliveries_max: u64) -> Self {
        Self { core, source, deliveries_max, carries: PhantomData }
    }

    /// Waits for the next message. Safe to cancel. Outages, restarts and rebuilt streams happen
    /// inside; what can't be decoded is moved aside without delaying the others.
    pub async fn next(&mut self) -> Delivery<T> {
        loop {
            let held = Held::new(self.source.next().await, self.core.clone());
            let parcel = &held.parcel;
            self.core.counters.delivered.add(1);
            if parcel.deliveries > 1 {
                self.core.counters.redelivered.add(1);
            }
            let reason = if parcel.deliveries > self.deliveries_max {
                format!("delivered more than {} times without a decision", self.deliveries_max)
            } else {
                match wire::read::<T>(&parcel.payload, parcel.message_type()) {
                    Ok(value) => return Delivery::new(value, held),
                    Err(reason) => reason,
                }
            };
            tokio::spawn(async move {
                if let Err(error) = dead::bury(held, &reason).await {
                    tracing::warn!(%error, "dead letter not stored, the message comes again");
                }
            });
        }
    }
}
