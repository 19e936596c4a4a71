//! Plans: goals that agents carry out, with their tasks and what a critic said.

use super::agent::{unknown_model, unknown_tools};
use super::command::Command;
use super::find;
use super::session::known_state;
use crate::call::{Call, Reply};
use crate::page::Page;
use crate::problem::{Problem, runes_of};
use crate::settle::{refuse, settle};
use crate::shape::{Kind, Shape, Wrong, may, must};
use axum::http::StatusCode;
use instar_core::id::{AgentId, HopId, PlanId, SessionId, TaskId, TurnId};
use instar_core::machine::{plan as machine, task as task_machine};
use instar_core::plan::{ATTEMPTS_DEFAULT, Category, ITERATIONS_DEFAULT, Priority, Severity};
use instar_runtime::Act;
use instar_runtime::flow::{self, NewPlan};
use instar_store::entity::{critique, plan, session, task};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use uuid::Uuid;

const GOAL_BYTES_MAX: usize = 32_000;
const WORDS_BYTES_MAX: usize = 16_000;
const LIMITS: [&str; 3] = ["max_tokens", "max_tool_calls", "max_wall_time_ms"];

pub(crate) static NEW_PLAN: Shape = Shape {
    name: "NewPlan",
    fields: &[
        must("goal", Kind::Text(GOAL_BYTES_MAX), "What is to be reached"),
        may("autonomy", Kind::Choice(&["manual", "auto"]), "Whether a draft waits for a person; manual"),
        may("budget", Kind::Budget, "What it may cost: max_tokens, max_tool_calls, max_wall_time_ms"),
        may("rubric", Kind::Prose(WORDS_BYTES_MAX), "What the critic goes by"),
        may("max_iterations", Kind::Integer, "Rounds of work and review, 1 to 100; 10"),
        may("attempts_max", Kind::Integer, "How often a task is tried, 1 to 20; 3"),
        may("stop_on_first_failure", Kind::Bool, "Whether a failed task stops the plan; false"),
        may("workers_max", Kind::Integer, "Agents of one role up to which more are made, 0 to 1000; plans.workers_max"),
        may("model", Kind::Text(200), "The model of agents that are made for it"),
        may("tools", Kind::Texts(500), "The tools of agents that are made for it"),
        may("instructions", Kind::Object, "The instructions of agents that are made for it, by role"),
        may("orchestrator_id", Kind::Id("agt"), "Who makes the plan; else one of that role, else a new one"),
    ],
};
const REVISION: &str = "What was shown to whoever decides; must still be the revision";
pub(crate) static APPROVE: Shape = Shape { name: "ApprovePlan", fields: &[may("revision", Kind::Integer, REVISION)] };
pub(crate) static REJECT: Shape = Shape {
    name: "RejectPlan",
    fields: &[
        must("feedback", Kind::Text(WORDS_BYTES_MAX), "What another plan needs"),
        may("revision", Kind::Integer, REVISION),
    ],
};
pub(crate) static CANCEL: Shape =
    Shape { name: "CancelPlan", fields: &[may("reason", Kind::Text(1_000), "Why, for the log")] };
