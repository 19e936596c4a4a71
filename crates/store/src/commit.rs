//! A commit: transitions, row writes and runes that land together or not at all.
//!
//! Built by services from [`Move`]s, which only a machine's table hands out. Building checks that
//! every transition is told by the runes that its row names; the writer does the rest.

use crate::error::StoreError;
use crate::table::{self, Table};
use chrono::{DateTime, SubsecRound, Utc};
use instar_core::id::{CommandId, Entity, RuneId, SessionId};
use instar_core::machine::{Emit, Move};
use instar_core::rune::{Actor, Draft, Moved, Rune};
use sea_orm::{ActiveModelTrait, EntityTrait, IdenStatic, IntoActiveModel, ModelTrait, Value};
use uuid::Uuid;

/// Everything has a limit, so that one caller cannot hold up the others.
pub const PAYLOAD_BYTES_MAX: usize = 512 * 1024;
pub const RUNES_MAX: usize = 1_000;
pub const WRITES_MAX: usize = 2_000;

/// What a row must look like for a commit to land.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expect {
    /// State per machine of the table, in its order; empty where any will do.
    pub states: [&'static str; 2],
    pub epoch: Option<i64>,
    pub version: Option<i64>,
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
}

#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub table: &'static Table,
    pub id: Uuid,
    pub expect: Expect,
    pub op: Op,
}

impl Write {
    pub(crate) fn changes(&self) -> bool {
        !matches!(self.op, Op::Check)
    }
}

/// A change to one existing row.
#[derive(Debug)]
pub struct Change {
    write: Write,
    entity: Option<Entity>,
    moves: Vec<Move>,
    misuse: Option<String>,
}

impl Change {
    pub fn new(table: &'static Table, id: impl Into<Uuid>) -> Change {
        let op = Op::Update { set: Vec::new(), add: 0 };
        let write = Write { table, id: id.into(), expect: Expect::default(), op };
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
        // Several moves of one machine in one commit chain up: the first source is expected.
        if self.write.expect.states[slot].is_empty() {
            self.write.expect.states[slot] = from;
        }
        let column = self.write.table.machines[slot].1;
        if let Op::Update { set, .. } = &mut self.write.op {
            set.retain(|(name, _)| *name != column);
            set.push((column, mv.to().into()));
        }
        self.moves.push(mv);
        self
    }

