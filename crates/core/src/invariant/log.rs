//! The log as such: numbers, hashes, seals, kinds.

use super::{CLOSED_LAST, CONTIGUOUS, HASH, HEAD, MONOTONIC, RUNE_KIND, Report, SEAL, rows};
use crate::id::{Entity, SessionId};
use crate::machine::Emit;
use crate::rune::{Moved, Rune, Seal, chain, info};
use std::collections::VecDeque;

#[derive(Debug)]
pub(super) struct Watch {
    last: i64,
    session: Option<SessionId>,
    /// `None` once a number was wrong: from there on no seal can be recomputed.
    seal: Option<Seal>,
    expected: VecDeque<Seal>,
    pub(super) head: Option<i64>,
    closed: bool,
    // Of the commit that is being read:
    told: Vec<(&'static str, Entity)>,
    owed: Vec<Owed>,
}

/// A move whose row has runes of its own: those of any row that it may have been.
#[derive(Debug)]
struct Owed {
    seq: i64,
    row: &'static str,
    entity: Entity,
    kinds: Vec<&'static [&'static str]>,
}

impl Watch {
    pub(super) fn new(start: Seal, seals: Vec<Seal>) -> Watch {
        Watch {
            last: start.seq,
            session: None,
            seal: Some(start),
            expected: seals.into(),
            head: None,
            closed: false,
            told: vec![],
            owed: vec![],
        }
    }

    pub(super) fn rune(&mut self, rune: &Rune, report: &mut Report) {
        self.number(rune, report);
        if !rune.is_intact() {
            report.fire(&HASH, rune.seq, format!("the content of {} does not hash to {:?}", rune.id, rune.hash));
        }
        self.extend(rune, report);
        self.kind(rune, report);
        if self.closed && rune.kind != "session.archived" {
            report.fire(&CLOSED_LAST, rune.seq, format!("{} follows session.closed", rune.kind));
        }
        self.closed |= rune.kind == "session.closed";
    }

    fn number(&mut self, rune: &Rune, report: &mut Report) {
        let session = *self.session.get_or_insert(rune.session_id);
        if session != rune.session_id {
            report.fire(&MONOTONIC, rune.seq, format!("a rune of {} in the log of {session}", rune.session_id));
        } else if rune.seq <= self.last {
            report.fire(&MONOTONIC, rune.seq, format!("it follows number {}", self.last));
        } else if rune.seq > self.last + 1 {
            report.fire(&CONTIGUOUS, rune.seq, format!("{} numbers are missing before it", rune.seq - self.last - 1));
        }
        self.last = self.last.max(rune.seq);
    }

    fn extend(&mut self, rune: &Rune, report: &mut Report) {
        // Without a seal to come there is nothing to compare, and hashing is what this costs.
        if self.expected.is_empty() {
            return;
        }
        self.seal = self.seal.and_then(|seal| chain(seal, [(rune.seq, rune.hash)]).ok());
        let (Some(seal), Some(next)) = (self.seal, self.expected.front()) else { return };
        if next.seq == seal.seq {
            if *next != seal {
                report.fire(&SEAL, rune.seq, format!("the chain is {:?} and was sealed as {:?}", seal.hash, next.hash));
                // One alarm: every later seal would differ for the same reason.
                self.seal = None;
            }
            self.expected.pop_front();
        }
    }

    pub(super) fn finish(&mut self, last: i64, report: &mut Report) {
        if let (Some(seal), Some(next)) = (self.seal, self.expected.front()) {
            report.fire(&SEAL, last, format!("the log ends at {} and was sealed up to {}", seal.seq, next.seq));
        }
        if let Some(head) = self.head.filter(|head| self.last < *head) {
            report.fire(&HEAD, last, format!("the log ends at {} and its session is at {head}", self.last));
        }
    }

    fn kind(&mut self, rune: &Rune, report: &mut Report) {
        let Some(info) = info(&rune.kind) else {
            return report.fire(&RUNE_KIND, rune.seq, format!("no kind is called {:?}", rune.kind));
        };
        if let Err(no) = (info.check)(rune.payload.get()) {
            report.fire(&RUNE_KIND, rune.seq, format!("not a payload of {}: {no}", rune.kind));
        }
        self.told.push((info.token, rune.entity));
        rune.moves.iter().for_each(|moved| self.carried(moved, rune, report));
    }

    fn carried(&mut self, moved: &Moved, rune: &Rune, report: &mut Report) {
        let mut known = None;
        let mut kinds = Vec::new();
        for (_, row) in rows(moved) {
            known = Some(row);
            match row.emit {
                Emit::Runes(own) if own.last().is_some_and(|kind| *kind == rune.kind) => kinds.push(own),
                Emit::Via(kind) if kind == rune.kind => return,
                Emit::Silent => return,
                Emit::Runes(_) | Emit::Via(_) => {}
            }
        }
        // A row that no table has is INV-TABLE's.
        let Some(row) = known else { return };
        if kinds.is_empty() {
            let message = format!("{} rides on {} instead of {:?}", moved.row, rune.kind, row.emit);
            return report.fire(&RUNE_KIND, rune.seq, message);
        }
        self.owed.push(Owed { seq: rune.seq, row: row.id, entity: moved.entity, kinds });
    }

    pub(super) fn commit(&mut self, report: &mut Report) {
        let told = std::mem::take(&mut self.told);
        for Owed { seq, row, entity, kinds } in self.owed.drain(..) {
            let missing = |own: &&[&'static str]| own.iter().copied().find(|kind| !told.contains(&(*kind, entity)));
            if let Some(kind) = kinds.iter().map(missing).min().flatten() {
                report.fire(&RUNE_KIND, seq, format!("{row} of {entity} without {kind} in the same commit"));
            }
        }
    }
}
