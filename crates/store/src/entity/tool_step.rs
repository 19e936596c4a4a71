//! A tool step: one tool of a hop's implementation. Each attempt of it is a tool call.

use crate::table::Table;
use sea_orm::entity::prelude::*;
use std::sync::LazyLock;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "tool_steps")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Uuid,
    pub session_id: Uuid,
    pub mission_id: Uuid,
    pub hop_id: Uuid,
    /// Its place in the hop; a number is given once.
    pub sequence: i64,
    pub attempts_max: i64,
    pub traceparent: Option<String>,
    pub created_at: DateTimeUtc,
    pub status: String,
    pub epoch: i64,
    pub version: i64,
    pub name: String,
    pub description: Option<String>,
    pub tool: Option<String>,
    /// Parameter to `{type: literal, value}` or `{type: asset_field, state_asset_id}`.
    #[sea_orm(column_type = "JsonBinary")]
    pub parameter_mapping: Json,
    /// Result to `{type: asset_field, state_asset_id}` or `{type: discard}`.
    #[sea_orm(column_type = "JsonBinary")]
    pub result_mapping: Json,
    #[sea_orm(column_type = "JsonBinary", nullable)]
    pub resource_configs: Option<Json>,
    /// Calls made since it was last configured or retried.
    pub attempts: i64,
    /// The call of its latest attempt.
    pub call_id: Option<Uuid>,
    /// When the next attempt begins, while it waits for that.
    pub next_at: Option<DateTimeUtc>,
    /// Why its configuration is not valid.
    #[sea_orm(column_type = "JsonBinary", nullable)]
    pub validation_errors: Option<Json>,
    #[sea_orm(column_type = "JsonBinary", nullable)]
    pub result: Option<Json>,
    #[sea_orm(column_type = "JsonBinary", nullable)]
    pub error: Option<Json>,
    pub started_at: Option<DateTimeUtc>,
    pub updated_at: DateTimeUtc,
    pub ended_at: Option<DateTimeUtc>,
}

impl ActiveModelBehavior for ActiveModel {}

pub static TABLE: LazyLock<Table> = LazyLock::new(|| Table::of::<Entity>(&[("tool_step", "status")], None));
