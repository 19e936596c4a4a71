//! Which rows of the specification were exercised, by what the runelogs say.

use anyhow::Result;
use instar_core::machine;
use instar_store::Store;
use sea_orm::{ConnectionTrait, Statement};
use std::collections::BTreeSet;

/// The machines whose every row a scenario must exercise.
const MACHINES: [&str; 11] = [
    "session",
    "agent_lifecycle",
    "agent_drive",
    "turn",
    "tool_call",
    "mission",
    "hop",
    "tool_step",
    "asset",
    "plan",
    "task",
];

/// Rows that nothing brings about today, and why.
const UNREACHED: [(&str, &str); 6] = [
    ("S2", "the first agent of a session is ready in the commit that makes it: nobody can speak before"),
    ("S19", "a close ends everything in its own commit: there is nothing left to wait for"),
    ("D2", "definitions of agents cannot be imported yet"),
    ("D19", "plans do not give tasks to agents in a scenario"),
    ("D22", "nothing fails behind the back of an idle agent"),
    ("D27", "no request deletes an agent yet"),
];

/// Ids of the rows that runes of this database stand for.
pub(crate) async fn rows(store: &Store) -> Result<BTreeSet<String>> {
    let db = store.db();
    let query =
        Statement::from_string(db.get_database_backend(), "SELECT moves FROM runes UNION SELECT moves FROM archives");
    let mut rows = BTreeSet::new();
    for found in db.query_all_raw(query).await? {
        let moves: String = found.try_get("", "moves")?;
        rows.extend(moves.split(',').filter_map(|one| one.split_once(':')).map(|(row, _)| row.to_owned()));
    }
    Ok(rows)
}

/// Rows, refusals and what is ignored, less those that were exercised or cannot be; in the order of the tables.
pub(crate) fn missing(exercised: &BTreeSet<String>) -> Vec<&'static str> {
    let mut missing: Vec<&'static str> = Vec::new();
    for table in MACHINES.iter().filter_map(|name| machine::by_name(name)) {
        let rows = table.rows.iter().map(|row| row.id);
        let ids = rows.chain(table.ignores.iter().map(|i| i.id)).chain(table.refuses.iter().map(|r| r.id));
        let known = |id: &str| exercised.contains(id) || UNREACHED.iter().any(|(row, _)| *row == id);
        for id in ids.filter(|id| !known(id)) {
            if !missing.contains(&id) {
                missing.push(id);
            }
        }
    }
    missing
}

/// Rows that nothing brings about, and nothing did.
pub(crate) fn unreached(exercised: &BTreeSet<String>) -> Vec<&'static str> {
    UNREACHED.iter().map(|(row, _)| *row).filter(|row| !exercised.contains(*row)).collect()
}
