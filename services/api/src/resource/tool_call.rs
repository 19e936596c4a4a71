//! Tool calls: looked at, decided about, cancelled, resolved.

use super::command::Command;
use super::session::known_state;
use super::{find, message};
use crate::call::{Call, Reply};
use crate::page::Page;
use crate::problem::{Problem, runes_of};
use crate::settle::{raise, refuse, settle};
use crate::shape::{Kind, Shape, may, must};
use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use instar_core::id::{AgentId, CallId, SessionId, StepId, TurnId};
use instar_core::machine::{Phase, tool_call as machine};
use instar_core::rune::Draft;
use instar_core::rune::payload::{ToolApproved, ToolResolved};
use instar_runtime::hold::Holds;
use instar_runtime::{ActError, flow, step};
use instar_store::clock;
use instar_store::entity::{agent, session, tool_call};
use instar_store::{Change, Commit};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use serde_json::{Value, json};
use std::sync::Arc;

pub(crate) static TOOL_CALL: Shape = Shape {
    name: "ToolCall",
    fields: &[
        must("id", Kind::Id("call"), "The call's id"),
        must("session_id", Kind::Id("ses"), "Its session"),
        may("agent_id", Kind::Id("agt"), "The agent that asked for it, or for whose mission it is"),
        may("turn_id", Kind::Id("trn"), "Its turn"),
        may("step_id", Kind::Id("stp"), "The tool step that it is an attempt of"),
        must("name", Kind::Text(200), "The tool"),
        must("arguments", Kind::Any, "What it is called with"),
        must("digest", Kind::Prose(200), "Of tool, arguments and definition: what an approval is bound to"),
        must("effect", Kind::Text(40), "read_only, idempotent or at_most_once"),
        must("status", Kind::State(&machine::TABLE), "Where its machine is"),
        may("result_status", Kind::Text(40), "How it ended"),
        may("result", Kind::Any, "What came of it"),
        must("attempts", Kind::Integer, "Times it was started"),
        may("approval", Kind::Object, "Who was asked, who decided"),
        may("expires_at", Kind::Time, "Until when somebody may decide"),
        must("created_at", Kind::Time, "When the model asked for it"),
        may("ended_at", Kind::Time, "When it had its result"),
    ],
};
pub(crate) static APPROVE: Shape = Shape {
    name: "Approve",
    fields: &[may("digest", Kind::Text(200), "What was shown to whoever approves; must still be the call's")],
};
pub(crate) static DENY: Shape =
    Shape { name: "Deny", fields: &[must("reason", Kind::Text(4_000), "Why; the model reads it")] };
pub(crate) static CANCEL: Shape =
    Shape { name: "Cancel", fields: &[may("reason", Kind::Text(4_000), "Why; the model reads it")] };
pub(crate) static RESOLVE: Shape = Shape {
    name: "Resolve",
    fields: &[
        must(
            "outcome",
            Kind::Choice(&["success", "error", "retry"]),
            "What really happened, or that it shall be asked for again",
        ),
        may("output", Kind::Any, "What came of it"),
    ],
};

pub(crate) fn show(row: &tool_call::Model) -> Value {
    json!({
        "id": CallId::from(row.id),
        "session_id": SessionId::from(row.session_id),
        "agent_id": (!row.agent_id.is_nil()).then(|| AgentId::from(row.agent_id)),
        "turn_id": row.turn_id.map(TurnId::from),
        "step_id": row.step_id.map(StepId::from),
        "name": row.name,
        "arguments": row.arguments,
        "digest": row.digest,
        "effect": row.effect,
        "status": row.status,
        "result_status": row.result_status,
        "result": row.result,
        "attempts": row.attempts,
        "approval": row.approval,
        "expires_at": row.expires_at,
        "created_at": row.created_at,
        "ended_at": row.ended_at,
    })
}

/// With the time that is left to decide: it stands still while the session is held.
fn show_in(row: &tool_call::Model, session: &session::Model) -> Value {
    let held = Holds::of(session).within(row.created_at, clock::now());
    let expires_at = row.expires_at.map(|at| at + held).filter(|_| row.ended_at.is_none()).or(row.expires_at);
    let mut shown = show(row);
    shown["expires_at"] = json!(expires_at);
    shown
}

