//! Hops: planned by people, decided on, executed.

use super::session::known_state;
use super::{find, voyage};
use crate::call::{Call, Reply};
use crate::idempotency::Shown;
use crate::page::Page;
use crate::problem::Problem;
use crate::shape::{Kind, Shape, may, must};
use axum::http::StatusCode;
use instar_core::cascade::Fact;
use instar_core::decide::{HopPhase, fix_hop};
use instar_core::id::{AssetId, HopId, MissionId, SessionId};
use instar_core::machine::{hop as machine, mission as mission_machine};
use instar_core::vocabulary;
use instar_runtime::ActError;
use instar_runtime::mission::{self as flow, Executor, HopForm, StepForm};
use instar_store::entity::{hop, mission, session};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

const NAME: usize = 800;
const TEXT: usize = 128_000;
const EXECUTOR: &str = "Who carries it out: tools in order, or a plan of agents";

pub(crate) static OUTPUT: Shape = Shape {
    name: "HopOutput",
    fields: &[
        may("asset_id", Kind::Id("ast"), "An asset that is there"),
        may("asset", Kind::Nested(&super::mission::NEW_ASSET), "A new one"),
    ],
};
pub(crate) static NEW_HOP: Shape = Shape {
    name: "NewHop",
    fields: &[
        must("name", Kind::Text(NAME), "What it is called"),
        may("description", Kind::Prose(TEXT), "More about it"),
        may("goal", Kind::Prose(TEXT), "What shall be true after it"),
        may("success_criteria", Kind::Texts(20), "How one sees that it is"),
        may("inputs", Kind::Texts(200), "Ids of the mission's assets that it reads"),
        must("output", Kind::Nested(&OUTPUT), "What it makes"),
        may("is_final", Kind::Bool, "Whether it is the mission's last"),
        may("rationale", Kind::Prose(TEXT), "Why this one"),
        may("alternatives", Kind::Texts(20), "What else was thought of"),
        may("executor", Kind::Choice(&Executor::TOKENS), EXECUTOR),
    ],
};
pub(crate) static EDIT_PLAN: Shape = Shape {
    name: "EditPlan",
    fields: &[
        must("revision", Kind::Integer, "The revision that this one is made from"),
        may("name", Kind::Text(NAME), "What it is called"),
        may("description", Kind::Prose(TEXT), "More about it"),
        may("goal", Kind::Prose(TEXT), "What shall be true after it"),
        may("success_criteria", Kind::Texts(20), "How one sees that it is"),
        may("inputs", Kind::Texts(200), "Ids of the mission's assets that it reads: all of them"),
        may("output", Kind::Nested(&OUTPUT), "What it makes"),
        may("is_final", Kind::Bool, "Whether it is the mission's last"),
        may("rationale", Kind::Prose(TEXT), "Why this one"),
        may("alternatives", Kind::Texts(20), "What else was thought of"),
        may("executor", Kind::Choice(&Executor::TOKENS), EXECUTOR),
    ],
};
pub(crate) static STEP_EDIT: Shape = Shape {
    name: "StepEdit",
    fields: &[
        must("id", Kind::Id("stp"), "The step"),
        may("name", Kind::Text(NAME), "What it is called"),
        may("description", Kind::Prose(TEXT), "More about it"),
        may("tool_id", Kind::Text(200), "Its tool"),
        may("parameter_mapping", Kind::Object, "Where each parameter comes from"),
        may("result_mapping", Kind::Object, "Where each result goes"),
        may("resource_configs", Kind::Object, "Must be empty: a tool takes what it needs as parameters"),
        may("attempts_max", Kind::Integer, "How often it is tried in one execution, 1 to 100"),
    ],
};
pub(crate) static EDIT_IMPL: Shape = Shape {
    name: "EditImpl",
    fields: &[
        must("revision", Kind::Integer, "The revision that this one is made from"),
        must("steps", Kind::List(&STEP_EDIT), "The steps that change"),
    ],
};
pub(crate) static RETRY: Shape = Shape {
    name: "RetryHop",
    fields: &[
        may("restart", Kind::Bool, "Whether finished steps run again too"),
        may("reason", Kind::Text(4_000), "Why; runes carry it"),
    ],
};
pub(crate) static CHANGES: Shape = Shape {
    name: "RequestHopChanges",
    fields: &[
        may("feedback", Kind::Text(TEXT), "What shall be changed; the agent reads it"),
        may("revision", Kind::Integer, "What was shown to whoever decides; must still be the revision"),
    ],
};
pub(crate) static HOP: Shape = Shape {
    name: "Hop",
    fields: &[
        must("id", Kind::Id("hop"), "The hop's id"),
        must("session_id", Kind::Id("ses"), "Its session"),
        must("mission_id", Kind::Id("mis"), "Its mission"),
        must("sequence", Kind::Integer, "Its place in the mission"),
        must("author", Kind::Text(200), "Who began it"),
        must("executor", Kind::Choice(&Executor::TOKENS), EXECUTOR),
        must("status", Kind::State(&machine::TABLE), "Where its machine is"),
        may("status_v1", Kind::Text(40), "The same in the older vocabulary"),
        must("revision", Kind::Integer, "Of its plan or steps: what an approval names"),
        must("name", Kind::Text(NAME), "What it is called"),
        may("description", Kind::Prose(TEXT), "More about it"),
        may("goal", Kind::Prose(TEXT), "What shall be true after it"),
        must("success_criteria", Kind::Texts(20), "How one sees that it is"),
        may("rationale", Kind::Prose(TEXT), "Why this one"),
        may("alternatives", Kind::Texts(20), "What else was thought of"),
        must("inputs", Kind::Texts(200), "Ids of the assets that it reads"),
        must("outputs", Kind::Texts(200), "Ids of the assets that it makes"),
        must("is_final", Kind::Bool, "Whether it is the mission's last"),
        must("plan_accepted_once", Kind::Bool, "Whether a plan of it was ever accepted"),
        must("archived", Kind::Bool, "Whether it is put away"),
        must("attempts", Kind::Integer, "Executions begun"),
        may("phase", Kind::Text(40), "Of one that failed: plan, resolve, impl or execute"),
        may("failure_class", Kind::Text(40), "Of one that failed: how far that reaches"),
        may("error", Kind::Object, "What went wrong"),
        may("feedback", Kind::Prose(TEXT), "What a person wants changed"),
        may("input_versions", Kind::Object, "Versions of its inputs that its execution reads"),
        may("result", Kind::Any, "What came of it"),
        must("created_at", Kind::Time, "When it was begun"),
        must("updated_at", Kind::Time, "When it last changed"),
        may("ended_at", Kind::Time, "When it ended or failed"),
    ],
};

