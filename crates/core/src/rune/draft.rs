//! A rune before it has its number: what a service hands to the transition writer.

use super::{Hash, Moved, Payload, Visibility, hash, info, moved};
use crate::id::{AgentId, CommandId, Entity, RuneId, SessionId, TurnId};
use crate::machine::By;
use serde_json::value::RawValue;

/// Who caused a rune.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    pub by: By,
    /// API key id, agent id or service name.
    pub id: String,
}

impl Actor {
    pub fn new(by: By, id: impl Into<String>) -> Actor {
        Actor { by, id: id.into() }
    }
    pub fn system(service: &str) -> Actor {
        Actor::new(By::System, service)
    }
}

#[derive(Clone, Debug)]
pub struct Draft {
    pub kind: &'static str,
    pub entity: Entity,
    pub agent_id: Option<AgentId>,
    pub turn_id: Option<TurnId>,
    pub visibility: Visibility,
    pub payload: Box<RawValue>,
    pub moves: Vec<Moved>,
}

impl Draft {
    pub fn new<P: Payload>(entity: impl Into<Entity>, payload: &P) -> Result<Draft, serde_json::Error> {
        Draft::raw(P::KIND, entity.into(), serde_json::value::to_raw_value(payload)?)
    }

    /// For a payload that is already text; `kind` must be one of the registry's.
    pub fn raw(kind: &str, entity: Entity, payload: Box<RawValue>) -> Result<Draft, serde_json::Error> {
        let Some(info) = info(kind) else {
            return Err(serde::ser::Error::custom(format!("no rune kind is called {kind:?}")));
        };
        let visibility = info.visibility;
        Ok(Draft { kind: info.token, entity, agent_id: None, turn_id: None, visibility, payload, moves: vec![] })
    }

    pub fn agent(mut self, id: AgentId) -> Draft {
        self.agent_id = Some(id);
        self
    }

    pub fn turn(mut self, id: TurnId) -> Draft {
        self.turn_id = Some(id);
        self
    }

    pub fn encoded_moves(&self) -> String {
        moved::encode(&self.moves, self.entity)
    }

    /// What the rune's content hashes to once the rest of its envelope is known.
    #[allow(clippy::too_many_arguments)]
    pub fn hash(
        &self,
        id: RuneId,
        session_id: SessionId,
        actor: &Actor,
        epoch: i64,
        traceparent: Option<&str>,
        at_us: i64,
        command_id: CommandId,
    ) -> Hash {
        hash::of(&hash::Content {
            id,
            session_id,
            kind: self.kind,
            entity: self.entity,
            agent_id: self.agent_id,
            turn_id: self.turn_id,
            actor,
            visibility: self.visibility,
            payload: self.payload.get(),
            moves: &self.encoded_moves(),
            epoch,
            traceparent,
            at_us,
            command_id,
        })
    }
}