pub(crate) static UNBLOCK: Shape = Shape {
    name: "UnblockPlan",
    fields: &[may("note", Kind::Text(WORDS_BYTES_MAX), "What the tasks waited for, in words to their agents")],
};
pub(crate) static TASK: Shape = Shape {
    name: "Task",
    fields: &[
        must("id", Kind::Id("tsk"), "The task's id"),
        must("key", Kind::Text(200), "The id that the plan gives it; tasks of another iteration may have the same"),
        must("title", Kind::Text(1_000), "In a few words"),
        must("description", Kind::Prose(usize::MAX), "What its agent is told"),
        must("status", Kind::State(&task_machine::TABLE), "Where its machine is"),
        must("priority", Kind::Choice(&Priority::TOKENS), "Which goes first of those that can run"),
        must("role", Kind::Text(100), "Of the agent that may do it"),
        must("deps", Kind::Texts(usize::MAX), "Tasks that must be completed before, by id"),
        must("success_criteria", Kind::Texts(usize::MAX), "When it is done"),
        must("attempt", Kind::Integer, "From 1"),
        must("attempts_max", Kind::Integer, "How often it is tried"),
        must("iteration", Kind::Integer, "Of the plan, when it was added"),
        may("owner_id", Kind::Id("agt"), "The agent that has it, or had it last"),
        may("turn_id", Kind::Id("trn"), "The turn in which it is or was done"),
        may("result", Kind::Any, "What came of it"),
        must("evidence", Kind::Texts(usize::MAX), "Runes that bear it out"),
        may("error", Kind::Prose(usize::MAX), "Why it failed last, or what it waits for"),
        must("created_at", Kind::Time, "When it was added"),
        may("started_at", Kind::Time, "When it was begun last"),
        may("ended_at", Kind::Time, "When it ended"),
    ],
};
pub(crate) static FINDING: Shape = Shape {
    name: "Finding",
    fields: &[
        must("severity", Kind::Choice(&Severity::TOKENS), "An error keeps the goal from being met"),
        must("category", Kind::Choice(&Category::TOKENS), "What it is about"),
        must("title", Kind::Text(1_000), "In a few words"),
        may("description", Kind::Prose(usize::MAX), "More of it"),
        may("task", Kind::Text(200), "The task it is about: its key, or iteration/key where a later one has the same"),
        may("file", Kind::Text(1_000), "Where"),
        may("line", Kind::Integer, "Where in it"),
        may("suggested_fix", Kind::Prose(usize::MAX), "What to do"),
    ],
};
pub(crate) static CRITIQUE: Shape = Shape {
    name: "Critique",
    fields: &[
        must("iteration", Kind::Integer, "Of the plan"),
        must("pass", Kind::Bool, "Whether nothing was an error"),
        must("summary", Kind::Prose(usize::MAX), "The verdict in words"),
        must("findings", Kind::List(&FINDING), "What was found"),
        must("agent_id", Kind::Id("agt"), "The critic"),
        must("created_at", Kind::Time, "When"),
    ],
};
pub(crate) static PLAN: Shape = Shape {
    name: "Plan",
    fields: &[
        must("id", Kind::Id("pln"), "The plan's id"),
        must("session_id", Kind::Id("ses"), "Its session"),
        must("goal", Kind::Prose(usize::MAX), "What is to be reached"),
        must("status", Kind::State(&machine::TABLE), "Where its machine is"),
        must("autonomy", Kind::Choice(&["manual", "auto"]), "Whether a draft waits for a person"),
        must("budget", Kind::Object, "What it may cost"),
        must("iteration", Kind::Integer, "Rounds of work and review, from 1"),
        must("max_iterations", Kind::Integer, "How many there may be"),
        must("revision", Kind::Integer, "Drafts so far"),
        may("waiting_for", Kind::Text(1_000), "What it cannot go on without, if that is a person"),
        may("orchestrator_id", Kind::Id("agt"), "Who makes it"),
        may("critic_id", Kind::Id("agt"), "Who judges it"),
        may("hop_id", Kind::Id("hop"), "The hop that it carries out"),
        may("reason", Kind::Prose(usize::MAX), "Why it stopped, is blocked or finds nobody"),
        may("summary", Kind::Prose(usize::MAX), "The last verdict in words"),
        must("config", Kind::Object, "Rubric, limits, what its agents are made of"),
        must("created_at", Kind::Time, "When the goal was set"),
        must("updated_at", Kind::Time, "When it last changed"),
        may("ended_at", Kind::Time, "When it ended"),
        may("usage", Kind::Object, "Of one plan only: what its turns have used"),
        may("tasks", Kind::List(&TASK), "Of one plan only: its tasks, in the order they were added"),
        may("critiques", Kind::List(&CRITIQUE), "Of one plan only: what the critic said, oldest first"),
    ],
};

#[derive(Deserialize)]
struct New {
    goal: String,
    autonomy: Option<String>,
    #[serde(default)]
    budget: Option<Value>,
    rubric: Option<String>,
    max_iterations: Option<i64>,
    attempts_max: Option<i64>,
    stop_on_first_failure: Option<bool>,
    workers_max: Option<i64>,
    model: Option<String>,
    tools: Option<Vec<String>>,
    instructions: Option<Map<String, Value>>,
    orchestrator_id: Option<String>,
}