pub(crate) fn show(row: &hop::Model) -> Value {
    let older = machine::State::parse(&row.status)
        .and_then(|state| vocabulary::refine(mission_machine::State::InProgress, Some(state), true).1);
    let assets = |list: &Value| instar_runtime::asset_ids(list).into_iter().map(AssetId::from).collect::<Vec<_>>();
    json!({
        "id": HopId::from(row.id),
        "session_id": SessionId::from(row.session_id),
        "mission_id": MissionId::from(row.mission_id),
        "sequence": row.sequence,
        "author": row.author,
        "executor": row.executor,
        "status": row.status,
        "status_v1": older.map(|older| older.token()),
        "revision": row.revision,
        "name": row.name,
        "description": row.description,
        "goal": row.goal,
        "success_criteria": row.success_criteria,
        "rationale": row.rationale,
        "alternatives": row.alternatives,
        "inputs": assets(&row.inputs),
        "outputs": assets(&row.outputs),
        "is_final": row.is_final,
        "plan_accepted_once": row.plan_accepted_once,
        "archived": row.archived,
        "attempts": row.attempts,
        "phase": row.phase,
        "failure_class": row.failure_class,
        "error": row.error,
        "feedback": row.feedback,
        "input_versions": row.input_versions,
        "result": row.result,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
        "ended_at": row.ended_at,
    })
}

async fn shown(call: &Call, id: HopId) -> Result<Value, Problem> {
    let row = call.api.store().hop(id).await?.ok_or_else(|| Problem::absent("hop", &id.to_string()))?;
    Ok(show(&row))
}

