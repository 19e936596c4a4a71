//! The one result of a tool call, as the runner that has it writes it.

use super::{FlowError, step};
use instar_core::decide::{self, Effect, LostCall, Tries};
use instar_core::id::{AgentId, CallId, SessionId, TurnId, WorkerId};
use instar_core::machine::{By, tool_call as call_machine};
use instar_core::rune::payload::{ResultStatus, ToolProgress, ToolReclaimed, ToolResult, ToolStarted};
use instar_core::rune::{Actor, Draft};
use instar_store::entity::{tool_call, turn};
use instar_store::{Change, Commit};
use serde_json::{Value, json};

/// How a call ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub status: ResultStatus,
    pub output: Value,
    pub error: Option<String>,
    pub duration_ms: i64,
    pub truncated: bool,
}

/// By which event a running call has such a result.
pub fn event(status: ResultStatus) -> &'static str {
    match status {
        ResultStatus::Success => "success",
        ResultStatus::Error => "execution_error",
        ResultStatus::Timeout => "execution_timeout",
        ResultStatus::Cancelled => "cancelled",
        ResultStatus::Denied => "policy_denied",
        ResultStatus::Unknown => "worker_lost",
        ResultStatus::SandboxViolation => "sandbox_violation",
    }
}

/// The word for a status, in columns and messages.
pub fn status_token(status: ResultStatus) -> String {
    json!(status).as_str().unwrap_or("error").to_owned()
}

/// A result as the call's row keeps it.
pub fn result_json(outcome: &Outcome) -> Value {
    json!({"output": outcome.output, "error": outcome.error})
}

/// Where a running call is after such a result.
pub fn state_after(status: ResultStatus) -> &'static str {
    match status {
        ResultStatus::Success => "completed_result",
        ResultStatus::Timeout => "timeout_result",
        ResultStatus::Cancelled => "cancelled_result",
        ResultStatus::Denied => "denied",
        ResultStatus::Error | ResultStatus::Unknown | ResultStatus::SandboxViolation => "error_result",
    }
}

/// Records the result and counts the turn's open calls down; the landed commit's counter says
/// whether it was the last. A call without side effects that nobody had to approve may come
/// straight from `pending_call`: its start needs no commit of its own.
pub fn result(call: &tool_call::Model, runner: Actor, outcome: &Outcome) -> Result<Commit, FlowError> {
    let id = CallId::from(call.id);
    let mut commit = Commit::new(SessionId::from(call.session_id), runner).traced(call.traceparent.clone());
    let at = commit.at();
    let table = &call_machine::TABLE;
    let mut change = Change::entity(&tool_call::TABLE, id).epoch(call.epoch);
    let mut from = call.status.as_str();
    let straight = ["policy_denied", "sandbox_violation"].contains(&event(outcome.status));
    if from == "pending_call" && !straight {
        let free = step(table, from, "no_approval_needed", By::System)?;
        change = change.moving(free);
        from = free.to();
    }
    let ended = step(table, from, event(outcome.status), By::System)?;
    commit.change(
        change
            .moving(ended)
            .set(tool_call::Column::ResultStatus, status_token(outcome.status))
            .set(tool_call::Column::Result, result_json(outcome))
            .set(tool_call::Column::EndedAt, at),
    );
    if let Some(turn) = call.turn_id {
        commit.change(Change::new(&turn::TABLE, turn).adding(-1));
    }
    if outcome.status == ResultStatus::Denied {
        let why = outcome.error.clone().unwrap_or_else(|| "policy".into());
        let told = instar_core::rune::payload::ToolDenied { reason: why, by: Some("policy".into()) };
        commit.rune(place(call, Draft::new(id, &told)?));
    }
    let told = ToolResult {
        status: outcome.status,
        output: outcome.output.clone(),
        error: outcome.error.clone(),
        phase: None,
        duration_ms: outcome.duration_ms,
        attempt: call.attempts.max(1),
        truncated: outcome.truncated,
    };
    commit.rune(place(call, Draft::new(id, &told)?));
    Ok(commit)
}

/// What is known of a runner whose lease has run out: it may have died, or have been cut off or starved for as long.
pub const RUNNER_LOST: &str =
    "the lease of its runner ran out while the tool ran (it died or was cut off); whether it took effect is not known";

/// Runners one call may lose before it is given up.
pub const CALL_ATTEMPTS_MAX: u32 = 3;

