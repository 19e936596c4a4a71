//! Pages, pictures and database constraints, rendered from the tables. Pure text: writing it to
//! files is `gen-docs`' work, comparing it with them is a test's.

mod machine;
mod matrix;
mod mermaid;
mod overview;
mod rune;
mod subject;

pub use machine::page;
pub use matrix::matrix;
pub use mermaid::mermaid;
pub use overview::overview;
pub use rune::runes;
pub use subject::subjects;

use crate::machine::{ALL, By, Row, Table};

/// Every generated file: its path below `docs/` and its text.
pub fn files() -> Vec<(String, String)> {
    let machines = ALL.iter().map(|table| (format!("machines/{}.md", table.name), page(table)));
    let others = [
        ("machines/README.md".to_owned(), overview()),
        ("subjects.md".to_owned(), subjects()),
        ("runes.md".to_owned(), runes()),
    ];
    machines.chain(others).collect()
}

/// `status IN ('created', …)`: the database's own line of defence for a machine's column.
pub fn check_constraint(table: &Table, column: &str) -> String {
    let states: Vec<String> = table.states.iter().map(|s| format!("'{}'", s.token)).collect();
    format!("{column} IN ({})", states.join(", "))
}

/// The first lines of every generated page.
fn header(title: &str, source: &str) -> String {
    format!("<!-- Generated from {source} by `cargo xtask docs`: edit that, not this. -->\n\n# {title}\n\n")
}

fn line(cells: &[&str]) -> String {
    let escaped: Vec<String> = cells.iter().map(|c| c.replace('|', "\\|")).collect();
    let mut text = String::from("|");
    for cell in escaped {
        text.push(' ');
        text.push_str(&cell);
        text.push_str(if cell.is_empty() { "|" } else { " |" });
    }
    text.push('\n');
    text
}

fn head(cells: &[&str]) -> String {
    line(cells) + &"|---".repeat(cells.len()) + "|\n"
}

fn code(token: &str) -> String {
    format!("`{token}`")
}

fn codes<'a>(tokens: impl IntoIterator<Item = &'a str>) -> String {
    tokens.into_iter().map(code).collect::<Vec<_>>().join(", ")
}

fn raisers(by: &[By]) -> String {
    by.iter().copied().map(By::token).collect::<Vec<_>>().join(", ")
}

fn state(table: &Table, index: u8) -> &'static str {
    table.states[index as usize].token
}

fn event(table: &Table, row: &Row) -> &'static str {
    table.events[row.event as usize].token
}

/// The ids of the rows that a test picks, each once, in the order of the tables.
fn row_ids(pick: impl Fn(&Row) -> bool) -> Vec<&'static str> {
    let mut ids: Vec<&'static str> =
        ALL.iter().flat_map(|table| table.rows).filter(|row| pick(row)).map(|row| row.id).collect();
    ids.dedup();
    ids
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{session, turn};

    #[test]
    fn a_constraint_names_every_state_and_nothing_else() {
        assert_eq!(
            check_constraint(&session::TABLE, "status"),
            "status IN ('created', 'active', 'paused', 'suspended', 'closing', 'closed', 'archived')"
        );
        for table in ALL {
            assert_eq!(check_constraint(table, "status").matches('\'').count(), 2 * table.states.len());
        }
    }

    #[test]
    fn a_picture_has_every_birth_every_moving_edge_and_every_end() {
        let picture = mermaid(&turn::TABLE);
        for expected in [
            "stateDiagram-v2\n",
            "    [*] --> queued: T26 queue_turn\n",
            "    queued --> streaming: T1 start_turn\n",
            "    completed --> [*]\n",
        ] {
            assert!(picture.contains(expected), "{expected} in\n{picture}");
        }
        assert!(!picture.contains("T2 assistant_delta"), "a row that only records is no edge");
    }

    #[test]
    fn every_cell_of_every_machine_is_in_its_matrix() {
        for table in ALL {
            let text = matrix(table);
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!(lines.len(), table.events.len() + 2, "{}", table.name);
            for line in &lines[2..] {
                assert_eq!(line.matches('|').count(), table.states.len() + 3, "{line}");
            }
        }
        let drive = matrix(&crate::machine::agent_drive::TABLE);
        assert!(drive.contains("| `stop` | | D16 ignored | D6 → stopped | D16 ignored | D16 ignored | |"), "{drive}");
        let start = "| `start` | | D3 → running | | D9 → running (user) | D10 → running | |";
        assert!(drive.contains(start), "{drive}");
    }

    #[test]
    fn every_kind_has_its_subject_and_its_fields() {
        let subjects = subjects();
        let runes = runes();
        for kind in crate::rune::KINDS {
            assert!(subjects.contains(&format!("| `instar.v1.{}.<session>` |", kind.token)), "{}", kind.token);
            assert!(runes.contains(&format!("| `{}` |", kind.token)), "{}", kind.token);
        }
        for subject in
            ["work.turn.<lane>", "work.tool.<class>", "owner.<worker>.turn", "control.<agent>", "delta.<session>"]
        {
            assert!(subjects.contains(subject), "{subject}");
        }
    }

    #[test]
    fn a_bar_in_a_text_does_not_break_its_table() {
        assert_eq!(line(&["a|b", ""]), "| a\\|b | |\n");
    }
}
