//! Sessions: made, listed, held, reopened, closed.

use super::agent::{self, AGENT, NEW_AGENT, Spec};
use super::budget::{self, Limited};
use super::command::Command;
use super::mission::GATES;
use super::{find, terms, wake};
use crate::call::{Call, Reply};
use crate::page::Page;
use crate::problem::{Problem, runes_of};
use crate::settle::{raise, settle};
use crate::shape::{Field, Kind, Shape, may, must};
use axum::http::StatusCode;
use instar_core::budget::Limits;
use instar_core::cascade::Fact;
use instar_core::id::{AgentId, SessionId};
use instar_core::machine::session as machine;
use instar_core::rune::payload::{ConfigUpdated, SessionUnsuspended};
use instar_core::rune::{Draft, Hash};
use instar_runtime::flow::{self, NewSession};
use instar_runtime::{Act, hold};
use instar_store::clock;
use instar_store::entity::session;
use instar_store::{Change, Commit};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

pub(crate) static SESSION: Shape = Shape {
    name: "Session",
    fields: &[
        must("id", Kind::Id("ses"), "The session's id"),
        may("name", Kind::Text(200), "What people call it"),
        must("status", Kind::State(&machine::TABLE), "Where its machine is"),
        must("config", Kind::Object, "Its configuration"),
        must("budget", Kind::Object, "Its limits; of each what is used, reserved and remaining"),
        may("usage", Kind::Object, "Of one session: tokens, tool calls and turns of its agents so far"),
        may("root_agent_id", Kind::Id("agt"), "Its first agent"),
        must("head_seq", Kind::Integer, "Number of its newest rune"),
        may("final_hash", Kind::Text(64), "The chain over its whole log, when nothing can follow any more"),
        must("created_at", Kind::Time, "When it was made"),
        must("updated_at", Kind::Time, "When it last changed"),
        may("imported", Kind::Bool, "Only of one that is archived: it ran elsewhere, and only its log is here"),
        may("root_agent", Kind::Nested(&AGENT), "Only in the answer to its making: the agent made with it"),
    ],
};

pub(crate) static NEW_SESSION: Shape = Shape {
    name: "NewSession",
    fields: &[
        may("name", Kind::Text(200), "What people call it"),
        may("config", Kind::Nested(&CONFIG), "Its configuration"),
        may("budget", Kind::Budget, "Its limits"),
        may(
            "root_agent",
            Kind::Nested(&NEW_AGENT),
            "An agent to make with it; it makes the session active when it is ready",
        ),
    ],
};
/// What agents and hops of the session go by, where nobody says otherwise.
pub(crate) static CONFIG: Shape = Shape {
    name: "SessionConfig",
    fields: &[
        may("missions", Kind::Nested(&MISSIONS), "How missions are run that agents propose"),
        may("plans", Kind::Nested(&PLANS), "What plans are made of that hops make"),
    ],
};
pub(crate) static MISSIONS: Shape = Shape {
    name: "SessionMissions",
    fields: &[
        may("gates", Kind::Nested(&GATES), "How their gates open"),
        may("gate_timeout_ms", Kind::Integer, "After this long a timed gate asks for attention"),
        may("on_hop_failure", Kind::Choice(&["attention", "fail"]), "When a hop has no attempt left; attention"),
        may("hop_attempts_max", Kind::Integer, "How often a hop is executed; 3"),
        may("detached", Kind::Bool, "Whether what runs of them may end when the session closes"),
    ],
};
pub(crate) static PLANS: Shape = Shape {
    name: "SessionPlans",
    fields: &[
        may("budget", Kind::Budget, "What one may cost: max_tokens, max_tool_calls, max_wall_time_ms"),
        may("rubric", Kind::Prose(usize::MAX), "What the critic goes by"),
        may("max_iterations", Kind::Integer, "Rounds of work and review; 10"),
        may("attempts_max", Kind::Integer, "How often a task is tried; 3"),
        may("stop_on_first_failure", Kind::Bool, "Whether a failed task stops the plan; false"),
        may("workers_max", Kind::Integer, "Agents of one role up to which more are made; plans.workers_max"),
        may("model", Kind::Text(200), "The model of agents that are made for it"),
        may("tools", Kind::Texts(500), "The tools of agents that are made for it"),
        may("instructions", Kind::Object, "The instructions of agents that are made for it, by role"),
    ],
};
pub(crate) static PATCH: Shape = Shape {
    name: "SessionPatch",
    fields: &[
        may("name", Kind::Text(200), "What people call it; null: nothing"),
        may("budget", Kind::Budget, "Limits that replace those of the same name; null takes one away"),
    ],
};
pub(crate) static PAUSE: Shape = Shape {
    name: "Pause",
    fields: &[may("in_flight", Kind::Choice(&["complete", "interrupt"]), "What becomes of running turns; complete")],
};
pub(crate) static REPLENISH: Shape =
    Shape { name: "Replenish", fields: &[must("budget", Kind::Budget, "Limits that replace those of the same name")] };
