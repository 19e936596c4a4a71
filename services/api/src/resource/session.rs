//! Sessions: made, listed, held, reopened, closed.

use super::agent::{self, AGENT, NEW_AGENT, Spec};
use super::budget::{self, Limited};
use super::command::Command;
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
use instar_core::rune::payload::SessionUnsuspended;
use instar_core::rune::{Draft, Hash};
use instar_runtime::flow::{self, NewSession};
use instar_runtime::{Act, hold};
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
        may(
            "config",
            Kind::Object,
            "Its configuration: missions are terms of missions that its agents propose, plans of plans that its hops make; the rest is yours",
        ),
        may("budget", Kind::Budget, "Its limits"),
        may(
            "root_agent",
            Kind::Nested(&NEW_AGENT),
            "An agent to make with it; it makes the session active when it is ready",
        ),
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
    let (limits, now) = (call.api.store().budgets(&limited).await?, chrono::Utc::now());
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
    budget::add_state(&mut shown, &limits, &row, chrono::Utc::now());
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

/// The limits go with the transition, in one commit.
pub(crate) async fn replenish(call: Arc<Call>) -> Result<Reply, Problem> {
    let new = call.body.get("budget");
    let limits = Limits::of(new.unwrap_or(&Value::Null));
    let (_, answer) = settle(&call, budget::of_session, |Limited { session: row, rows, untold }| {
        let moved = raise(&machine::TABLE, &row.status, "budget_replenished")?;
        let merged = budget::merged(&row.budget, new);
        let id = SessionId::from(row.id);
        let mut commit = Commit::new(id, call.actor()).traced(call.traceparent.clone());
        let after = flow::limit(&mut commit, id, &limits, &rows);
        let wrong = budget::not_above_use(&after, &row, commit.at());
        if !wrong.is_empty() {
            return Err(Problem::invalid(wrong));
        }
        if limits.iter().next().is_some() {
            for agent in &untold {
                let change = Change::new(&instar_store::entity::agent::TABLE, agent.id).version(agent.version);
                let config = budget::told_of_session(agent, id);
                commit.change(change.set(instar_store::entity::agent::Column::Config, config));
            }
        }
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
