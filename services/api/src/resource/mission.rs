//! Missions: proposed, looked at, decided on.

pub(crate) use super::asset::REASON;
use super::session::known_state;
use super::{find, voyage};
use crate::call::{Call, Reply};
use crate::idempotency::Shown;
use crate::page::Page;
use crate::problem::Problem;
use crate::settle::settle;
use crate::shape::{Kind, Shape, may, must};
use axum::http::StatusCode;
use instar_core::decide::Awaits;
use instar_core::id::{AgentId, AssetId, HopId, MissionId, SessionId, TurnId};
use instar_core::machine::{hop as hop_machine, mission as machine};
use instar_core::vocabulary;
use instar_runtime::Missions;
use instar_runtime::mission::{self as flow, MissionEdit, MissionForm, Terms, TermsEdit};
use instar_store::entity::{asset_version, hop, mission, session};
use instar_store::{Addressee, Change};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use uuid::Uuid;

const NAME: usize = 800;
const TEXT: usize = 128_000;
const POLICIES: Kind = Kind::Choice(&["manual", "timed", "auto"]);
pub(crate) const AWAITS: &[&str] = &["person", "agent", "policy", "steps", "nobody"];

pub(crate) static GATES: Shape = Shape {
    name: "Gates",
    fields: &[
        may("mission", POLICIES, "The mission's proposal; manual"),
        may("plan", POLICIES, "The plan of a hop; manual"),
        may("impl", POLICIES, "The steps of a hop; manual"),
        may("execute", POLICIES, "The execution of accepted steps; manual"),
        may("retry", POLICIES, "One more execution of a failed hop; manual"),
    ],
};
pub(crate) static NEW_ASSET: Shape = Shape {
    name: "AssetForm",
    fields: &[
        must("name", Kind::Text(NAME), "What it is called; unique among those it comes with"),
        may("description", Kind::Prose(TEXT), "What whoever wants it says of it"),
        may("specification", Kind::Prose(TEXT), "What whoever makes it has to know"),
        may("type", Kind::Text(64), "string, number, boolean, object, file, markdown, config or a word of the domain"),
        may("subtype", Kind::Text(64), "Which kind of that type"),
        may("is_array", Kind::Bool, "Whether it is a list"),
        may("schema", Kind::Object, "Its fields, where the type has some"),
        may("example", Kind::Any, "What it may look like"),
        may("external_system", Kind::Text(NAME), "Where it lives, if not here"),
        may("ttl_ms", Kind::Integer, "How long a value is good for"),
    ],
};
pub(crate) static NEW_MISSION: Shape = Shape {
    name: "NewMission",
    fields: &[
        must("name", Kind::Text(NAME), "What it is called"),
        must("goal", Kind::Text(TEXT), "What shall be true in the end"),
        may("description", Kind::Prose(TEXT), "More about it"),
        may("success_criteria", Kind::Texts(20), "How one sees that it is"),
        may("inputs", Kind::List(&NEW_ASSET), "What it reads"),
        must("outputs", Kind::List(&NEW_ASSET), "What it promises, one at least"),
        may("scope", Kind::Prose(TEXT), "What is part of it and what is not"),
        may("metadata", Kind::Object, "Whatever else"),
        may(
            "agent_id",
            Kind::Id("agt"),
            "Who plans and implements its hops; without one, people write plans that agents carry out (executor plan)",
        ),
        may("gates", Kind::Nested(&GATES), "How its gates open"),
        may("gate_timeout_ms", Kind::Integer, "After this long a timed gate asks for attention; it never opens by it"),
        may("on_hop_failure", Kind::Choice(&["attention", "fail"]), "When a hop has no attempt left; attention"),
        may("hop_attempts_max", Kind::Integer, "How often a hop is executed; 3"),
        may("detached", Kind::Bool, "Whether what runs of it may end when its session closes"),
    ],
};
pub(crate) static MISSION: Shape = Shape {
    name: "Mission",
    fields: &[
        must("id", Kind::Id("mis"), "The mission's id"),
        must("session_id", Kind::Id("ses"), "Its session"),
        may("agent_id", Kind::Id("agt"), "Who plans and implements its hops"),
        must("author", Kind::Text(200), "Who proposed it"),
        must("status", Kind::State(&machine::TABLE), "Where its machine is"),
        must("status_v1", Kind::Text(40), "The same in the older vocabulary"),
        must("revision", Kind::Integer, "Of the proposal: what an approval names"),
        must("awaits", Kind::Choice(AWAITS), "Who has to act next"),
        may("current_hop", Kind::Id("hop"), "The hop it is at"),
        must("name", Kind::Text(NAME), "What it is called"),
        must("goal", Kind::Text(TEXT), "What shall be true in the end"),
        may("description", Kind::Prose(TEXT), "More about it"),
        must("success_criteria", Kind::Texts(20), "How one sees that it is"),
        may("scope", Kind::Prose(TEXT), "What is part of it and what is not"),
        may("metadata", Kind::Object, "Whatever else"),
        must("gates", Kind::Nested(&GATES), "How its gates open"),
        may("gate_timeout_ms", Kind::Integer, "After this long a timed gate asks for attention"),
        may("gate_due_at", Kind::Time, "When it will ask for attention"),
        must("on_hop_failure", Kind::Text(40), "attention or fail"),
        must("hop_attempts_max", Kind::Integer, "How often a hop is executed"),
        must("hops", Kind::Integer, "The highest number that a hop of it had"),
        may("question", Kind::Object, "What its agent wants to know before it goes on"),
        may("feedback", Kind::Prose(TEXT), "What a person wants changed"),
        may("attention", Kind::Object, "Why a person should look"),
        may("failure", Kind::Object, "Why it failed"),
        may("asked_turn_id", Kind::Id("trn"), "The turn in which its agent was asked last"),
        may("reset_of", Kind::Id("mis"), "The instance that it starts over"),
        may("reset_to", Kind::Id("mis"), "The instance that starts it over"),
        must("created_at", Kind::Time, "When it was proposed"),
        must("updated_at", Kind::Time, "When it last changed"),
        may("ended_at", Kind::Time, "When it was completed, failed or cancelled"),
    ],
};
pub(crate) static DECISION: Shape = Shape {
    name: "Decision",
    fields: &[
        may("revision", Kind::Integer, "What was shown to whoever decides; must still be the revision"),
        may("reason", Kind::Text(4_000), "Why"),
    ],
};
pub(crate) static FEEDBACK: Shape = Shape {
    name: "Feedback",
    fields: &[
        must("feedback", Kind::Text(TEXT), "What shall be changed; the agent reads it"),
        may("revision", Kind::Integer, "What was shown to whoever decides; must still be the revision"),
    ],
};
pub(crate) static REVISE_MISSION: Shape = Shape {
    name: "ReviseMission",
    fields: &[
        must("revision", Kind::Integer, "The revision that this one is made from"),
        may("name", Kind::Text(NAME), "What it is called"),
        may("goal", Kind::Text(TEXT), "What shall be true in the end"),
        may("description", Kind::Prose(TEXT), "More about it"),
        may("success_criteria", Kind::Texts(20), "How one sees that it is"),
        may("inputs", Kind::List(&NEW_ASSET), "What it reads: all of them"),
        may("outputs", Kind::List(&NEW_ASSET), "What it promises: all of it"),
        may("scope", Kind::Prose(TEXT), "What is part of it and what is not"),
        may("metadata", Kind::Object, "Whatever else"),
    ],
};