pub(crate) static NOTHING: Shape = Shape { name: "Nothing", fields: &[] as &[Field] };

#[derive(Deserialize)]
struct New {
    name: Option<String>,
    #[serde(default)]
    config: Value,
    #[serde(default)]
    budget: Value,
    root_agent: Option<Spec>,
}

pub(crate) fn show(row: &session::Model) -> Value {
    json!({
        "id": SessionId::from(row.id),
        "name": row.name,
        "status": row.status,
        "config": row.config,
        "budget": row.budget,
        "root_agent_id": row.root_agent_id.map(AgentId::from),
        "head_seq": row.head_seq,
        "final_hash": row.final_hash.as_deref().and_then(Hash::from_slice).map(Hash::to_hex),
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    })
}

pub(crate) async fn create(call: Arc<Call>) -> Result<Reply, Problem> {
    let New { name, config, budget, root_agent } = call.read()?;
    let wrong = terms::problems(&call, &config);
    if !wrong.is_empty() {
        return Err(Problem::invalid(wrong));
    }
    let root = match root_agent {
        Some(spec) => Some(spec.settle(&call, "/root_agent").await?),
        None => None,
    };
    if let Some(root) = &root {
        let wrong = budget::unpriced(&call, &root.model, &root.config["budget"], &budget, "/root_agent");
        if !wrong.is_empty() {
            return Err(Problem::invalid(wrong));
        }
    }
    let new = NewSession { namespace: call.caller.namespace.to_string(), name, config, budget };
    let mut born = flow::open(new, root, call.actor(), call.traceparent.clone())?;
    let mut answer = show(&born.session);
    if let Some(root) = born.agents.first() {
        answer["root_agent"] = agent::show(root);
    }
    call.keep(&mut born.commit, SessionId::from(born.session.id), StatusCode::CREATED, &answer);
    call.api.hub().commit(born.commit).await?;
    Ok(Reply::kept(StatusCode::CREATED, answer))
}

pub(crate) async fn list(call: Arc<Call>) -> Result<Reply, Problem> {
    let page = Page::of(&call)?;
    let mut query = session::Entity::find().filter(session::Column::Namespace.eq(&*call.caller.namespace));
    if let Some(status) = call.asked("status") {
        known_state(&machine::TABLE, "status", status)?;
        query = query.filter(session::Column::Status.eq(status));
    }
    if let Some(before) = page.before {
        query = query.filter(session::Column::Id.lt(before));
    }
    let rows = query.order_by_desc(session::Column::Id).limit(page.rows()).all(call.api.db()).await?;
    let limited: Vec<_> = rows.iter().filter_map(flow::session_scope).collect();
    let (limits, now) = (call.api.store().budgets(&limited).await?, clock::now());
    let with_limits = |row: session::Model| {
        let mut shown = show(&row);
        let own: Vec<_> = limits.iter().filter(|limit| limit.scope_id == row.id).cloned().collect();
        budget::add_state(&mut shown, &own, &row, now);
        shown
    };
    Ok(Reply::ok(page.answer(rows, |row| row.id, with_limits)))
}

/// A filter by a word that is no state would silently find nothing.
pub(crate) fn known_state(table: &instar_core::machine::Table, name: &str, state: &str) -> Result<(), Problem> {
    if table.state(state).is_some() {
        return Ok(());
    }
    let states = table.states.iter().map(|s| s.token).collect::<Vec<_>>().join(", ");
    Err(Problem::field(name, format!("must be one of: {states}")))
}

pub(crate) async fn get(call: Arc<Call>) -> Result<Reply, Problem> {
    let row = find::session(&call).await?;
    let mut shown = show(&row);
    let limits = call.api.store().budgets(flow::session_scope(&row).as_slice()).await?;
    budget::add_state(&mut shown, &limits, &row, clock::now());
    shown["usage"] = call.api.store().usage_of(SessionId::from(row.id)).await?;
    if row.status == "archived"
        && let Some(archive) = call.api.store().archive_of(SessionId::from(row.id)).await?
    {
        shown["imported"] = json!(archive.imported != 0);
    }
    Ok(Reply::ok(shown))
}

