//! Which waiting commits may share a transaction.
//!
//! Two that touch the same row may not (the second must see what the first made of it), and no
//! commit may overtake an earlier one that touches a row of its own. Each mixture of shapes is a statement
//! to plan: only shapes that come again and again are mixed, and few at a time.

use crate::commit::{Op, Sealed, Write};
use crate::entity::session;
use std::collections::{HashMap, VecDeque};
use uuid::Uuid;

/// Commits in one transaction; beyond this a larger batch no longer helps and delays its first.
const BATCH_MAX: usize = 256;
const BATCH_WRITES_MAX: usize = 2_000;
const BATCH_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Shapes in one batch.
const SHAPES_MAX: usize = 4;
/// How often a shape must have come to be mixed with others.
const COMMON: u32 = 32;
/// Shapes whose coming is counted.
const COUNTED_MAX: usize = 1_000;

#[derive(Debug)]
pub(super) struct Queue<J> {
    waiting: VecDeque<J>,
    /// How often each shape came.
    came: HashMap<u64, u32>,
}

impl<J> Default for Queue<J> {
    fn default() -> Self {
        Queue { waiting: VecDeque::new(), came: HashMap::new() }
    }
}

/// The shapes of a batch that is put together.
struct Mixture<'a> {
    came: &'a HashMap<u64, u32>,
    shapes: Vec<u64>,
    mixes: bool,
}

impl<'a> Mixture<'a> {
    fn of(first: &Sealed, came: &'a HashMap<u64, u32>) -> Mixture<'a> {
        let mut mixture = Mixture { came, shapes: vec![first.shape], mixes: true };
        mixture.mixes = mixture.can_mix(first);
        mixture
    }

    /// One that begins a session or writes its row has a statement of its own kind.
    fn can_mix(&self, c: &Sealed) -> bool {
        let own = c.writes.iter().any(|w| std::ptr::eq(w.table, &*session::TABLE) && w.changes());
        !c.fresh && !own && self.came.get(&c.shape).is_some_and(|n| *n >= COMMON)
    }

    fn takes(&mut self, c: &Sealed) -> bool {
        if self.shapes.contains(&c.shape) {
            return true;
        }
        let takes = self.mixes && self.shapes.len() < SHAPES_MAX && self.can_mix(c);
        if takes {
            self.shapes.push(c.shape);
        }
        takes
    }
}

impl<J> Queue<J> {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = J> {
        self.waiting.drain(..)
    }

    pub(super) fn push(&mut self, job: J) {
        self.waiting.push_back(job);
    }

    /// The oldest commits that go together, in order.
    pub(super) fn take(&mut self, commit: impl Fn(&J) -> &Sealed) -> Vec<J> {
        if self.waiting.len() == 1 {
            return self.waiting.drain(..).collect();
        }
        if self.came.len() > COUNTED_MAX {
            self.came.clear();
        }
        self.waiting.iter().for_each(|job| *self.came.entry(commit(job).shape).or_default() += 1);
        let mut seen: HashMap<(usize, Uuid), Touch> = HashMap::with_capacity(self.waiting.len() * 3);
        let (mut writes, mut bytes) = (0, 0);
        let mut batch = Vec::new();
        let mut held = VecDeque::new();
        let Some(mut mixture) = self.waiting.front().map(|job| Mixture::of(commit(job), &self.came)) else {
            return batch;
        };
        for job in self.waiting.drain(..) {
            let c = commit(&job);
            let clear = touched(c).all(|(key, touch)| seen.get(&key).is_none_or(|earlier| earlier.shares(touch)));
            // A commit that is held back still blocks the later ones that touch its rows.
            for (key, touch) in touched(c) {
                seen.entry(key).and_modify(|earlier| *earlier = earlier.with(touch)).or_insert(touch);
            }
            let room = batch.len() < BATCH_MAX
                && writes + c.writes.len() <= BATCH_WRITES_MAX
                && bytes + c.bytes <= BATCH_BYTES_MAX;
            if clear && (batch.is_empty() || (room && mixture.takes(c))) {
                writes += c.writes.len();
                bytes += c.bytes;
                batch.push(job);
            } else {
                held.push_back(job);
            }
        }
        self.waiting = held;
        batch
    }
}

/// What a commit does to a row, as far as others are concerned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Touch {
    Reads,
    /// From a limit: in any order it comes to the same.
    Draws,
    Changes,
}

