//! A turn that works on a plan. Its id is the turn's.

use crate::table::Table;
use sea_orm::entity::prelude::*;
use std::sync::LazyLock;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "plan_turns")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Uuid,
    pub session_id: Uuid,
    pub plan_id: Uuid,
    pub task_id: Option<Uuid>,
    /// plan, task, report, critique.
    pub purpose: String,
    pub created_at: DateTimeUtc,
    pub version: i64,
}

impl ActiveModelBehavior for ActiveModel {}

pub static TABLE: LazyLock<Table> = LazyLock::new(|| Table::of::<Entity>(&[], None));
