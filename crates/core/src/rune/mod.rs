//! Runes: the entries of a session's log. A rune is audit record, event, outbox entry and replay
//! source at once.

mod draft;
mod hash;
mod kind;
mod moved;
pub mod payload;
pub mod sample;

pub use draft::{Actor, Draft};
pub use hash::{Hash, Seal, chain};
pub use kind::{KINDS, KindInfo, Payload, Visibility, canonical, info};
pub use moved::Moved;

use crate::id::{AgentId, CommandId, Entity, RuneId, SessionId, TurnId};
use serde_json::value::RawValue;

/// A stored rune. Nothing about it ever changes.
#[derive(Clone, Debug)]
pub struct Rune {
    pub id: RuneId,
    pub session_id: SessionId,
    /// Strictly increasing and gapless in its session, in commit order; the first is 1.
    pub seq: i64,
    pub kind: String,
    pub entity: Entity,
    pub agent_id: Option<AgentId>,
    pub turn_id: Option<TurnId>,
    pub actor: Actor,
    pub visibility: Visibility,
    /// The exact text that was hashed.
    pub payload: Box<RawValue>,
    /// The transitions that this rune stands for.
    pub moves: Vec<Moved>,
    /// Fencing epoch it was written under; 0 when no lease was involved.
    pub epoch: i64,
    pub traceparent: Option<String>,
    /// Microseconds since 1970, UTC.
    pub at_us: i64,
    pub hash: Hash,
    /// Runes of one commit share it.
    pub command_id: CommandId,
}

impl Rune {
    /// Whether its content still is what was written.
    pub fn is_intact(&self) -> bool {
        hash::of(&hash::Content {
            id: self.id,
            session_id: self.session_id,
            kind: &self.kind,
            entity: self.entity,
            agent_id: self.agent_id,
            turn_id: self.turn_id,
            actor: &self.actor,
            visibility: self.visibility,
            payload: self.payload.get(),
            moves: &moved::encode(&self.moves, self.entity),
            epoch: self.epoch,
            traceparent: self.traceparent.as_deref(),
            at_us: self.at_us,
            command_id: self.command_id,
        }) == self.hash
    }

    /// The machine whose rune this is: that of its own move, else the entity's first one.
    pub fn machine(&self) -> &'static str {
        let own = self.moves.iter().rev().find(|m| m.entity == self.entity);
        own.and_then(|m| crate::machine::by_row(&m.row)).map_or_else(
            || {
                crate::machine::ALL
                    .iter()
                    .map(|t| t.name)
                    .find(|name| crate::id::Kind::of_machine(name) == Some(self.entity.kind))
                    .unwrap_or("session")
            },
            |table| table.name,
        )
    }
}
