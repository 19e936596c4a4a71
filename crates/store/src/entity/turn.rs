//! A turn: while it waits, this row is all there is of it.

use crate::table::Table;
use sea_orm::entity::prelude::*;
use std::sync::LazyLock;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "turns")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Uuid,
    pub session_id: Uuid,
    pub agent_id: Uuid,
    pub status: String,
    pub epoch: i64,
    pub version: i64,
    pub cause: String,
    pub attempts: i64,
    /// Provider calls made.
    pub iterations: i64,
    /// Tool calls without a result; at zero a waiting turn may be claimed.
    pub open_calls: i64,
    #[sea_orm(column_type = "JsonBinary")]
    pub input: Json,
    pub output: Option<String>,
    /// Why a completed turn is over: `stop`, or what cut its answer short.
    pub finish_reason: Option<String>,
    #[sea_orm(column_type = "JsonBinary")]
    pub usage: Json,
    /// What is set aside of budgets for the provider call under way; nothing where nothing is limited.
    #[sea_orm(column_type = "JsonBinary", nullable)]
    pub reserved: Option<Json>,
    /// A control that is recorded, for whoever has the turn.
    #[sea_orm(column_type = "JsonBinary", nullable)]
    pub control: Option<Json>,
    #[sea_orm(column_type = "JsonBinary", nullable)]
    pub error: Option<Json>,
    pub deadline_at: Option<DateTimeUtc>,
    pub traceparent: Option<String>,
    /// The span in which somebody last worked on it, where spans are kept.
    pub segment: Option<String>,
    pub created_at: DateTimeUtc,
    pub updated_at: DateTimeUtc,
    pub ended_at: Option<DateTimeUtc>,
}

impl ActiveModelBehavior for ActiveModel {}

pub static TABLE: LazyLock<Table> = LazyLock::new(|| Table::of::<Entity>(&[("turn", "status")], Some("open_calls")));