/// A plan that a person writes.
pub(crate) async fn create(call: Arc<Call>) -> Result<Reply, Problem> {
    let (row, _) = find::mission(&call).await?;
    let of = MissionId::from(row.id);
    let form: HopForm = voyage::read(Value::Object(call.body.clone()))?;
    form.check(true).map_err(Problem::invalid)?;
    let id = voyage::again(&call, of, None, StatusCode::CREATED, |rows| {
        let mission = rows.missions.get(&row.id).unwrap_or(&row);
        let (act, hop) = flow::hop(rows, mission, Some(form.clone()), call.actor())?;
        Ok((act, HopId::from(hop.id)))
    })
    .await?;
    voyage::advance(&call, of).await;
    let answer = shown(&call, id).await?;
    Ok(Reply::Json { status: StatusCode::CREATED, body: answer, kept: false })
}

pub(crate) async fn list(call: Arc<Call>) -> Result<Reply, Problem> {
    let page = Page::of(&call)?;
    let mut query = hop::Entity::find()
        .join(sea_orm::JoinType::InnerJoin, find::to_session::<hop::Entity>())
        .filter(session::Column::Namespace.eq(&*call.caller.namespace));
    match call.asked("status") {
        Some(status) => {
            known_state(&machine::TABLE, "status", status)?;
            query = query.filter(hop::Column::Status.eq(status));
        }
        None => query = query.filter(hop::Column::Status.ne(machine::State::Deleted.token())),
    }
    if let Some(mission) = call.filter::<MissionId>("mission")? {
        query = query.filter(hop::Column::MissionId.eq(mission.uuid()));
    }
    if let Some(session) = call.filter::<SessionId>("session")? {
        query = query.filter(hop::Column::SessionId.eq(session.uuid()));
    }
    if let Some(before) = page.before {
        query = query.filter(hop::Column::Id.lt(before));
    }
    let rows = query.order_by_desc(hop::Column::Id).limit(page.rows()).all(call.api.db()).await?;
    Ok(Reply::ok(page.answer(rows, |row| row.id, |row| show(&row))))
}

pub(crate) async fn get(call: Arc<Call>) -> Result<Reply, Problem> {
    Ok(Reply::ok(show(&find::hop(&call).await?.0)))
}

async fn rows(call: &Call) -> Result<(hop::Model, mission::Model), Problem> {
    let (row, _) = find::hop(call).await?;
    let mission = call.api.store().mission(MissionId::from(row.mission_id)).await?;
    let mission = mission.ok_or_else(|| Problem::absent("mission", &MissionId::from(row.mission_id).to_string()))?;
    Ok((row, mission))
}

async fn command(call: &Call, event: &'static str) -> Result<Reply, Problem> {
    let (row, mission) = rows(call).await?;
    let mut act = voyage::on_hop(call, &row, event);
    if call.body.get("restart").and_then(Value::as_bool).unwrap_or_default() {
        act = act.given(Fact::Restart).telling("hop.retried", json!({"restart": true}));
    }
    let id = HopId::from(row.id);
    voyage::land(call, act, MissionId::from(mission.id), Shown::ok(id)).await?;
    Ok(Reply::ok(shown(call, id).await?))
}

macro_rules! commands {
    ($($name:ident $event:literal),+ $(,)?) => {$(
        pub(crate) async fn $name(call: Arc<Call>) -> Result<Reply, Problem> {
            command(&call, $event).await
        }
    )+};
}

commands! {
    approve_plan "approve_hop_plan",
    reject_plan "reject_hop_plan",
    approve_impl "approve_hop_impl",
    reject_impl "reject_hop_impl",
    request_changes "request_hop_changes",
    execute "execute_hop",
    stop "stop_hop",
    cancel "cancel_hop",
    retry "retry_hop",
    replan "replan_hop",
    reset "reset_hop",
    archive "archive_hop",
}

