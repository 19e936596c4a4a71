//! Replay: the state of every entity, rebuilt from the moves that runes record.
//!
//! A log is believed even where it is wrong: after a move that breaks a rule the recorded state is
//! taken, so that one defect shows once and what follows is judged by what was written.

use crate::id::Entity;
use crate::machine::{self, Table};
use crate::rune::{Moved, Rune};
use std::collections::HashMap;

/// A recorded move that history does not bear out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rune {seq}: {} moves {} from {} to {}, {fault}", .moved.row, .moved.entity, .moved.from.as_deref().unwrap_or("nothing"), .moved.to)]
pub struct Violation {
    pub seq: i64,
    /// As the rune has it.
    pub moved: Box<Moved>,
    pub fault: Fault,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("which no row of the tables does")]
    NotInTable,
    #[error("which is not an entity of that machine")]
    WrongEntity,
    #[error("but it was {}", .found.unwrap_or("not there"))]
    OtherState { found: Option<&'static str> },
}

/// A row whose state is not what the runes say.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{machine} {entity}: the row says {}, the runes say {}", .row.as_deref().unwrap_or("nothing"), .runes.unwrap_or("nothing"))]
pub struct Difference {
    pub machine: &'static str,
    pub entity: Entity,
    pub row: Option<String>,
    pub runes: Option<&'static str>,
}

/// States of all entities by machine. An entity costs its id and one byte, also after its end: a
/// second birth or a second end must show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct States {
    map: HashMap<(u8, Entity), u8>,
}

/// Every table is a static of its own, so that its address names it.
fn index(table: &Table) -> u8 {
    machine::ALL.iter().position(|t| std::ptr::eq(*t, table)).map_or(u8::MAX, |i| i as u8)
}

impl States {
    pub fn new() -> States {
        States::default()
    }

    pub fn get(&self, table: &Table, entity: Entity) -> Option<&'static str> {
        let index = index(table);
        let state = *self.map.get(&(index, entity))?;
        machine::ALL.get(index as usize)?.states.get(state as usize).map(|s| s.token)
    }

    pub fn len(&self) -> usize {
        self.map.len()
    }

    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&'static Table, Entity, &'static str)> {
        self.map.iter().filter_map(|((table, entity), state)| {
            let table = *machine::ALL.get(*table as usize)?;
            Some((table, *entity, table.states.get(*state as usize)?.token))
        })
    }

    /// Takes one recorded move over; the violation says what was wrong with it.
    pub fn step(&mut self, seq: i64, moved: &Moved) -> Result<(), Violation> {
        let violation = |fault| Violation { seq, moved: Box::new(moved.clone()), fault };
        let Some(table) = machine::by_row(&moved.row) else { return Err(violation(Fault::NotInTable)) };
        if crate::id::Kind::of_machine(table.name) != Some(moved.entity.kind) {
            return Err(violation(Fault::WrongEntity));
        }
        let found = self.get(table, moved.entity);
        if let Some(to) = table.state(&moved.to) {
            self.map.insert((index(table), moved.entity), to);
        }
        if machine::restore(&moved.row, moved.from.as_deref(), &moved.to).is_none() {
            return Err(violation(Fault::NotInTable));
        }
        if found != moved.from.as_deref() {
            return Err(violation(Fault::OtherState { found }));
        }
        Ok(())
    }

    /// Takes the moves of a rune over, all of them; the first violation is reported.
    pub fn apply(&mut self, seq: i64, moves: &[Moved]) -> Result<(), Violation> {
        let mut first = Ok(());
        for moved in moves {
            let step = self.step(seq, moved);
            first = first.and(step);
        }
        first
    }

    /// Where rows and runes disagree, in both directions.
    pub fn diff<'a>(&self, rows: impl Iterator<Item = (&'static Table, Entity, &'a str)>) -> Vec<Difference> {
        let mut unseen = self.map.clone();
        let mut differences = Vec::new();
        for (table, entity, state) in rows {
            unseen.remove(&(index(table), entity));
            let runes = self.get(table, entity);
            if runes != Some(state) {
                differences.push(Difference { machine: table.name, entity, row: Some(state.to_owned()), runes });
            }
        }
        let left = States { map: unseen };
        differences.extend(left.iter().map(|(table, entity, state)| Difference {
            machine: table.name,
            entity,
            row: None,
            runes: Some(state),
        }));
        differences.sort_by(|a, b| (a.machine, a.entity).cmp(&(b.machine, b.entity)));
        differences
    }
}