pub(crate) static SET_TERMS: Shape = Shape {
    name: "MissionPatch",
    fields: &[
        may("revision", Kind::Integer, "What was shown to whoever changes it; must still be the revision"),
        may("agent_id", Kind::Id("agt"), "Who plans and implements its hops from now on"),
        may("gates", Kind::Nested(&GATES), "How its gates open; one that is not named stays"),
        may("gate_timeout_ms", Kind::Integer, "After this long a timed gate asks for attention"),
        may("on_hop_failure", Kind::Choice(&["attention", "fail"]), "When a hop has no attempt left"),
        may("hop_attempts_max", Kind::Integer, "How often a hop is executed"),
    ],
};

/// A mission with the hop it is at.
pub(crate) fn show(row: &mission::Model, hop: Option<&hop::Model>) -> Value {
    let state = machine::State::parse(&row.status);
    let at = hop.and_then(|hop| hop_machine::State::parse(&hop.status));
    let accepted = hop.is_some_and(|hop| hop.plan_accepted_once);
    json!({
        "id": MissionId::from(row.id),
        "session_id": SessionId::from(row.session_id),
        "agent_id": row.agent_id.map(AgentId::from),
        "author": row.author,
        "status": row.status,
        "status_v1": state.map(|state| vocabulary::refine(state, at, accepted).0.token()),
        "revision": row.revision,
        "awaits": row.awaits,
        "current_hop": row.current_hop_id.map(HopId::from),
        "name": row.name,
        "goal": row.goal,
        "description": row.description,
        "success_criteria": row.success_criteria,
        "scope": row.scope,
        "metadata": row.metadata,
        "gates": instar_runtime::gates(row),
        "gate_timeout_ms": row.gate_timeout_ms,
        "gate_due_at": row.gate_due_at,
        "on_hop_failure": row.on_hop_failure,
        "hop_attempts_max": row.hop_attempts_max,
        "hops": row.hops,
        "question": row.question,
        "feedback": row.feedback,
        "attention": row.attention,
        "failure": row.failure,
        "asked_turn_id": row.asked_turn_id.map(TurnId::from),
        "reset_of": row.reset_of.map(MissionId::from),
        "reset_to": row.reset_to.map(MissionId::from),
        "created_at": row.created_at,
        "updated_at": row.updated_at,
        "ended_at": row.ended_at,
    })
}