impl Touch {
    fn of(write: &Write) -> Touch {
        match write.op {
            Op::Check => Touch::Reads,
            Op::Draw(_) => Touch::Draws,
            Op::Update { .. } | Op::Insert { .. } | Op::Delete => Touch::Changes,
        }
    }

    fn shares(self, other: Touch) -> bool {
        self == other && self != Touch::Changes
    }

    fn with(self, other: Touch) -> Touch {
        if self == other { self } else { Touch::Changes }
    }
}

/// The rows of a commit and what it does to them. Every commit reads its session.
fn touched(c: &Sealed) -> impl Iterator<Item = ((usize, Uuid), Touch)> {
    let sessions = std::ptr::from_ref(&*session::TABLE) as usize;
    let own = std::iter::once(((sessions, c.session.uuid()), Touch::Reads));
    own.chain(c.writes.iter().map(|w| ((std::ptr::from_ref(w.table) as usize, w.id), Touch::of(w))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit::Draw;
    use crate::entity::turn;
    use instar_core::id::{CommandId, SessionId};

    fn commit(session: u128, row: u128, op: Op) -> Sealed {
        let write = Write::new(&turn::TABLE, Uuid::from_u128(row), op);
        Sealed {
            id: CommandId::from(Uuid::from_u128(row)),
            session: SessionId::from(Uuid::from_u128(session)),
            fresh: false,
            at: Default::default(),
            writes: vec![write],
            runes: vec![],
            bytes: 0,
            shape: 0,
        }
    }

    fn update() -> Op {
        Op::Update { set: vec![], add: 1 }
    }

    fn rows(batch: &[Sealed]) -> Vec<u128> {
        batch.iter().map(|c| c.writes[0].id.as_u128()).collect()
    }

    #[test]
    fn commits_on_different_rows_go_together_and_on_the_same_row_one_after_another() {
        let mut q = Queue::default();
        for (session, row) in [(1, 10), (1, 11), (1, 10), (2, 12), (1, 10)] {
            q.push(commit(session, row, update()));
        }
        assert_eq!(rows(&q.take(|c| c)), [10, 11, 12]);
        assert_eq!(rows(&q.take(|c| c)), [10]);
        assert_eq!(rows(&q.take(|c| c)), [10]);
        assert!(q.is_empty());
    }

    #[test]
    fn only_shapes_that_are_common_are_mixed() {
        let mut q = Queue::default();
        let push = |q: &mut Queue<Sealed>, rows: std::ops::Range<u128>| {
            rows.for_each(|row| q.push(Sealed { shape: row as u64 % 3, ..commit(1, row, update()) }));
        };
        push(&mut q, 0..9);
        assert_eq!([q.take(|c| c).len(), q.take(|c| c).len(), q.take(|c| c).len()], [3, 3, 3]);
        push(&mut q, 0..99);
        assert_eq!(q.take(|c| c).len(), 99);
        q.push(Sealed { shape: 7, ..commit(1, 1, update()) });
        push(&mut q, 2..4);
        assert_eq!([q.take(|c| c).len(), q.take(|c| c).len()], [1, 2], "a rare one goes alone");
    }

    #[test]
    fn readers_of_a_row_go_together_but_not_with_its_writer() {
        let mut q = Queue::default();
        for op in [Op::Check, Op::Check, update(), Op::Check] {
            q.push(commit(1, 10, op));
        }
        assert_eq!(q.take(|c| c).len(), 2);
        assert_eq!(q.take(|c| c).len(), 1);
        assert_eq!(q.take(|c| c).len(), 1);
    }

    #[test]
    fn those_who_draw_from_a_limit_go_together_but_not_with_who_changes_it() {
        let mut q = Queue::default();
        let draw = || Op::Draw(Draw::default());
        for op in [draw(), draw(), update(), draw(), draw()] {
            q.push(commit(1, 10, op));
        }
        assert_eq!([q.take(|c| c).len(), q.take(|c| c).len(), q.take(|c| c).len()], [2, 1, 2]);
    }

    #[test]
    fn a_batch_has_a_limit_and_loses_nothing() {
        let mut q = Queue::default();
        for row in 0..600 {
            q.push(commit(1, row, update()));
        }
        assert_eq!(q.take(|c| c).len(), BATCH_MAX);
        assert_eq!(q.take(|c| c).len(), BATCH_MAX);
        assert_eq!(q.take(|c| c).len(), 600 - 2 * BATCH_MAX);
        assert!(q.is_empty());
    }
}