/// A runner is about to cause the effect: durable before it does. Every later write of this
/// attempt names the epoch `call.epoch + 1`.
pub fn start(call: &tool_call::Model, runner: WorkerId) -> Result<Commit, FlowError> {
    let (id, epoch) = (CallId::from(call.id), call.epoch + 1);
    let actor = Actor::new(By::System, runner.to_string());
    let mut commit = Commit::new(SessionId::from(call.session_id), actor).traced(call.traceparent.clone());
    let started = step(&call_machine::TABLE, &call.status, "attempt_started", By::System)?;
    commit.change(
        Change::entity(&tool_call::TABLE, id)
            .moving(started)
            .epoch(call.epoch)
            .set(tool_call::Column::Epoch, epoch)
            .set(tool_call::Column::Owner, runner.uuid())
            .set(tool_call::Column::Attempts, call.attempts + 1),
    );
    let told = ToolStarted { attempt: call.attempts + 1, runner: Some(runner.to_string()) };
    commit.rune(place(call, Draft::new(id, &told)?));
    Ok(commit)
}

/// Whether a call that may be run again has cost so many runners that it must not be.
pub fn kills_runners(call: &tool_call::Model) -> bool {
    let repeatable = Effect::parse(&call.effect).is_some_and(Effect::repeatable);
    repeatable && call.attempts >= i64::from(CALL_ATTEMPTS_MAX)
}

/// What the tool said while it runs, and to which of its outputs; `epoch` is the one that the attempt writes under.
pub fn progress(
    call: &tool_call::Model,
    epoch: i64,
    runner: WorkerId,
    stream: Option<&str>,
    chunk: String,
) -> Result<Commit, FlowError> {
    let id = CallId::from(call.id);
    let actor = Actor::new(By::System, runner.to_string());
    let mut commit = Commit::new(SessionId::from(call.session_id), actor).traced(call.traceparent.clone());
    let said = step(&call_machine::TABLE, "executing", "progress_update", By::System)?;
    commit.change(Change::entity(&tool_call::TABLE, id).moving(said).epoch(epoch));
    commit.rune(place(call, Draft::new(id, &ToolProgress { chunk, stream: stream.map(str::to_owned) })?));
    Ok(commit)
}

/// Whether a call whose runner is gone may run again.
pub fn runs_again(call: &tool_call::Model) -> bool {
    let verdict = decide::call_worker_lost(LostCall {
        effect: Effect::parse(&call.effect).unwrap_or(Effect::AtMostOnce),
        started: call.attempts > 0,
        attempts: Tries { made: u32::try_from(call.attempts).unwrap_or(u32::MAX), max: CALL_ATTEMPTS_MAX },
    });
    verdict == call_machine::Event::Reclaimed
}

/// The runner that had the call is gone: it runs again if that can do no harm, else its result says
/// that the outcome is unknown. The flag says whether it may run again.
pub fn lost(call: &tool_call::Model, by: Actor) -> Result<(Commit, bool), FlowError> {
    let id = CallId::from(call.id);
    if !runs_again(call) {
        let outcome = Outcome {
            status: ResultStatus::Unknown,
            output: Value::Null,
            error: Some(RUNNER_LOST.into()),
            duration_ms: 0,
            truncated: false,
        };
        return Ok((result(call, by, &outcome)?, false));
    }
    let mut commit = Commit::new(SessionId::from(call.session_id), by).traced(call.traceparent.clone());
    let reclaimed = step(&call_machine::TABLE, &call.status, "reclaimed", By::System)?;
    commit.change(
        Change::entity(&tool_call::TABLE, id)
            .moving(reclaimed)
            .epoch(call.epoch)
            .set(tool_call::Column::Epoch, call.epoch + 1)
            .set(tool_call::Column::Owner, None::<uuid::Uuid>),
    );
    let told = ToolReclaimed { attempt: call.attempts, idempotency_key: Some(id.to_string()) };
    commit.rune(place(call, Draft::new(id, &told)?));
    Ok((commit, true))
}

pub(super) fn place(call: &tool_call::Model, draft: Draft) -> Draft {
    // A call of a step may act for no agent.
    let draft = if call.agent_id.is_nil() { draft } else { draft.agent(AgentId::from(call.agent_id)) };
    match call.turn_id {
        Some(turn) => draft.turn(TurnId::from(turn)),
        None => draft,
    }
}
