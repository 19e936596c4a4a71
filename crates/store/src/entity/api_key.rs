//! Who may call the API. Only the key's hash is here.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "api_keys")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Uuid,
    pub namespace: String,
    pub name: String,
    /// viewer, operator, approver, admin.
    pub role: String,
    /// SHA-256 of the key.
    #[sea_orm(column_type = "VarBinary(StringLen::None)", unique)]
    pub hash: Vec<u8>,
    pub created_at: DateTimeUtc,
    /// To about a minute.
    pub last_used_at: Option<DateTimeUtc>,
    pub revoked_at: Option<DateTimeUtc>,
    /// From then on it opens nothing.
    pub expires_at: Option<DateTimeUtc>,
}

impl ActiveModelBehavior for ActiveModel {}
