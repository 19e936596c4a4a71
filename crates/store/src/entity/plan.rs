//! A plan: a goal, and how far agents have come with it.

use crate::table::Table;
use sea_orm::entity::prelude::*;
use std::sync::LazyLock;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "plans")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Uuid,
    pub session_id: Uuid,
    /// The hop that it carries out.
    pub hop_id: Option<Uuid>,
    pub goal: String,
    /// manual, auto: who lets a draft run.
    pub autonomy: String,
    /// Rubric, limits of the loop, what agents are made of that it needs.
    #[sea_orm(column_type = "JsonBinary")]
    pub config: Json,
    #[sea_orm(column_type = "JsonBinary")]
    pub budget: Json,
    pub status: String,
    pub epoch: i64,
    pub version: i64,
    /// Rounds of work and review, from 1.
    pub iteration: i64,
    /// Drafts made so far.
    pub revision: i64,
    /// A draft stands that nobody has let run yet.
    pub drafted: bool,
    /// Turns in a row that were to bring a draft or a verdict and did not.
    pub asked: i64,
    pub orchestrator_id: Option<Uuid>,
    pub critic_id: Option<Uuid>,
    /// The turn in which it is being made or judged.
    pub turn_id: Option<Uuid>,
    /// Why a person wanted another draft, or the critic another plan.
    pub feedback: Option<String>,
    /// Why it stopped, or what it waits for.
    pub reason: Option<String>,
    pub summary: Option<String>,
    pub created_at: DateTimeUtc,
    pub updated_at: DateTimeUtc,
    pub ended_at: Option<DateTimeUtc>,
}

impl ActiveModelBehavior for ActiveModel {}

pub static TABLE: LazyLock<Table> = LazyLock::new(|| Table::of::<Entity>(&[("plan", "status")], None));