impl New {
    /// Every problem that its shape does not show.
    fn problems(&self, call: &Call) -> Wrong {
        let mut wrong = Vec::new();
        for (name, given, least, most) in [
            ("max_iterations", self.max_iterations, 1, 100),
            ("attempts_max", self.attempts_max, 1, 20),
            ("workers_max", self.workers_max, 0, 1_000),
        ] {
            if given.is_some_and(|n| !(least..=most).contains(&n)) {
                wrong.push((format!("/{name}"), format!("must be {least} to {most}")));
            }
        }
        for name in self.budget.as_ref().and_then(Value::as_object).into_iter().flat_map(|limits| limits.keys()) {
            if !LIMITS.contains(&name.as_str()) {
                wrong.push((
                    format!("/budget/{name}"),
                    format!("is no limit of a plan; those are: {}", LIMITS.join(", ")),
                ));
            }
        }
        for (role, text) in self.instructions.iter().flatten() {
            if text.as_str().is_none_or(|text| text.len() > WORDS_BYTES_MAX) {
                let said = format!("must be a text of {WORDS_BYTES_MAX} bytes at the most");
                wrong.push((format!("/instructions/{role}"), said));
            }
        }
        wrong.extend(self.model.iter().flat_map(|model| unknown_model(&call.api.catalog, model, "")));
        wrong.extend(self.tools.iter().flat_map(|tools| unknown_tools(&call.api.catalog, tools, "")));
        wrong
    }

    fn bind(self, orchestrator: Option<AgentId>) -> NewPlan {
        let mut config = json!({
            "max_iterations": self.max_iterations.unwrap_or(i64::from(ITERATIONS_DEFAULT)),
            "attempts_max": self.attempts_max.unwrap_or(i64::from(ATTEMPTS_DEFAULT)),
            "stop_on_first_failure": self.stop_on_first_failure.unwrap_or(false),
        });
        let given = [
            ("rubric", self.rubric.map(Value::from)),
            ("workers_max", self.workers_max.map(Value::from)),
            ("model", self.model.map(Value::from)),
            ("tools", self.tools.map(Value::from)),
            ("instructions", self.instructions.map(Value::from)),
        ];
        for (name, value) in given {
            if let Some(value) = value {
                config[name] = value;
            }
        }
        let (autonomy, budget) = (self.autonomy.unwrap_or_else(|| "manual".into()), self.budget.unwrap_or(json!({})));
        NewPlan { goal: self.goal, autonomy, config, budget, hop: None, orchestrator }
    }
}

/// Of what a session says of the plans that its hops make, whatever their goals.
pub(crate) fn problems_of_terms(call: &Call, mut given: Map<String, Value>) -> Result<Wrong, serde_json::Error> {
    given.insert("goal".into(), json!(""));
    serde_json::from_value::<New>(Value::Object(given)).map(|new| new.problems(call))
}

pub(crate) fn show(row: &plan::Model) -> Value {
    let waiting_for = match row.status.as_str() {
        "planning" if row.drafted && row.autonomy == "manual" => Some("approval of the draft"),
        "blocked" => Some("an input that tasks wait for: see their errors, then unblock or cancel"),
        // Nobody is there who could go on with it.
        "goal_received" | "planning" | "executing" | "reviewing" => row.reason.as_deref(),
        _ => None,
    };
    json!({
        "id": PlanId::from(row.id),
        "session_id": SessionId::from(row.session_id),
        "goal": row.goal,
        "status": row.status,
        "autonomy": row.autonomy,
        "budget": row.budget,
        "iteration": row.iteration,
        "max_iterations": row.config["max_iterations"].as_i64().unwrap_or(i64::from(ITERATIONS_DEFAULT)),
        "revision": row.revision,
        "waiting_for": waiting_for,
        "orchestrator_id": row.orchestrator_id.map(AgentId::from),
        "critic_id": row.critic_id.map(AgentId::from),
        "hop_id": row.hop_id.map(HopId::from),
        "reason": row.reason,
        "summary": row.summary,
        "config": row.config,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
        "ended_at": row.ended_at,
    })
}

