//! A hop: one leg of a mission, from its plan to its result.

use crate::table::Table;
use sea_orm::entity::prelude::*;
use std::sync::LazyLock;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "hops")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Uuid,
    pub session_id: Uuid,
    pub mission_id: Uuid,
    /// Its place in the mission, from 1; a number is given once.
    pub sequence: i64,
    pub author: String,
    /// What carries it out: steps, plan.
    pub executor: String,
    pub traceparent: Option<String>,
    pub created_at: DateTimeUtc,
    pub status: String,
    pub epoch: i64,
    pub version: i64,
    /// Of plan or implementation, whichever is being decided on: what an approval names.
    pub revision: i64,
    pub name: String,
    pub description: Option<String>,
    pub goal: Option<String>,
    #[sea_orm(column_type = "JsonBinary")]
    pub success_criteria: Json,
    pub rationale: Option<String>,
    #[sea_orm(column_type = "JsonBinary", nullable)]
    pub alternatives: Option<Json>,
    /// Ids of the assets that it reads.
    #[sea_orm(column_type = "JsonBinary")]
    pub inputs: Json,
    /// Ids of the assets that it makes.
    #[sea_orm(column_type = "JsonBinary")]
    pub outputs: Json,
    pub is_final: bool,
    pub plan_accepted_once: bool,
    pub archived: bool,
    /// Executions begun.
    pub attempts: i64,
    /// How often its implementation was found invalid since it was last planned.
    pub repairs: i64,
    /// While it is FAILED: plan, resolve, impl, execute.
    pub phase: Option<String>,
    /// While it is FAILED: recoverable, fatal.
    pub failure_class: Option<String>,
    #[sea_orm(column_type = "JsonBinary", nullable)]
    pub error: Option<Json>,
    /// What a person wants changed, until the agent has answered it.
    pub feedback: Option<String>,
    /// Asset id to the version that its execution reads.
    #[sea_orm(column_type = "JsonBinary", nullable)]
    pub input_versions: Option<Json>,
    #[sea_orm(column_type = "JsonBinary", nullable)]
    pub result: Option<Json>,
    pub updated_at: DateTimeUtc,
    pub ended_at: Option<DateTimeUtc>,
}

impl ActiveModelBehavior for ActiveModel {}

pub static TABLE: LazyLock<Table> = LazyLock::new(|| Table::of::<Entity>(&[("hop", "status")], None));
