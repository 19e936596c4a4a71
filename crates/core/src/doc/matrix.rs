//! Every cell of a machine: what each event does in each state. A changed cell is a changed line of
//! a committed page, so that a reviewer sees it.

use super::{code, head, line, raisers, state};
use crate::machine::table::{Cell, Table};

pub fn matrix(table: &Table) -> String {
    let states: Vec<String> = table.states.iter().map(|s| code(s.token)).collect();
    let mut cells = vec!["event", "(none yet)"];
    cells.extend(states.iter().map(String::as_str));
    let mut text = head(&cells);
    for (e, info) in table.events.iter().enumerate() {
        let from = std::iter::once(None).chain((0..table.states.len() as u8).map(Some));
        let answers: Vec<String> = from.map(|from| answer(table, from, e as u8)).collect();
        let name = code(info.token);
        let mut cells = vec![name.as_str()];
        cells.extend(answers.iter().map(String::as_str));
        text += &line(&cells);
    }
    text
}

fn answer(table: &Table, from: Option<u8>, event: u8) -> String {
    match table.cell(from, event) {
        Cell::Moves(row) => {
            let only = row.by.map_or_else(String::new, |by| format!(" ({})", raisers(by)));
            match row.to {
                Some(to) => format!("{} → {}{only}", row.id, state(table, to)),
                None => format!("{} stays{only}", row.id),
            }
        }
        Cell::Ignored(ignore) => format!("{} ignored", ignore.id),
        Cell::Refused(_) => String::new(),
    }
}
