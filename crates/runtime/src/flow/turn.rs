//! A turn from its claim to its end, as the worker that owns its agent writes it.

use super::message::queue;
use super::{FlowError, birth, step};
use instar_core::id::{AgentId, CallId, MessageId, SessionId, TurnId, WorkerId};
use instar_core::machine::{By, agent_lifecycle, tool_call as call_machine, turn as turn_machine};
use instar_core::rune::payload::{
    ToolCall, TurnAssistantFinal, TurnCompleted, TurnError, TurnStarted, TurnToolCallsReceived, TurnToolsFinished,
    Usage,
};
use instar_core::rune::{Actor, Draft};
use instar_store::entity::{agent, message, session, tool_call, turn};
use instar_store::{Change, Commit};
use serde_json::{Value, json};
use uuid::Uuid;

fn begin(turn: &turn::Model, worker: WorkerId, epoch: i64) -> Commit {
    let actor = Actor::new(By::System, worker.to_string());
    Commit::new(SessionId::from(turn.session_id), actor).under_epoch(epoch).traced(turn.traceparent.clone())
}

fn ids(turn: &turn::Model) -> (AgentId, TurnId) {
    (AgentId::from(turn.agent_id), TurnId::from(turn.id))
}

/// Agent and turn in one commit, under a new epoch; messages that wait are taken up. The epoch that
/// every later write of this turn must name is `agent.epoch + 1`.
pub fn claim(
    agent: &agent::Model,
    turn: &turn::Model,
    waiting: &[MessageId],
    worker: WorkerId,
) -> Result<Commit, FlowError> {
    let (agent_id, turn_id) = ids(turn);
    let epoch = agent.epoch + 1;
    let mut commit = begin(turn, worker, epoch);
    let started = step(&turn_machine::TABLE, &turn.status, "start_turn", By::System)?;
    let assigned = step(&agent_lifecycle::TABLE, &agent.lifecycle, "turn_assigned", By::System)?;
    commit.change(Change::entity(&session::TABLE, SessionId::from(turn.session_id)).expecting("session", "active"));
    commit.change(
        Change::entity(&turn::TABLE, turn_id)
            .moving(started)
            .set(turn::Column::Epoch, epoch)
            .set(turn::Column::Attempts, turn.attempts + 1),
    );
    commit.change(
        Change::entity(&agent::TABLE, agent_id)
            .moving(assigned)
            .expecting("agent_drive", "running")
            .epoch(agent.epoch)
            .set(agent::Column::Epoch, epoch)
            .set(agent::Column::Owner, worker.uuid()),
    );
    for id in waiting {
        commit.change(Change::new(&message::TABLE, id.uuid()).set(message::Column::TurnId, turn_id.uuid()));
    }
    let told = TurnStarted {
        attempt: turn.attempts + 1,
        cause: Some(turn.cause.clone()),
        input: None,
        model: Some(agent.model.clone()),
        prompt_epoch: None,
        worker: Some(worker.to_string()),
    };
    commit.rune(Draft::new(turn_id, &told)?.agent(agent_id).turn(turn_id));
    Ok(commit)
}

/// What the model said before it asked for tools or ended.
#[derive(Clone, Debug, Default)]
pub struct Spoken {
    pub text: String,
    pub reasoning: Option<String>,
    pub usage: Usage,
}

/// A call that the model asks for, as the tool registry has judged it.
#[derive(Clone, Debug)]
pub struct Asked {
    pub id: CallId,
    pub provider_call_id: Option<String>,
    pub name: String,
    pub arguments: Value,
    pub digest: String,
    /// read_only, idempotent, at_most_once.
    pub effect: &'static str,
}

/// The answer asks for tools: the turn waits in the database, and nobody holds it.
pub fn calls(turn: &turn::Model, worker: WorkerId, spoken: &Spoken, asked: Vec<Asked>) -> Result<Commit, FlowError> {
    let (agent_id, turn_id) = ids(turn);
    let mut commit = begin(turn, worker, turn.epoch);
    let at = commit.at();
    let received = step(&turn_machine::TABLE, &turn.status, "tool_calls_received", By::System)?;
    commit.change(
        Change::entity(&turn::TABLE, turn_id)
            .moving(received)
            .epoch(turn.epoch)
            .set(turn::Column::Iterations, turn.iterations + 1)
            .set(turn::Column::OpenCalls, asked.len() as i64)
            .set(turn::Column::Usage, used(turn, spoken.usage)),
    );
    let told = TurnToolCallsReceived {
        call_ids: asked.iter().map(|a| a.id).collect(),
        content: (!spoken.text.is_empty()).then(|| spoken.text.clone()),
        reasoning: spoken.reasoning.clone(),
    };
    commit.rune(Draft::new(turn_id, &told)?.agent(agent_id).turn(turn_id));
    for (position, call) in (0..).zip(asked) {
        let born = birth(&call_machine::TABLE, "call", By::System)?;
        let told = ToolCall {
            tool_name: call.name.clone(),
            arguments: call.arguments.clone(),
            provenance: None,
            digest: Some(call.digest.clone()),
            step_id: None,
            provider_call_id: call.provider_call_id.clone(),
        };
        let model = tool_call::Model {
            id: call.id.uuid(),
            session_id: turn.session_id,
            agent_id: turn.agent_id,
            turn_id: Some(turn.id),
            step_id: None,
            status: born.to().into(),
            epoch: 0,
            version: 0,
            owner: None,
            position,
            name: call.name,
            provider_call_id: call.provider_call_id,
            arguments: call.arguments,
            digest: call.digest,
            effect: call.effect.into(),
            attempts: 0,
            approval: None,
            result_status: None,
            result: None,
            expires_at: None,
            traceparent: turn.traceparent.clone(),
            created_at: at,
            updated_at: at,
            ended_at: None,
        };
        commit.bear(&tool_call::TABLE, call.id, &[born], model);
        commit.rune(Draft::new(call.id, &told)?.agent(agent_id).turn(turn_id));
    }
    Ok(commit)
}

