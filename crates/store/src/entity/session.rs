//! The unit of order; its row numbers the runes of its log.

use crate::table::Table;
use sea_orm::entity::prelude::*;
use std::sync::LazyLock;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "sessions")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Uuid,
    pub namespace: String,
    pub name: Option<String>,
    pub status: String,
    pub epoch: i64,
    pub version: i64,
    /// Number of the newest rune.
    pub head_seq: i64,
    /// Number up to which runes are known to have been published; trails `head_seq`.
    pub published_seq: i64,
    /// Number up to which the chain is sealed.
    pub sealed_seq: i64,
    pub root_agent_id: Option<Uuid>,
    #[sea_orm(column_type = "JsonBinary")]
    pub config: Json,
    #[sea_orm(column_type = "JsonBinary")]
    pub budget: Json,
    pub created_at: DateTimeUtc,
    pub updated_at: DateTimeUtc,
}

impl ActiveModelBehavior for ActiveModel {}

pub static TABLE: LazyLock<Table> = LazyLock::new(|| Table::of::<Entity>(&[("session", "status")], None));