pub(crate) async fn list(call: Arc<Call>) -> Result<Reply, Problem> {
    let page = Page::of(&call)?;
    let mut query = tool_call::Entity::find()
        .join(sea_orm::JoinType::InnerJoin, find::to_session::<tool_call::Entity>())
        .select_also(session::Entity)
        .filter(session::Column::Namespace.eq(&*call.caller.namespace));
    if let Some(status) = call.asked("status") {
        known_state(&machine::TABLE, "status", status)?;
        query = query.filter(tool_call::Column::Status.eq(status));
        if machine::TABLE.phase(status) == Some(Phase::Live) {
            // There is an index of what has not ended.
            query = query.filter(tool_call::Column::EndedAt.is_null());
        }
    }
    if let Some(turn) = call.filter::<TurnId>("turn")? {
        query = query.filter(tool_call::Column::TurnId.eq(turn.uuid()));
    }
    if let Some(step) = call.filter::<StepId>("step")? {
        query = query.filter(tool_call::Column::StepId.eq(step.uuid()));
    }
    if let Some(session) = call.filter::<SessionId>("session")? {
        query = query.filter(tool_call::Column::SessionId.eq(session.uuid()));
    }
    if let Some(agent) = call.filter::<AgentId>("agent")? {
        query = query.filter(tool_call::Column::AgentId.eq(agent.uuid()));
    }
    if let Some(before) = page.before {
        query = query.filter(tool_call::Column::Id.lt(before));
    }
    let rows = query.order_by_desc(tool_call::Column::Id).limit(page.rows()).all(call.api.db()).await?;
    let shown = |(row, session): (_, Option<_>)| session.map_or_else(|| show(&row), |session| show_in(&row, &session));
    Ok(Reply::ok(page.answer(rows, |(row, _)| row.id, shown)))
}

pub(crate) async fn get(call: Arc<Call>) -> Result<Reply, Problem> {
    let (row, session) = find::tool_call(&call).await?;
    Ok(Reply::ok(show_in(&row, &session)))
}

fn place(row: &tool_call::Model, draft: Draft) -> Draft {
    let draft = if row.agent_id.is_nil() { draft } else { draft.agent(AgentId::from(row.agent_id)) };
    match row.turn_id {
        Some(turn) => draft.turn(TurnId::from(turn)),
        None => draft,
    }
}

/// The call's approval with a decision added to what was asked.
fn decided(row: &tool_call::Model, decision: &str, by: &str, at: DateTime<Utc>) -> Value {
    let mut approval = row.approval.clone().filter(Value::is_object).unwrap_or_else(|| json!({}));
    approval["decision"] = json!(decision);
    approval["approver"] = json!(by);
    approval["decided_at"] = json!(at);
    approval
}

/// A decision is made once and in time; whoever comes later is told by whom, or that nobody did.
fn undecided(row: &tool_call::Model, event: &str) -> Result<(), Problem> {
    let approval = row.approval.as_ref();
    let said = |field: &str| approval.and_then(|approval| approval.get(field)).cloned().unwrap_or_default();
    let refused = || refuse(&machine::TABLE, &row.status, event, "look at the call: it is over for decisions");
    if let Some(decision) = said("decision").as_str() {
        let detail = format!("the call was {decision} already");
        return Err(refused()
            .coded("already_decided", detail)
            .with("decision", decision)
            .with("decided_by", said("approver"))
            .with("decided_at", said("decided_at")));
    }
    let late = row.status == "timeout_result" && row.attempts == 0 && approval.is_some();
    if late {
        let detail = "nobody decided in time: the call ended without being run";
        return Err(refused().coded("approval_expired", detail).with("expired_at", json!(row.ended_at)));
    }
    Ok(())
}

/// What nobody approved in time is not run, also while its timer is on the way. How long it was held does not count.
fn in_time(row: &tool_call::Model, session: &session::Model) -> Result<(), Problem> {
    let now = clock::now();
    let until = row.expires_at.map(|at| at + Holds::of(session).within(row.created_at, now));
    match until.filter(|until| row.status == "awaiting_approval" && *until <= now) {
        Some(until) => {
            let refused = refuse(&machine::TABLE, &row.status, "approved", "let its agent ask for it again");
            let detail = "the time for a decision is over: the call ends without being run";
            Err(refused.coded("approval_expired", detail).with("expired_at", json!(until)))
        }
        None => Ok(()),
    }
}

