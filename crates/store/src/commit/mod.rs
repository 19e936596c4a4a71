//! A commit: transitions, row writes and runes that land together or not at all.
//!
//! Built by services from [`Move`]s, which only a machine's table hands out. Building checks that
//! every transition is told by the runes that its row names; the writer does the rest.

mod answer;
mod change;
mod outline;
mod write;

use crate::clock;
use crate::error::StoreError;
use crate::table::{self, Table};
use chrono::{DateTime, Utc};
use instar_core::id::{CommandId, Entity, Kind, RuneId, SessionId};
use instar_core::machine::{Emit, Move};
use instar_core::rune::{Actor, Draft, Moved, Rune};
use sea_orm::{ActiveModelTrait, EntityTrait, IntoActiveModel, ModelTrait, Value};
use std::collections::HashMap;
use uuid::Uuid;

pub use answer::{Answer, Found, Landed};
pub use change::Change;
pub use outline::{Outline, RuneOutline};
pub(crate) use write::{Draw, Op, UNUSED, Write};

/// Everything has a limit, so that one caller cannot hold up the others.
pub const PAYLOAD_BYTES_MAX: usize = 512 * 1024;
pub const RUNES_MAX: usize = 1_000;
pub const WRITES_MAX: usize = 2_000;
pub const COMMIT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// By how much a commit may be larger that reaches whatever stands in a session, such as its end. It has many small
/// rows: in bytes it must stay below what a statement can carry in the time that the writer gives it.
const WIDE: usize = 20;
const WIDE_BYTES_MAX: usize = 4 * COMMIT_BYTES_MAX;

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
    /// Where the write of a row is, by table and id.
    places: HashMap<(usize, Uuid), usize>,
    drafts: Vec<Draft>,
    /// Moves in order, each with the number of runes that were there before it.
    owed: Vec<(Entity, Move, usize)>,
    misuse: Option<String>,
    wide: bool,
}

impl Commit {
    pub fn new(session: SessionId, actor: Actor) -> Commit {
        Commit {
            id: CommandId::from(Uuid::now_v7()),
            session,
            fresh: false,
            actor,
            at: clock::now(),
            epoch: 0,
            traceparent: None,
            writes: Vec::new(),
            places: HashMap::new(),
            drafts: Vec::new(),
            owed: Vec::new(),
            misuse: None,
            wide: false,
        }
    }

    /// For what cannot be done in parts: an event with everything that it causes.
    pub fn wide(mut self) -> Commit {
        self.wide = true;
        self
    }

    /// The name under which an ambiguous commit can be read back.
    pub fn command(mut self, id: CommandId) -> Commit {
        self.id = id;
        self
    }

    pub fn command_id(&self) -> CommandId {
        self.id
    }

    pub fn session(&self) -> SessionId {
        self.session
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
        match self.written(&write) {
            Some(earlier) => self.misuse = earlier.merge(write).err().or(self.misuse.take()),
            None => self.push(write),
        }
        self
    }

    /// The write of the same row, if there is one.
    fn written(&mut self, write: &Write) -> Option<&mut Write> {
        let place = self.places.get(&key(write))?;
        self.writes.get_mut(*place)
    }

    fn push(&mut self, write: Write) {
        self.places.insert(key(&write), self.writes.len());
        self.writes.push(write);
    }

    /// A new row of a table without a machine.
    pub fn insert<M>(&mut self, table: &'static Table, model: M) -> &mut Commit
    where
        M: ModelTrait + IntoActiveModel<<M::Entity as EntityTrait>::ActiveModel>,
        <M::Entity as EntityTrait>::ActiveModel: ActiveModelTrait<Entity = M::Entity>,
    {
        if !table.machines.is_empty() {
            self.misuse = Some(format!("a row of {} is born by a move", table.name));
            return self;
        }
        self.put_in(table, table::values(&model.into_active_model()))
    }

    fn put_in(&mut self, table: &'static Table, values: Vec<(&'static str, Value)>) -> &mut Commit {
        let uuid = |column: &str| {
            values.iter().find_map(|(name, v)| match v {
                Value::Uuid(Some(id)) if *name == column => Some(*id),
                _ => None,
            })
        };
        let Some(id) = uuid("id") else {
            self.misuse = Some(format!("a row of {} needs an id", table.name));
            return self;
        };
        if uuid("session_id").is_some_and(|session| session != self.session.uuid()) {
            self.misuse = Some(format!("a row of {} belongs to another session than its commit", table.name));
        }
        let normal: Option<Vec<_>> =
            values.into_iter().map(|(name, value)| table::normal(value).map(|value| (name, value))).collect();
        let Some(values) = normal else {
            self.misuse = Some(format!("a column of {} has a type that no column has", table.name));
            return self;
        };
        self.write_once(Write::new(table, id, Op::Insert { values }))
    }

