//! A mission: the contract with a person, and what it waits for.

use crate::table::Table;
use sea_orm::entity::prelude::*;
use std::sync::LazyLock;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "missions")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Uuid,
    pub session_id: Uuid,
    /// Who plans and implements its hops.
    pub agent_id: Option<Uuid>,
    /// Key or agent that proposed it.
    pub author: String,
    /// Gate to policy: manual, timed or auto.
    #[sea_orm(column_type = "JsonBinary")]
    pub gates: Json,
    /// After this long a timed gate asks for attention.
    pub gate_timeout_ms: Option<i64>,
    /// attention, fail.
    pub on_hop_failure: String,
    pub hop_attempts_max: i64,
    /// Outlives its session's close.
    pub detached: bool,
    /// The instance that this one starts over.
    pub reset_of: Option<Uuid>,
    pub traceparent: Option<String>,
    pub created_at: DateTimeUtc,
    pub status: String,
    pub epoch: i64,
    pub version: i64,
    /// Of the proposal, from 1: what an approval names.
    pub revision: i64,
    pub name: String,
    pub description: Option<String>,
    pub goal: String,
    #[sea_orm(column_type = "JsonBinary")]
    pub success_criteria: Json,
    pub scope: Option<String>,
    #[sea_orm(column_type = "JsonBinary", nullable)]
    pub metadata: Option<Json>,
    pub current_hop_id: Option<Uuid>,
    /// The highest number that a hop of it had.
    pub hops: i64,
    /// Who has to act next: person, agent, policy, steps, nobody.
    pub awaits: String,
    /// How often its agent was asked for what it has to do now.
    pub asked: i64,
    /// The turn in which it was asked last.
    pub asked_turn_id: Option<Uuid>,
    /// What the agent wants to know before it goes on.
    #[sea_orm(column_type = "JsonBinary", nullable)]
    pub question: Option<Json>,
    /// What a person wants changed, until the agent has answered it.
    pub feedback: Option<String>,
    /// Why a person should look.
    #[sea_orm(column_type = "JsonBinary", nullable)]
    pub attention: Option<Json>,
    /// When a person is reminded of the gate that is closed.
    pub gate_due_at: Option<DateTimeUtc>,
    #[sea_orm(column_type = "JsonBinary", nullable)]
    pub failure: Option<Json>,
    /// The instance that starts this one over.
    pub reset_to: Option<Uuid>,
    pub updated_at: DateTimeUtc,
    /// While it is neither waiting for approval nor in progress.
    pub ended_at: Option<DateTimeUtc>,
}

impl ActiveModelBehavior for ActiveModel {}

pub static TABLE: LazyLock<Table> = LazyLock::new(|| Table::of::<Entity>(&[("mission", "status")], None));
