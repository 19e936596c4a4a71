//! A turn that was asked to end and does not: its worker is lost, frozen or cut off, or nobody ends its calls.

use crate::sweep::{end, take_waiting};
use crate::{BATCH, Desk, go_on};
use anyhow::Result;
use instar_core::id::{AgentId, TurnId};
use instar_core::machine::turn as turn_machine;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Since when turns were seen to be asked: by this process's own clock, since whoever asked has another one.
#[derive(Clone, Default)]
pub(crate) struct Asked(Arc<Mutex<HashMap<Uuid, Instant>>>);

impl Asked {
    /// How long each of these was seen to be asked, in their order; others are forgotten.
    fn seen(&self, now: Instant, turns: impl Iterator<Item = Uuid>) -> Vec<Duration> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut *known);
        let since = |id: Uuid| {
            let since = before.get(&id).copied().unwrap_or(now);
            known.insert(id, since);
            now - since
        };
        turns.map(since).collect()
    }
}

pub(crate) async fn look(desk: Desk) -> Result<()> {
    let turns = desk.hub.store().unheeded_turns(BATCH).await?;
    let asked = desk.asked.seen(Instant::now(), turns.iter().map(|turn| turn.id));
    let config = &desk.config.worker;
    for (turn, asked) in turns.iter().zip(asked) {
        let grace = match turn.status.as_str() {
            "streaming" => config.interrupt_grace_ms,
            _ => config.stop_grace_ms,
        };
        if asked < Duration::from_millis(grace) {
            continue;
        }
        let why = turn.control.as_ref().and_then(|control| control["reason"].as_str()).unwrap_or("interrupt");
        tracing::warn!(turn = %TurnId::from(turn.id), why, "its worker does not react; it is ended without it");
        let event = turn_machine::Event::InterruptTimeout.token();
        go_on(TurnId::from(turn.id), end(&desk, turn, event, why).await)?;
        let agent = AgentId::from(turn.agent_id);
        go_on(agent, take_waiting(&desk, agent).await)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_counts_from_when_a_turn_was_first_seen() {
        let (asked, begun) = (Asked::default(), Instant::now());
        let (one, two) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let at = |seconds, turns: &[Uuid]| {
            let seen = asked.seen(begun + Duration::from_secs(seconds), turns.iter().copied());
            seen.into_iter().map(|time| time.as_secs()).collect::<Vec<_>>()
        };
        assert_eq!(at(0, &[one]), [0]);
        assert_eq!(at(2, &[one, two]), [2, 0]);
        assert_eq!(at(3, &[two]), [1]);
        assert_eq!(at(4, &[one, two]), [0, 2], "it was not asked any more, and is asked again");
    }
}
