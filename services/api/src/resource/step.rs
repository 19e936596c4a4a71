//! Tool steps: looked at, completed by hand, cancelled, sent back.

use super::command::Command;
use super::find;
use crate::call::{Call, Reply};
use crate::problem::{Problem, runes_of};
use crate::settle::raise;
use crate::shape::{Kind, Shape, may, must};
use instar_core::id::{CallId, HopId, MissionId, SessionId, StepId};
use instar_core::machine::tool_step as machine;
use instar_runtime::Act;
use instar_store::entity::tool_step;
use serde_json::{Map, Value, json};
use std::sync::Arc;

pub(crate) static STEP: Shape = Shape {
    name: "ToolStep",
    fields: &[
        must("id", Kind::Id("stp"), "The step's id"),
        must("session_id", Kind::Id("ses"), "Its session"),
        must("mission_id", Kind::Id("mis"), "Its mission"),
        must("hop_id", Kind::Id("hop"), "Its hop"),
        must("sequence", Kind::Integer, "Its place in the hop"),
        must("name", Kind::Text(200), "Its name"),
        may("description", Kind::Prose(usize::MAX), "What it is for"),
        may("tool_id", Kind::Text(200), "The tool it runs"),
        must("parameter_mapping", Kind::Object, "Where each parameter comes from"),
        must("result_mapping", Kind::Object, "Where each result goes"),
        may("resource_configs", Kind::Any, "Further configuration"),
        must("status", Kind::State(&machine::TABLE), "Where its machine is"),
        must("attempts", Kind::Integer, "Calls made since it was last configured or retried"),
        must("attempts_max", Kind::Integer, "How many may be made"),
        may("call_id", Kind::Id("call"), "The call of its latest attempt"),
        may("next_at", Kind::Time, "When the next attempt begins"),
        may("validation_errors", Kind::Any, "Why its configuration is not valid"),
        may("result", Kind::Any, "What it wrote"),
        may("error", Kind::Object, "What went wrong"),
        may("started_at", Kind::Time, "When it began"),
        must("created_at", Kind::Time, "When it was proposed"),
        must("updated_at", Kind::Time, "When it last changed"),
        may("ended_at", Kind::Time, "When it came to rest"),
    ],
};
pub(crate) static COMPLETE: Shape = Shape {
    name: "CompleteStep",
    fields: &[
        must("outputs", Kind::Object, "A value for every mapped result, by result or by asset id"),
        may("reason", Kind::Text(4_000), "Why, for whoever reads the log"),
    ],
};

pub(crate) fn show(row: &tool_step::Model) -> Value {
    json!({
        "id": StepId::from(row.id),
        "session_id": SessionId::from(row.session_id),
        "mission_id": MissionId::from(row.mission_id),
        "hop_id": HopId::from(row.hop_id),
        "sequence": row.sequence,
        "name": row.name,
        "description": row.description,
        "tool_id": row.tool,
        "parameter_mapping": row.parameter_mapping,
        "result_mapping": row.result_mapping,
        "resource_configs": row.resource_configs,
        "status": row.status,
        "attempts": row.attempts,
        "attempts_max": row.attempts_max,
        "call_id": row.call_id.map(CallId::from),
        "next_at": row.next_at,
        "validation_errors": row.validation_errors,
        "result": row.result,
        "error": row.error,
        "started_at": row.started_at,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
        "ended_at": row.ended_at,
    })
}

/// The steps of a hop in the order in which they run.
pub(crate) async fn of_hop(call: Arc<Call>) -> Result<Reply, Problem> {
    let (hop, _) = find::hop(&call).await?;
    let rows = call.api.store().steps_of(HopId::from(hop.id)).await?;
    let data: Vec<Value> = rows.iter().map(show).collect();
    Ok(Reply::ok(json!({"data": data, "next_cursor": null})))
}

pub(crate) async fn get(call: Arc<Call>) -> Result<Reply, Problem> {
    Ok(Reply::ok(show(&find::step(&call).await?.0)))
}

fn act<'a>(call: &'a Call, row: &tool_step::Model, event: &'a str) -> Act<'a> {
    let (session, id) = (SessionId::from(row.session_id), StepId::from(row.id));
    Command { call, session, entity: id.into(), machine: &machine::TABLE, event }.act()
}

async fn carry(call: &Call, act: Act<'_>) -> Result<Reply, Problem> {
    let hub = call.api.hub();
    hub.follow(&runes_of(act.carry_out(hub).await?));
    Ok(Reply::ok(show(&find::step(call).await?.0)))
}

fn reason<'a>(call: &'a Call, otherwise: &'a str) -> &'a str {
    call.body.get("reason").and_then(Value::as_str).unwrap_or(otherwise)
}

/// A person supplies what the step should have made; the hop goes on behind it.
pub(crate) async fn complete(call: Arc<Call>) -> Result<Reply, Problem> {
    let (row, _) = find::step(&call).await?;
    raise(&machine::TABLE, &row.status, "mark_step_completed")?;
    let hub = call.api.hub();
    let nothing = Map::new();
    let given = call.body.get("outputs").and_then(Value::as_object).unwrap_or(&nothing);
    let supplied = hub.step_supplied(&row, given).await?.map_err(|why| Problem::field("outputs", why))?;
    let bench = hub.bench(&call.api.steps, MissionId::from(row.mission_id)).await?;
    let act = act(&call, &row, "mark_step_completed").reason(reason(&call, "completed by hand"));
    let act = supplied.iter().cloned().fold(act, Act::writing);
    carry(&call, bench.begin(act, supplied)).await
}

pub(crate) async fn cancel(call: Arc<Call>) -> Result<Reply, Problem> {
    let (row, _) = find::step(&call).await?;
    carry(&call, act(&call, &row, "cancel_step").reason(reason(&call, "cancelled by a person"))).await
}

pub(crate) async fn request_changes(call: Arc<Call>) -> Result<Reply, Problem> {
    let (row, _) = find::step(&call).await?;
    carry(&call, act(&call, &row, "request_step_changes").reason(reason(&call, "another tool is wanted"))).await
}

pub(crate) async fn reset(call: Arc<Call>) -> Result<Reply, Problem> {
    let (row, _) = find::step(&call).await?;
    carry(&call, act(&call, &row, "reset_step").reason(reason(&call, "brought back by a person"))).await
}

pub(crate) async fn delete(call: Arc<Call>) -> Result<Reply, Problem> {
    let (row, _) = find::step(&call).await?;
    carry(&call, act(&call, &row, "delete_step").reason("removed by a person")).await
}