/// Back to where a failed hop can be mended, which depends on where it failed.
pub(crate) async fn fix(call: Arc<Call>) -> Result<Reply, Problem> {
    let (row, _) = rows(&call).await?;
    let phase = row.phase.as_deref().and_then(HopPhase::parse);
    let event = phase.and_then(|phase| fix_hop(phase).ok()).unwrap_or(machine::Event::FixHop);
    command(&call, event.token()).await
}

/// A proposal is thrown away, anything else must have ended.
pub(crate) async fn delete(call: Arc<Call>) -> Result<Reply, Problem> {
    let (row, _) = rows(&call).await?;
    let proposed = row.status == machine::State::PlanProposed.token();
    command(&call, if proposed { "discard_hop" } else { "delete_hop" }).await
}

pub(crate) async fn edit_plan(call: Arc<Call>) -> Result<Reply, Problem> {
    let (row, mission) = rows(&call).await?;
    let (id, of) = (HopId::from(row.id), MissionId::from(mission.id));
    let mut body = call.body.clone();
    body.remove("revision");
    let form: HopForm = voyage::read(Value::Object(body))?;
    form.check(false).map_err(Problem::invalid)?;
    voyage::again(&call, of, Some(id), StatusCode::OK, |rows| {
        let hop = rows.hops.get(&row.id).unwrap_or(&row);
        let act = flow::hop_plan(rows, hop, "edit_hop_plan", form.clone(), call.actor())?;
        Ok((voyage::of_revision(&call, act), id))
    })
    .await?;
    voyage::advance(&call, of).await;
    Ok(Reply::ok(shown(&call, id).await?))
}

#[derive(Deserialize)]
struct Steps {
    steps: Vec<StepForm>,
}

pub(crate) async fn edit_impl(call: Arc<Call>) -> Result<Reply, Problem> {
    let (row, mission) = rows(&call).await?;
    let (id, of) = (HopId::from(row.id), MissionId::from(mission.id));
    let Steps { steps } = call.read()?;
    StepForm::check_all(&steps, false).map_err(Problem::invalid)?;
    voyage::again(&call, of, Some(id), StatusCode::OK, |rows| {
        let hop = rows.hops.get(&row.id).unwrap_or(&row);
        let face = |name: &str| call.api.catalog.tools.for_step(name).map(|tool| tool.face());
        let wrong = flow::chain(rows, hop, &flow::edited(rows, hop.id, &steps), face);
        // In any other state it is the machine that refuses.
        if !wrong.is_empty() && hop.status == machine::State::ImplProposed.token() {
            return Err(ActError::Unfit(wrong.join("; ")));
        }
        let act = flow::edit_impl(rows, hop, steps.clone(), call.actor())?;
        Ok((voyage::of_revision(&call, act), id))
    })
    .await?;
    voyage::advance(&call, of).await;
    Ok(Reply::ok(shown(&call, id).await?))
}

#[derive(Deserialize)]
struct Older {
    command: vocabulary::Command,
}

/// A command in the older vocabulary.
pub(crate) async fn older(call: Arc<Call>) -> Result<Reply, Problem> {
    let (row, mission) = rows(&call).await?;
    let Older { command } = call.read()?;
    let id = HopId::from(row.id);
    if command == vocabulary::Command::ResetMission {
        return start_over(&call, &mission, id).await;
    }
    voyage::older(&call, command, &mission, Some(&row), Shown::ok(id)).await?;
    Ok(Reply::ok(shown(&call, id).await?))
}

/// Another instance of the hop's mission. The hop stays as it is, and its mission points at the new one.
async fn start_over(call: &Call, mission: &mission::Model, id: HopId) -> Result<Reply, Problem> {
    let of = MissionId::from(mission.id);
    let given = super::mission::given(call, of).await?;
    voyage::again(call, of, None, StatusCode::OK, |rows| {
        let old = rows.missions.get(&mission.id).unwrap_or(mission);
        let (act, _) = flow::reset_mission(rows, old, &given, None, call.actor())?;
        Ok((act.reason(voyage::reason(call, "started over")), id))
    })
    .await?;
    let new = call.api.store().mission(of).await?.and_then(|row| row.reset_to);
    if let Some(new) = new {
        voyage::advance(call, MissionId::from(new)).await;
    }
    Ok(Reply::ok(shown(call, id).await?))
}
