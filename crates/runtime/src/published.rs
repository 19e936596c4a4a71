//! How far each log is published, as the processes say that publish: noted in the database in batches.
//!
//! A note says "everything up to here is published". Word comes in any order and from several processes,
//! so runs of numbers are kept until what precedes them is noted; what waits too long is left to the slow
//! path. Every scheduler hears every word and notes it: whoever comes second changes nothing.

use instar_bus::message::Run;
use instar_bus::{BusError, Heard, Listener, message};
use instar_core::id::SessionId;
use instar_store::{Store, StoreError};
use std::collections::{BTreeMap, HashMap};

use crate::hub::Hub;

/// Flushes that a run waits for its predecessor before it is left to the slow path.
const PATIENCE: u32 = 20;

/// Published runs of numbers per session: start to end, with the flushes they have waited.
#[derive(Default)]
struct Runs(HashMap<SessionId, BTreeMap<i64, (i64, u32)>>);

pub struct Published {
    store: Store,
    words: Listener<message::Published>,
    runs: Runs,
}

impl Published {
    pub async fn listen(hub: &Hub) -> Result<Published, BusError> {
        let bus = hub.bus();
        let words = bus.listen(&bus.space().published()).await?;
        Ok(Published { store: hub.store().clone(), words, runs: Runs::default() })
    }

    /// Hears the next word. Safe to cancel.
    pub async fn hear(&mut self) {
        // What was lost trails, and is published again.
        let Heard::Message(word) = self.words.next().await else { return };
        for Run { session_id, after, up_to } in word.runs {
            if let Ok(session) = session_id.parse() {
                self.runs.add(session, after, up_to);
            }
        }
    }

    /// Notes what was heard.
    pub async fn note(&mut self) -> Result<(), StoreError> {
        let marks = self.runs.lowest();
        let counted = self.store.mark_published(&marks).await?;
        self.runs.noted(&marks, &counted);
        Ok(())
    }
}

impl Runs {
    fn add(&mut self, session: SessionId, after: i64, up_to: i64) {
        let runs = self.0.entry(session).or_default();
        let (mut from, mut to, mut age) = (after, up_to, 0);
        // Runs that meet become one.
        while let Some((&start, &(end, waited))) = runs.range(..=to).next_back() {
            if end < from {
                break;
            }
            runs.remove(&start);
            (from, to, age) = (from.min(start), to.max(end), age.max(waited));
        }
        runs.insert(from, (to, age));
    }

    /// The lowest run of each session: the others wait for it.
    fn lowest(&self) -> Vec<(SessionId, i64, i64)> {
        let lowest = |runs: &BTreeMap<i64, (i64, u32)>| runs.first_key_value().map(|(a, (u, _))| (*a, *u));
        let all = self.0.iter();
        all.filter_map(|(session, runs)| lowest(runs).map(|(after, up_to)| (*session, after, up_to))).collect()
    }

    fn noted(&mut self, marks: &[(SessionId, i64, i64)], counted: &[SessionId]) {
        let counted: std::collections::HashSet<_> = counted.iter().collect();
        for (session, after, _) in marks {
            let Some(runs) = self.0.get_mut(session) else { continue };
            match runs.get_mut(after) {
                Some((_, age)) if !counted.contains(session) && *age < PATIENCE => *age += 1,
                _ => drop(runs.remove(after)),
            }
            if runs.is_empty() {
                self.0.remove(session);
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
        for (after, up_to) in [(4, 6), (0, 2), (9, 10), (2, 4), (4, 5)] {
            runs.add(session, after, up_to);
        }
        assert_eq!(runs.lowest(), [(session, 0, 6)]);
        assert_eq!(runs.0[&session].len(), 2, "the one behind a gap waits");
        runs.noted(&[(session, 0, 6)], &[session]);
        assert_eq!(runs.lowest(), [(session, 9, 10)]);
        for _ in 0..=PATIENCE {
            runs.noted(&[(session, 9, 10)], &[]);
        }
        assert!(runs.0.is_empty(), "it does not wait for ever");
    }
}
