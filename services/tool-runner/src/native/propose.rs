//! `propose_plan`: the graph of a plan's tasks, from its orchestrator.

use super::{Caller, Failed, Plan, error_of, success};
use instar_core::id::TaskId;
use instar_core::plan::{ATTEMPTS_DEFAULT, Named, Node, Priority, check, meant};
use instar_runtime::flow::{self, NewTask};
use instar_runtime::plan::Purpose;
use instar_store::entity::{plan, task};
use serde::Deserialize;
use serde_json::json;
use std::collections::HashMap;
use uuid::Uuid;

#[derive(Deserialize)]
struct Proposed {
    tasks: Vec<Wanted>,
}

#[derive(Deserialize)]
struct Wanted {
    id: String,
    title: String,
    description: String,
    #[serde(default)]
    priority: Priority,
    #[serde(default)]
    deps: Vec<String>,
    role: Option<String>,
    #[serde(default)]
    success_criteria: Vec<String>,
}

pub(super) async fn plan(caller: &Caller<'_>) -> Result<Plan, Failed> {
    let proposed: Proposed = match serde_json::from_value(caller.call.arguments.clone()) {
        Ok(proposed) => proposed,
        Err(error) => return Ok(Plan::Answer(error_of(format!("the arguments cannot be read: {error}")))),
    };
    let (_, plan) = match caller.work(&[Purpose::Plan]).await? {
        Ok(found) => found,
        Err(why) => return Ok(Plan::Answer(why)),
    };
    if plan.status != "planning" || plan.turn_id != caller.call.turn_id {
        return Ok(Plan::Answer(error_of(format!("the plan is {}: it takes no draft from this turn", plan.status))));
    }
    let tasks = caller.runner.hub.store().tasks_of(plan.id.into()).await?;
    let stay: Vec<&task::Model> = tasks.iter().filter(|task| task.status == "completed").collect();
    let known: Vec<Named<'_>> = stay.iter().map(|task| task.named()).collect();
    let nodes: Vec<Node<'_>> = proposed.tasks.iter().map(|task| Node { key: &task.id, deps: &task.deps }).collect();
    if let Err(problems) = check(&nodes, plan.iteration, &known) {
        return Ok(Plan::Answer(error_of(format!("the plan was not taken: {}", problems.join("; ")))));
    }
    if let Some(why) = plan.hop_id.and_then(|_| several_ends(&proposed.tasks)) {
        return Ok(Plan::Answer(error_of(why)));
    }
    let new = named(&plan, proposed.tasks, &stay);
    let ids: HashMap<&str, TaskId> = new.iter().map(|task| (task.key.as_str(), task.id)).collect();
    let next = match plan.autonomy.as_str() {
        "auto" => "it is carried out now",
        _ => "a person decides on it",
    };
    let outcome = success(json!({"taken": true, "tasks": ids, "next": next}));
    let commit = flow::draft(caller.commit(), &plan, &tasks, &new)?;
    Ok(Plan::Commit(Box::new(commit.then(caller.result(&outcome)?)), outcome))
}

/// What a hop's plan makes is what its last task hands in, so that there has to be one.
fn several_ends(tasks: &[Wanted]) -> Option<String> {
    let is_end = |task: &&Wanted| !tasks.iter().any(|other| other.deps.contains(&task.id));
    let ends: Vec<&str> = tasks.iter().filter(is_end).map(|task| task.id.as_str()).collect();
    (ends.len() > 1).then(|| {
        format!(
            "the plan was not taken: {} are all last; let one task wait for the others, put together what they made \
             and hand in what the plan has to make",
            ends.join(", ")
        )
    })
}

/// The tasks with ids of their own, which their dependencies name: those of the draft first, then those that stay.
fn named(plan: &plan::Model, wanted: Vec<Wanted>, stay: &[&task::Model]) -> Vec<NewTask> {
    let attempts_max = plan.config["attempts_max"].as_i64().unwrap_or(i64::from(ATTEMPTS_DEFAULT));
    let known: Vec<Named<'_>> = stay.iter().map(|task| task.named()).collect();
    let ids: HashMap<String, TaskId> =
        wanted.iter().map(|task| (task.id.clone(), TaskId::from(Uuid::now_v7()))).collect();
    let earlier = |name: &str| meant(name, &known).and_then(|at| stay.get(at)).map(|task| TaskId::from(task.id));
    let task = |task: Wanted| NewTask {
        id: ids[&task.id],
        deps: task.deps.iter().filter_map(|dep| ids.get(dep).copied().or_else(|| earlier(dep))).collect(),
        key: task.id,
        title: task.title,
        description: task.description,
        priority: task.priority,
        role: task.role.unwrap_or_else(|| "worker".into()),
        success_criteria: task.success_criteria,
        attempts_max,
    };
    wanted.into_iter().map(task).collect()
}
