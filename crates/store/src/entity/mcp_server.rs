//! An MCP server as one tool-runner sees it. Counts only as long as the runner's lease.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "mcp_servers")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub server: String,
    #[sea_orm(primary_key, auto_increment = false)]
    pub runner: Uuid,
    /// `starting`, `ready`, `failing` or `stopped`.
    pub standing: String,
    pub reason: Option<String>,
    pub protocol: Option<String>,
    /// What the server calls itself.
    pub about: Option<String>,
    pub tools: i64,
    pub changed_at: DateTimeUtc,
    pub version: i64,
}

impl ActiveModelBehavior for ActiveModel {}
