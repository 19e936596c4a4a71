//! Counters of what the bus did, for metrics. They only ever grow.
//!
//! Must not know: how metrics are exported.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::BusError;
use crate::publish::Receipt;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub(crate) $name: Counter,)* }

        /// The counters at one moment.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct BusStats { $($(#[$doc])* pub $name: u64,)* }

        impl Counters {
            pub(crate) fn snapshot(&self) -> BusStats {
                BusStats { $($name: self.$name.0.load(Ordering::Relaxed),)* }
            }
        }

        impl BusStats {
            /// Name and value of each counter, in a fixed order.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Messages whose storage was acknowledged, repeats included.
    published,
    /// Of these, repeats that the stream already had.
    duplicates,
    /// Durable publishes that ended in an error.
    publish_failed,
    /// Deliveries handed out.
    delivered,
    /// Of these, messages that had been handed out before.
    redelivered,
    /// Deliveries dropped without a decision and given back.
    returned,
    /// Messages moved to the dead-letter stream.
    dead_lettered,
    /// Consumers rebuilt because they had gone silent on a live connection.
    watchdog_restarts,
    /// Streams or consumers that were missing and were created again.
    topology_repairs,
    /// Live messages that a slow subscriber lost, or that nobody could decode.
    dropped,
}

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }
}

impl Counters {
    pub(crate) fn receipt(&self, result: &Result<Receipt, BusError>) {
        match result {
            Ok(receipt) => {
                self.published.add(1);
                self.duplicates.add(u64::from(receipt.duplicate));
            }
            Err(_) => self.publish_failed.add(1),
        }
    }
}
