//! The runelog, append-only: nothing in the code base updates or deletes a rune.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "runes")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub session_id: Uuid,
    #[sea_orm(primary_key, auto_increment = false)]
    pub seq: i64,
    pub id: Uuid,
    pub kind: String,
    /// Prefix of the entity's id, such as `trn`.
    pub entity_kind: String,
    pub entity_id: Uuid,
    pub agent_id: Option<Uuid>,
    pub turn_id: Option<Uuid>,
    pub actor_type: String,
    pub actor_id: String,
    pub visibility: String,
    /// Kept as text: the hash is over these very bytes.
    pub payload: String,
    pub moves: String,
    pub epoch: i64,
    pub traceparent: Option<String>,
    /// Microseconds since 1970, UTC.
    pub at_us: i64,
    #[sea_orm(column_type = "VarBinary(StringLen::None)")]
    pub hash: Vec<u8>,
    pub command_id: Uuid,
}

impl ActiveModelBehavior for ActiveModel {}
