//! The record of a transition inside a rune, and its compact text form.
//!
//! `T1:queued>streaming,L4:idle>running_turn@agt_…`: row id, states, and the entity where it is
//! not the rune's own. A birth has nothing before the `>`.

use crate::id::Entity;
use crate::machine::Move;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    pub row: String,
    pub entity: Entity,
    /// `None` for a birth.
    pub from: Option<String>,
    pub to: String,
}

impl Moved {
    pub fn new(entity: Entity, mv: &Move) -> Moved {
        Moved { row: mv.row().into(), entity, from: mv.from().map(Into::into), to: mv.to().into() }
    }
}

pub(super) fn encode(moves: &[Moved], own: Entity) -> String {
    let mut text = String::new();
    for m in moves {
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(&m.row);
        text.push(':');
        text.push_str(m.from.as_deref().unwrap_or(""));
        text.push('>');
        text.push_str(&m.to);
        if m.entity != own {
            text.push('@');
            text.push_str(&m.entity.to_string());
        }
    }
    text
}

/// `None` when the text is not of the form that `encode` writes.
pub(super) fn decode(text: &str, own: Entity) -> Option<Vec<Moved>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    text.split(',')
        .map(|part| {
            let (row, rest) = part.split_once(':')?;
            let (from, rest) = rest.split_once('>')?;
            let (to, entity) = match rest.split_once('@') {
                Some((to, entity)) => (to, entity.parse().ok()?),
                None => (rest, own),
            };
            let from = (!from.is_empty()).then(|| from.to_owned());
            Some(Moved { row: row.into(), entity, from, to: to.into() })
        })
        .collect()
}

impl Moved {
    pub fn encode_all(moves: &[Moved], own: Entity) -> String {
        encode(moves, own)
    }
    pub fn decode_all(text: &str, own: Entity) -> Option<Vec<Moved>> {
        decode(text, own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Kind;
    use uuid::Uuid;

    #[test]
    fn moves_read_back_what_they_print() {
        let turn = Entity::new(Kind::Turn, Uuid::from_u128(7));
        let agent = Entity::new(Kind::Agent, Uuid::from_u128(8));
        let moves = vec![
            Moved { row: "T26".into(), entity: turn, from: None, to: "queued".into() },
            Moved { row: "L4".into(), entity: agent, from: Some("idle".into()), to: "running_turn".into() },
        ];
        let text = encode(&moves, turn);
        assert_eq!(text, format!("T26:>queued,L4:idle>running_turn@{agent}"));
        assert_eq!(decode(&text, turn), Some(moves));
        assert_eq!(decode("", turn), Some(vec![]));
        assert_eq!(decode("nonsense", turn), None);
    }
}