fn show_task(row: &task::Model) -> Value {
    json!({
        "id": TaskId::from(row.id),
        "key": row.key,
        "title": row.title,
        "description": row.description,
        "status": row.status,
        "priority": row.priority,
        "role": row.role,
        "deps": row.deps().into_iter().map(TaskId::from).collect::<Vec<_>>(),
        "success_criteria": row.success_criteria,
        "attempt": row.attempt,
        "attempts_max": row.attempts_max,
        "iteration": row.iteration,
        "owner_id": row.owner_id.map(AgentId::from),
        "turn_id": row.turn_id.map(TurnId::from),
        "result": row.result,
        "evidence": row.evidence,
        "error": row.error,
        "created_at": row.created_at,
        "started_at": row.started_at,
        "ended_at": row.ended_at,
    })
}

fn show_critique(row: &critique::Model) -> Value {
    json!({
        "iteration": row.iteration,
        "pass": row.pass,
        "summary": row.summary,
        "findings": row.findings,
        "agent_id": AgentId::from(row.agent_id),
        "created_at": row.created_at,
    })
}

async fn whole(call: &Call, row: &plan::Model) -> Result<Value, Problem> {
    let (store, id) = (call.api.store(), PlanId::from(row.id));
    let (tokens, tool_calls) = store.plan_usage(id).await?;
    let mut shown = show(row);
    shown["usage"] = json!({"tokens": tokens, "tool_calls": tool_calls});
    shown["tasks"] = store.tasks_of(id).await?.iter().map(show_task).collect();
    shown["critiques"] = store.critiques_of(id).await?.iter().map(show_critique).collect();
    Ok(shown)
}

pub(crate) async fn create(call: Arc<Call>) -> Result<Reply, Problem> {
    let new: New = call.read()?;
    let wrong = new.problems(&call);
    if !wrong.is_empty() {
        return Err(Problem::invalid(wrong));
    }
    let id = SessionId::from(find::session(&call).await?.id);
    let orchestrator = match &new.orchestrator_id {
        Some(text) => Some(led_by(&call, id, text).await?),
        None => None,
    };
    let new = new.bind(orchestrator);
    let (landed, answer) = settle(&call, find::session, |session| {
        let (mut commit, row) = flow::set_goal(&session, new.clone(), call.actor(), call.traceparent.clone())?;
        let mut answer = show(&row);
        (answer["tasks"], answer["critiques"]) = (json!([]), json!([]));
        call.keep(&mut commit, id, StatusCode::CREATED, &answer);
        Ok((commit, answer))
    })
    .await?;
    call.api.hub().follow(&landed.runes);
    Ok(Reply::kept(StatusCode::CREATED, answer))
}

/// An agent of the session that takes work.
async fn led_by(call: &Call, session: SessionId, text: &str) -> Result<AgentId, Problem> {
    let id: AgentId =
        text.parse().map_err(|no: instar_core::id::InvalidId| Problem::field("orchestrator_id", no.to_string()))?;
    let row = call.api.store().agent(id).await?.filter(|row| row.session_id == session.uuid());
    let takes = |row: &instar_store::entity::agent::Model| {
        !["terminated", "failed"].contains(&row.lifecycle.as_str()) && ["idle", "running"].contains(&row.drive.as_str())
    };
    match row {
        Some(row) if takes(&row) => Ok(id),
        Some(_) => Err(Problem::field("orchestrator_id", "the agent takes no work: start it, or name another one")),
        None => Err(Problem::field("orchestrator_id", "there is no such agent in this session")),
    }
}

