//! One version of an asset's content, named by its hash. Written once.

use crate::table::Table;
use sea_orm::entity::prelude::*;
use std::sync::LazyLock;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "asset_versions")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Uuid,
    pub session_id: Uuid,
    pub asset_id: Uuid,
    /// From 1.
    pub number: i64,
    /// SHA-256 of the content, in hexadecimal digits.
    pub hash: String,
    pub bytes: i64,
    pub media_type: String,
    pub summary: Option<String>,
    /// Absent where it is kept in object storage, under its hash.
    #[sea_orm(column_type = "VarBinary(StringLen::None)", nullable)]
    pub content: Option<Vec<u8>>,
    /// That other version.
    pub content_of: Option<Uuid>,
    pub step_id: Option<Uuid>,
    pub call_id: Option<Uuid>,
    pub author: String,
    /// The versions it was made from: asset id to number.
    #[sea_orm(column_type = "JsonBinary")]
    pub lineage: Json,
    pub created_at: DateTimeUtc,
    pub version: i64,
}

impl ActiveModelBehavior for ActiveModel {}

pub static TABLE: LazyLock<Table> = LazyLock::new(|| Table::of::<Entity>(&[], None));
