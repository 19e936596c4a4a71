//! What a critic said of a plan's work.

use crate::table::Table;
use sea_orm::entity::prelude::*;
use std::sync::LazyLock;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "critiques")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Uuid,
    pub session_id: Uuid,
    pub plan_id: Uuid,
    /// The critic.
    pub agent_id: Uuid,
    /// Of the plan.
    pub iteration: i64,
    pub pass: bool,
    pub summary: String,
    #[sea_orm(column_type = "JsonBinary")]
    pub findings: Json,
    pub created_at: DateTimeUtc,
    pub version: i64,
}

impl ActiveModelBehavior for ActiveModel {}

pub static TABLE: LazyLock<Table> = LazyLock::new(|| Table::of::<Entity>(&[], None));
