//! The sealed chain over a session's runes.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "seals")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub session_id: Uuid,
    #[sea_orm(primary_key, auto_increment = false)]
    pub seq: i64,
    #[sea_orm(column_type = "VarBinary(StringLen::None)")]
    pub hash: Vec<u8>,
    pub at_us: i64,
}

impl ActiveModelBehavior for ActiveModel {}