    fn write_once(&mut self, write: Write) -> &mut Commit {
        if self.written(&write).is_some() {
            self.misuse = Some(format!("a row of {} is written twice in one commit", write.table.name));
        }
        self.push(write);
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
        self.put_in(table, table::values(&model.into_active_model()));
        let Some(Write { id, op: Op::Insert { values }, .. }) = self.writes.last() else { return self };
        let kinds = table.machines.iter().all(|(machine, _)| Kind::of_machine(machine) == Some(entity.kind));
        if *id != entity.id || !kinds {
            self.misuse = Some(format!("the row of {} is not that of {entity}", table.name));
            return self;
        }

        for (machine, column) in table.machines {
            let stored = values.iter().find_map(|(name, v)| match v {
                Value::String(Some(s)) if name == column => Some(s.as_str()),
                _ => None,
            });
            // The last move of the machine says where it is when the row appears.
            let led = births.iter().rev().find(|b| b.machine() == *machine).map(|b| b.to());
            // And they chain up from nothing.
            let own = births.iter().filter(|b| b.machine() == *machine);
            let chained = own.fold((true, None), |(good, now), b| (good && b.from() == now, Some(b.to()))).0;
            if led.is_none() || led != stored || !chained {
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
        self.write_once(Write::new(table, id.into(), Op::Delete))
    }

    /// Adds a rune. Which moves it stands for is found by their rows when the commit is checked, unless it says so
    /// itself: a cascade knows better which move belongs to which rune.
    pub fn rune(&mut self, draft: Draft) -> &mut Commit {
        self.drafts.push(draft);
        self
    }

    /// This commit and a later one of the same writer that was worked out from what this one leaves behind:
    /// both land together or not at all. What the later one expects of rows that this one writes is true by
    /// then, but for their states, which must chain up.
    pub fn then(mut self, later: Commit) -> Commit {
        let same = self.session == later.session && self.actor == later.actor && self.epoch == later.epoch;
        if !same || self.fresh || later.fresh {
            self.misuse = Some("two commits of different writers, sessions or epochs cannot land as one".into());
        }
        self.misuse = self.misuse.take().or(later.misuse);
        for mut write in later.writes {
            match self.written(&write) {
                Some(earlier) => {
                    (write.expect.epoch, write.expect.version) = (None, None);
                    self.misuse = earlier.merge(write).err().or(self.misuse.take());
                }
                None => self.push(write),
            }
        }
        let before = self.drafts.len();
        self.drafts.extend(later.drafts);
        self.owed.extend(later.owed.into_iter().map(|(entity, mv, at)| (entity, mv, at + before)));
        self.at = later.at;
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
        let given: usize = self.drafts.iter().map(|draft| draft.moves.len()).sum();
        let mut assigned = 0;
        let mut carriers = Carriers::of(&self.drafts);
        for (entity, mv, before) in &self.owed {
            let moved = Moved::new(*entity, mv);
            let carrier = carriers.find(*entity, mv, *before)?;
            match carriers.given(&self.drafts, &moved) {
                Some(draft) if carries(draft, *entity, mv) => assigned += 1,
                Some(draft) => {
                    let why = format!("row {} of {entity} cannot ride on a rune {}", mv.row(), draft.kind);
                    return Err(StoreError::Invalid(why));
                }
                None => {
                    carriers.given.entry(*entity).or_default().push((carrier, self.drafts[carrier].moves.len()));
                    self.drafts[carrier].moves.push(moved);
                }
            }
        }
        if assigned != given {
            return Err(StoreError::Invalid("a rune tells of a move that no row of the commit makes".into()));
        }
        let times = if self.wide { WIDE } else { 1 };
        limit("runes in a commit", self.drafts.len(), RUNES_MAX * times)?;
        limit("row writes in a commit", self.writes.len(), WRITES_MAX * times)?;
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
        let mut bytes: usize = runes.iter().map(|r: &Rune| r.payload.get().len() + 256).sum();
        for write in &mut self.writes {
            bytes += write::finish(write, self.at)?;
        }
        limit("bytes of a commit", bytes, if self.wide { WIDE_BYTES_MAX } else { COMMIT_BYTES_MAX })?;
        let Commit { id, session, fresh, at, writes, .. } = self;
        let shape = write::shape(fresh, &writes);
        Ok(Sealed { id, session, fresh, at, writes, runes, bytes, shape })
    }
}

fn limit(what: &'static str, size: usize, max: usize) -> Result<(), StoreError> {
    if size > max { Err(StoreError::TooLarge { what, size, max }) } else { Ok(()) }
}

fn key(write: &Write) -> (usize, Uuid) {
    (std::ptr::from_ref(write.table) as usize, write.id)
}

/// The runes of a commit, by what moves are found by: a commit may have thousands of both.
struct Carriers {
    runes: usize,
    by_kind: HashMap<&'static str, Vec<usize>>,
    by_entity: HashMap<(&'static str, Entity), Vec<usize>>,
    /// Where the moves of an entity are told of already: by which rune, and at which place in it.
    given: HashMap<Entity, Vec<(usize, usize)>>,
}

impl Carriers {
    fn of(drafts: &[Draft]) -> Carriers {
        let mut carriers =
            Carriers { runes: drafts.len(), by_kind: HashMap::new(), by_entity: HashMap::new(), given: HashMap::new() };
        for (at, draft) in drafts.iter().enumerate() {
            carriers.by_kind.entry(draft.kind).or_default().push(at);
            carriers.by_entity.entry((draft.kind, draft.entity)).or_default().push(at);
            for (place, moved) in draft.moves.iter().enumerate() {
                carriers.given.entry(moved.entity).or_default().push((at, place));
            }
        }
        carriers
    }

    /// The rune that stands for a move: the last of those that its row names, about the entity itself;
    /// the one of another machine that its row rides on; or, for a silent row, the next one there is.
    fn find(&self, entity: Entity, mv: &Move, before: usize) -> Result<usize, StoreError> {
        let next = |places: Option<&Vec<usize>>, kind: &str| {
            let places = places.ok_or(kind.to_owned())?;
            let after = places.partition_point(|at| *at < before);
            places.get(after).or(places.first()).copied().ok_or(kind.to_owned())
        };
        let found = match mv.emit() {
            Emit::Runes(kinds) => kinds.iter().try_fold(0, |_, kind| next(self.by_entity.get(&(*kind, entity)), kind)),
            Emit::Via(kind) => next(self.by_kind.get(kind), kind),
            Emit::Silent => Ok(before.min(self.runes - 1)),
        };
        found.map_err(|kind| StoreError::Invalid(format!("row {} of {entity} must be told by a rune {kind}", mv.row())))
    }

    /// The first rune that tells of this move already.
    fn given<'d>(&self, drafts: &'d [Draft], moved: &Moved) -> Option<&'d Draft> {
        let of_entity = self.given.get(&moved.entity)?.iter();
        let at = of_entity.filter(|(at, place)| drafts[*at].moves[*place] == *moved).map(|(at, _)| *at).min()?;
        drafts.get(at)
    }
}

/// Whether a rune may stand for a move.
fn carries(draft: &Draft, entity: Entity, mv: &Move) -> bool {
    match mv.emit() {
        Emit::Runes(kinds) => kinds.last() == Some(&draft.kind) && draft.entity == entity,
        Emit::Via(kind) => draft.kind == kind,
        Emit::Silent => true,
    }
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
    /// Roughly what it weighs.
    pub bytes: usize,
    /// The same for commits that write the same columns of the same tables: those share a statement.
    pub shape: u64,
}
