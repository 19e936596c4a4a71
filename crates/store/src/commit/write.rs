//! What a commit does to one row.

use crate::error::StoreError;
use crate::table::{self, Table};
use chrono::{DateTime, Utc};
use sea_orm::Value;
use uuid::Uuid;

/// What is not used of a limit.
pub(crate) const UNUSED: &str = "cap - used";

/// What a row must look like for a commit to land.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expect {
    /// State per machine of the table, in its order; empty where any will do.
    pub states: [&'static str; 2],
    pub epoch: Option<i64>,
    pub version: Option<i64>,
}

impl Expect {
    /// Takes on what else is expected of the same row. `Err` says what contradicts.
    fn join(&mut self, other: &Expect) -> Result<(), &'static str> {
        for (name, mine, theirs) in
            [("epoch", &mut self.epoch, other.epoch), ("version", &mut self.version, other.version)]
        {
            match (*mine, theirs) {
                (Some(a), Some(b)) if a != b => return Err(name),
                (None, Some(_)) => *mine = theirs,
                _ => {}
            }
        }
        Ok(())
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Expectation only: the row is read, not written.
    Check,
    Update {
        set: Vec<(&'static str, Value)>,
        add: i64,
    },
    Insert {
        values: Vec<(&'static str, Value)>,
    },
    Delete,
    Draw(Draw),
}

/// What is taken from a limit. Draws of several commits on one row add up in any order, so that they share a
/// transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Draw {
    pub used: i64,
    pub reserved: i64,
    /// How much must be left for it: `used + reserved + need <= cap`. At zero it lands in any case.
    pub need: i64,
}

impl Draw {
    /// What it takes for as long as nothing is given back.
    pub(crate) fn taken(self) -> i64 {
        self.used.saturating_add(self.reserved).max(0)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub table: &'static Table,
    pub id: Uuid,
    pub expect: Expect,
    /// State per machine after this write's moves; empty where it does not move.
    pub after: [&'static str; 2],
    pub op: Op,
}

impl Write {
    pub(crate) fn new(table: &'static Table, id: Uuid, op: Op) -> Write {
        Write { table, id, expect: Expect::default(), after: [""; 2], op }
    }

    /// A state that must hold when `slot` is written next: expected of the row, or made by an
    /// earlier move of the same commit.
    pub(super) fn require(&mut self, slot: usize, state: &'static str) -> Result<(), String> {
        let (expected, after) = (&mut self.expect.states[slot], self.after[slot]);
        let now = if after.is_empty() { *expected } else { after };
        if now.is_empty() {
            *expected = state;
            return Ok(());
        }
        if now == state { Ok(()) } else { Err(format!("a row of {} is {now} by then, not {state}", self.table.name)) }
    }

    pub(super) fn put(&mut self, column: &'static str, value: Value) {
        if let Op::Update { set, .. } = &mut self.op {
            set.retain(|(name, _)| *name != column);
            set.push((column, value));
        }
    }

    /// Takes on a later change of the same row: a row is written once per statement.
    pub(super) fn merge(&mut self, later: Write) -> Result<(), String> {
        if let (Op::Draw(later), Op::Draw(sum)) = (&later.op, &mut self.op) {
            sum.used += later.used;
            sum.reserved += later.reserved;
            sum.need += later.need;
            return Ok(());
        }
        let (Op::Update { set, add }, Op::Update { .. }) = (later.op, &self.op) else {
            return Err(format!("a row of {} is made or removed, and changed, in one commit", self.table.name));
        };
        for slot in 0..2 {
            if !later.expect.states[slot].is_empty() {
                self.require(slot, later.expect.states[slot])?;
            }
            if !later.after[slot].is_empty() {
                self.after[slot] = later.after[slot];
            }
        }
        self.expect.join(&later.expect).map_err(|what| format!("two different {what}s are expected of one row"))?;
        for (column, value) in set {
            self.put(column, value);
        }
        if let Op::Update { add: sum, .. } = &mut self.op {
            *sum += add;
        }
        Ok(())
    }

    /// What the landed commit is told of the row.
    pub(crate) fn told(&self) -> Option<&'static str> {
        match self.op {
            Op::Update { add, .. } if add != 0 => self.table.counter,
            Op::Draw(_) => Some(UNUSED),
            _ => None,
        }
    }

    pub(crate) fn changes(&self) -> bool {
        !matches!(self.op, Op::Check)
    }
}

/// Completes a write and says what it weighs. A change of nothing is a check.
pub(super) fn finish(write: &mut Write, at: DateTime<Utc>) -> Result<usize, StoreError> {
    let (table, mut bytes) = (write.table, 64);
    match &mut write.op {
        Op::Update { set, add: 0 } if set.is_empty() => write.op = Op::Check,
        Op::Update { set, add } => {
            if *add != 0 && set.iter().any(|(name, _)| table.counter == Some(*name)) {
                return Err(StoreError::Invalid(format!("the counter of {} is both set and added to", table.name)));
            }
            if table.has("updated_at") {
                set.push(("updated_at", at.into()));
            }
            // One order, so that commits that write the same columns share a statement.
            set.sort_by_key(|(name, _)| *name);
            bytes += set.iter().map(|(_, v)| table::weight(v)).sum::<usize>();
        }
        Op::Insert { values } => bytes += values.iter().map(|(_, v)| table::weight(v)).sum::<usize>(),
        Op::Check | Op::Delete | Op::Draw(_) => {}
    }
    Ok(bytes)
}

/// See [`super::Sealed::shape`].
pub(super) fn shape(fresh: bool, writes: &[Write]) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    fresh.hash(&mut hasher);
    for write in writes {
        (std::ptr::from_ref(write.table) as usize).hash(&mut hasher);
        std::mem::discriminant(&write.op).hash(&mut hasher);
        if let Op::Update { set, add } = &write.op {
            set.iter().for_each(|(column, _)| column.hash(&mut hasher));
            (*add != 0).hash(&mut hasher);
        }
    }
    hasher.finish()
}
