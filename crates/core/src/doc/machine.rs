//! The page of one machine.

use super::{check_constraint, code, codes, event, head, header, line, matrix, mermaid, raisers, state};
use crate::machine::table::{Emit, Phase, Row, Table};

pub fn page(table: &Table) -> String {
    let mut text = header(&title(table.name), &format!("crates/core/src/machine/{}.rs", table.name));
    text += &format!("{}\n\n```mermaid\n{}```\n\n", table.doc, mermaid(table));
    text += "Rows that change no state are not drawn.\n";
    text += &states(table);
    text += &events(table);
    text += "\n## Matrix\n\nEach cell: the row and the state it leads to; `stays` where the row only records; `ignored` \
             where the event is late or repeated and answered with success; empty where it is refused. In brackets: \
             who alone may have the row move, where that is fewer than may raise the event.\n\n";
    text += &matrix(table);
    text += &rows(table);
    text += &rest(table);
    text
}

fn title(name: &str) -> String {
    let words = name.replace('_', " ");
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

const fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Live => "live",
        Phase::Rest => "at rest, may be reopened",
        Phase::Terminal => "terminal",
    }
}

fn states(table: &Table) -> String {
    let mut text = format!("\n## States\n\n{}", head(&["state", "phase", "meaning"]));
    for s in table.states {
        text += &line(&[&code(s.token), phase(s.phase), s.doc]);
    }
    // An agent's row has two machines, so its columns are named after them.
    let column = table.name.strip_prefix("agent_").unwrap_or("status");
    text + &format!("\nIn the database: `CHECK ({})`.\n", check_constraint(table, column))
}

fn events(table: &Table) -> String {
    let mut text = format!("\n## Events\n\n{}", head(&["event", "raised by", "meaning"]));
    for e in table.events {
        text += &line(&[&code(e.token), &raisers(e.by), e.doc]);
    }
    text
}

fn rows(table: &Table) -> String {
    let mut text = format!("\n## Rows\n\n{}", head(&["row", "from", "event", "raised by", "to", "runes", "when"]));
    for row in table.rows {
        let from = match row.from {
            [] => "(none yet)".to_owned(),
            from => codes(from.iter().map(|&s| state(table, s))),
        };
        let to = row.to.map_or_else(|| "stays".to_owned(), |to| code(state(table, to)));
        let by = raisers(table.raisers(row));
        text += &line(&[row.id, &from, &code(event(table, row)), &by, &to, &emit(row), row.when]);
    }
    text
}

fn emit(row: &Row) -> String {
    match row.emit {
        Emit::Runes(kinds) => codes(kinds.iter().copied()),
        Emit::Via(kind) => format!("rides on {}", code(kind)),
        Emit::Silent => "rides on any rune of its commit".to_owned(),
    }
}

fn rest(table: &Table) -> String {
    let mut text = String::new();
    if !table.refuses.is_empty() {
        text += "\n## Refusals with advice\n\n";
        text += &head(&["row", "in", "event", "answer"]);
        for r in table.refuses {
            let from = codes(r.from.iter().map(|&s| state(table, s)));
            text += &line(&[r.id, &from, &code(table.events[r.event as usize].token), r.advice]);
        }
    }
    if !table.rules.is_empty() {
        text += "\n## Rows kept elsewhere\n\n";
        text += &head(&["row", "kept by"]);
        for rule in table.rules {
            text += &line(&[rule.id, rule.kept_by]);
        }
    }
    text
}
