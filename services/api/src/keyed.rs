//! One at a time per key, inside this process: for work that would only overtake itself.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::{Mutex as Gate, OwnedMutexGuard};

/// Entries nobody waits at are cleared away above this.
const IDLE_MAX: usize = 4_096;

pub(crate) struct Keyed<K>(Mutex<HashMap<K, Weak<Gate<()>>>>);

impl<K> Default for Keyed<K> {
    fn default() -> Self {
        Keyed(Mutex::default())
    }
}

impl<K: Hash + Eq> Keyed<K> {
    /// First come, first served; the next one goes when the guard is dropped.
    pub(crate) async fn enter(&self, key: K) -> OwnedMutexGuard<()> {
        let gate = {
            let mut gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if gates.len() > IDLE_MAX {
                gates.retain(|_, gate| gate.strong_count() > 0);
            }
            match gates.get(&key).and_then(Weak::upgrade) {
                Some(gate) => gate,
                None => {
                    let gate = Arc::new(Gate::new(()));
                    gates.insert(key, Arc::downgrade(&gate));
                    gate
                }
            }
        };
        gate.lock_owned().await
    }
}
