//! Calls in flight, and the word that one of them is no longer wanted.

use instar_bus::{Bus, BusError, Heard};
use instar_core::id::{CallId, TurnId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

struct Entry {
    turn: Option<TurnId>,
    look: Arc<Notify>,
}

type Map = Mutex<HashMap<CallId, Entry>>;

#[derive(Clone, Default)]
pub(crate) struct Flights(Arc<Map>);

impl Flights {
    pub(crate) async fn listen(bus: &Bus) -> Result<Flights, BusError> {
        let flights = Flights::default();
        let mut controls = bus.listen(&bus.space().controls()).await?;
        let map = Arc::downgrade(&flights.0);
        tokio::spawn(async move {
            loop {
                let turn = match controls.next().await {
                    Heard::Message(control) => control.turn_id.parse::<TurnId>().ok(),
                    // Some may have been lost: everybody looks.
                    Heard::Gap(_) => None,
                };
                let Some(map) = map.upgrade() else { return };
                let flights = map.lock().unwrap_or_else(PoisonError::into_inner);
                let meant = flights.values().filter(|entry| turn.is_none() || entry.turn == turn);
                meant.for_each(|entry| entry.look.notify_one());
            }
        });
        Ok(flights)
    }

    /// Whether this process has the call.
    pub(crate) fn has(&self, call: CallId) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&call)
    }

    pub(crate) fn calls(&self) -> Vec<CallId> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).keys().copied().collect()
    }

    /// The call's row has news.
    pub(crate) fn tell(&self, call: CallId) {
        if let Some(entry) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&call) {
            entry.look.notify_one();
        }
    }

    /// `None`: this process has the call already.
    pub(crate) fn take_off(&self, call: CallId, turn: Option<TurnId>) -> Option<Flight> {
        let mut flights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if flights.contains_key(&call) {
            return None;
        }
        let look = Arc::new(Notify::new());
        flights.insert(call, Entry { turn, look: look.clone() });
        Some(Flight { call, look, flights: self.0.clone() })
    }
}

/// A call that this process has in hand; over when dropped.
pub(crate) struct Flight {
    call: CallId,
    look: Arc<Notify>,
    flights: Arc<Map>,
}

impl Flight {
    pub(crate) async fn told(&self) {
        self.look.notified().await;
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.call);
    }
}
