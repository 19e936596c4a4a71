//! Turns to take up, found in the database while the bus is down.

use crate::worker::Worker;
use instar_bus::message::WorkTurn;
use instar_core::id::TurnId;
use instar_runtime::{Ready, Tried};
use instar_store::{After, Due};
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::Sender;

/// Turns that may have been found and not yet taken up.
pub(crate) const FOUND_MAX: usize = 64;
/// Rows of one look.
const LOOK_MAX: u64 = 256;

/// Hands on what there is room for, until nobody takes it any more.
pub(crate) async fn look(worker: Arc<Worker>, slots: Arc<Semaphore>, found: Sender<WorkTurn>) {
    let mut looking = worker.hub.looking();
    let (mut tried, mut after) = (Tried::default(), After::default());
    loop {
        looking.due().await;
        if found.is_closed() {
            return;
        }
        if found.capacity() < found.max_capacity() {
            // What was found before is not taken up yet.
            looking.looked(true);
            continue;
        }
        looking.ask(1).await;
        let due = match worker.hub.store().ready_turns(worker.id, after, LOOK_MAX).await {
            Ok(due) => due,
            Err(error) => {
                tracing::debug!(%error, "what there is to do could not be looked for");
                looking.looked(false);
                continue;
            }
        };
        let room = slots.available_permits().clamp(1, FOUND_MAX);
        let handed = hand_on(&worker, &due, room, &mut tried, &found);
        // Some of what is there waits for good reason, and must not hide the rest.
        let all = handed < room && due.len() as u64 == LOOK_MAX;
        after = due.last().filter(|_| all).map_or_else(After::default, |last| After::turn(&last.turn));
        looking.looked(handed > 0);
    }
}

fn hand_on(worker: &Worker, due: &[Due], room: usize, tried: &mut Tried, found: &Sender<WorkTurn>) -> usize {
    let mut handed = 0;
    for Due { turn, .. } in due {
        if handed == room {
            break;
        }
        if worker.flights.has(TurnId::from(turn.id)) || !tried.is_due(turn.id, turn.version) {
            continue;
        }
        let reason = if turn.status == "queued" { "queued" } else { "found" };
        if found.try_send(Ready::of(turn, reason).into()).is_err() {
            break;
        }
        handed += 1;
    }
    handed
}
