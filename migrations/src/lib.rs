//! The schema, one file per change, the same for PostgreSQL and SQLite.
//!
//! The CHECK constraints come from the machines' tables: a status that no machine knows cannot be
//! stored, whoever writes it.

use sea_orm_migration::MigrationTrait;
pub use sea_orm_migration::MigratorTrait;

mod m20261116_000001_create_sessions;
mod m20261116_000002_create_agents;
mod m20261116_000003_create_turns;
mod m20261116_000004_create_tool_calls;
mod m20261116_000005_create_runes;
mod m20261116_000006_create_workers;
mod m20261116_000007_create_api_keys;
mod m20261116_000008_create_installation;
mod schema;

pub struct Migrator;

#[async_trait::async_trait]
impl MigratorTrait for Migrator {
    fn migrations() -> Vec<Box<dyn MigrationTrait>> {
        vec![
            Box::new(m20261116_000001_create_sessions::Migration),
            Box::new(m20261116_000002_create_agents::Migration),
            Box::new(m20261116_000003_create_turns::Migration),
            Box::new(m20261116_000004_create_tool_calls::Migration),
            Box::new(m20261116_000005_create_runes::Migration),
            Box::new(m20261116_000006_create_workers::Migration),
            Box::new(m20261116_000007_create_api_keys::Migration),
            Box::new(m20261116_000008_create_installation::Migration),
        ]
    }
}