/// Every call has its result: the owner goes on under the epoch it has.
pub fn resume(turn: &turn::Model, worker: WorkerId) -> Result<Commit, FlowError> {
    let (agent_id, turn_id) = ids(turn);
    let mut commit = begin(turn, worker, turn.epoch);
    let finished = step(&turn_machine::TABLE, &turn.status, "tools_finished", By::System)?;
    if turn.open_calls > 0 {
        return Err(FlowError::Open(turn.open_calls));
    }
    // The version: a call that is still open would have to count itself down first.
    commit.change(Change::entity(&turn::TABLE, turn_id).moving(finished).epoch(turn.epoch).version(turn.version));
    commit.rune(Draft::new(turn_id, &TurnToolsFinished { results: vec![] })?.agent(agent_id).turn(turn_id));
    Ok(commit)
}

/// The answer is complete: turn and agent end it together, and input that waits gets the next turn.
/// `agent` as read before `waiting`: its version says whether a message came in between.
pub fn complete(
    turn: &turn::Model,
    agent: &agent::Model,
    worker: WorkerId,
    spoken: &Spoken,
    waiting: &[MessageId],
) -> Result<(Commit, Option<TurnId>), FlowError> {
    let (agent_id, turn_id) = ids(turn);
    let mut commit = begin(turn, worker, turn.epoch);
    let at = commit.at();
    let done = step(&turn_machine::TABLE, &turn.status, "response_done", By::System)?;
    let idle = step(&agent_lifecycle::TABLE, &agent.lifecycle, "turn_completed", By::System)?;
    let usage = used(turn, spoken.usage);
    commit.change(
        Change::entity(&turn::TABLE, turn_id)
            .moving(done)
            .epoch(turn.epoch)
            .set(turn::Column::Iterations, turn.iterations + 1)
            .set(turn::Column::Output, spoken.text.clone())
            .set(turn::Column::Usage, usage.clone())
            .set(turn::Column::EndedAt, at),
    );
    let told = TurnAssistantFinal { content: spoken.text.clone(), reasoning: spoken.reasoning.clone() };
    commit.rune(Draft::new(turn_id, &told)?.agent(agent_id).turn(turn_id));
    commit.change(Change::entity(&agent::TABLE, agent_id).moving(idle).epoch(turn.epoch).version(agent.version));
    let told = TurnCompleted {
        usage: serde_json::from_value(usage)?,
        final_output: None,
        finish_reason: Some("stop".into()),
        iterations: turn.iterations + 1,
    };
    commit.rune(Draft::new(turn_id, &told)?.agent(agent_id).turn(turn_id));
    let next = next(&mut commit, turn, waiting)?;
    Ok((commit, next))
}

/// The turn cannot go on; its agent can.
pub fn fail(
    turn: &turn::Model,
    agent: &agent::Model,
    worker: WorkerId,
    error_type: &str,
    why: &str,
    waiting: &[MessageId],
) -> Result<(Commit, Option<TurnId>), FlowError> {
    let (agent_id, turn_id) = ids(turn);
    let mut commit = begin(turn, worker, turn.epoch);
    let at = commit.at();
    let failed = step(&turn_machine::TABLE, &turn.status, "stream_error", By::System)?;
    let idle = step(&agent_lifecycle::TABLE, &agent.lifecycle, "turn_error", By::System)?;
    commit.change(
        Change::entity(&turn::TABLE, turn_id)
            .moving(failed)
            .epoch(turn.epoch)
            .set(turn::Column::Error, json!({"error_type": error_type, "message": why}))
            .set(turn::Column::EndedAt, at),
    );
    commit.change(Change::entity(&agent::TABLE, agent_id).moving(idle).epoch(turn.epoch).version(agent.version));
    let told = TurnError { error_type: error_type.into(), message: why.into(), partial_output: None };
    commit.rune(Draft::new(turn_id, &told)?.agent(agent_id).turn(turn_id));
    let next = next(&mut commit, turn, waiting)?;
    Ok((commit, next))
}

/// The turn after this one, if messages wait.
fn next(commit: &mut Commit, turn: &turn::Model, waiting: &[MessageId]) -> Result<Option<TurnId>, FlowError> {
    if waiting.is_empty() {
        return Ok(None);
    }
    let (session, (agent, _)) = (SessionId::from(turn.session_id), ids(turn));
    let id = TurnId::from(Uuid::now_v7());
    for message in waiting {
        commit.change(Change::new(&message::TABLE, message.uuid()).set(message::Column::TurnId, id.uuid()));
    }
    queue(commit, session, agent, id, waiting.to_vec(), "user", turn.traceparent.clone())?;
    Ok(Some(id))
}

/// Usage so far and that of the newest provider call.
fn used(turn: &turn::Model, more: Usage) -> Value {
    let before = |field: &str| turn.usage.get(field).and_then(Value::as_u64).unwrap_or(0);
    json!({
        "input_tokens": before("input_tokens") + more.input_tokens,
        "output_tokens": before("output_tokens") + more.output_tokens,
    })
}
