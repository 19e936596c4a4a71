//! The log as such: numbers, hashes, seals, kinds.

use super::{CLOSED_LAST, CONTIGUOUS, HASH, MONOTONIC, RUNE_KIND, Report, SEAL, rows};
use crate::id::SessionId;
use crate::machine::Emit;
use crate::rune::{Rune, Seal, chain, info};
use std::collections::VecDeque;

#[derive(Debug)]
pub(super) struct Watch {
    last: i64,
    session: Option<SessionId>,
    /// `None` once a number was wrong: from there on no seal can be recomputed.
    seal: Option<Seal>,
    expected: VecDeque<Seal>,
    closed: bool,
}

impl Watch {
    pub(super) fn new(start: Seal, seals: Vec<Seal>) -> Watch {
        Watch { last: start.seq, session: None, seal: Some(start), expected: seals.into(), closed: false }
    }

    pub(super) fn rune(&mut self, rune: &Rune, report: &mut Report) {
        self.number(rune, report);
        if !rune.is_intact() {
            report.fire(&HASH, rune.seq, format!("the content of {} does not hash to {:?}", rune.id, rune.hash));
        }
        self.extend(rune, report);
        kind(rune, report);
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
    }
}

fn kind(rune: &Rune, report: &mut Report) {
    let Some(info) = info(&rune.kind) else {
        return report.fire(&RUNE_KIND, rune.seq, format!("no kind is called {:?}", rune.kind));
    };
    if let Err(no) = (info.check)(rune.payload.get()) {
        report.fire(&RUNE_KIND, rune.seq, format!("not a payload of {}: {no}", rune.kind));
    }
    for moved in &rune.moves {
        let mut carriers = rows(moved).map(|(_, row)| match row.emit {
            Emit::Runes(kinds) => kinds.last().copied(),
            Emit::Via(kind) => Some(kind),
            Emit::Silent => None,
        });
        let Some(first) = carriers.next() else { continue };
        if std::iter::once(first).chain(carriers).all(|kind| kind.is_some_and(|kind| kind != rune.kind)) {
            report.fire(&RUNE_KIND, rune.seq, format!("{} rides on {} instead of {first:?}", moved.row, rune.kind));
        }
    }
}