    /// Expects a state without moving it, such as an active session.
    pub fn expecting(mut self, machine: &str, state: &'static str) -> Change {
        match self.write.table.status_column(machine) {
            Some(slot) => self.write.expect.states[slot] = state,
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
        } else if let Op::Update { set, .. } = &mut self.write.op {
            set.push((name, value.into()));
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

/// See the module's header.
#[derive(Debug)]
pub struct Commit {
    pub(crate) id: CommandId,
    pub(crate) session: SessionId,
    pub(crate) fresh: bool,
    pub(crate) actor: Actor,
    pub(crate) at: DateTime<Utc>,
    pub(crate) epoch: i64,
    pub(crate) traceparent: Option<String>,
    pub(crate) writes: Vec<Write>,
    drafts: Vec<Draft>,
    /// Moves in order, each with the number of runes that were there before it.
    owed: Vec<(Entity, Move, usize)>,
    misuse: Option<String>,
}

impl Commit {
    pub fn new(session: SessionId, actor: Actor) -> Commit {
        Commit {
            id: CommandId::from(Uuid::now_v7()),
            session,
            fresh: false,
            actor,
            at: Utc::now().trunc_subsecs(6),
            epoch: 0,
            traceparent: None,
            writes: Vec::new(),
            drafts: Vec::new(),
            owed: Vec::new(),
            misuse: None,
        }
    }

    /// The name under which an ambiguous commit can be read back.
    pub fn command(mut self, id: CommandId) -> Commit {
        self.id = id;
        self
    }

    pub fn command_id(&self) -> CommandId {
        self.id
    }

    /// Time of the commit; what its rows and runes carry.
    pub fn at(&self) -> DateTime<Utc> {
        self.at
    }

    /// The fencing epoch that its runes carry.
    pub fn under_epoch(mut self, epoch: i64) -> Commit {
        self.epoch = epoch;
        self
    }

    pub fn traced(mut self, traceparent: Option<String>) -> Commit {
        self.traceparent = traceparent;
        self
    }

    pub fn change(&mut self, change: Change) -> &mut Commit {
        let Change { write, entity, moves, misuse } = change;
        self.misuse = self.misuse.take().or(misuse);
        for mv in &moves {
            match entity {
                Some(entity) => self.owe(entity, mv),
                None => self.misuse = Some(format!("{} moves a row without naming its entity", mv.row())),
            }
        }
        let idle = matches!(&write.op, Op::Update { set, add: 0 } if set.is_empty());
        self.writes.push(if idle { Write { op: Op::Check, ..write } } else { write });
        self
    }

    /// A new row of a table without a machine.
    pub fn insert<M>(&mut self, table: &'static Table, model: M) -> &mut Commit
    where
        M: ModelTrait + IntoActiveModel<<M::Entity as EntityTrait>::ActiveModel>,
        <M::Entity as EntityTrait>::ActiveModel: ActiveModelTrait<Entity = M::Entity>,
    {
        let values = table::values(&model.into_active_model());
        let id = values.iter().find_map(|(name, v)| match (name, v) {
            (&"id", Value::Uuid(Some(id))) => Some(*id),
            _ => None,
        });
        let Some(id) = id else {
            self.misuse = Some(format!("a row of {} needs an id", table.name));
            return self;
        };
        let op = Op::Insert { values };
        self.writes.push(Write { table, id, expect: Expect::default(), op });
        self
    }

    /// A new row of an entity: its state columns must be where its births lead.
    pub fn bear<M>(
        &mut self,
        table: &'static Table,
        entity: impl Into<Entity>,
        births: &[Move],
        model: M,
    ) -> &mut Commit
    where
        M: ModelTrait + IntoActiveModel<<M::Entity as EntityTrait>::ActiveModel>,
        <M::Entity as EntityTrait>::ActiveModel: ActiveModelTrait<Entity = M::Entity>,
    {
        let entity = entity.into();
        self.insert(table, model);
        let Some(Write { op: Op::Insert { values }, .. }) = self.writes.last() else { return self };
        for (machine, column) in table.machines {
            let stored = values.iter().find_map(|(name, v)| match v {
                Value::String(Some(s)) if name == column => Some(s.as_str()),
                _ => None,
            });
            // The last move of the machine says where it is when the row appears.
            let led = births.iter().rev().find(|b| b.machine() == *machine).map(|b| b.to());
            if led.is_none() || led != stored {
                self.misuse = Some(format!("{}.{column} must be where its birth leads", table.name));
            }
        }
        for birth in births {
            self.owe(entity, birth);
        }
        self.fresh |= entity == Entity::from(self.session);
        self
    }

    /// Removes a row of a table without a machine; if it is gone already the commit does not land.
    pub fn delete(&mut self, table: &'static Table, id: impl Into<Uuid>) -> &mut Commit {
        if !table.machines.is_empty() {
            self.misuse = Some(format!("rows of {} are never removed", table.name));
        }
        self.writes.push(Write { table, id: id.into(), expect: Expect::default(), op: Op::Delete });
        self
    }

    /// Adds a rune. Which moves it stands for is found by their rows when the commit is checked.
    pub fn rune(&mut self, draft: Draft) -> &mut Commit {
        self.drafts.push(draft);
        self
    }

    fn owe(&mut self, entity: Entity, mv: &Move) {
        self.owed.push((entity, *mv, self.drafts.len()));
    }

    /// Checks the whole and numbers nothing yet: numbers are the database's to give.
    pub(crate) fn seal(mut self) -> Result<Sealed, StoreError> {
        if let Some(misuse) = self.misuse {
            return Err(StoreError::Invalid(misuse));
        }
        if self.drafts.is_empty() {
            return Err(StoreError::Invalid("a commit tells at least one rune".into()));
        }
        for (entity, mv, before) in &self.owed {
            let carrier = carrier(&self.drafts, *entity, mv, *before)?;
            self.drafts[carrier].moves.push(Moved::new(*entity, mv));
        }
        limit("runes in a commit", self.drafts.len(), RUNES_MAX)?;
        limit("row writes in a commit", self.writes.len(), WRITES_MAX)?;
        let at_us = self.at.timestamp_micros();
        let mut runes = Vec::with_capacity(self.drafts.len());
        for draft in self.drafts {
            limit("bytes of a rune's payload", draft.payload.get().len(), PAYLOAD_BYTES_MAX)?;
            let id = RuneId::from(Uuid::now_v7());
            let trace = self.traceparent.as_deref();
            let hash = draft.hash(id, self.session, &self.actor, self.epoch, trace, at_us, self.id);
            runes.push(Rune {
                id,
                session_id: self.session,
                seq: 0,
                kind: draft.kind.to_owned(),
                entity: draft.entity,
                agent_id: draft.agent_id,
                turn_id: draft.turn_id,
                actor: self.actor.clone(),
                visibility: draft.visibility,
                payload: draft.payload,
                moves: draft.moves,
                epoch: self.epoch,
                traceparent: self.traceparent.clone(),
                at_us,
                hash,
                command_id: self.id,
            });
        }
        for write in &mut self.writes {
            let touch = write.table.columns.iter().any(|c| c.name == "updated_at");
            if let (Op::Update { set, .. }, true) = (&mut write.op, touch) {
                set.push(("updated_at", self.at.into()));
            }
        }
        Ok(Sealed { id: self.id, session: self.session, fresh: self.fresh, at: self.at, writes: self.writes, runes })
    }
}

fn limit(what: &'static str, size: usize, max: usize) -> Result<(), StoreError> {
    if size > max { Err(StoreError::TooLarge { what, size, max }) } else { Ok(()) }
}

/// The rune that stands for a move: the last of those that its row names, about the entity itself;
/// the one of another machine that its row rides on; or, for a silent row, the next one there is.
fn carrier(drafts: &[Draft], entity: Entity, mv: &Move, before: usize) -> Result<usize, StoreError> {
    let find = |kind: &str, of: Option<Entity>| {
        let fits = |d: &Draft| d.kind == kind && of.is_none_or(|e| d.entity == e);
        let after = drafts.iter().skip(before).position(fits).map(|at| at + before);
        after.or_else(|| drafts.iter().position(fits)).ok_or(kind.to_owned())
    };
    let found = match mv.emit() {
        Emit::Runes(kinds) => kinds.iter().try_fold(0, |_, kind| find(kind, Some(entity))),
        Emit::Via(kind) => find(kind, None),
        Emit::Silent => Ok(before.min(drafts.len() - 1)),
    };
    found.map_err(|kind| StoreError::Invalid(format!("row {} of {entity} must be told by a rune {kind}", mv.row())))
}

/// A commit that was checked and waits for the writer.
#[derive(Debug)]
pub(crate) struct Sealed {
    pub id: CommandId,
    pub session: SessionId,
    pub fresh: bool,
    pub at: DateTime<Utc>,
    pub writes: Vec<Write>,
    pub runes: Vec<Rune>,
}

/// A commit that landed.
#[derive(Debug)]
pub struct Landed {
    /// Its runes, numbered: what is published next.
    pub runes: Vec<Rune>,
    /// What counters came to, by row.
    pub counters: Vec<(Uuid, i64)>,
}

impl Landed {
    pub fn first_seq(&self) -> i64 {
        self.runes.first().map_or(0, |r| r.seq)
    }
    pub fn head_seq(&self) -> i64 {
        self.runes.last().map_or(0, |r| r.seq)
    }
    pub fn counter(&self, id: impl Into<Uuid>) -> Option<i64> {
        let id = id.into();
        self.counters.iter().find(|(row, _)| *row == id).map(|(_, n)| *n)
    }
}

/// A row that was not as the commit expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub table: &'static str,
    pub id: Uuid,
    /// Its states, in the order of the table's machines.
    pub states: Vec<String>,
    pub epoch: i64,
    pub version: i64,
}

/// The three answers to a commit. Anything but `Moved` wrote nothing.
#[derive(Debug)]
pub enum Answer {
    Moved(Landed),
    /// At least one row is in another state, epoch or version.
    Found(Vec<Found>),
    /// A row that it names does not exist in this session.
    Absent {
        table: &'static str,
        id: Uuid,
    },
}

impl Answer {
    pub fn landed(self) -> Option<Landed> {
        match self {
            Answer::Moved(landed) => Some(landed),
            _ => None,
        }
    }
}
