//! A turn that was asked to end and does not: its worker is lost, frozen or cut off, or nobody ends its calls.

use crate::sweep::{end, take_waiting};
use crate::{BATCH, Desk, go_on};
use anyhow::Result;
use futures::StreamExt;
use instar_core::id::{AgentId, TurnId};
use instar_core::machine::turn as turn_machine;
use instar_store::entity::turn;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Turns that are ended at once: commits of one moment share a transaction.
const AT_ONCE: usize = 32;

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
    let grace = |turn: &turn::Model| match turn.status.as_str() {
        "streaming" => config.interrupt_grace_ms,
        _ => config.stop_grace_ms,
    };
    let late = asked.into_iter().zip(turns).filter(|(asked, turn)| *asked >= Duration::from_millis(grace(turn)));
    let ended = futures::stream::iter(late).map(|(_, turn)| {
        let desk = desk.clone();
        async move { end_without(&desk, &turn).await }
    });
    let failed = ended.buffer_unordered(AT_ONCE).filter_map(|done| std::future::ready(done.err()));
    failed.collect::<Vec<_>>().await.into_iter().next().map_or(Ok(()), Err)
}

/// Ends a turn without its worker.
async fn end_without(desk: &Desk, turn: &turn::Model) -> Result<()> {
    let (id, agent) = (TurnId::from(turn.id), AgentId::from(turn.agent_id));
    let why = turn.control.as_ref().and_then(|control| control["reason"].as_str()).unwrap_or("interrupt");
    tracing::warn!(turn = %id, why, "its worker does not react; it is ended without it");
    go_on(id, end(desk, turn, turn_machine::Event::InterruptTimeout.token(), why).await)?;
    go_on(agent, take_waiting(desk, agent).await)
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
