//! A tool that an MCP server offers or offered, with what was accepted of it. Rows are never removed: an
//! acceptance outlives its server's absence.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "mcp_tools")]
pub struct Model {
    /// As agents name it: `server.tool`.
    #[sea_orm(primary_key, auto_increment = false)]
    pub name: String,
    pub server: String,
    /// What was accepted.
    #[sea_orm(column_type = "JsonBinary", nullable)]
    pub spec: Option<Json>,
    /// Of the accepted definition in the server's own words.
    pub hash: Option<String>,
    /// What the server offers now, where that is another.
    #[sea_orm(column_type = "JsonBinary", nullable)]
    pub offered: Option<Json>,
    pub offered_hash: Option<String>,
    pub standing: String,
    pub reason: Option<String>,
    pub accepted_by: Option<String>,
    pub accepted_at: Option<DateTimeUtc>,
    pub seen_at: DateTimeUtc,
    pub version: i64,
}

impl ActiveModelBehavior for ActiveModel {}
