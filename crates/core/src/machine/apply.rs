//! From an event to a [`Move`]: the only way to obtain the right to write a status.

use super::table::{By, Cell, Emit, Row, Table};

/// A transition that the machine's table allows. Its fields can be read by all and set by none, so
/// that every status ever written went through a table.
#[derive(Clone, Copy, Debug)]
pub struct Move {
    table: &'static Table,
    row: &'static Row,
    from: Option<u8>,
    to: u8,
}

impl Move {
    pub fn table(&self) -> &'static Table {
        self.table
    }
    pub fn machine(&self) -> &'static str {
        self.table.name
    }
    pub fn row(&self) -> &'static str {
        self.row.id
    }
    pub fn event(&self) -> &'static str {
        self.table.events[self.row.event as usize].token
    }
    /// `None` for a birth.
    pub fn from(&self) -> Option<&'static str> {
        self.from.map(|s| self.table.states[s as usize].token)
    }
    pub fn to(&self) -> &'static str {
        self.table.states[self.to as usize].token
    }
    pub fn emit(&self) -> Emit {
        self.row.emit
    }
    pub fn changes_state(&self) -> bool {
        self.from != Some(self.to)
    }
}

/// What a machine answers to an event raised by someone.
#[derive(Clone, Debug)]
pub enum Answer {
    Moves(Move),
    /// Already so: success, nothing to write.
    Ignored {
        row: &'static str,
    },
    Refused(Box<Refusal>),
}

/// An event that the machine refuses, with what the caller may do instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, serde::Serialize)]
#[error("{machine} in state {from} refuses {event}: {advice}; allowed now: {}", list(allowed))]
pub struct Refusal {
    pub machine: &'static str,
    /// The state it is in; `none` when it does not exist yet.
    pub from: String,
    pub event: String,
    /// Events legal now for this caller.
    pub allowed: Vec<&'static str>,
    pub advice: String,
}

fn list(allowed: &[&str]) -> String {
    if allowed.is_empty() { "nothing".into() } else { allowed.join(", ") }
}

/// Looks the event up in the table. `from` is the token of the present state, `None` before birth.
pub fn apply(table: &'static Table, from: Option<&str>, event: &str, by: By) -> Answer {
    let state = match from.map(|token| table.state(token)) {
        Some(None) => return refused(table, None, from, event, by, "this state is not one of the machine's"),
        known => known.flatten(),
    };
    let Some(e) = table.event(event) else {
        return refused(table, state, from, event, by, "the machine knows no such event");
    };
    if !table.events[e as usize].by.contains(&by) {
        let advice = format!("it is not for the {} to raise it", by.token());
        return refused(table, state, from, event, by, &advice);
    }
    match table.cell(state, e) {
        Cell::Moves(row) if !table.raisers(row).contains(&by) => {
            let advice = format!("from here it is not for the {} to raise it", by.token());
            refused(table, state, from, event, by, &advice)
        }
        Cell::Moves(row) => {
            // The audit guarantees a target for births, so `stay` always has a state to stay in.
            let to = row.to.or(state).unwrap_or_default();
            Answer::Moves(Move { table, row, from: state, to })
        }
        Cell::Ignored(ignore) => Answer::Ignored { row: ignore.id },
        Cell::Refused(Some(refuse)) => refused(table, state, from, event, by, refuse.advice),
        Cell::Refused(None) => refused(table, state, from, event, by, "no row of its table leads from here by it"),
    }
}

fn refused(table: &'static Table, state: Option<u8>, from: Option<&str>, event: &str, by: By, advice: &str) -> Answer {
    let unknown_state = from.is_some() && state.is_none();
    Answer::Refused(Box::new(Refusal {
        machine: table.name,
        from: from.unwrap_or("none").to_owned(),
        event: event.to_owned(),
        allowed: if unknown_state { Vec::new() } else { table.allowed(state, by) },
        advice: advice.to_owned(),
    }))
}

/// Rebuilds a move that was recorded in a rune, if the table has such a row: how replay checks
/// that history was legal.
pub fn restore(row_id: &str, from: Option<&str>, to: &str) -> Option<Move> {
    let table = super::by_row(row_id)?;
    let to = table.state(to)?;
    let from = match from {
        Some(token) => Some(table.state(token)?),
        None => None,
    };
    table
        .rows
        .iter()
        .filter(|row| row.id == row_id)
        .find(|row| match from {
            Some(f) => row.from.contains(&f) && row.to.unwrap_or(f) == to,
            None => row.from.is_empty() && row.to == Some(to),
        })
        .map(|row| Move { table, row, from, to })
}