/// Folds a log from its first rune on.
pub fn fold<'a>(runes: impl Iterator<Item = &'a Rune>) -> (States, Vec<Violation>) {
    let mut states = States::new();
    let mut violations = Vec::new();
    for rune in runes {
        violations.extend(rune.moves.iter().filter_map(|moved| states.step(rune.seq, moved).err()));
    }
    (states, violations)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Kind;
    use crate::machine::turn;
    use uuid::Uuid;

    fn moved(row: &str, from: Option<&str>, to: &str) -> Moved {
        let entity = Entity::new(Kind::Turn, Uuid::from_u128(7));
        Moved { row: row.into(), entity, from: from.map(Into::into), to: to.into() }
    }

    #[test]
    fn a_legal_history_folds_to_its_last_state() {
        let mut states = States::new();
        let moves = [moved("T26", None, "queued"), moved("T1", Some("queued"), "streaming")];
        assert_eq!(states.apply(1, &moves), Ok(()));
        assert_eq!(states.get(&turn::TABLE, moves[0].entity), Some("streaming"));
        assert_eq!(states.len(), 1);
    }

    #[test]
    fn a_move_from_another_state_is_named_with_both_and_then_believed() {
        let mut states = States::new();
        let birth = moved("T26", None, "queued");
        assert_eq!(states.step(1, &birth), Ok(()));
        let bad = states.step(2, &moved("T8", Some("tool_executing"), "streaming")).expect_err("from another state");
        assert_eq!(bad.fault, Fault::OtherState { found: Some("queued") });
        assert!(
            bad.to_string().contains("rune 2: T8 moves") && bad.to_string().ends_with("but it was queued"),
            "{bad}"
        );
        assert_eq!(states.step(3, &moved("T4", Some("streaming"), "completed")), Ok(()));
        let again = states.step(4, &birth).expect_err("a second birth");
        assert_eq!(again.fault, Fault::OtherState { found: Some("completed") });
    }

    #[test]
    fn a_move_that_no_table_has_is_refused() {
        let mut states = States::new();
        let unknown = states.step(1, &moved("X1", None, "queued")).expect_err("no such row");
        assert_eq!(unknown.fault, Fault::NotInTable);
        let skip = states.step(1, &moved("T1", None, "streaming")).expect_err("born running");
        assert_eq!(skip.fault, Fault::NotInTable);
        let stray = states.step(1, &moved("L1", None, "spawning")).expect_err("a turn is no agent");
        assert_eq!(stray.fault, Fault::WrongEntity);
    }

    #[test]
    fn rows_and_runes_are_compared_in_both_directions() {
        let mut states = States::new();
        let birth = moved("T26", None, "queued");
        assert_eq!(states.step(1, &birth), Ok(()));
        let other = Entity::new(Kind::Turn, Uuid::from_u128(8));
        assert!(states.diff([(&turn::TABLE, birth.entity, "queued")].into_iter()).is_empty());
        let rows = [(&turn::TABLE, birth.entity, "streaming"), (&turn::TABLE, other, "queued")];
        let found: Vec<String> = states.diff(rows.into_iter()).iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 2);
        assert!(found[0].ends_with("the row says streaming, the runes say queued"), "{found:?}");
        assert!(found[1].ends_with("the row says queued, the runes say nothing"), "{found:?}");
        let missing = states.diff(std::iter::empty());
        assert_eq!((missing.len(), missing[0].row.clone(), missing[0].runes), (1, None, Some("queued")));
    }
}
