//! A command on an entity with everything it causes, as one commit.
//!
//! Pause, resume, close, start, stop, terminate, approve, deny, cancel: each is an event on a
//! machine. The cascades say what else moves; the transition writer makes it all of one piece. For
//! the hot path of a turn the services build their commits by hand.

use crate::hub::Hub;
use crate::snapshot::{Snapshot, is_kill};
use crate::tell;
use instar_core::cascade::{self, Fact, Planned};
use instar_core::id::{AgentId, Entity, Kind, SessionId, TurnId};
use instar_core::machine::{Refusal, Table as Machine};
use instar_core::rune::{Actor, Draft, Rune};
use instar_store::entity::{agent, session, tool_call, turn};
use instar_store::{Answer, Change, Commit, StoreError, Table};
use serde_json::Value;
use serde_json::value::RawValue;

/// How often a command looks again when the rows changed under it.
const LOOKS_MAX: usize = 8;

#[derive(Debug, thiserror::Error)]
pub enum ActError {
    #[error("there is no {0}")]
    Absent(Entity),
    #[error(transparent)]
    Refused(Box<Refusal>),
    /// Others keep changing the same rows.
    #[error("the session is too busy to settle this command now; try again")]
    Contended,
    #[error("row {0} cannot be committed by itself")]
    Alone(&'static str),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("a rune could not be told: {0}")]
    Untold(#[from] serde_json::Error),
}

/// What a command did. Nothing to publish or show when it was ignored: it was already so.
#[derive(Debug)]
pub enum Done {
    Moved { runes: Vec<Rune> },
    Ignored,
}

/// A command, ready to be carried out.
pub struct Act<'a> {
    pub session: SessionId,
    pub entity: Entity,
    pub machine: &'static Machine,
    pub event: &'a str,
    pub actor: Actor,
    /// Why, in words; runes of the cascade carry it.
    pub reason: &'a str,
    /// Fields for the command's own runes, by kind.
    pub payload: Vec<(&'static str, Value)>,
    pub facts: Vec<Fact>,
    pub traceparent: Option<String>,
}

impl<'a> Act<'a> {
    pub fn new(
        session: SessionId,
        entity: impl Into<Entity>,
        machine: &'static Machine,
        event: &'a str,
        actor: Actor,
    ) -> Act<'a> {
        let entity = entity.into();
        Act { session, entity, machine, event, actor, reason: event, payload: vec![], facts: vec![], traceparent: None }
    }

    pub fn reason(mut self, reason: &'a str) -> Act<'a> {
        self.reason = reason;
        self
    }

    pub fn telling(mut self, kind: &'static str, fields: Value) -> Act<'a> {
        self.payload.push((kind, fields));
        self
    }

    pub fn given(mut self, fact: Fact) -> Act<'a> {
        self.facts.push(fact);
        self
    }

    /// Looks, works out what moves, commits; looks again if something moved in between.
    pub async fn carry_out(self, hub: &Hub) -> Result<Done, ActError> {
        for _ in 0..LOOKS_MAX {
            let snapshot = Snapshot::load(hub.store(), self.session).await?;
            let mut snapshot = snapshot.ok_or(ActError::Absent(self.session.into()))?;
            snapshot.facts.extend(self.facts.iter().copied());
            if snapshot.version(self.entity).is_none() {
                self.load_ended(hub, &mut snapshot).await?;
            }
            let planned = cascade::expand(&snapshot, self.entity, self.machine, self.event, self.actor.by)
                .map_err(|no| ActError::Refused(Box::new(no)))?;
            if planned.is_empty() {
                return Ok(Done::Ignored);
            }
            match hub.commit(self.commit(&snapshot, &planned)?).await? {
                Answer::Moved(landed) => return Ok(Done::Moved { runes: landed.runes }),
                Answer::Found(_) | Answer::Absent { .. } => continue,
            }
        }
        Err(ActError::Contended)
    }

    /// A turn or call that has ended is not in the picture; the command may still be about it.
    async fn load_ended(&self, hub: &Hub, snapshot: &mut Snapshot) -> Result<(), ActError> {
        use sea_orm::EntityTrait;
        let (db, id) = (hub.store().db(), self.entity.id);
        match self.entity.kind {
            Kind::Turn => snapshot.turns.extend(turn::Entity::find_by_id(id).one(db).await.map_err(StoreError::from)?),
            Kind::ToolCall => {
                snapshot.calls.extend(tool_call::Entity::find_by_id(id).one(db).await.map_err(StoreError::from)?);
            }
            _ => {}
        }
        let ours = |session: uuid::Uuid| session == self.session.uuid();
        let found = snapshot.turn(id).is_some_and(|t| ours(t.session_id))
            || snapshot.call(id).is_some_and(|c| ours(c.session_id));
        if found { Ok(()) } else { Err(ActError::Absent(self.entity)) }
    }

    fn commit(&self, snapshot: &Snapshot, planned: &[Planned]) -> Result<Commit, ActError> {
        let mut commit = Commit::new(self.session, self.actor.clone()).traced(self.traceparent.clone());
        let at = commit.at();
        let mut entities: Vec<Entity> = Vec::new();
        for p in planned {
            if !entities.contains(&p.entity) {
                entities.push(p.entity);
            }
        }
        for entity in &entities {
            let table = table(entity.kind).ok_or(ActError::Absent(*entity))?;
            let version = snapshot.version(*entity).ok_or(ActError::Absent(*entity))?;
            let mut change = Change::entity(table, *entity).version(version);
            for p in planned.iter().filter(|p| p.entity == *entity) {
                // Nothing takes back that the agent shall end.
                let killed = snapshot.turn(entity.id).is_some_and(is_kill);
                let cause = if killed { "kill" } else { self.event };
                change = tell::dress(change.moving(p.mv), p, cause, self.reason, at);
            }
            commit.change(change);
        }
        self.settle_open_calls(&mut commit, snapshot, planned, &entities);
        let entries = cascade::record(planned).map_err(|p| ActError::Alone(p.mv.row()))?;
        for entry in entries {
            let mut fields = tell::payload(&entry, self.reason, &self.actor.id);
            let own = self.payload.iter().find(|(kind, _)| entry.entity == self.entity && *kind == entry.kind);
            if let (Some((_, Value::Object(own))), Some(fields)) = (own, fields.as_object_mut()) {
                fields.extend(own.clone());
            }
            let mut draft = Draft::raw(entry.kind, entry.entity, RawValue::from_string(fields.to_string())?)?;
            let (agent, turn) = place(snapshot, entry.entity);
            draft.agent_id = agent;
            draft.turn_id = turn;
            commit.rune(draft);
        }
        Ok(commit)
    }

    /// A turn that goes on while some of its calls end counts them down.
    fn settle_open_calls(&self, commit: &mut Commit, snapshot: &Snapshot, planned: &[Planned], moved: &[Entity]) {
        let mut ended: Vec<(uuid::Uuid, i64)> = Vec::new();
        let ends = |p: &&Planned| {
            p.mv.machine() == "tool_call"
                && p.mv.changes_state()
                && p.mv.to() != "awaiting_approval"
                && p.mv.to() != "executing"
        };
        for p in planned.iter().filter(ends) {
            let Some(turn) = snapshot.call(p.entity.id).and_then(|c| c.turn_id) else { continue };
            match ended.iter_mut().find(|(id, _)| *id == turn) {
                Some((_, n)) => *n += 1,
                None => ended.push((turn, 1)),
            }
        }
        for (id, n) in ended {
            if !moved.contains(&Entity::new(Kind::Turn, id)) {
                commit.change(Change::new(&turn::TABLE, id).adding(-n));
            }
        }
    }
}

fn table(kind: Kind) -> Option<&'static Table> {
    Some(match kind {
        Kind::Session => &session::TABLE,
        Kind::Agent => &agent::TABLE,
        Kind::Turn => &turn::TABLE,
        Kind::ToolCall => &tool_call::TABLE,
        _ => return None,
    })
}

/// The agent and turn that a rune about this entity belongs to.
fn place(snapshot: &Snapshot, entity: Entity) -> (Option<AgentId>, Option<TurnId>) {
    match entity.kind {
        Kind::Agent => (Some(AgentId::from(entity.id)), None),
        Kind::Turn => (snapshot.turn(entity.id).map(|t| AgentId::from(t.agent_id)), Some(TurnId::from(entity.id))),
        Kind::ToolCall => {
            let call = snapshot.call(entity.id);
            (call.map(|c| AgentId::from(c.agent_id)), call.and_then(|c| c.turn_id).map(TurnId::from))
        }
        _ => (None, None),
    }
}
