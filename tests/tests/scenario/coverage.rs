//! Which rows of the specification were exercised, by what the runelogs say.

use anyhow::Result;
use instar_core::machine;
use instar_store::Store;
use sea_orm::{ConnectionTrait, Statement};
use std::collections::BTreeSet;

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
    missing
}
