//! A plan that carries out a hop: what it is told, and what it hands over to the hop in the end.

use crate::asset::{AssetError, Fresh, schema_of};
use crate::flow::{NewPlan, plan_row};
use crate::hub::Hub;
use crate::snapshot::{Missions, asset_ids};
use chrono::{DateTime, Utc};
use instar_core::asset::Schema;
use instar_core::asset::content::Content;
use instar_core::asset::lineage::Version;
use instar_core::id::{AssetId, HopId, PlanId};
use instar_store::entity::{asset, hop, plan, session, task};
use serde_json::{Value, json};
use std::fmt::Write;
use uuid::Uuid;

/// What a session may say in `config.plans` of the plans that its hops make.
pub const HOP_TERMS: [&str; 9] = [
    "rubric",
    "max_iterations",
    "attempts_max",
    "stop_on_first_failure",
    "workers_max",
    "model",
    "tools",
    "instructions",
    BUDGET,
];
const BUDGET: &str = "budget";

/// The plan that an execution of the hop begins with. Whoever let the hop run has let its plan run.
pub(crate) fn row(rows: &Missions, session: &session::Model, hop: &hop::Model, at: DateTime<Utc>) -> plan::Model {
    let given = &session.config["plans"];
    let terms = HOP_TERMS.iter().filter(|name| **name != BUDGET && !given[**name].is_null());
    let config = Value::Object(terms.map(|name| ((*name).to_owned(), given[*name].clone())).collect());
    let budget = if given[BUDGET].is_object() { given[BUDGET].clone() } else { json!({}) };
    let new = NewPlan {
        goal: goal(rows, hop),
        autonomy: "auto".into(),
        config,
        budget,
        hop: Some(HopId::from(hop.id)),
        orchestrator: None,
    };
    plan_row(session.id, PlanId::from(Uuid::now_v7()), new, at)
}

/// The hop in words: what it is for, what there is to work with, what it has to make.
fn goal(rows: &Missions, hop: &hop::Model) -> String {
    let mut text = hop.goal.clone().unwrap_or_else(|| hop.name.clone());
    if let Some(more) = &hop.description {
        let _ = write!(text, "\n{more}");
    }
    let criteria = hop.success_criteria.as_array().into_iter().flatten().filter_map(Value::as_str);
    for (i, one) in criteria.enumerate() {
        let _ = write!(text, "{}\n- {one}", if i == 0 { "\nIt is a success if:" } else { "" });
    }
    let assets = |list: &Value| asset_ids(list).into_iter().filter_map(|id| rows.assets.get(&id)).collect::<Vec<_>>();
    for (i, one) in assets(&hop.inputs).into_iter().enumerate() {
        let head = if i == 0 { "\nWhat there is to work with:" } else { "" };
        let said = one.summary.as_deref().unwrap_or("(nothing)");
        let _ = write!(text, "{head}\n- {} ({}, {}): {said}", one.name, AssetId::from(one.id), schema_of(one).words());
    }
    for one in assets(&hop.outputs) {
        let about = one.description.as_deref().map(|about| format!(", {about}")).unwrap_or_default();
        let kind = schema_of(one).words();
        let _ = write!(text, "\nIt has to make {} ({kind}{about}): what the last task hands in.", one.name);
    }
    text
}

/// What came of a plan, held against what its hop has to make.
pub enum Delivery {
    /// It carries out no hop.
    None,
    Fits(Vec<Fresh>),
    /// Why not.
    Unfit(String),
}

impl Hub {
    /// The values of the hop's outputs, if what the plan made can be them: the result of its last task, else the words
    /// of its critic.
    pub async fn delivery(
        &self,
        plan: &plan::Model,
        tasks: &[task::Model],
        summary: &str,
    ) -> Result<Delivery, AssetError> {
        let Some(hop) = plan.hop_id else { return Ok(Delivery::None) };
        let Some(hop) = self.store().hop(HopId::from(hop)).await? else { return Ok(Delivery::None) };
        let mut made = Vec::new();
        for id in asset_ids(&hop.outputs) {
            let Some(asset) = self.store().asset(AssetId::from(id)).await? else { continue };
            let schema = schema_of(&asset);
            let Some(value) = value(&schema, tasks, summary) else { return Ok(Delivery::Unfit(misfit(&asset))) };
            match self.keep(AssetId::from(id), &schema, Content::of(&schema, &value)).await {
                Ok(fresh) => made.push(fresh.made_from(pinned(&hop))),
                Err(error) if error.passes() => return Err(error),
                Err(error) => return Ok(Delivery::Unfit(format!("{} cannot be kept: {error}", asset.name))),
            }
        }
        Ok(Delivery::Fits(made))
    }
}

