//! Sessions: made, listed, held, reopened, closed.

use super::agent::{self, AGENT, NEW_AGENT, Spec};
use super::command::Command;
use super::{find, wake};
use crate::call::{Call, Reply};
use crate::page::Page;
use crate::problem::{Problem, runes_of};
use crate::settle::{raise, settle};
use crate::shape::{Field, Kind, Shape, may, must};
use axum::http::StatusCode;
use instar_core::cascade::Fact;
use instar_core::id::{AgentId, SessionId};
use instar_core::machine::session as machine;
use instar_core::rune::Draft;
use instar_core::rune::payload::SessionUnsuspended;
use instar_runtime::flow::{self, NewSession};
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
        must("budget", Kind::Object, "Its limits"),
        may("root_agent_id", Kind::Id("agt"), "Its first agent"),
        must("head_seq", Kind::Integer, "Number of its newest rune"),
        must("created_at", Kind::Time, "When it was made"),
        must("updated_at", Kind::Time, "When it last changed"),
        may("root_agent", Kind::Nested(&AGENT), "Only in the answer to its making: the agent made with it"),
    ],
};

pub(crate) static NEW_SESSION: Shape = Shape {
    name: "NewSession",
    fields: &[
        may("name", Kind::Text(200), "What people call it"),
        may("config", Kind::Object, "Its configuration"),
        may("budget", Kind::Budget, "Its limits"),
        may("root_agent", Kind::Nested(&NEW_AGENT), "An agent to make with it; it makes the session active"),
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
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    })
}

pub(crate) async fn create(call: Arc<Call>) -> Result<Reply, Problem> {
    let New { name, config, budget, root_agent } = call.read()?;
    let root = root_agent.map(|spec| spec.bind(&call.api.catalog, "/root_agent")).transpose()?;
    let new = NewSession { namespace: call.caller.namespace.to_string(), name, config, budget };
    let mut born = flow::open(new, root, call.actor(), call.traceparent.clone())?;
    let mut answer = show(&born.session);
    if let Some(root) = &born.agent {
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
    Ok(Reply::ok(page.answer(rows, |row| row.id, |row| show(&row))))
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
    Ok(Reply::ok(show(&find::session(&call).await?)))
}

async fn command(
    call: &Call,
    event: &str,
    fact: Option<Fact>,
    told: Option<(&'static str, Value)>,
) -> Result<Reply, Problem> {
    let id = SessionId::from(find::session(call).await?.id);
    let mut act = Command { call, session: id, entity: id.into(), machine: &machine::TABLE, event }.act();
    if let Some(fact) = fact {
        act = act.given(fact);
    }
    if let Some((kind, fields)) = told {
        act = act.telling(kind, fields);
    }
    let hub = call.api.hub();
    hub.follow(&runes_of(act.carry_out(hub).await?));
    Ok(Reply::ok(show(&find::session_by(call, id).await?)))
}

pub(crate) async fn pause(call: Arc<Call>) -> Result<Reply, Problem> {
    let in_flight = call.body.get("in_flight").and_then(Value::as_str).unwrap_or("complete").to_owned();
    let fact = (in_flight == "interrupt").then_some(Fact::InterruptInFlight);
    command(&call, "pause_requested", fact, Some(("session.paused", json!({"in_flight": in_flight})))).await
}

pub(crate) async fn resume(call: Arc<Call>) -> Result<Reply, Problem> {
    let reply = command(&call, "resume_requested", None, None).await?;
    wake::session(&call).await;
    Ok(reply)
}

pub(crate) async fn close(call: Arc<Call>) -> Result<Reply, Problem> {
    command(&call, "close_requested", None, None).await
}

pub(crate) async fn reset(call: Arc<Call>) -> Result<Reply, Problem> {
    let reply = command(&call, "reset", None, None).await?;
    wake::session(&call).await;
    Ok(reply)
}

pub(crate) async fn archive(call: Arc<Call>) -> Result<Reply, Problem> {
    find::session(&call).await?;
    Err(Problem::not_yet("sessions cannot be archived yet; a closed one stays readable where it is"))
}

/// The limits go with the transition, in one commit.
pub(crate) async fn replenish(call: Arc<Call>) -> Result<Reply, Problem> {
    let (_, answer) = settle(&call, find::session, |row| {
        let moved = raise(&machine::TABLE, &row.status, "budget_replenished")?;
        let mut budget = row.budget.clone();
        if let (Some(old), Some(Value::Object(new))) = (budget.as_object_mut(), call.body.get("budget")) {
            old.extend(new.clone());
        }
        let id = SessionId::from(row.id);
        let mut commit = Commit::new(id, call.actor()).traced(call.traceparent.clone());
        let mut change = Change::entity(&session::TABLE, id).version(row.version);
        if let Some(moved) = moved {
            change = change.moving(moved);
        }
        commit.change(change.set(session::Column::Budget, budget.clone()));
        let told = SessionUnsuspended { reason: Some("budget_replenished".into()), budget: budget.clone() };
        commit.rune(Draft::new(id, &told)?);
        let after = session::Model {
            status: moved.map_or(row.status.clone(), |mv| mv.to().into()),
            budget,
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
