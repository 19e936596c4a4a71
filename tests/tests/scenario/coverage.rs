//! Which rows of the specification were exercised, by what the runelogs say.

use anyhow::Result;
use instar_core::machine;
use instar_store::Store;
use sea_orm::{ConnectionTrait, Statement};
use std::collections::{BTreeSet, HashSet};
use uuid::Uuid;

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

/// What does not happen for sure in one process. D17: whoever stops an agent there ends its turn before an error can come;
/// among four processes a worker that is frozen hears neither.
pub(crate) const UNREACHED_EMBEDDED: [&str; 1] = ["D17"];

/// What a drive hears by a broadcast is another event than a message, though the row is the same.
const BY_BROADCAST: [&str; 2] = ["D4 by broadcast", "D13 by broadcast"];

/// Rows that leave no rune of their own, by what others around them say: a session is as it was when turns begin and
/// end (S4, S5); a message waits behind a turn (T15); a turn of a stopped agent fails (D17).
pub(crate) async fn implied(store: &Store) -> Result<BTreeSet<String>> {
    let db = store.db();
    let query = "SELECT r.kind, r.agent_id, r.moves, r.payload FROM runes r ORDER BY r.session_id, r.seq";
    let query = Statement::from_string(db.get_database_backend(), query);
    let (mut rows, mut stopped, mut busy) = (BTreeSet::new(), HashSet::new(), HashSet::new());
    for found in db.query_all_raw(query).await? {
        let kind: String = found.try_get("", "kind")?;
        let Some(agent) = found.try_get::<Option<Uuid>>("", "agent_id")? else { continue };
        let mut saw = |row: &str| {
            rows.insert(row.to_owned());
        };
        let (moves, told): (String, String) = (found.try_get("", "moves")?, found.try_get("", "payload")?);
        // A row is told by the last of its runes.
        if told.contains("\"source\":\"broadcast\"") || told.contains("\"reason\":\"broadcast\"") {
            let moved = moves.split(',').filter_map(|one| one.split_once(':')).map(|(row, _)| row);
            moved.for_each(|row| saw(&format!("{row} by broadcast")));
        }
        match kind.as_str() {
            "agent.drive_stopped" => drop(stopped.insert(agent)),
            "agent.drive_started" | "agent.drive_errored" => drop(stopped.remove(&agent)),
            "turn.started" => {
                busy.insert(agent);
                saw("S4");
            }
            "turn.completed" | "turn.interrupted" | "turn.error" => {
                busy.remove(&agent);
                match kind.as_str() {
                    "turn.completed" => saw("S5"),
                    "turn.error" if stopped.contains(&agent) => saw("D17"),
                    _ => {}
                }
            }
            "agent.message_received" if busy.contains(&agent) => saw("T15"),
            _ => {}
        }
    }
    Ok(rows)
}

/// Rows of all machines, refusals and what is ignored, less those that were exercised; in the order of the tables.
pub(crate) fn missing(exercised: &BTreeSet<String>) -> Vec<&'static str> {
    let mut missing: Vec<&'static str> = Vec::new();
    for table in machine::ALL {
        let rows = table.rows.iter().map(|row| row.id);
        let ids = rows.chain(table.ignores.iter().map(|i| i.id)).chain(table.refuses.iter().map(|r| r.id));
        for id in ids.filter(|id| !exercised.contains(*id)) {
            if !missing.contains(&id) {
                missing.push(id);
            }
        }
    }
    missing.extend(BY_BROADCAST.into_iter().filter(|row| !exercised.contains(*row)));
    missing
}