fn misfit(asset: &asset::Model) -> String {
    let kind = schema_of(asset).words();
    format!(
        "the plan met its goal, but nothing that came of it can be {}, which is {kind}: retry the hop, or provide the \
         value and complete it by hand",
        asset.name
    )
}

/// The versions of its inputs that the hop was begun with.
fn pinned(hop: &hop::Model) -> Vec<Version> {
    let entries = hop.input_versions.as_ref().and_then(Value::as_object).into_iter().flatten();
    let read =
        |(id, number): (&String, &Value)| Some(Version { asset_id: id.parse().ok()?, version: number.as_i64()? });
    entries.filter_map(read).filter(|version| version.version > 0).collect()
}

/// The first that fits. A model often hands a value in as the text of it.
fn value(schema: &Schema, tasks: &[task::Model], summary: &str) -> Option<Value> {
    let last = last(tasks).and_then(|task| task.result.clone());
    let read = last.as_ref().and_then(Value::as_str).and_then(|text| serde_json::from_str(text).ok());
    [last, read, Some(json!(summary))].into_iter().flatten().find(|value| schema.check(value).is_ok())
}

/// The completed task that no other one builds on, if there is one only.
fn last(tasks: &[task::Model]) -> Option<&task::Model> {
    let done: Vec<&task::Model> = tasks.iter().filter(|task| task.status == "completed").collect();
    let mut ends = done.iter().filter(|task| !done.iter().any(|other| other.deps().contains(&task.id)));
    ends.next().filter(|_| ends.next().is_none()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use instar_core::asset::Type;

    fn task(n: u128, deps: &[u128], status: &str, result: Value) -> task::Model {
        let at = Utc::now();
        task::Model {
            id: Uuid::from_u128(n),
            session_id: Uuid::nil(),
            plan_id: Uuid::nil(),
            key: n.to_string(),
            title: String::new(),
            description: String::new(),
            priority: "medium".into(),
            role: "worker".into(),
            deps: json!(deps.iter().map(|n| Uuid::from_u128(*n)).collect::<Vec<_>>()),
            success_criteria: json!([]),
            status: status.into(),
            epoch: 0,
            version: 0,
            attempt: 1,
            attempts_max: 1,
            iteration: 1,
            asked: 0,
            owner_id: None,
            turn_id: None,
            result: Some(result),
            evidence: json!([]),
            error: None,
            assigned_at: None,
            started_at: None,
            created_at: at,
            updated_at: at,
            ended_at: None,
        }
    }

    #[test]
    fn the_result_of_the_last_task_goes_before_the_words_of_the_critic() {
        let chain = [task(1, &[], "completed", json!("planks")), task(2, &[1], "completed", json!("a boat"))];
        assert_eq!(value(&Schema::new(Type::String), &chain, "fine"), Some(json!("a boat")));
        let two = [task(1, &[], "completed", json!("oars")), task(2, &[], "completed", json!("a boat"))];
        assert_eq!(value(&Schema::new(Type::String), &two, "fine"), Some(json!("fine")), "neither is the last");
        let lost = [task(1, &[], "completed", json!("oars")), task(2, &[1], "failed", json!("a boat"))];
        assert_eq!(value(&Schema::new(Type::String), &lost, "fine"), Some(json!("oars")));
    }

    #[test]
    fn a_value_may_be_handed_in_as_its_text_and_must_fit() {
        let text = [task(1, &[], "completed", json!("{\"depth\": 3}"))];
        assert_eq!(value(&Schema::new(Type::Object), &text, "fine"), Some(json!({"depth": 3})));
        let words = [task(1, &[], "completed", json!("deep"))];
        assert_eq!(value(&Schema::new(Type::Number), &words, "fine"), None);
    }
}