/// A person's event on the session; `say` adds what goes with it.
async fn command(call: &Call, event: &str, say: impl FnOnce(Act<'_>) -> Act<'_>) -> Result<Reply, Problem> {
    let id = SessionId::from(find::session(call).await?.id);
    let act = say(Command { call, session: id, entity: id.into(), machine: &machine::TABLE, event }.act());
    let hub = call.api.hub();
    hub.follow(&runes_of(act.carry_out(hub).await?));
    Ok(Reply::ok(show(&find::session_by(call, id).await?)))
}

pub(crate) async fn pause(call: Arc<Call>) -> Result<Reply, Problem> {
    let in_flight = call.body.get("in_flight").and_then(Value::as_str).unwrap_or("complete").to_owned();
    command(&call, "pause_requested", |act| {
        let interrupts = in_flight == "interrupt";
        let act = act.reason("paused").telling("session.paused", json!({"in_flight": in_flight}));
        if interrupts { act.given(Fact::InterruptInFlight) } else { act }
    })
    .await
}

pub(crate) async fn resume(call: Arc<Call>) -> Result<Reply, Problem> {
    let reply = command(&call, "resume_requested", |act| act).await?;
    wake::session(&call).await;
    Ok(reply)
}

pub(crate) async fn close(call: Arc<Call>) -> Result<Reply, Problem> {
    command(&call, "close_requested", |act| act).await
}

pub(crate) async fn reset(call: Arc<Call>) -> Result<Reply, Problem> {
    let reply = command(&call, "reset", |act| act).await?;
    wake::session(&call).await;
    Ok(reply)
}

/// New limits and another name of one that goes on as it is.
pub(crate) async fn patch(call: Arc<Call>) -> Result<Reply, Problem> {
    let (name, new) = (call.body.get("name"), call.body.get("budget").filter(|new| !new.is_null()));
    if name.is_none() && new.is_none() {
        return Err(Problem::invalid(vec![(String::new(), "nothing to change; give one of: name, budget".into())]));
    }
    let (_, answer) = settle(&call, budget::of_session, |limited| {
        let row = &limited.session;
        if !["created", "active", "paused"].contains(&row.status.as_str()) {
            let advice = match row.status.as_str() {
                "suspended" => "the session is suspended: raise its limits with replenish, which lets it go on",
                _ => "the session takes no more changes",
            };
            return Err(Problem::conflict("not_open", advice));
        }
        let id = SessionId::from(row.id);
        let mut commit = Commit::new(id, call.actor()).traced(call.traceparent.clone());
        let merged = limits(&mut commit, new, &limited)?;
        let named = name.map_or(row.name.clone(), |name| name.as_str().map(str::to_owned));
        let change = Change::entity(&session::TABLE, id).version(row.version);
        let change = change.set(session::Column::Budget, merged.clone()).set(session::Column::Name, named.clone());
        commit.change(change);
        commit.rune(Draft::new(id, &ConfigUpdated { changes: json!(call.body) })?);
        let Limited { session: row, .. } = limited;
        let head_seq = row.head_seq + 1;
        let after = session::Model { budget: merged, name: named, head_seq, updated_at: commit.at(), ..row };
        Ok((commit, show(&after)))
    })
    .await?;
    wake::session(&call).await;
    Ok(Reply::ok(answer))
}

/// New limits as part of a commit, and the budget with them. Each must be above what is used already.
fn limits(commit: &mut Commit, new: Option<&Value>, limited: &Limited) -> Result<Value, Problem> {
    let Limited { session: row, rows, untold } = limited;
    let (id, limits) = (SessionId::from(row.id), Limits::of(new.unwrap_or(&Value::Null)));
    let mut rows = rows.clone();
    flow::lift(commit, &budget::lifted(new), &mut rows);
    let after = flow::limit(commit, id, &limits, &rows);
    let wrong = budget::not_above_use(&after, row, commit.at());
    if !wrong.is_empty() {
        return Err(Problem::invalid(wrong));
    }
    if limits.iter().next().is_some() {
        for agent in untold {
            let change = Change::new(&instar_store::entity::agent::TABLE, agent.id).version(agent.version);
            let config = budget::told_of_session(agent, id);
            commit.change(change.set(instar_store::entity::agent::Column::Config, config));
        }
    }
    Ok(budget::merged(&row.budget, new))
}

/// The limits go with the transition, in one commit.
pub(crate) async fn replenish(call: Arc<Call>) -> Result<Reply, Problem> {
    let new = call.body.get("budget");
    let (_, answer) = settle(&call, budget::of_session, |limited| {
        let moved = raise(&machine::TABLE, &limited.session.status, "budget_replenished")?;
        let id = SessionId::from(limited.session.id);
        let mut commit = Commit::new(id, call.actor()).traced(call.traceparent.clone());
        let merged = limits(&mut commit, new, &limited)?;
        let Limited { session: row, .. } = limited;
        let mut change = Change::entity(&session::TABLE, id).version(row.version);
        if let Some(moved) = moved {
            // Every hold is kept: clocks of budgets may have been set before any of them.
            change = hold::dress(change.moving(moved), &row, &moved, Some(row.created_at), commit.at());
        }
        commit.change(change.set(session::Column::Budget, merged.clone()));
        let told = SessionUnsuspended { reason: Some("budget_replenished".into()), budget: merged.clone() };
        commit.rune(Draft::new(id, &told)?);
        let after = session::Model {
            status: moved.map_or(row.status.clone(), |mv| mv.to().into()),
            budget: merged,
            head_seq: row.head_seq + 1,
            updated_at: commit.at(),
            ..row
        };
        let answer = show(&after);
        call.keep(&mut commit, id, StatusCode::OK, &answer);
        Ok((commit, answer))
    })
    .await?;
    wake::session(&call).await;
    Ok(Reply::kept(StatusCode::OK, answer))
}
