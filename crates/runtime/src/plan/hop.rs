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
    if !asset_ids(&hop.inputs).is_empty() {
        text.push_str("\nThis is only the beginning of what is long: read_asset gives all of it, by name.");
    }
    for one in assets(&hop.outputs) {
        let about = one.description.as_deref().map(|about| format!(", {about}")).unwrap_or_default();
        let kind = schema_of(one).words();
        let _ = write!(text, "\nIt has to make {} ({kind}{about}): what the last task hands in.", one.name);
    }
    if !asset_ids(&hop.outputs).is_empty() {
        text.push_str("\nOne task has to be the last, and to wait for all that it puts together.");
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
    /// The values of the hop's outputs, if what the plan made can be them: the result of its last task. What the critic
    /// says of the work is never the work.
    pub async fn delivery(&self, plan: &plan::Model, tasks: &[task::Model]) -> Result<Delivery, AssetError> {
        let Some(hop) = plan.hop_id else { return Ok(Delivery::None) };
        let Some(hop) = self.store().hop(HopId::from(hop)).await? else { return Ok(Delivery::None) };
        let mut made = Vec::new();
        for id in asset_ids(&hop.outputs) {
            let Some(asset) = self.store().asset(AssetId::from(id)).await? else { continue };
            let schema = schema_of(&asset);
            let last = match last(tasks) {
                Ok(last) => last,
                Err(why) => return Ok(Delivery::Unfit(format!("{why}: {}", what_to_do(&asset)))),
            };
            let Some(value) = value(&schema, last) else { return Ok(Delivery::Unfit(misfit(&asset))) };
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
    let (name, kind) = (&asset.name, schema_of(asset).words());
    format!("the plan met its goal, but nothing that came of it can be {name}, which is {kind}: {}", what_to_do(asset))
}

fn what_to_do(asset: &asset::Model) -> String {
    format!("retry the hop, or provide the value of {} and complete the hop by hand", asset.name)
}

/// The versions of its inputs that the hop was begun with.
fn pinned(hop: &hop::Model) -> Vec<Version> {
    let entries = hop.input_versions.as_ref().and_then(Value::as_object).into_iter().flatten();
    let read =
        |(id, number): (&String, &Value)| Some(Version { asset_id: id.parse().ok()?, version: number.as_i64()? });
    entries.filter_map(read).filter(|version| version.version > 0).collect()
}

/// What the task handed in, if it fits. A model often hands a value in as the text of it.
fn value(schema: &Schema, last: &task::Model) -> Option<Value> {
    let made = last.result.clone();
    let read = made.as_ref().and_then(Value::as_str).and_then(|text| serde_json::from_str(text).ok());
    [made, read].into_iter().flatten().find(|value| schema.check(value).is_ok())
}

/// The task that no other one builds on. Where a plan was made anew there may be several: then that of the newest
/// round.
fn last(tasks: &[task::Model]) -> Result<&task::Model, String> {
    let live: Vec<&task::Model> = tasks.iter().filter(|task| task.status != "cancelled").collect();
    let is_end = |task: &&&task::Model| !live.iter().any(|other| other.deps().contains(&task.id));
    let mut ends: Vec<&task::Model> = live.iter().filter(is_end).copied().collect();
    let newest = ends.iter().map(|task| task.iteration).max();
    if ends.len() > 1 {
        ends.retain(|task| Some(task.iteration) == newest);
    }
    match ends[..] {
        [last] if last.status == "completed" => Ok(last),
        [last] => {
            Err(format!("the plan met its goal, but its last task {} is {}", last.name_among(tasks), last.status))
        }
        _ => {
            let names: Vec<String> = ends.iter().map(|task| task.name_among(tasks)).collect();
            Err(format!("the plan met its goal, but of its tasks none is the last alone ({})", names.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use instar_core::asset::Type;

    fn task(n: u128, deps: &[u128], status: &str, result: Value) -> task::Model {
        let at = instar_store::clock::now();
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

    fn delivered(kind: Type, tasks: &[task::Model]) -> Option<Value> {
        last(tasks).ok().and_then(|last| value(&Schema::new(kind), last))
    }

    #[test]
    fn only_the_result_of_the_last_task_is_what_a_plan_made() {
        let chain = [task(1, &[], "completed", json!("planks")), task(2, &[1], "completed", json!("a boat"))];
        assert_eq!(delivered(Type::String, &chain), Some(json!("a boat")));
        let two = [task(1, &[], "completed", json!("oars")), task(2, &[], "completed", json!("a boat"))];
        assert!(last(&two).is_err_and(|why| why.contains("(1, 2)")), "neither is the last");
        let lost = [task(1, &[], "completed", json!("oars")), task(2, &[1], "failed", json!("a boat"))];
        assert!(last(&lost).is_err_and(|why| why.contains("2 is failed")), "what came before it is not the boat");
    }

    #[test]
    fn a_round_after_another_has_its_own_last_task() {
        let mut again = [task(1, &[], "completed", json!("a raft")), task(2, &[], "completed", json!("a boat"))];
        again[1].iteration = 2;
        assert_eq!(delivered(Type::String, &again), Some(json!("a boat")));
    }

    #[test]
    fn a_value_may_be_handed_in_as_its_text_and_must_fit() {
        let text = [task(1, &[], "completed", json!("{\"depth\": 3}"))];
        assert_eq!(delivered(Type::Object, &text), Some(json!({"depth": 3})));
        let words = [task(1, &[], "completed", json!("deep"))];
        assert_eq!(delivered(Type::Number, &words), None);
    }
}
