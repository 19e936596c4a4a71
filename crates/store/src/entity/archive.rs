//! A session whose log is in cold storage, and the rune that says so: the catalogue.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "archives")]
pub struct Model {
    /// The session's.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Uuid,
    pub namespace: String,
    /// Its number in the namespace's catalogue: increasing, without gaps.
    pub seq: i64,
    pub rune_id: Uuid,
    pub actor_type: String,
    pub actor_id: String,
    pub payload: String,
    pub moves: String,
    pub traceparent: Option<String>,
    pub at_us: i64,
    #[sea_orm(column_type = "VarBinary(StringLen::None)")]
    pub hash: Vec<u8>,
    pub command_id: Uuid,
    /// Its segments.
    #[sea_orm(column_type = "JsonBinary")]
    pub manifest: Json,
    /// 1: it was brought in from a file, and never ran here.
    pub imported: i64,
    /// When its runes were removed from the database; none while some are there.
    pub pruned_at: Option<DateTimeUtc>,
}

impl ActiveModelBehavior for ActiveModel {}