/// Bound to the digest: what runs is what was shown. Written here rather than by the cascades,
/// of which it has none, so that the decision is in the row as well.
pub(crate) async fn approve(call: Arc<Call>) -> Result<Reply, Problem> {
    let given = call.body.get("digest").and_then(Value::as_str);
    let (landed, answer) = settle(&call, find::tool_call, |(row, session)| {
        if given.is_some_and(|digest| digest != row.digest) {
            let detail = "the call is not the one that was shown: look at it again before you approve it";
            return Err(Problem::conflict("digest_mismatch", detail).with("digest", row.digest.as_str()));
        }
        undecided(&row, "approved")?;
        in_time(&row, &session)?;
        let moved = raise(&machine::TABLE, &row.status, "approved")?;
        let moved = moved.ok_or_else(|| refuse(&machine::TABLE, &row.status, "approved", "it is already so"))?;
        let (id, session) = (CallId::from(row.id), SessionId::from(row.session_id));
        let mut commit = Commit::new(session, call.actor()).traced(call.traceparent.clone());
        let mut approval = decided(&row, "approved", &call.caller.key_id(), commit.at());
        if let Some(trace) = &call.traceparent {
            approval["traceparent"] = json!(trace);
        }
        commit.change(
            Change::entity(&tool_call::TABLE, id)
                .moving(moved)
                .version(row.version)
                .set(tool_call::Column::Approval, approval.clone()),
        );
        let told = ToolApproved { approver: call.caller.key_id(), digest: Some(row.digest.clone()) };
        commit.rune(place(&row, Draft::new(id, &told)?));
        let answer = show(&tool_call::Model { status: moved.to().into(), approval: Some(approval), ..row });
        call.keep(&mut commit, session, StatusCode::OK, &answer);
        Ok((commit, answer))
    })
    .await?;
    call.api.hub().follow(&landed.runes);
    Ok(Reply::kept(StatusCode::OK, answer))
}

async fn command(call: &Call, event: &str, reason: &str) -> Result<Reply, Problem> {
    let (row, session) = find::tool_call(call).await?;
    let (id, session) = (CallId::from(row.id), SessionId::from(session.id));
    let by = call.caller.key_id();
    let command = Command { call, session, entity: id.into(), machine: &machine::TABLE, event };
    let mut act = command.act().reason(reason).telling("tool.denied", json!({"reason": reason, "by": by}));
    if event == "denied" && call.carried_out().is_none() {
        undecided(&row, event)?;
        let approval = decided(&row, event, &by, clock::now());
        act = act.setting(move |change| change.set(tool_call::Column::Approval, approval.clone()));
    }
    let hub = call.api.hub();
    let done = act.carry_out(hub).await;
    if matches!(done, Err(ActError::Refused(_))) && event == "denied" {
        // Somebody was faster.
        undecided(&find::tool_call(call).await?.0, event)?;
    }
    hub.follow(&runes_of(done?));
    Ok(Reply::ok(show(&find::tool_call(call).await?.0)))
}

pub(crate) async fn deny(call: Arc<Call>) -> Result<Reply, Problem> {
    let reason = call.body.get("reason").and_then(Value::as_str).unwrap_or_default().to_owned();
    command(&call, "denied", &reason).await
}

pub(crate) async fn cancel(call: Arc<Call>) -> Result<Reply, Problem> {
    let reason = call.body.get("reason").and_then(Value::as_str).unwrap_or("cancelled by a person").to_owned();
    command(&call, "cancelled", &reason).await
}

/// A person says what an unknown outcome was. The call stays ended; what is known of it changes.
pub(crate) async fn resolve(call: Arc<Call>) -> Result<Reply, Problem> {
    let outcome = call.body.get("outcome").and_then(Value::as_str).unwrap_or_default().to_owned();
    if outcome == "retry" {
        return again(&call).await;
    }
    let output = call.body.get("output").cloned().unwrap_or(Value::Null);
    let said = (outcome == "success").then_some(&output);
    let look = |call| async move {
        let (row, _) = find::tool_call(call).await?;
        let step = match said {
            Some(output) => step_done(call, &row, output).await?,
            None => None,
        };
        let agent = call.api.hub().store().agent(AgentId::from(row.agent_id)).await?;
        Ok((row, step, agent))
    };
    let (landed, answer) = settle(&call, look, |(row, step, agent)| {
        let session = SessionId::from(row.session_id);
        let (mut commit, after) = resolved(&call, row, &outcome, &output, json!({}))?;
        if let Some(agent) = agent {
            // Written as it is: a worker that knows the agent by heart does not know what its call came to.
            let id = AgentId::from(agent.id);
            commit.change(Change::entity(&agent::TABLE, id).set(agent::Column::ParentId, agent.parent_id));
        }
        let mut commit = step.into_iter().fold(commit, Commit::then);
        let answer = show(&after);
        call.keep(&mut commit, session, StatusCode::OK, &answer);
        Ok((commit, answer))
    })
    .await?;
    call.api.hub().follow(&landed.runes);
    Ok(Reply::kept(StatusCode::OK, answer))
}

