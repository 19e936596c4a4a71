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
    /// The chain over the whole log, known when nothing can follow any more.
    #[sea_orm(column_type = "VarBinary(StringLen::None)", nullable)]
    pub final_hash: Option<Vec<u8>>,
    /// When it was paused or suspended, as pairs of times in microseconds; the last one is open while it is.
    #[sea_orm(column_type = "JsonBinary", nullable)]
    pub holds: Option<Json>,
    /// Errors before this are forgiven.
    pub reset_at: Option<DateTimeUtc>,
    pub created_at: DateTimeUtc,
    pub updated_at: DateTimeUtc,
}

impl ActiveModelBehavior for ActiveModel {}

pub static TABLE: LazyLock<Table> = LazyLock::new(|| Table::of::<Entity>(&[("session", "status")], None));
