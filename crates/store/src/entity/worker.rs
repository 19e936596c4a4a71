//! A process and its lease. Lease times are the database's, never the process's own.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "workers")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Uuid,
    /// Which service it is an instance of.
    pub service: String,
    pub lease_until: DateTimeUtc,
    pub started_at: DateTimeUtc,
    #[sea_orm(column_type = "JsonBinary")]
    pub info: Json,
}

impl ActiveModelBehavior for ActiveModel {}
