//! A change to one existing row, as services build it.

use super::write::{Draw, Op, Write};
use crate::table::{self, Table};
use instar_core::id::Entity;
use instar_core::machine::Move;
use sea_orm::{ActiveModelTrait, EntityTrait, IdenStatic, IntoActiveModel, ModelTrait, Value};
use uuid::Uuid;

/// A change to one existing row.
#[derive(Debug)]
pub struct Change {
    pub(super) write: Write,
    pub(super) entity: Option<Entity>,
    pub(super) moves: Vec<Move>,
    pub(super) misuse: Option<String>,
}

impl Change {
    pub fn new(table: &'static Table, id: impl Into<Uuid>) -> Change {
        let op = Op::Update { set: Vec::new(), add: 0 };
        let write = Write::new(table, id.into(), op);
        Change { write, entity: None, moves: Vec::new(), misuse: None }
    }

    /// The row of an entity that takes part in a transition.
    pub fn entity(table: &'static Table, entity: impl Into<Entity>) -> Change {
        let entity = entity.into();
        Change { entity: Some(entity), ..Change::new(table, entity.id) }
    }

    /// Moves the row's state: it must be in the move's source state when the commit lands.
    pub fn moving(mut self, mv: Move) -> Change {
        let Some(slot) = self.write.table.status_column(mv.machine()) else {
            self.misuse = Some(format!("{} holds no state of machine {}", self.write.table.name, mv.machine()));
            return self;
        };
        let Some(from) = mv.from() else {
            self.misuse = Some(format!("{} is a birth: insert the row instead", mv.row()));
            return self;
        };
        // Several moves of one machine in one commit chain up: only the first source is expected.
        match self.write.require(slot, from) {
            Ok(()) => {
                self.write.after[slot] = mv.to();
                self.write.put(self.write.table.machines[slot].1, mv.to().into());
                self.moves.push(mv);
            }
            Err(why) => self.misuse = Some(format!("{}: {why}", mv.row())),
        }
        self
    }

    /// Expects a state without moving it, such as an active session.
    pub fn expecting(mut self, machine: &str, state: &'static str) -> Change {
        match self.write.table.status_column(machine) {
            Some(slot) => self.misuse = self.write.require(slot, state).err().or(self.misuse),
            None => self.misuse = Some(format!("{} holds no state of machine {machine}", self.write.table.name)),
        }
        self
    }

    /// The fencing epoch that the caller holds; a row at another epoch refuses the commit.
    pub fn epoch(mut self, epoch: i64) -> Change {
        self.write.expect.epoch = Some(epoch);
        self
    }

    /// The version that the caller read; a row that changed since refuses the commit.
    pub fn version(mut self, version: i64) -> Change {
        self.write.expect.version = Some(version);
        self
    }

    pub fn set(mut self, column: impl IdenStatic, value: impl Into<Value>) -> Change {
        let name = column.as_str();
        if self.write.table.is_reserved(name) {
            self.misuse = Some(format!("{}.{name} is written by the transition writer only", self.write.table.name));
            return self;
        }
        match table::normal(value.into()) {
            Some(value) => self.write.put(name, value),
            None => self.misuse = Some(format!("{}.{name} has a type that no column has", self.write.table.name)),
        }
        self
    }

    /// Sets every column in which the row shall differ from how it was read; what only the writer may write is
    /// left to it.
    pub fn between<M>(mut self, before: M, after: M) -> Change
    where
        M: ModelTrait + IntoActiveModel<<M::Entity as EntityTrait>::ActiveModel>,
        <M::Entity as EntityTrait>::ActiveModel: ActiveModelTrait<Entity = M::Entity>,
    {
        let before = table::values(&before.into_active_model());
        for ((name, was), (_, is)) in before.into_iter().zip(table::values(&after.into_active_model())) {
            if was == is || self.write.table.is_reserved(name) {
                continue;
            }
            match table::normal(is) {
                Some(value) => self.write.put(name, value),
                None => self.misuse = Some(format!("{}.{name} has a type that no column has", self.write.table.name)),
            }
        }
        self
    }

    /// Takes from a limit: adds to what is used and what is reserved. It lands only if `need` more would still fit,
    /// whatever others take at the same moment; with a `need` of zero in any case. The landed commit's counter says
    /// how much is not used.
    pub fn drawing(mut self, used: i64, reserved: i64, need: i64) -> Change {
        if !self.write.table.meter {
            self.misuse = Some(format!("rows of {} are no limits", self.write.table.name));
        }
        match &self.write.op {
            Op::Update { set, add: 0 } if set.is_empty() => {
                self.write.op = Op::Draw(Draw { used, reserved, need: need.max(0) });
            }
            _ => self.misuse = Some(format!("a row of {} is drawn from and changed at once", self.write.table.name)),
        }
        self
    }

    /// Adds to the table's counter; the landed commit says what it came to.
    pub fn adding(mut self, n: i64) -> Change {
        if self.write.table.counter.is_none() {
            self.misuse = Some(format!("{} has no counter", self.write.table.name));
        }
        if let Op::Update { add, .. } = &mut self.write.op {
            *add += n;
        }
        self
    }
}
