//! A task of a plan: what is to be done, by whom, after what, and what came of it.

use crate::table::Table;
use instar_core::plan::Named;
use sea_orm::entity::prelude::*;
use std::sync::LazyLock;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "tasks")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Uuid,
    pub session_id: Uuid,
    pub plan_id: Uuid,
    /// The id that the plan gives it; of those of an iteration that are not cancelled no two have the same.
    pub key: String,
    pub title: String,
    pub description: String,
    /// critical, high, medium, low.
    pub priority: String,
    /// Of the agent that may do it.
    pub role: String,
    /// Ids of the tasks it waits for.
    #[sea_orm(column_type = "JsonBinary")]
    pub deps: Json,
    #[sea_orm(column_type = "JsonBinary")]
    pub success_criteria: Json,
    pub status: String,
    pub epoch: i64,
    pub version: i64,
    /// From 1.
    pub attempt: i64,
    pub attempts_max: i64,
    /// Of the plan, when it was added.
    pub iteration: i64,
    /// How often its owner was asked once more for its result.
    pub asked: i64,
    pub owner_id: Option<Uuid>,
    /// The turn in which its owner works on it.
    pub turn_id: Option<Uuid>,
    #[sea_orm(column_type = "JsonBinary", nullable)]
    pub result: Option<Json>,
    /// Ids of runes that bear the result out.
    #[sea_orm(column_type = "JsonBinary")]
    pub evidence: Json,
    /// Why it failed last, or what it waits for.
    pub error: Option<String>,
    pub assigned_at: Option<DateTimeUtc>,
    pub started_at: Option<DateTimeUtc>,
    pub created_at: DateTimeUtc,
    pub updated_at: DateTimeUtc,
    pub ended_at: Option<DateTimeUtc>,
}

impl Model {
    pub fn named(&self) -> Named<'_> {
        Named { key: &self.key, iteration: self.iteration }
    }

    /// What it is called among the tasks of its plan.
    pub fn name_among<'a>(&'a self, all: impl IntoIterator<Item = &'a Model>) -> String {
        self.named().among(all.into_iter().filter(|task| task.status != "cancelled").map(Model::named))
    }

    pub fn deps(&self) -> Vec<Uuid> {
        let ids = self.deps.as_array().map(Vec::as_slice).unwrap_or_default();
        ids.iter().filter_map(|id| id.as_str().and_then(|text| Uuid::parse_str(text).ok())).collect()
    }

    pub fn criteria(&self) -> Vec<&str> {
        let all = self.success_criteria.as_array().map(Vec::as_slice).unwrap_or_default();
        all.iter().filter_map(Json::as_str).collect()
    }
}

impl ActiveModelBehavior for ActiveModel {}

pub static TABLE: LazyLock<Table> = LazyLock::new(|| Table::of::<Entity>(&[("task", "status")], None));