pub(crate) async fn shown(call: &Call, id: MissionId) -> Result<Value, Problem> {
    let store = call.api.store();
    let row = store.mission(id).await?.ok_or_else(|| Problem::absent("mission", &id.to_string()))?;
    let hop = match row.current_hop_id {
        Some(hop) => store.hop(HopId::from(hop)).await?,
        None => None,
    };
    Ok(show(&row, hop.as_ref()))
}

pub(crate) async fn create(call: Arc<Call>) -> Result<Reply, Problem> {
    let session = find::session(&call).await?;
    let terms: Terms = call.read()?;
    let mut form = call.body.clone();
    form.retain(|name, _| !TERMS.contains(&name.as_str()));
    let form: MissionForm = voyage::read(Value::Object(form))?;
    let mut wrong = form.check().err().unwrap_or_default();
    wrong.extend(terms.check().err().unwrap_or_default());
    if !wrong.is_empty() {
        return Err(Problem::invalid(wrong));
    }
    if let Some(agent) = terms.agent_id {
        voyage::fit_agent(&call, &session, agent).await?;
    }
    let (mut act, row) = flow::mission(&session, &form, &terms, call.actor());
    act.traceparent.clone_from(&call.traceparent);
    let id = MissionId::from(row.id);
    voyage::land(&call, act, id, Shown::created(id)).await?;
    let answer = shown(&call, id).await?;
    Ok(Reply::Json { status: StatusCode::CREATED, body: answer, kept: false })
}

const TERMS: [&str; 6] = ["agent_id", "gates", "gate_timeout_ms", "on_hop_failure", "hop_attempts_max", "detached"];

pub(crate) async fn list(call: Arc<Call>) -> Result<Reply, Problem> {
    let page = Page::of(&call)?;
    let mut query = mission::Entity::find()
        .join(sea_orm::JoinType::InnerJoin, find::to_session::<mission::Entity>())
        .filter(session::Column::Namespace.eq(&*call.caller.namespace));
    if let Some(status) = call.asked("status") {
        known_state(&machine::TABLE, "status", status)?;
        query = query.filter(mission::Column::Status.eq(status));
    }
    if let Some(awaits) = call.asked("awaits") {
        if !AWAITS.contains(&awaits) {
            return Err(Problem::field("awaits", format!("must be one of: {}", AWAITS.join(", "))));
        }
        query = query.filter(mission::Column::Awaits.eq(awaits));
    }
    if let Some(session) = call.filter::<SessionId>("session")? {
        query = query.filter(mission::Column::SessionId.eq(session.uuid()));
    }
    if let Some(agent) = call.filter::<AgentId>("agent")? {
        query = query.filter(mission::Column::AgentId.eq(agent.uuid()));
    }
    if let Some(before) = page.before {
        query = query.filter(mission::Column::Id.lt(before));
    }
    let rows = query.order_by_desc(mission::Column::Id).limit(page.rows()).all(call.api.db()).await?;
    let current: Vec<Uuid> = rows.iter().filter_map(|row| row.current_hop_id).collect();
    let hops = match current.is_empty() {
        true => Vec::new(),
        false => hop::Entity::find().filter(hop::Column::Id.is_in(current)).all(call.api.db()).await?,
    };
    let hops: HashMap<Uuid, hop::Model> = hops.into_iter().map(|hop| (hop.id, hop)).collect();
    let show = |row: mission::Model| show(&row, row.current_hop_id.and_then(|id| hops.get(&id)));
    Ok(Reply::ok(page.answer(rows, |row| row.id, show)))
}

pub(crate) async fn get(call: Arc<Call>) -> Result<Reply, Problem> {
    let (row, _) = find::mission(&call).await?;
    Ok(Reply::ok(shown(&call, MissionId::from(row.id)).await?))
}

