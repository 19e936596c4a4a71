//! A rune as a line of a frame. The payload is kept as text inside the line, since the hash is over its
//! very bytes.

use instar_core::id::{AgentId, CommandId, Entity, RuneId, SessionId, TurnId};
use instar_core::machine::By;
use instar_core::rune::{Actor, Hash, Moved, Rune, Visibility};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

#[derive(Serialize, Deserialize)]
pub(crate) struct Kept {
    seq: i64,
    id: RuneId,
    kind: String,
    entity: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    agent: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    turn: Option<TurnId>,
    by: String,
    actor: String,
    visibility: String,
    payload: String,
    moves: String,
    epoch: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trace: Option<String>,
    at_us: i64,
    hash: String,
    command: CommandId,
}

impl Kept {
    pub(crate) fn of(rune: &Rune) -> Kept {
        Kept {
            seq: rune.seq,
            id: rune.id,
            kind: rune.kind.clone(),
            entity: rune.entity.to_string(),
            agent: rune.agent_id,
            turn: rune.turn_id,
            by: rune.actor.by.token().to_owned(),
            actor: rune.actor.id.clone(),
            visibility: rune.visibility.token().to_owned(),
            payload: rune.payload.get().to_owned(),
            moves: Moved::encode_all(&rune.moves, rune.entity),
            epoch: rune.epoch,
            trace: rune.traceparent.clone(),
            at_us: rune.at_us,
            hash: rune.hash.to_hex(),
            command: rune.command_id,
        }
    }

    /// `None` if it is none of ours, or no longer what was written.
    pub(crate) fn into_rune(self, session: SessionId) -> Option<Rune> {
        let entity: Entity = self.entity.parse().ok()?;
        let rune = Rune {
            id: self.id,
            session_id: session,
            seq: self.seq,
            kind: self.kind,
            entity,
            agent_id: self.agent,
            turn_id: self.turn,
            actor: Actor::new(By::parse(&self.by)?, self.actor),
            visibility: Visibility::parse(&self.visibility)?,
            payload: RawValue::from_string(self.payload).ok()?,
            moves: Moved::decode_all(&self.moves, entity)?,
            epoch: self.epoch,
            traceparent: self.trace,
            at_us: self.at_us,
            hash: Hash::from_hex(&self.hash)?,
            command_id: self.command,
        };
        rune.is_intact().then_some(rune)
    }
}
