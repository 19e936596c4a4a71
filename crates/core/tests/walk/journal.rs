//! Commits as runes: numbered, hashed, under one command id each.

use crate::world::World;
use instar_core::cascade::Entry;
use instar_core::id::{AgentId, CommandId, Entity, Kind, RuneId, SessionId, TurnId};
use instar_core::machine::By;
use instar_core::rune::sample::sample;
use instar_core::rune::{Actor, Draft, Rune};
use serde_json::value::RawValue;
use std::collections::HashMap;
use uuid::Uuid;

#[derive(Default)]
pub(crate) struct Journal {
    pub(crate) runes: Vec<Rune>,
    turns: i64,
    epochs: HashMap<Entity, i64>,
}

impl Journal {
    /// The world is the one after the commit: newcomers have their owners there.
    pub(crate) fn append(&mut self, world: &World, entries: Vec<Entry>, by: By) {
        let command_id = CommandId::from(Uuid::from_u128(u128::from(world.seed) << 64 | u128::from(world.commit)));
        let actor = Actor::new(by, by.token());
        for entry in entries {
            let payload = self.payload(world, &entry);
            let payload = RawValue::from_string(payload).expect("JSON");
            let mut draft = Draft::raw(entry.kind, entry.entity, payload).expect("a kind");
            draft.moves = entry.moves;
            let (turn, agent) = scope(world, entry.entity);
            draft.turn_id = turn.map(|t| TurnId::from(t.id));
            draft.agent_id = agent.map(|a| AgentId::from(a.id));
            let epoch = agent.map_or(0, |agent| {
                let epoch = self.epochs.entry(agent).or_insert(1);
                *epoch += i64::from(["turn.started", "turn.recovered"].contains(&draft.kind));
                *epoch
            });
            let seq = self.runes.len() as i64 + 1;
            let id = RuneId::from(Uuid::from_u128(u128::from(world.seed) << 64 | seq as u128));
            let session_id = SessionId::from(world.session.id);
            let hash = draft.hash(id, session_id, &actor, epoch, None, seq, command_id);
            self.runes.push(Rune {
                id,
                session_id,
                seq,
                kind: draft.kind.into(),
                entity: draft.entity,
                agent_id: draft.agent_id,
                turn_id: draft.turn_id,
                actor: actor.clone(),
                visibility: draft.visibility,
                payload: draft.payload,
                moves: draft.moves,
                epoch,
                traceparent: None,
                at_us: seq,
                hash,
                command_id,
            });
        }
    }

    /// What the invariants read must be true; the rest may be a sample.
    fn payload(&mut self, world: &World, entry: &Entry) -> String {
        let owner = || world.owner(entry.entity).expect("an owner");
        let place = |kind: Kind| {
            let all = world.owned(owner(), kind);
            all.iter().position(|e| *e == entry.entity).unwrap_or(all.len()) + 1
        };
        match entry.kind {
            "turn.queued" => {
                self.turns += 1;
                format!(r#"{{"cause":"user","number":{}}}"#, self.turns)
            }
            "hop.plan_started" => format!(r#"{{"mission_id":"{}","sequence_order":{}}}"#, owner(), place(Kind::Hop)),
            "hop.plan_proposed" => format!(r#"{{"mission_id":"{}","name":"sample"}}"#, owner()),
            "step.created" => format!(r#"{{"hop_id":"{}","sequence_order":{}}}"#, owner(), place(Kind::ToolStep)),
            kind => sample(kind).expect("a sample").to_owned(),
        }
    }
}

fn scope(world: &World, entity: Entity) -> (Option<Entity>, Option<Entity>) {
    match entity.kind {
        Kind::Agent => (None, Some(entity)),
        Kind::Turn => (Some(entity), world.agent_of_turn(entity)),
        Kind::ToolCall => {
            let turn = world.owner(entity).filter(|o| o.kind == Kind::Turn);
            (turn, turn.and_then(|t| world.agent_of_turn(t)))
        }
        _ => (None, None),
    }
}