async fn command(call: &Call, event: &'static str) -> Result<Reply, Problem> {
    let (row, _) = find::mission(call).await?;
    let id = MissionId::from(row.id);
    let act = voyage::on_mission(call, &row, event);
    voyage::land(call, act, id, Shown::ok(id)).await?;
    Ok(Reply::ok(shown(call, id).await?))
}

pub(crate) async fn approve(call: Arc<Call>) -> Result<Reply, Problem> {
    command(&call, "approve_mission").await
}

pub(crate) async fn reject(call: Arc<Call>) -> Result<Reply, Problem> {
    command(&call, "reject_mission").await
}

pub(crate) async fn complete(call: Arc<Call>) -> Result<Reply, Problem> {
    command(&call, "goal_achieved_early").await
}

pub(crate) async fn cancel(call: Arc<Call>) -> Result<Reply, Problem> {
    command(&call, "cancel_mission").await
}

pub(crate) async fn retry(call: Arc<Call>) -> Result<Reply, Problem> {
    command(&call, "retry_mission").await
}

pub(crate) async fn resume(call: Arc<Call>) -> Result<Reply, Problem> {
    command(&call, "resume_mission").await
}

pub(crate) async fn request_changes(call: Arc<Call>) -> Result<Reply, Problem> {
    command(&call, "request_mission_changes").await
}

pub(crate) async fn revise(call: Arc<Call>) -> Result<Reply, Problem> {
    let (row, _) = find::mission(&call).await?;
    let id = MissionId::from(row.id);
    let mut body = call.body.clone();
    body.remove("revision");
    let edit: MissionEdit = voyage::read(Value::Object(body))?;
    edit.check().map_err(Problem::invalid)?;
    voyage::again(&call, id, None, StatusCode::OK, |rows| {
        let act = flow::revise_mission(rows, id, edit.clone(), call.actor())?;
        Ok((voyage::of_revision(&call, act), id))
    })
    .await?;
    Ok(Reply::ok(shown(&call, id).await?))
}

/// How it is run from now on. What it is about is another matter: see `revise`.
pub(crate) async fn patch(call: Arc<Call>) -> Result<Reply, Problem> {
    let (row, session) = find::mission(&call).await?;
    let id = MissionId::from(row.id);
    let mut body = call.body.clone();
    body.retain(|name, value| name != "revision" && !value.is_null());
    let edit: TermsEdit = voyage::read(Value::Object(body))?;
    if edit.is_empty() {
        let known = TERMS.iter().filter(|name| **name != "detached").copied().collect::<Vec<_>>().join(", ");
        return Err(Problem::invalid(vec![(String::new(), format!("nothing to change; give one of: {known}"))]));
    }
    if let Some(agent) = edit.agent_id {
        voyage::fit_agent(&call, &session, agent).await?;
    }
    let rows = |call: &Call| {
        let store = call.api.store().clone();
        async move { Ok(Missions::of(store.mission_rows(id, None).await?)) }
    };
    let (landed, ()) = settle(&call, rows, |rows| {
        let row = rows.missions.get(&id.uuid()).ok_or_else(|| Problem::absent("mission", &id.to_string()))?;
        voyage::same_revision(&call, row.revision)?;
        if matches!(row.status.as_str(), "COMPLETED" | "CANCELLED") {
            let why = format!("the mission is {}: reset it, which makes another one of it", row.status);
            return Err(Problem::conflict("ended", why).with("revision", row.revision));
        }
        flow::check_terms(row, &edit).map_err(Problem::invalid)?;
        let commit = flow::set_terms(&rows, id, &edit, call.actor())?.traced(call.traceparent.clone());
        Ok((commit, ()))
    })
    .await?;
    call.api.hub().follow(&landed.runes);
    voyage::advance(&call, id).await;
    Ok(Reply::ok(shown(&call, id).await?))
}

/// The values of a mission's inputs: another instance of it has them too.
pub(super) async fn given(call: &Call, id: MissionId) -> Result<Vec<asset_version::Model>, Problem> {
    let mut given = Vec::new();
    for asset in call.api.store().assets_of(id).await?.into_iter().filter(flow::has_input) {
        given.extend(call.api.store().asset_version(AssetId::from(asset.id), asset.content_version).await?);
    }
    Ok(given)
}

