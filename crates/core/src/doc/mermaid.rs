//! A machine as a Mermaid state diagram.

use super::{event, state};
use crate::machine::table::{Phase, Table};

/// One arrow per pair of states, with every row that takes it. Rows that only record are left
/// out: a picture is for ways, the matrix is for everything.
pub fn mermaid(table: &Table) -> String {
    let mut arrows: Vec<(&str, &str, Vec<String>)> = Vec::new();
    let mut add = |from, to, label: String| match arrows.iter_mut().find(|(f, t, _)| (*f, *t) == (from, to)) {
        Some((_, _, labels)) => labels.push(label),
        None => arrows.push((from, to, vec![label])),
    };
    for row in table.rows {
        let Some(to) = row.to else { continue };
        let label = format!("{} {}", row.id, event(table, row));
        if row.from.is_empty() {
            add("[*]", state(table, to), label.clone());
        }
        for &from in row.from {
            add(state(table, from), state(table, to), label.clone());
        }
    }
    let mut text = String::from("stateDiagram-v2\n");
    for (from, to, labels) in arrows {
        text += &format!("    {from} --> {to}: {}\n", labels.join("<br/>"));
    }
    for end in table.states.iter().filter(|s| s.phase == Phase::Terminal) {
        text += &format!("    {} --> [*]\n", end.token);
    }
    text
}
