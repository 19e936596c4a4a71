//! The first answer to a command, for its repeats.

use crate::table::Table;
use sea_orm::entity::prelude::*;
use std::sync::LazyLock;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "idempotency_keys")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Uuid,
    pub session_id: Uuid,
    /// Namespace and key as the client sent it, unique together.
    pub namespace: String,
    pub key: String,
    #[sea_orm(column_type = "VarBinary(StringLen::None)")]
    pub body_hash: Vec<u8>,
    pub status: i64,
    #[sea_orm(column_type = "JsonBinary")]
    pub answer: Json,
    pub version: i64,
    pub created_at: DateTimeUtc,
}

impl ActiveModelBehavior for ActiveModel {}

pub static TABLE: LazyLock<Table> = LazyLock::new(|| Table::of::<Entity>(&[], None));