/// Answers the new instance; the old one points at it.
pub(crate) async fn reset(call: Arc<Call>) -> Result<Reply, Problem> {
    let (row, session) = find::mission(&call).await?;
    let id = MissionId::from(row.id);
    let agent = call.body.get("agent_id").and_then(Value::as_str).and_then(|id| id.parse::<AgentId>().ok());
    if let Some(agent) = agent {
        voyage::fit_agent(&call, &session, agent).await?;
    }
    let given = given(&call, id).await?;
    let new = voyage::again(&call, id, None, StatusCode::CREATED, |rows| {
        let old = rows.missions.get(&row.id).unwrap_or(&row);
        let (act, new) = flow::reset_mission(rows, old, &given, agent, call.actor())?;
        let act = act.reason(voyage::reason(&call, "started over"));
        Ok((act, MissionId::from(new.id)))
    })
    .await?;
    voyage::advance(&call, new).await;
    let answer = shown(&call, new).await?;
    Ok(Reply::Json { status: StatusCode::CREATED, body: answer, kept: false })
}

/// What its agent wanted to know, as a message; the agent goes on with it.
pub(crate) async fn answer(call: Arc<Call>) -> Result<Reply, Problem> {
    let content = call.body.get("content").and_then(Value::as_str).unwrap_or_default();
    let (landed, id) = settle(&call, look, |(row, found)| {
        let Addressee { session, agent, busy, .. } = &found;
        if row.question.is_none() {
            return Err(Problem::conflict("not_asked", "its agent has asked nothing: send it a message instead"));
        }
        let id = MissionId::from(row.id);
        let (actor, trace) = (call.actor(), call.traceparent.clone());
        let mut commit = instar_runtime::flow::message(session, agent, *busy, content, actor, trace)?.commit;
        commit.change(
            Change::entity(&mission::TABLE, id)
                .version(row.version)
                .set(mission::Column::Question, None::<Value>)
                .set(mission::Column::Awaits, Awaits::Agent.token()),
        );
        call.note(&mut commit, SessionId::from(row.session_id), Shown::ok(id));
        Ok((commit, id))
    })
    .await?;
    call.api.hub().follow(&landed.runes);
    Ok(Reply::ok(shown(&call, id).await?))
}

/// A mission with its agent.
async fn look(call: &Call) -> Result<(mission::Model, Addressee), Problem> {
    let (row, _) = find::mission(call).await?;
    let found = match row.agent_id {
        Some(agent) => call.api.store().addressee(AgentId::from(agent)).await?,
        None => None,
    };
    let found =
        found.ok_or_else(|| Problem::conflict("no_agent", "the mission has no agent that could be answered"))?;
    Ok((row, found))
}

#[derive(Deserialize)]
struct Older {
    command: vocabulary::Command,
}

/// A command in the older vocabulary, on the mission or its current hop.
pub(crate) async fn older(call: Arc<Call>) -> Result<Reply, Problem> {
    let (row, _) = find::mission(&call).await?;
    let id = MissionId::from(row.id);
    let Older { command } = call.read()?;
    if command == vocabulary::Command::ResetMission {
        return reset(call).await;
    }
    let hop = match row.current_hop_id {
        Some(hop) => call.api.store().hop(HopId::from(hop)).await?,
        None => None,
    };
    voyage::older(&call, command, &row, hop.as_ref(), Shown::ok(id)).await?;
    Ok(Reply::ok(shown(&call, id).await?))
}

const COMMANDS: &[&str] = &[
    "accept_mission",
    "accept_hop_proposal",
    "approve_design",
    "approve_design_and_run",
    "reject_design",
    "trigger_execution",
    "request_changes",
    "fix_issues",
    "cancel_mission",
    "cancel_execution",
    "cancel_hop",
    "reset_mission",
    "reset_hop",
    "delete_hop",
];
pub(crate) static OLDER: Shape = Shape {
    name: "OlderCommand",
    fields: &[
        must("command", Kind::Choice(COMMANDS), "What the older vocabulary calls it"),
        may("revision", Kind::Integer, "What was shown to whoever decides"),
        may("feedback", Kind::Text(TEXT), "What shall be changed"),
        may("reason", Kind::Text(4_000), "Why"),
    ],
};

pub(crate) static RESET: Shape = Shape {
    name: "ResetMission",
    fields: &[
        may("agent_id", Kind::Id("agt"), "Who plans and implements it; else who did"),
        may("reason", Kind::Text(4_000), "Why"),
    ],
};

pub(crate) static ANSWER: Shape =
    Shape { name: "AnswerToAgent", fields: &[must("content", Kind::Text(TEXT), "What the agent wanted to know")] };
