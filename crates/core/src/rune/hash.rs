//! Content hashes and the sealed chain over them.
//!
//! A rune's hash covers everything but its number, which the database gives at commit; the chain
//! covers number and hash, so that a changed, removed, added or reordered rune shows.

use super::{Actor, Visibility};
use crate::id::{AgentId, CommandId, Entity, RuneId, SessionId, TurnId};
use sha2::{Digest, Sha256};

#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    pub const ZERO: Hash = Hash([0; 32]);

    pub fn from_slice(bytes: &[u8]) -> Option<Hash> {
        bytes.try_into().ok().map(Hash)
    }

    /// `None`: these are not 64 hexadecimal digits.
    pub fn from_hex(hex: &str) -> Option<Hash> {
        let digits = |at: usize| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
        let bytes: Option<Vec<u8>> = (0..hex.len()).step_by(2).map(digits).collect();
        Hash::from_slice(&bytes?)
    }

    pub fn to_hex(self) -> String {
        self.0.iter().map(|b| format!("{b:02x}")).collect()
    }
}

impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.to_hex())
    }
}

pub(crate) struct Content<'a> {
    pub id: RuneId,
    pub session_id: SessionId,
    pub kind: &'a str,
    pub entity: Entity,
    pub agent_id: Option<AgentId>,
    pub turn_id: Option<TurnId>,
    pub actor: &'a Actor,
    pub visibility: Visibility,
    pub payload: &'a str,
    pub moves: &'a str,
    pub epoch: i64,
    pub traceparent: Option<&'a str>,
    pub at_us: i64,
    pub command_id: CommandId,
}

/// Fields go in length-prefixed, those that may be absent after a byte that says whether they are
/// there, so that no two contents share an encoding.
pub(crate) fn of(c: &Content<'_>) -> Hash {
    let mut all = Encoding(Vec::with_capacity(384 + c.payload.len()));
    all.put(b"instar.rune.v1");
    all.put(c.id.uuid().as_bytes());
    all.put(c.session_id.uuid().as_bytes());
    all.put(c.kind.as_bytes());
    all.put(c.entity.kind.prefix().as_bytes());
    all.put(c.entity.id.as_bytes());
    all.maybe(c.agent_id.as_ref().map(AgentId::bytes));
    all.maybe(c.turn_id.as_ref().map(TurnId::bytes));
    all.put(c.actor.by.token().as_bytes());
    all.put(c.actor.id.as_bytes());
    all.put(c.visibility.token().as_bytes());
    all.put(c.payload.as_bytes());
    all.put(c.moves.as_bytes());
    all.put(&c.epoch.to_le_bytes());
    all.maybe(c.traceparent.map(str::as_bytes));
    all.put(&c.at_us.to_le_bytes());
    all.put(c.command_id.uuid().as_bytes());
    Hash(Sha256::digest(&all.0).into())
}

struct Encoding(Vec<u8>);

impl Encoding {
    fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        self.0.extend_from_slice(bytes);
    }

    fn maybe(&mut self, bytes: Option<&[u8]>) {
        self.0.push(u8::from(bytes.is_some()));
        if let Some(bytes) = bytes {
            self.put(bytes);
        }
    }
}

/// The chain up to and including a rune; sealed in the background, off the hot path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    pub seq: i64,
    pub hash: Hash,
}

impl Seal {
    /// Before the first rune.
    pub const EMPTY: Seal = Seal { seq: 0, hash: Hash::ZERO };
}

/// Extends a seal over the runes that follow it. `Err` names the number that should have come.
pub fn chain(mut seal: Seal, runes: impl IntoIterator<Item = (i64, Hash)>) -> Result<Seal, i64> {
    for (seq, hash) in runes {
        if seq != seal.seq + 1 {
            return Err(seal.seq + 1);
        }
        let mut h = Sha256::new();
        h.update(b"instar.seal.v1");
        h.update(seal.hash.0);
        h.update(seq.to_le_bytes());
        h.update(hash.0);
        seal = Seal { seq, hash: Hash(h.finalize().into()) };
    }
    Ok(seal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Kind;
    use crate::machine::By;
    use uuid::Uuid;

    fn hash(change: impl FnOnce(&mut Content<'_>)) -> Hash {
        let actor = Actor::new(By::User, "key");
        let mut content = Content {
            id: RuneId::from(Uuid::from_u128(1)),
            session_id: SessionId::from(Uuid::from_u128(2)),
            kind: "turn.started",
            entity: Entity::new(Kind::Turn, Uuid::from_u128(3)),
            agent_id: None,
            turn_id: None,
            actor: &actor,
            visibility: Visibility::Public,
            payload: "{}",
            moves: "",
            epoch: 0,
            traceparent: None,
            at_us: 0,
            command_id: CommandId::from(Uuid::from_u128(4)),
        };
        change(&mut content);
        of(&content)
    }

    #[test]
    fn what_is_absent_differs_from_what_is_empty_and_each_has_its_own_place() {
        let id = Uuid::from_u128(5);
        let all = [
            hash(|_| {}),
            hash(|c| c.traceparent = Some("")),
            hash(|c| c.traceparent = Some("00")),
            hash(|c| c.agent_id = Some(AgentId::from(id))),
            hash(|c| c.turn_id = Some(TurnId::from(id))),
        ];
        for (i, one) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|other| other != one), "{i}");
        }
        assert_eq!(hash(|_| {}), all[0]);
    }
}