/// The step that failed by a call nobody knew the outcome of is done if that was a success: its hop goes on behind it
/// when it is retried, and makes no second call for it.
async fn step_done(call: &Call, row: &tool_call::Model, output: &Value) -> Result<Option<Commit>, Problem> {
    if row.result_status.as_deref() != Some("unknown") {
        return Ok(None);
    }
    let hub = call.api.hub();
    let Some(resolved) = hub.step_resolved(row, output).await? else { return Ok(None) };
    let resolved = resolved.map_err(|why| Problem::field("output", why))?;
    let mut act = step::accept(row, resolved, call.actor());
    act.traceparent.clone_from(&call.traceparent);
    Ok(act.prepare(hub).await?)
}

/// It had no effect. The machine never runs a call twice, so its agent is asked to make another, in the same commit:
/// that one is judged, approved and counted like any call.
async fn again(call: &Call) -> Result<Reply, Problem> {
    let (row, _) = find::tool_call(call).await?;
    if row.turn_id.is_none() {
        let advice = "it is a step's call: if it had its effect say success, with its output, and its step is done; if \
                      it had none say error and retry its hop, which calls the tool again";
        return Err(refuse(&machine::TABLE, &row.status, "resolve", advice));
    }
    let agent = AgentId::from(row.agent_id);
    let content = format!(
        "The outcome of the call {} of the tool {} was not known. It had no effect. Make it again, with these arguments: {}",
        CallId::from(row.id),
        row.name,
        row.arguments
    );
    let look = |call| async move { Ok((find::tool_call(call).await?.0, message::look(call, agent).await?)) };
    let _turn = call.api.agents.enter(agent.uuid()).await;
    let (landed, (found, said, answer)) = settle(call, look, |(row, found)| {
        let (actor, trace) = (call.actor(), call.traceparent.clone());
        let asked = flow::message(&found.session, &found.agent, found.busy, &content, actor, trace)?;
        let (session, said) = (SessionId::from(row.session_id), (asked.message, asked.turn));
        let link = json!({"message_id": asked.message, "turn_id": asked.turn});
        let (commit, after) = resolved(call, row, "retry", &Value::Null, link)?;
        let (mut commit, answer) = (commit.then(asked.commit), show(&after));
        call.keep(&mut commit, session, StatusCode::OK, &answer);
        Ok((commit, (found, said, answer)))
    })
    .await?;
    message::follow(call, &landed, &found.agent, said, &content);
    Ok(Reply::kept(StatusCode::OK, answer))
}

/// What is known of an unknown outcome from now on: the commit that says so, and the row after it.
fn resolved(
    call: &Call,
    row: tool_call::Model,
    outcome: &str,
    output: &Value,
    link: Value,
) -> Result<(Commit, tool_call::Model), Problem> {
    let moved = raise(&machine::TABLE, &row.status, "resolve")?;
    let settled = row.result.as_ref().is_some_and(|result| result.get("resolution").is_some());
    let (Some(moved), Some("unknown"), false) = (moved, row.result_status.as_deref(), settled) else {
        let advice = "its outcome is known: only an unknown one can be resolved, and once";
        return Err(refuse(&machine::TABLE, &row.status, "resolve", advice));
    };
    let (id, session) = (CallId::from(row.id), SessionId::from(row.session_id));
    let mut commit = Commit::new(session, call.actor()).traced(call.traceparent.clone());
    let at = commit.at();
    let mut result = row.result.clone().filter(Value::is_object).unwrap_or_else(|| json!({}));
    let mut resolution = link;
    (resolution["outcome"], resolution["by"], resolution["at"]) =
        (json!(outcome), json!(call.caller.key_id()), json!(at));
    if outcome != "retry" {
        // What its agent was told so far.
        resolution["before"] = json!({"output": result["output"], "error": result["error"]});
    }
    result["resolution"] = resolution;
    let status = match outcome {
        "success" => {
            result["output"] = output.clone();
            result["error"] = Value::Null;
            "success"
        }
        "error" => {
            result["output"] = output.clone();
            "error"
        }
        _ => "unknown",
    };
    commit.change(
        Change::entity(&tool_call::TABLE, id)
            .moving(moved)
            .version(row.version)
            .set(tool_call::Column::ResultStatus, status)
            .set(tool_call::Column::Result, result.clone()),
    );
    let told = ToolResolved { outcome: outcome.to_owned(), output: output.clone(), reason: None };
    commit.rune(place(&row, Draft::new(id, &told)?));
    Ok((commit, tool_call::Model { result_status: Some(status.into()), result: Some(result), ..row }))
}
