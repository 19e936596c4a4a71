//! Runes in the form that the bus carries.

use instar_bus::message;
use instar_core::rune::Rune;

pub(crate) fn rune(r: &Rune) -> message::Rune {
    let text = |id: Option<String>| id.unwrap_or_default();
    message::Rune {
        id: r.id.to_string(),
        session_id: r.session_id.to_string(),
        seq: r.seq as u64,
        kind: r.kind.clone(),
        machine: r.machine().to_owned(),
        entity_id: r.entity.to_string(),
        agent_id: text(r.agent_id.map(|id| id.to_string())),
        turn_id: text(r.turn_id.map(|id| id.to_string())),
        actor_type: r.actor.by.token().to_owned(),
        actor_id: r.actor.id.clone(),
        visibility: r.visibility.token().to_owned(),
        payload: r.payload.get().as_bytes().to_vec().into(),
        moves: r
            .moves
            .iter()
            .map(|m| message::Move {
                row: m.row.clone(),
                entity: m.entity.to_string(),
                from: m.from.clone().unwrap_or_default(),
                to: m.to.clone(),
            })
            .collect(),
        traceparent: r.traceparent.clone().unwrap_or_default(),
        at: r.at_us,
        hash: r.hash.0.to_vec(),
        command_id: r.command_id.to_string(),
        epoch: r.epoch,
    }
}
