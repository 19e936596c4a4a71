//! A tool call, its approval and its one result.

use crate::table::Table;
use sea_orm::entity::prelude::*;
use std::sync::LazyLock;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "tool_calls")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Uuid,
    pub session_id: Uuid,
    pub agent_id: Uuid,
    pub turn_id: Option<Uuid>,
    pub step_id: Option<Uuid>,
    pub status: String,
    /// Fencing epoch: grows with every runner that claims it.
    pub epoch: i64,
    pub version: i64,
    /// Runner that has it.
    pub owner: Option<Uuid>,
    /// Which provider call of the turn asked for it, from 1.
    pub iteration: i64,
    /// Its place among those of the same answer.
    pub position: i64,
    pub name: String,
    /// The id that the provider gave it.
    pub provider_call_id: Option<String>,
    #[sea_orm(column_type = "JsonBinary")]
    pub arguments: Json,
    /// Of tool, canonical arguments and tool definition: what an approval is bound to.
    pub digest: String,
    /// read_only, idempotent, at_most_once.
    pub effect: String,
    pub attempts: i64,
    #[sea_orm(column_type = "JsonBinary", nullable)]
    pub approval: Option<Json>,
    pub result_status: Option<String>,
    #[sea_orm(column_type = "JsonBinary", nullable)]
    pub result: Option<Json>,
    /// The agents or the account it waits for while nobody runs it, and until when; it stays when that has come.
    #[sea_orm(column_type = "JsonBinary", nullable)]
    pub waits_for: Option<Json>,
    pub expires_at: Option<DateTimeUtc>,
    pub traceparent: Option<String>,
    pub created_at: DateTimeUtc,
    pub updated_at: DateTimeUtc,
    pub ended_at: Option<DateTimeUtc>,
}

impl ActiveModelBehavior for ActiveModel {}

pub static TABLE: LazyLock<Table> = LazyLock::new(|| Table::of::<Entity>(&[("tool_call", "status")], None));
