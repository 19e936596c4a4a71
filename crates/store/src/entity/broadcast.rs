//! What a person said to all agents of a session; who got it is in their messages.

use crate::table::Table;
use sea_orm::entity::prelude::*;
use std::sync::LazyLock;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "broadcasts")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Uuid,
    pub session_id: Uuid,
    pub content: String,
    /// Whether agents that are made later get it as a message.
    pub standing: bool,
    /// From when on nobody is told of it any more; none: never.
    pub expires_at: Option<DateTimeUtc>,
    /// The person who sent it.
    pub sender: String,
    pub created_at: DateTimeUtc,
    pub version: i64,
}

impl ActiveModelBehavior for ActiveModel {}

pub static TABLE: LazyLock<Table> = LazyLock::new(|| Table::of::<Entity>(&[], None));
