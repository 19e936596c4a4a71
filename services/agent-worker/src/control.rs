//! Turns in flight, and the word that one of them is asked to stop.
//!
//! The request itself is in the row. What arrives here only says: look now.

use crate::warm::Warm;
use instar_bus::message::Control;
use instar_bus::{Bus, BusError, Heard};
use instar_core::id::TurnId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::Notify;

type Map = Mutex<HashMap<TurnId, Arc<Notify>>>;

#[derive(Clone, Default)]
pub(crate) struct Flights(Arc<Map>);

impl Flights {
    /// One listener for all agents, for as long as somebody has this.
    pub(crate) async fn listen(bus: &Bus, warm: Arc<Warm>) -> Result<Flights, BusError> {
        let flights = Flights::default();
        let mut controls = bus.listen(&bus.space().controls()).await?;
        let map = Arc::downgrade(&flights.0);
        tokio::spawn(async move {
            loop {
                match controls.next().await {
                    Heard::Message(control) => {
                        let Some(map) = map.upgrade() else { return };
                        tell(&map, &warm, &control);
                    }
                    // Some may have been lost: everybody looks.
                    _ => {
                        let Some(map) = Weak::upgrade(&map) else { return };
                        let flights = map.lock().unwrap_or_else(PoisonError::into_inner);
                        flights.values().for_each(|look| look.notify_one());
                    }
                }
            }
        });
        Ok(flights)
    }

    /// Whether this process has the turn.
    pub(crate) fn has(&self, turn: TurnId) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&turn)
    }

    /// `None`: this process has the turn already.
    pub(crate) fn take_off(&self, turn: TurnId) -> Option<Flight> {
        let mut flights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(look) = flights.get(&turn) {
            // Whoever told us has a reason: the row may have news.
            look.notify_one();
            return None;
        }
        let look = Arc::new(Notify::new());
        flights.insert(turn, look.clone());
        Some(Flight { turn, look, flights: self.0.clone() })
    }
}

fn tell(map: &Map, warm: &Warm, control: &Control) {
    let Ok(turn) = control.turn_id.parse::<TurnId>() else { return };
    // A turn of which something was asked goes on from its row, not from what is known.
    warm.forget(turn);
    let flights = map.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(look) = flights.get(&turn) {
        look.notify_one();
    }
}

/// A turn that this process has in hand; over when dropped.
pub(crate) struct Flight {
    turn: TurnId,
    look: Arc<Notify>,
    flights: Arc<Map>,
}

impl Flight {
    /// Returns when the row should be looked at.
    pub(crate) async fn told(&self) {
        self.look.notified().await;
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.turn);
    }
}