pub(crate) async fn list(call: Arc<Call>) -> Result<Reply, Problem> {
    let page = Page::of(&call)?;
    let mut query = plan::Entity::find()
        .join(sea_orm::JoinType::InnerJoin, find::to_session::<plan::Entity>())
        .filter(session::Column::Namespace.eq(&*call.caller.namespace));
    if let Some(session) = call.filter::<SessionId>("session")? {
        query = query.filter(plan::Column::SessionId.eq(session.uuid()));
    }
    if let Some(status) = call.asked("status") {
        known_state(&machine::TABLE, "status", status)?;
        query = query.filter(plan::Column::Status.eq(status));
    }
    if let Some(before) = page.before {
        query = query.filter(plan::Column::Id.lt(before));
    }
    let rows = query.order_by_desc(plan::Column::Id).limit(page.rows()).all(call.api.db()).await?;
    Ok(Reply::ok(page.answer(rows, |row| row.id, |row| show(&row))))
}

pub(crate) async fn get(call: Arc<Call>) -> Result<Reply, Problem> {
    let (row, _) = find::plan(&call).await?;
    Ok(Reply::ok(whole(&call, &row).await?))
}

/// A person's event on the plan; `say` adds what goes with it.
async fn command<'a>(
    call: &'a Call,
    row: plan::Model,
    event: &'a str,
    say: impl FnOnce(Act<'a>) -> Act<'a>,
) -> Result<Reply, Problem> {
    let (session, id) = (SessionId::from(row.session_id), PlanId::from(row.id));
    let act = say(Command { call, session, entity: id.into(), machine: &machine::TABLE, event }.act());
    let hub = call.api.hub();
    hub.follow(&runes_of(act.carry_out(hub).await?));
    let (row, _) = find::plan(call).await?;
    Ok(Reply::ok(whole(call, &row).await?))
}

/// The draft that the caller has looked at.
fn seen(call: &Call) -> Option<i64> {
    call.body.get("revision").and_then(Value::as_i64)
}

pub(crate) async fn approve(call: Arc<Call>) -> Result<Reply, Problem> {
    let (row, _) = find::plan(&call).await?;
    if row.status == "planning" && !row.drafted {
        return Err(refuse(
            &machine::TABLE,
            &row.status,
            "plan_approved",
            "there is no draft yet: wait until the orchestrator has made one",
        ));
    }
    command(&call, row, "plan_approved", |act| act.reason("approved").at_revision(seen(&call))).await
}

pub(crate) async fn reject(call: Arc<Call>) -> Result<Reply, Problem> {
    let (row, _) = find::plan(&call).await?;
    let feedback = call.body.get("feedback").and_then(Value::as_str).unwrap_or_default();
    if row.status == "planning" && !row.drafted {
        return Err(refuse(
            &machine::TABLE,
            &row.status,
            "plan_rejected",
            "there is no draft yet: wait until the orchestrator has made one",
        ));
    }
    command(&call, row, "plan_rejected", |act| act.reason(feedback).at_revision(seen(&call))).await
}

pub(crate) async fn cancel(call: Arc<Call>) -> Result<Reply, Problem> {
    let (row, _) = find::plan(&call).await?;
    let reason = call.body.get("reason").and_then(Value::as_str).unwrap_or("cancelled");
    command(&call, row, "user_cancel", |act| act.reason(reason)).await
}

pub(crate) async fn unblock(call: Arc<Call>) -> Result<Reply, Problem> {
    let (row, _) = find::plan(&call).await?;
    let note = call.body.get("note").and_then(Value::as_str).map(str::to_owned);
    if row.status == "blocked" {
        let tasks = call.api.store().tasks_of(PlanId::from(row.id)).await?;
        let state = |id: Uuid| tasks.iter().find(|task| task.id == id).map_or("", |task| task.status.as_str());
        let free =
            |task: &&task::Model| !task.deps().into_iter().any(|dep| ["failed", "cancelled"].contains(&state(dep)));
        if !tasks.iter().filter(|task| task.status == "blocked").any(|task| free(&task)) {
            let advice = "every blocked task waits for one that failed: cancel the plan and set the goal anew";
            return Err(refuse(&machine::TABLE, &row.status, "dependency_resolved", advice));
        }
    }
    command(&call, row, "dependency_resolved", |act| {
        act.reason("unblocked").setting(move |change| change.set(plan::Column::Feedback, note.clone()))
    })
    .await
}
