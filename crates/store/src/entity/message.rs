//! What was said to or by an agent; ids are in order of time.

use crate::table::Table;
use sea_orm::entity::prelude::*;
use std::sync::LazyLock;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "messages")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Uuid,
    pub session_id: Uuid,
    pub agent_id: Uuid,
    /// The turn that took it up; none while it waits in the queue.
    pub turn_id: Option<Uuid>,
    pub version: i64,
    /// system, user, assistant, tool.
    pub role: String,
    /// direct, broadcast, system, agent, model, tool, summary.
    pub source: String,
    /// queue, steer, interrupt.
    pub mode: String,
    pub content: String,
    /// Typed tool calls or results, reasoning, sender.
    #[sea_orm(column_type = "JsonBinary", nullable)]
    pub data: Option<Json>,
    pub created_at: DateTimeUtc,
}

impl ActiveModelBehavior for ActiveModel {}

pub static TABLE: LazyLock<Table> = LazyLock::new(|| Table::of::<Entity>(&[], None));
