//! A named credential that one agent holds at a time. Its values are sealed, or are somewhere else.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "accounts")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Uuid,
    pub namespace: String,
    /// Unique in its namespace.
    pub name: String,
    /// Those of one pool serve the same purpose: an agent that asks for the pool gets any of them.
    pub pool: String,
    pub username: Option<String>,
    #[sea_orm(column_type = "VarBinary(StringLen::None)", nullable)]
    pub sealed: Option<Vec<u8>>,
    #[sea_orm(column_type = "JsonBinary", nullable)]
    pub refs: Option<Json>,
    /// Words of `Release`, with commas between.
    pub release_on: String,
    /// Who brought it: config, api.
    pub origin: String,
    /// The agent that has it, as far as nobody else may take it: see `Store::claim_account`.
    pub holder: Option<Uuid>,
    pub held_until: Option<DateTimeUtc>,
    pub released_at: Option<DateTimeUtc>,
    pub created_at: DateTimeUtc,
    pub updated_at: DateTimeUtc,
}

impl Model {
    pub fn releases(&self) -> Vec<&str> {
        self.release_on.split(',').filter(|word| !word.is_empty()).collect()
    }
}

impl ActiveModelBehavior for ActiveModel {}
