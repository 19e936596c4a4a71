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
mod m20261116_000031_extend_sessions;
mod m20261116_000032_create_archives;
mod m20261116_000061_let_calls_wait;
mod m20261116_000100_index_autonomous_agents;
mod m20261116_000101_create_broadcasts;
mod m20261116_000200_index_summaries;
mod m20261117_000101_create_budgets;
mod m20261117_000200_create_mcp_tools;
mod m20261117_000300_create_accounts;
mod m20261117_000400_create_missions;
mod m20261117_000600_create_plans;
mod m20261118_000100_index_calls_of_steps;
mod m20261118_000231_note_finish_reasons;
mod m20261118_000232_keep_segments;
mod m20261118_000300_create_registered_tools;
mod m20261118_000400_let_keys_expire;
mod m20261118_000541_count_letters;
mod m20261119_000900_count_late_turns;
mod m20261119_001500_count_days;
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
            Box::new(m20261116_000031_extend_sessions::Migration),
            Box::new(m20261116_000061_let_calls_wait::Migration),
            Box::new(m20261116_000100_index_autonomous_agents::Migration),
            Box::new(m20261116_000101_create_broadcasts::Migration),
            Box::new(m20261116_000200_index_summaries::Migration),
            Box::new(m20261116_000032_create_archives::Migration),
            Box::new(m20261117_000200_create_mcp_tools::Migration),
            Box::new(m20261117_000300_create_accounts::Migration),
            Box::new(m20261117_000400_create_missions::Migration),
            Box::new(m20261117_000101_create_budgets::Migration),
            Box::new(m20261117_000600_create_plans::Migration),
            Box::new(m20261118_000100_index_calls_of_steps::Migration),
            Box::new(m20261118_000300_create_registered_tools::Migration),
            Box::new(m20261118_000231_note_finish_reasons::Migration),
            Box::new(m20261118_000232_keep_segments::Migration),
            Box::new(m20261118_000400_let_keys_expire::Migration),
            Box::new(m20261118_000541_count_letters::Migration),
            Box::new(m20261119_000900_count_late_turns::Migration),
            Box::new(m20261119_001500_count_days::Migration),
        ]
    }
}
