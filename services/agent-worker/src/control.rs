//! Turns in flight, and the word that one of them is asked to stop.
//!
//! The request itself is in the row. What arrives here only says: look now. Should it not arrive, one look at the rows
//! of all of them finds out.

use crate::warm::Warm;
use instar_bus::message::{Control, control};
use instar_bus::{Bus, BusError, Heard};
use instar_core::id::TurnId;
use instar_runtime::Hub;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How often the rows of turns are looked at that have been in hand for as long.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The same, of all of them, while it is known that no word arrives.
const LOOK_OFTEN: Duration = Duration::from_millis(500);

type Map = Mutex<HashMap<TurnId, Arc<InHand>>>;

struct InHand {
    since: Instant,
    look: Notify,
    /// What was said so far is to be written down.
    keep: AtomicBool,
}

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
                        flights.values().for_each(|flight| flight.look.notify_one());
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

    /// Looks at the rows of what is in hand, for as long as somebody has this.
    pub(crate) fn watch(&self, hub: Hub) {
        let map = Arc::downgrade(&self.0);
        let mut looking = hub.looking();
        tokio::spawn(async move {
            loop {
                let deaf = !hub.bus().watch().is_up();
                tokio::time::sleep(if deaf { LOOK_OFTEN } else { LOOK_EVERY }).await;
                let Some(map) = map.upgrade() else { return };
                let turns: Vec<TurnId> = {
                    let flights = map.lock().unwrap_or_else(PoisonError::into_inner);
                    let old = |flight: &InHand| deaf || flight.since.elapsed() >= LOOK_EVERY;
                    flights.iter().filter(|(_, flight)| old(flight)).map(|(turn, _)| *turn).collect()
                };
                if turns.is_empty() {
                    continue;
                }
                looking.ask(1).await;
                match hub.store().called_away(&turns).await {
                    Ok(called) => {
                        let flights = map.lock().unwrap_or_else(PoisonError::into_inner);
                        called.iter().filter_map(|turn| flights.get(turn)).for_each(|flight| flight.look.notify_one());
                    }
                    Err(error) => tracing::debug!(%error, "the rows of turns in hand could not be looked at"),
                }
            }
        });
    }

    /// `None`: this process has the turn already.
    pub(crate) fn take_off(&self, turn: TurnId) -> Option<Flight> {
        let mut flights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(flight) = flights.get(&turn) {
            // Whoever told us has a reason: the row may have news.
            flight.look.notify_one();
            return None;
        }
        let hand = Arc::new(InHand { since: Instant::now(), look: Notify::new(), keep: AtomicBool::new(false) });
        flights.insert(turn, hand.clone());
        Some(Flight { turn, hand, flights: self.0.clone() })
    }
}

fn tell(map: &Map, warm: &Warm, control: &Control) {
    let Ok(turn) = control.turn_id.parse::<TurnId>() else { return };
    // A turn of which something was asked goes on from its row, not from what is known.
    warm.forget(turn);
    let flights = map.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(flight) = flights.get(&turn) {
        if control.action() == control::Action::Keep {
            flight.keep.store(true, Ordering::Relaxed);
        }
        flight.look.notify_one();
    }
}

/// A turn that this process has in hand; over when dropped.
pub(crate) struct Flight {
    turn: TurnId,
    hand: Arc<InHand>,
    flights: Arc<Map>,
}

impl Flight {
    /// Returns when the row should be looked at.
    pub(crate) async fn told(&self) {
        self.hand.look.notified().await;
    }

    /// Whether what was said so far is to be written down first; says so once.
    pub(crate) fn keeps(&self) -> bool {
        self.hand.keep.swap(false, Ordering::Relaxed)
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.turn);
    }
}
