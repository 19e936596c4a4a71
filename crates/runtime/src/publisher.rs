//! The fast path of publication: runes go out at once; that they did is noted in batches.
//!
//! A mark says "everything up to here is published". Acknowledgements come in any order and from
//! several processes, so runs of numbers are kept until what precedes them is marked; what waits
//! too long is left to the slow path.

use crate::wire;
use instar_bus::{Bus, Sent};
use instar_core::id::SessionId;
use instar_core::rune::Rune;
use instar_store::Store;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use tokio::sync::mpsc;

/// Commits whose acknowledgement may be awaited at once; beyond this they trail.
const WAITING_MAX: usize = 16_384;
const FLUSH_EVERY: Duration = Duration::from_millis(50);
/// Flushes that a run waits for its predecessor before it is left to the slow path.
const PATIENCE: u32 = 40;

struct Outgoing {
    session: SessionId,
    /// The number before its first rune, and that of its last.
    after: i64,
    up_to: i64,
    sent: Vec<Sent>,
}

#[derive(Clone)]
pub(crate) struct Publisher {
    bus: Bus,
    outgoing: mpsc::Sender<Outgoing>,
}

impl Publisher {
    pub(crate) fn start(store: Store, bus: Bus) -> Publisher {
        let (outgoing, receiver) = mpsc::channel(WAITING_MAX);
        tokio::spawn(note(store, receiver));
        Publisher { bus, outgoing }
    }

    /// Never waits. A rune that could not be handed over trails, and is found by its state.
    pub(crate) fn publish(&self, runes: &[Rune]) {
        let (Some(first), Some(last)) = (runes.first(), runes.last()) else { return };
        let sent: Result<Vec<Sent>, _> =
            runes.iter().map(|rune| self.bus.publish_rune_soon(&wire::rune(rune))).collect();
        match sent {
            Ok(sent) => {
                let (session, after, up_to) = (first.session_id, first.seq - 1, last.seq);
                // A full queue only means that this mark is left to the slow path.
                drop(self.outgoing.try_send(Outgoing { session, after, up_to, sent }));
            }
            Err(error) => tracing::debug!(session = %first.session_id, %error, "not published; it trails"),
        }
    }
}

/// Waits for acknowledgements and writes the marks.
async fn note(store: Store, mut outgoing: mpsc::Receiver<Outgoing>) {
    let mut runs = Runs::default();
    let mut acknowledged = tokio::task::JoinSet::new();
    let mut flush = tokio::time::interval(FLUSH_EVERY);
    flush.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            next = outgoing.recv() => match next {
                Some(o) => drop(acknowledged.spawn(confirm(o))),
                None => return,
            },
            Some(done) = acknowledged.join_next() => {
                if let Ok(Some((session, after, up_to))) = done {
                    runs.add(session, after, up_to);
                }
            }
            _ = flush.tick(), if !runs.is_empty() => runs.flush(&store).await,
        }
    }
}

async fn confirm(outgoing: Outgoing) -> Option<(SessionId, i64, i64)> {
    for sent in outgoing.sent {
        sent.await.ok()?;
    }
    Some((outgoing.session, outgoing.after, outgoing.up_to))
}

/// Published runs of numbers per session: start to end, with the flushes they have waited.
#[derive(Default)]
struct Runs(HashMap<SessionId, BTreeMap<i64, (i64, u32)>>);

impl Runs {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn add(&mut self, session: SessionId, after: i64, up_to: i64) {
        let runs = self.0.entry(session).or_default();
        runs.insert(after, (up_to, 0));
        // Runs that meet become one.
        let mut merged: BTreeMap<i64, (i64, u32)> = BTreeMap::new();
        for (&after, &(up_to, age)) in runs.iter() {
            match merged.last_entry() {
                Some(mut last) if last.get().0 >= after => {
                    let end = last.get().0.max(up_to);
                    last.get_mut().0 = end;
                }
                _ => drop(merged.insert(after, (up_to, age))),
            }
        }
        *runs = merged;
    }

    /// The lowest run of each session: the others wait for it.
    fn lowest(&self) -> Vec<(SessionId, i64, i64)> {
        let lowest = |runs: &BTreeMap<i64, (i64, u32)>| runs.first_key_value().map(|(a, (u, _))| (*a, *u));
        self.0
            .iter()
            .filter_map(|(session, runs)| lowest(runs).map(|(after, up_to)| (*session, after, up_to)))
            .collect()
    }

    async fn flush(&mut self, store: &Store) {
        let marks = self.lowest();
        let counted = match store.mark_published(&marks).await {
            Ok(counted) => counted,
            Err(error) => {
                tracing::debug!(%error, "marks not written; they are tried again");
                Vec::new()
            }
        };
        for (session, after, _) in marks {
            let Some(runs) = self.0.get_mut(&session) else { continue };
            match runs.get_mut(&after) {
                Some((_, age)) if !counted.contains(&session) && *age < PATIENCE => *age += 1,
                _ => drop(runs.remove(&after)),
            }
            if runs.is_empty() {
                self.0.remove(&session);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn runs_that_meet_become_one_whatever_order_they_come_in() {
        let session = SessionId::from(Uuid::from_u128(1));
        let mut runs = Runs::default();
        for (after, up_to) in [(4, 6), (0, 2), (9, 10), (2, 4)] {
            runs.add(session, after, up_to);
        }
        assert_eq!(runs.lowest(), [(session, 0, 6)]);
        assert_eq!(runs.0[&session].len(), 2, "the one behind a gap waits");
    }
}
