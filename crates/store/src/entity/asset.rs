//! An asset: a value that missions promise and steps make. Its content is in its versions.

use crate::table::Table;
use sea_orm::entity::prelude::*;
use std::sync::LazyLock;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "assets")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Uuid,
    pub session_id: Uuid,
    pub mission_id: Uuid,
    /// The hop whose plan proposed it, or whose scratch value it is.
    pub hop_id: Option<Uuid>,
    /// mission, hop.
    pub scope: String,
    pub author: String,
    pub traceparent: Option<String>,
    pub created_at: DateTimeUtc,
    pub status: String,
    pub epoch: i64,
    /// Of the row, as everywhere; the one of its content is `content_version`.
    pub version: i64,
    /// Of its proposal.
    pub revision: i64,
    /// What it is to its mission: input, output, intermediate.
    pub role: String,
    pub name: String,
    pub description: Option<String>,
    /// Its type: string, number, object, file, markdown, config, ...
    pub kind: String,
    pub subtype: Option<String>,
    pub is_array: bool,
    /// JSON Schema of its value.
    #[sea_orm(column_type = "JsonBinary")]
    pub schema: Json,
    #[sea_orm(column_type = "JsonBinary", nullable)]
    pub metadata: Option<Json>,
    /// The newest version that has content; 0 before the first.
    pub content_version: i64,
    /// The version that the mission points at since a hop was completed.
    pub promoted_version: Option<i64>,
    /// The step that makes or made its newest version.
    pub step_id: Option<Uuid>,
    pub summary: Option<String>,
    #[sea_orm(column_type = "JsonBinary", nullable)]
    pub error: Option<Json>,
    /// How long a version is good for.
    pub ttl_ms: Option<i64>,
    pub expires_at: Option<DateTimeUtc>,
    pub updated_at: DateTimeUtc,
    pub ended_at: Option<DateTimeUtc>,
}

impl ActiveModelBehavior for ActiveModel {}

pub static TABLE: LazyLock<Table> = LazyLock::new(|| Table::of::<Entity>(&[("asset", "status")], None));
