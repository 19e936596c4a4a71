//! One limit of a session or an agent: what it is, what is used of it, and what is set aside for calls under way.
//!
//! Who has no limit has no row, and pays nothing.

use crate::table::Table;
use sea_orm::entity::prelude::*;
use std::sync::LazyLock;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "budgets")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Uuid,
    pub session_id: Uuid,
    /// `session` or `agent`.
    pub scope: String,
    /// The session's or the agent's id.
    pub scope_id: Uuid,
    /// What is limited, see `instar_core::budget::Kind`.
    pub kind: String,
    /// The limit itself.
    pub cap: i64,
    pub used: i64,
    pub reserved: i64,
    /// Of a clock: since when it runs; `used` is what it had counted by then.
    pub since: Option<DateTimeUtc>,
    pub version: i64,
}

impl ActiveModelBehavior for ActiveModel {}

pub static TABLE: LazyLock<Table> = LazyLock::new(|| Table::of::<Entity>(&[], None).metered());
