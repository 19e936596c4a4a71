//! The next step of a plan, from its rows alone.

use super::scene::{Scene, is_held, limits};
use chrono::Duration;
use instar_core::decide::{self, Ended, Tasks, Tries};
use instar_core::plan::Priority;
use instar_store::entity::{agent, task, turn};
use std::collections::HashMap;
use uuid::Uuid;

/// How often somebody is given a turn for the same thing before it is given up: a draft, a verdict.
const ASKED_MAX: i64 = 3;
/// How often the owner of a task is asked once more for its result.
const REPORTS_MAX: i64 = 2;
/// What a turn says that says nothing.
const SILENCE: &str = "(no response)";

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// An event of the plan itself, and why.
    Raise(&'static str, String),
    /// The orchestrator gets a turn.
    Plan,
    /// The critic gets a turn.
    Review,
    /// An event of a task, and why.
    Move(Uuid, &'static str, String),
    /// Its owner said what came of it, without saying so.
    Finish(Uuid, String),
    /// Its owner is asked once more what came of it.
    Ask(Uuid, String),
    /// These can run, the first one first.
    Assign(Vec<Uuid>),
}

/// `None`: it waits for a turn, for an agent or for a person.
pub(super) fn next(scene: &Scene, start_timeout: Duration) -> Option<Step> {
    let plan = &scene.plan;
    if scene.session.status != "active" {
        return None;
    }
    if let Some(spent) = limits(plan).spent(&scene.used)
        && plan.status != "goal_received"
    {
        let why = format!("budget: {} of {} {} are used", spent.used, spent.limit, spent.kind);
        return Some(Step::Raise("budget_exhausted", why));
    }
    match plan.status.as_str() {
        "goal_received" => Some(Step::Plan),
        "planning" if plan.drafted => (plan.autonomy == "auto").then(|| Step::Raise("auto_start", "policy".into())),
        "planning" if !scene.is_over(plan.turn_id) => None,
        "planning" if plan.asked >= ASKED_MAX => {
            let why = format!("no plan: {ASKED_MAX} turns ended without a proposal that could be taken");
            Some(Step::Raise("user_cancel", why))
        }
        "planning" => Some(Step::Plan),
        "executing" => executing(scene, start_timeout),
        "reviewing" => reviewing(scene),
        "blocked" => blocked(scene),
        _ => None,
    }
}

fn executing(scene: &Scene, start_timeout: Duration) -> Option<Step> {
    for task in scene.tasks.iter().filter(|task| is_held(task)) {
        let owner = task.owner_id.and_then(|id| scene.owners.get(&id));
        let turn = task.turn_id.and_then(|id| scene.turns.get(&id));
        let step = match task.status.as_str() {
            _ if !owner.is_some_and(takes_work) => {
                let tries = Tries { made: number(task.attempt), max: number(task.attempts_max) };
                let event = decide::task_owner_lost(task.status == "running", tries).token();
                Some(Step::Move(task.id, event, "its agent ended, was stopped or failed".into()))
            }
            "assigned" => late(scene, task, start_timeout),
            _ => turn.filter(|turn| turn.ended_at.is_some()).map(|turn| over(task, turn)),
        };
        if step.is_some() {
            return step;
        }
    }
    if let Some(again) = scene.tasks.iter().find(|task| may_retry(task)) {
        return Some(Step::Move(again.id, "retry", "it failed and has attempts left".into()));
    }
    let mut runnable: Vec<&task::Model> = scene.tasks.iter().filter(|task| is_runnable(scene, task)).collect();
    if !runnable.is_empty() {
        runnable.sort_by_key(|task| (Priority::of(&task.priority), task.id));
        return Some(Step::Assign(runnable.iter().map(|task| task.id).collect()));
    }
    // Whoever moved the last task has said what follows; this is for what nobody said.
    let ended = decide::plan_progress(count(scene), Ended::Cancelled, false)?;
    Some(Step::Raise(ended.token(), "nothing is left to do".into()))
}

fn number(n: i64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

pub(super) fn takes_work(agent: &agent::Model) -> bool {
    !["terminated", "failed"].contains(&agent.lifecycle.as_str()) && ["idle", "running"].contains(&agent.drive.as_str())
}

fn may_retry(task: &task::Model) -> bool {
    task.status == "failed" && task.attempt < task.attempts_max
}

fn is_runnable(scene: &Scene, task: &task::Model) -> bool {
    let done = |dep: Uuid| scene.task(dep).is_some_and(|dep| dep.status == "completed");
    task.status == "pending" && task.deps().into_iter().all(done)
}

fn count(scene: &Scene) -> Tasks {
    let mut tasks = Tasks::default();
    let mut by_status: HashMap<&str, u32> = HashMap::new();
    for task in &scene.tasks {
        *by_status.entry(task.status.as_str()).or_default() += 1;
    }
    let of = |status: &str| by_status.get(status).copied().unwrap_or_default();
    tasks.runnable = scene.tasks.iter().filter(|task| is_runnable(scene, task)).count() as u32;
    tasks.waiting = of("pending") - tasks.runnable;
    (tasks.assigned, tasks.running, tasks.blocked) = (of("assigned"), of("running"), of("blocked"));
    (tasks.completed, tasks.failed, tasks.cancelled) = (of("completed"), of("failed"), of("cancelled"));
    tasks
}

/// The turn of an assigned task has not begun.
fn late(scene: &Scene, task: &task::Model, start_timeout: Duration) -> Option<Step> {
    let why = if scene.is_over(task.turn_id) {
        "its turn ended before it began"
    } else if task.assigned_at.is_some_and(|at| scene.now - at > start_timeout) {
        "its agent did not begin in time"
    } else {
        return None;
    };
    Some(Step::Move(task.id, "start_timeout", why.into()))
}

/// The turn of a running task is over, and the task is not.
fn over(task: &task::Model, turn: &turn::Model) -> Step {
    let said = turn.output.as_deref().map(str::trim).filter(|text| !text.is_empty() && *text != SILENCE);
    match turn.status.as_str() {
        "error" => {
            let error = turn.error.as_ref().and_then(|error| error["message"].as_str()).unwrap_or("its turn failed");
            Step::Move(task.id, "fail", error.to_owned())
        }
        "completed" if task.criteria().is_empty() && said.is_some() => {
            Step::Finish(task.id, said.unwrap_or_default().to_owned())
        }
        _ if task.asked >= REPORTS_MAX => {
            Step::Move(task.id, "fail", "its agent ended its turns without saying what came of it".into())
        }
        "interrupted" => Step::Ask(task.id, "Your turn was interrupted.".into()),
        _ => Step::Ask(task.id, "You ended your turn without saying what came of the task.".into()),
    }
}

fn reviewing(scene: &Scene) -> Option<Step> {
    let plan = &scene.plan;
    if !scene.is_over(plan.turn_id) {
        return None;
    }
    if plan.asked >= ASKED_MAX {
        let why = format!("no verdict: {ASKED_MAX} turns of the critic ended without one");
        return Some(Step::Raise("user_cancel", why));
    }
    Some(Step::Review)
}

fn blocked(scene: &Scene) -> Option<Step> {
    if let Some(again) = scene.tasks.iter().find(|task| may_retry(task)) {
        return Some(Step::Move(again.id, "retry", "it failed, others wait for it, and it has attempts left".into()));
    }
    let lost = |dep: &Uuid| scene.task(*dep).is_none_or(|dep| ["failed", "cancelled"].contains(&dep.status.as_str()));
    let mut blocked = scene.tasks.iter().filter(|task| task.status == "blocked");
    // One that waits for no lost task waits for a person.
    blocked.all(|task| task.deps().iter().any(lost)).then(|| {
        let failed =
            scene.tasks.iter().filter(|task| task.status == "failed").map(|task| task.name_among(&scene.tasks));
        Step::Raise("unresolvable", format!("unresolvable: {} failed for good", failed.collect::<Vec<_>>().join(", ")))
    })
}

#[cfg(test)]
mod tests;
