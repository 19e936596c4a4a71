//! Answers whose calls may all run side by side, as far as this runner has seen them.
//!
//! What an answer asks for never changes. Once it is known that none of its calls must go alone, each call's own
//! row says whether it may begin: a thousand of them cost a thousand rows, not a million.

use instar_core::id::TurnId;
use instar_store::entity::tool_call;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// The oldest is forgotten beyond this; its calls are looked at together again.
const KNOWN_MAX: usize = 256;

/// Turns, each with the number of its answer.
#[derive(Default)]
pub(crate) struct Beside(Mutex<VecDeque<(TurnId, i64)>>);

impl Beside {
    /// Whether an answer of this turn is known, whichever it is.
    pub(crate) fn knows(&self, turn: TurnId) -> bool {
        self.find(|(known, _)| *known == turn)
    }

    pub(crate) fn has(&self, call: &tool_call::Model) -> bool {
        self.find(|(turn, iteration)| call.turn_id == Some(turn.uuid()) && call.iteration == *iteration)
    }

    /// Remembers the answer that `call` is of, if there is something to gain. `together`: all of its calls.
    pub(crate) fn learn(&self, together: &[&tool_call::Model], parallel: impl Fn(&str) -> bool) {
        let [first, _, ..] = together else { return };
        let Some(turn) = first.turn_id.map(TurnId::from) else { return };
        if !self.has(first) && together.iter().all(|call| parallel(&call.name)) {
            let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            known.retain(|(other, _)| *other != turn);
            known.push_back((turn, first.iteration));
            if known.len() > KNOWN_MAX {
                known.pop_front();
            }
        }
    }

    fn find(&self, is: impl Fn(&(TurnId, i64)) -> bool) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().any(is)
    }
}
