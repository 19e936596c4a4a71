//! Whether the database has the schema that this version was built for, no older and no newer one.

use crate::connect::Store;
use crate::error::StoreError;
use instar_migrations::{Migrator, MigratorTrait};
use sea_orm::{ConnectionTrait, Statement};
use std::collections::BTreeSet;

impl Store {
    /// Compares what was applied with what this version brings. Changes nothing.
    pub async fn fits(&self) -> Result<(), StoreError> {
        fits(&self.db).await
    }
}

pub(crate) async fn fits(db: &impl ConnectionTrait) -> Result<(), StoreError> {
    let applied = applied(db).await.map_err(|error| match error {
        passing if passing.retryable() => passing,
        other => {
            let cause = other.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
            StoreError::Unusable(format!("{cause}: bring the schema up to date with `instar migrate`"))
        }
    })?;
    not_ahead(&applied)?;
    let own = own();
    let lacks: Vec<&str> = own.iter().filter(|name| !applied.contains(*name)).map(String::as_str).collect();
    match lacks[..] {
        [] => Ok(()),
        [one] => Err(behind(one)),
        [first, .., last] => Err(behind(&format!("{first} to {last}"))),
    }
}

fn behind(what: &str) -> StoreError {
    StoreError::Unusable(format!(
        "its schema is behind this version, it lacks {what}: bring it up to date with `instar migrate`"
    ))
}

/// A newer version may have changed what this one would write to.
pub(crate) fn not_ahead(applied: &BTreeSet<String>) -> Result<(), StoreError> {
    let own = own();
    match applied.iter().rfind(|name| !own.contains(*name)) {
        None => Ok(()),
        Some(name) => Err(StoreError::Unusable(format!(
            "a newer version has migrated it ({name}), which this one does not know: start that version, or a newer one"
        ))),
    }
}

/// The names of what was applied; an error where nothing ever was.
pub(crate) async fn applied(db: &impl ConnectionTrait) -> Result<BTreeSet<String>, StoreError> {
    let read = Statement::from_string(db.get_database_backend(), "SELECT version FROM seaql_migrations");
    let rows = db.query_all_raw(read).await?;
    Ok(rows.iter().map(|row| row.try_get_by_index(0)).collect::<Result<_, _>>()?)
}

fn own() -> BTreeSet<String> {
    Migrator::migrations().iter().map(|migration| migration.name().to_owned()).collect()
}
