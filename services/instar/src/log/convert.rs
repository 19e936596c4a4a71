//! From a rune as it is served to the one that was written.

use instar_client::{Move, Rune as Served};
use instar_core::id::{Entity, InvalidId};
use instar_core::machine::By;
use instar_core::rune::{Actor, Hash, Moved, Rune, Visibility};

/// The error names the rune and what it lacks.
pub(super) fn rune(served: Served) -> Result<Rune, String> {
    let seq = served.seq;
    build(served).map_err(|why| format!("rune {seq} {why}"))
}

fn build(served: Served) -> Result<Rune, String> {
    let (Some(moves), Some(epoch), Some(command)) = (&served.moves, served.epoch, &served.command_id) else {
        return Err("came without moves, epoch or command_id, which its hash covers: it cannot be judged".into());
    };
    let bad = |error: InvalidId| format!("has an id that is none: {error}");
    let entity: Entity = served.entity_id.parse().map_err(bad)?;
    let moves = moves.iter().map(|moved| self::moved(moved, entity)).collect::<Result<_, _>>().map_err(bad)?;
    let by = By::parse(&served.actor.kind).ok_or("has an actor of no known type")?;
    Ok(Rune {
        id: served.id.parse().map_err(bad)?,
        session_id: served.session_id.parse().map_err(bad)?,
        seq: served.seq,
        kind: served.kind,
        entity,
        agent_id: served.agent_id.map(|id| id.parse()).transpose().map_err(bad)?,
        turn_id: served.turn_id.map(|id| id.parse()).transpose().map_err(bad)?,
        actor: Actor::new(by, served.actor.id),
        visibility: Visibility::parse(&served.visibility).ok_or("has no known visibility")?,
        payload: served.payload,
        moves,
        epoch,
        traceparent: served.traceparent,
        at_us: served.at.timestamp_micros(),
        hash: Hash::from_hex(&served.hash).ok_or("has a hash that is none")?,
        command_id: command.parse().map_err(bad)?,
    })
}

fn moved(served: &Move, own: Entity) -> Result<Moved, InvalidId> {
    let entity = served.entity_id.as_deref().map_or(Ok(own), str::parse)?;
    Ok(Moved { row: served.row.clone(), entity, from: served.from.clone(), to: served.to.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn served(change: impl FnOnce(&mut serde_json::Value)) -> Served {
        let id = |prefix: &str| format!("{prefix}_{:032x}", 7);
        let mut wire = json!({"id": id("run"), "session_id": id("ses"), "seq": 1, "kind": "turn.queued",
            "machine": "turn", "entity_id": id("trn"), "agent_id": id("agt"), "actor": {"type": "system", "id": "api"},
            "visibility": "public", "payload": {"cause": "user"}, "at": "2026-11-16T06:00:00.000001Z",
            "hash": "00".repeat(32), "moves": "T26:>queued", "epoch": 0, "command_id": id("cmd")});
        change(&mut wire);
        serde_json::from_str(&wire.to_string()).unwrap()
    }

    #[test]
    fn a_rune_is_read_with_all_that_its_hash_covers() {
        let rune = rune(served(|_| {})).unwrap();
        assert_eq!(rune.at_us % 1_000_000, 1);
        assert_eq!(rune.moves[0].entity, rune.entity);
        assert!(!rune.is_intact());
    }

    #[test]
    fn what_is_missing_or_wrong_is_named_with_the_rune() {
        let without = rune(served(|wire| wire["moves"] = json!(null))).unwrap_err();
        assert!(without.starts_with("rune 1 came without moves"), "{without}");
        assert!(rune(served(|wire| wire["id"] = json!("x"))).unwrap_err().contains("run_ followed by"));
        assert!(rune(served(|wire| wire["hash"] = json!("é0"))).unwrap_err().contains("hash"));
    }
}
