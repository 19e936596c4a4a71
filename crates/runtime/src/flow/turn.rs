//! A turn from its claim to its calls, as the worker that owns its agent writes it.

use super::{FlowError, birth, book, settle, step, unheard};
use chrono::{DateTime, Duration, Utc};
use instar_core::budget::Spent;
use instar_core::decide::{self, TURN_ATTEMPTS_MAX, Tries};
use instar_core::id::{AgentId, CallId, MessageId, SessionId, TurnId, WorkerId};
use instar_core::machine::{By, agent_drive, agent_lifecycle, tool_call as call_machine, turn as turn_machine};
use instar_core::rune::payload::{
    AgentDriveRecovered, CallSummary, ResultStatus, SystemError, ToolApprovalRequested, ToolApproved, ToolCall,
    ToolDenied, ToolResult, TurnAssistantDelta, TurnInput, TurnRecovered, TurnStarted, TurnToolCallsReceived,
    TurnToolsFinished, Usage,
};
use instar_core::rune::{Actor, Draft};
use instar_store::clock;
use instar_store::entity::{agent, message, session, timer, tool_call, turn};
use instar_store::{Change, Commit};
use serde_json::{Value, json};
use uuid::Uuid;

/// A timer that ends an approval nobody gave.
pub const APPROVAL_TIMER: &str = "approval_timeout";
/// In the data of a message: the answer that it was is not whole.
pub const CUT_OFF: &str = "cut_off";
/// A timer that takes a turn up again.
pub const RESUME_TIMER: &str = "turn_resume";

pub(super) fn begin(turn: &turn::Model, worker: WorkerId, epoch: i64) -> Commit {
    let actor = Actor::new(By::System, worker.to_string());
    Commit::new(SessionId::from(turn.session_id), actor).under_epoch(epoch).traced(turn.traceparent.clone())
}

pub(super) fn ids(turn: &turn::Model) -> (AgentId, TurnId) {
    (AgentId::from(turn.agent_id), TurnId::from(turn.id))
}

/// Agent and turn in one commit, under a new epoch; messages that wait are taken up. The epoch that
/// every later write of this turn must name is `agent.epoch + 1`. `prompt` is the message with which the turn's
/// prompt begins, `inputs` says what the turn takes up.
pub fn claim(
    agent: &agent::Model,
    turn: &turn::Model,
    waiting: &[MessageId],
    prompt: Option<MessageId>,
    worker: WorkerId,
    deadline: Duration,
    inputs: Vec<TurnInput>,
) -> Result<Commit, FlowError> {
    let (agent_id, turn_id) = ids(turn);
    let epoch = agent.epoch + 1;
    let mut commit = begin(turn, worker, epoch);
    let at = commit.at();
    let started = step(&turn_machine::TABLE, &turn.status, "start_turn", By::System)?;
    let assigned = step(&agent_lifecycle::TABLE, &agent.lifecycle, "turn_assigned", By::System)?;
    commit.change(Change::entity(&session::TABLE, SessionId::from(turn.session_id)).expecting("session", "active"));
    let mut change = Change::entity(&turn::TABLE, turn_id)
        .moving(started)
        .set(turn::Column::Epoch, epoch)
        .set(turn::Column::Attempts, turn.attempts + 1)
        .set(turn::Column::DeadlineAt, at + deadline);
    let cause = cause_with(turn, waiting);
    if cause != turn.cause {
        change = change.set(turn::Column::Cause, cause);
    }
    commit.change(change);
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
        cause: Some(cause.into()),
        inputs,
        model: Some(agent.model.clone()),
        prompt_epoch: prompt,
        worker: Some(worker.to_string()),
    };
    commit.rune(Draft::new(turn_id, &told)?.agent(agent_id).turn(turn_id));
    super::plan::start_task(&mut commit, turn)?;
    Ok(commit)
}

/// A nudged turn that finds messages is there for them.
pub fn cause_with<'a>(turn: &'a turn::Model, waiting: &[MessageId]) -> &'a str {
    if turn.cause == super::NUDGE && !waiting.is_empty() { "user" } else { &turn.cause }
}

/// Why a streaming turn gets a new owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The old one died with it: that counts as an attempt.
    Died,
    /// The old one handed it back, or a wait that the provider asked for is over.
    HandedBack,
}

/// Whether a turn that loses its owner once more has lost too many.
pub fn is_last(turn: &turn::Model, loss: Loss) -> bool {
    let made = u32::try_from(turn.attempts).unwrap_or(u32::MAX);
    let lost = decide::turn_worker_lost(Tries { made, max: TURN_ATTEMPTS_MAX });
    loss == Loss::Died && lost == turn_machine::Event::RecoveryExhausted
}

/// A streaming turn whose owner is gone: the next one goes on under a new epoch and makes the
/// provider call again; `said` is what the old one had kept of the answer. One that [`is_last`] is not recovered: it
/// ends like any other turn ([`super::give_up`]).
pub fn recover(
    agent: &agent::Model,
    turn: &turn::Model,
    worker: WorkerId,
    loss: Loss,
    said: &str,
) -> Result<Commit, FlowError> {
    let (agent_id, turn_id) = ids(turn);
    let epoch = agent.epoch + 1;
    let mut commit = begin(turn, worker, epoch);
    let goes_on = step(&turn_machine::TABLE, &turn.status, "worker_lost", By::System)?;
    let kept = step(&agent_lifecycle::TABLE, &agent.lifecycle, "worker_lost", By::System)?;
    let attempt = turn.attempts + i64::from(loss == Loss::Died);
    if loss == Loss::Died {
        // The call is made again; the one that went with its worker has its price.
        book(&mut commit, turn, unheard(turn));
    }
    let mut change = Change::entity(&agent::TABLE, agent_id)
        .moving(kept)
        .epoch(agent.epoch)
        .set(agent::Column::Epoch, epoch)
        .set(agent::Column::Owner, worker.uuid());
    if agent.drive == "running" {
        change = change.moving(step(&agent_drive::TABLE, &agent.drive, "worker_recovered", By::System)?);
    }
    commit.change(
        Change::entity(&turn::TABLE, turn_id)
            .moving(goes_on)
            .epoch(turn.epoch)
            .set(turn::Column::Epoch, epoch)
            .set(turn::Column::Attempts, attempt),
    );
    let reason = match loss {
        Loss::Died => "worker_lost",
        Loss::HandedBack => "handed_back",
    };
    let partial_output = (!said.is_empty()).then(|| said.to_owned());
    let told = TurnRecovered { attempt, epoch, reason: Some(reason.into()), partial_output };
    commit.rune(Draft::new(turn_id, &told)?.agent(agent_id).turn(turn_id));
    if agent.drive == "running" {
        let told = AgentDriveRecovered { worker: Some(worker.to_string()), nudge_count: agent.nudge_count };
        commit.rune(Draft::new(agent_id, &told)?.agent(agent_id));
    }
    commit.change(change);
    Ok(commit)
}

/// What the model said before it asked for tools or ended.
#[derive(Clone, Debug, Default)]
pub struct Spoken {
    pub text: String,
    pub reasoning: Option<String>,
    /// What the provider wants back unchanged, as JSON.
    pub blocks: Option<Value>,
    pub usage: Usage,
    /// The part of the input that the provider had in its cache.
    pub cached: u64,
    /// Why the model stopped; nothing of an answer that is not whole.
    pub finish: Option<String>,
}

impl Spoken {
    /// What it cost, with so many calls.
    pub(super) fn spent(&self, calls: usize) -> Spent {
        Spent { usage: self.usage, cached: self.cached, calls: i64::try_from(calls).unwrap_or(i64::MAX) }
    }
}

/// What policy and registry say to a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It has no side effects.
    Free,
    /// Policy approves.
    Approved,
    /// A person must; `None`: however long that takes.
    Ask { reason: String, expires_at: Option<DateTime<Utc>> },
    /// It ends before it began: denied, error (no such tool, bad arguments) or sandbox_violation.
    Refused { status: ResultStatus, why: String },
}

impl Verdict {
    /// Where a call is once it is judged.
    fn state(&self) -> &'static str {
        match self {
            Verdict::Free | Verdict::Approved => "executing",
            Verdict::Ask { .. } => "awaiting_approval",
            Verdict::Refused { status: ResultStatus::Denied, .. } => "denied",
            Verdict::Refused { .. } => "error_result",
        }
    }
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
    pub verdict: Verdict,
}

impl Asked {
    pub fn is_open(&self) -> bool {
        !matches!(self.verdict, Verdict::Refused { .. })
    }
}

/// Where spans are kept, the row names the one before a wait.
fn with_segment(change: Change, turn: &turn::Model) -> Change {
    match &turn.segment {
        Some(segment) => change.set(turn::Column::Segment, segment.clone()),
        None => change,
    }
}

/// The answer asks for tools: the turn waits in the database, and nobody holds it.
pub fn calls(turn: &turn::Model, worker: WorkerId, spoken: &Spoken, asked: Vec<Asked>) -> Result<Commit, FlowError> {
    let mut commit = received(turn, worker, spoken, asked)?;
    let row = Change::entity(&turn::TABLE, TurnId::from(turn.id));
    commit.change(row.set(turn::Column::Input, turn.input.clone()));
    Ok(commit)
}

/// The same of a turn that its worker keeps in mind and is about to go on with: mere digests of what was sent are
/// written with what comes next.
pub fn calls_in_mind(
    turn: &turn::Model,
    worker: WorkerId,
    spoken: &Spoken,
    asked: Vec<Asked>,
) -> Result<Commit, FlowError> {
    match turn.input.as_object().is_some_and(|input| input.keys().any(|key| key != "sent")) {
        true => calls(turn, worker, spoken, asked),
        false => received(turn, worker, spoken, asked),
    }
}

fn received(turn: &turn::Model, worker: WorkerId, spoken: &Spoken, asked: Vec<Asked>) -> Result<Commit, FlowError> {
    let (agent_id, turn_id) = ids(turn);
    let mut commit = begin(turn, worker, turn.epoch);
    let received = step(&turn_machine::TABLE, &turn.status, "tool_calls_received", By::System)?;
    let open = asked.iter().filter(|a| a.is_open()).count() as i64;
    let change = Change::entity(&turn::TABLE, turn_id)
        .moving(received)
        .epoch(turn.epoch)
        .version(turn.version)
        .set(turn::Column::Iterations, turn.iterations + 1)
        .set(turn::Column::OpenCalls, open)
        .set(turn::Column::Usage, used_with(turn, spoken.usage, asked.len()));
    commit.change(with_segment(change, turn));
    settle(&mut commit, turn, spoken.spent(asked.len()));
    let told = TurnToolCallsReceived {
        call_ids: asked.iter().map(|a| a.id).collect(),
        content: (!spoken.text.is_empty()).then(|| spoken.text.clone()),
        reasoning: spoken.reasoning.clone(),
    };
    commit.rune(Draft::new(turn_id, &told)?.agent(agent_id).turn(turn_id));
    said(&mut commit, turn, turn.iterations + 1, spoken);
    for (position, call) in (0..).zip(asked) {
        record(&mut commit, turn, position, call)?;
    }
    Ok(commit)
}

fn record(commit: &mut Commit, turn: &turn::Model, position: i64, call: Asked) -> Result<(), FlowError> {
    let ((agent_id, turn_id), at, table) = (ids(turn), commit.at(), &call_machine::TABLE);
    let tell = |draft: Draft| draft.agent(agent_id).turn(turn_id);
    let born = birth(table, "call", By::System)?;
    let event = match &call.verdict {
        Verdict::Free => "no_approval_needed",
        Verdict::Approved => "auto_approved",
        Verdict::Ask { .. } => "requires_approval",
        Verdict::Refused { status: ResultStatus::Denied, .. } => "policy_denied",
        Verdict::Refused { status: ResultStatus::SandboxViolation, .. } => "sandbox_violation",
        Verdict::Refused { .. } => "invalid_call",
    };
    let judged = step(table, born.to(), event, By::System)?;
    let mut model = call_row(turn, position, &call);
    model.iteration = turn.iterations + 1;
    (model.created_at, model.updated_at) = (at, at);
    let mut runes = vec![Draft::new(
        call.id,
        &ToolCall {
            tool_name: call.name,
            arguments: call.arguments,
            provenance: None,
            digest: Some(call.digest.clone()),
            step_id: None,
            provider_call_id: call.provider_call_id,
        },
    )?];
    match call.verdict {
        Verdict::Free => {}
        Verdict::Approved => {
            let told = ToolApproved { approver: "policy".into(), digest: Some(call.digest) };
            runes.push(Draft::new(call.id, &told)?);
        }
        Verdict::Ask { reason, expires_at } => {
            let told = ToolApprovalRequested {
                policy_reason: reason.clone(),
                digest: Some(call.digest),
                expires_at: expires_at.map(|t| t.to_rfc3339()),
            };
            runes.push(Draft::new(call.id, &told)?);
            model.approval = Some(json!({"requested_at": at, "reason": reason}));
            model.expires_at = expires_at;
            if let Some(due) = expires_at {
                commit.insert(&timer::TABLE, timer(turn.session_id, APPROVAL_TIMER, call.id.to_string(), due, at));
            }
        }
        Verdict::Refused { status, why } => {
            model.ended_at = Some(at);
            model.result_status = json!(status).as_str().map(str::to_owned);
            model.result = Some(json!({"output": null, "error": why}));
            if status == ResultStatus::Denied {
                runes.push(Draft::new(call.id, &ToolDenied { reason: why.clone(), by: Some("policy".into()) })?);
            }
            let told = ToolResult {
                status,
                output: Value::Null,
                error: Some(why),
                phase: None,
                duration_ms: 0,
                attempt: 0,
                truncated: false,
            };
            runes.push(Draft::new(call.id, &told)?);
        }
    }
    commit.bear(&tool_call::TABLE, call.id, &[born, judged], model);
    for rune in runes {
        commit.rune(tell(rune));
    }
    Ok(())
}

/// The row of a call of `turn`'s newest answer, before anybody began it.
pub fn call_row(turn: &turn::Model, position: i64, call: &Asked) -> tool_call::Model {
    let at = clock::now();
    tool_call::Model {
        id: call.id.uuid(),
        session_id: turn.session_id,
        agent_id: turn.agent_id,
        turn_id: Some(turn.id),
        step_id: None,
        status: call.verdict.state().into(),
        epoch: 0,
        version: 0,
        owner: None,
        iteration: turn.iterations,
        position,
        name: call.name.clone(),
        provider_call_id: call.provider_call_id.clone(),
        arguments: call.arguments.clone(),
        digest: call.digest.clone(),
        effect: call.effect.into(),
        attempts: 0,
        approval: None,
        result_status: None,
        result: None,
        waits_for: None,
        expires_at: None,
        traceparent: turn.traceparent.clone(),
        created_at: at,
        updated_at: at,
        ended_at: None,
    }
}

pub(crate) fn timer(
    session: Uuid,
    kind: &str,
    entity: String,
    due_at: DateTime<Utc>,
    at: DateTime<Utc>,
) -> timer::Model {
    let id = Uuid::now_v7();
    let kind = kind.to_owned();
    timer::Model {
        id,
        session_id: session,
        kind,
        entity,
        due_at,
        claimed_until: None,
        payload: None,
        version: 0,
        created_at: at,
    }
}

/// Every call has its result: the turn goes on. `agent` where another than its owner takes it up,
/// which needs a new epoch; `waited` is how long a person took, by which the deadline moves; `results` says what came of
/// the calls.
pub fn resume(
    turn: &turn::Model,
    agent: Option<&agent::Model>,
    worker: WorkerId,
    waited: Duration,
    results: Vec<CallSummary>,
) -> Result<Commit, FlowError> {
    let (agent_id, turn_id) = ids(turn);
    let epoch = agent.map_or(turn.epoch, |agent| agent.epoch + 1);
    let mut commit = begin(turn, worker, epoch);
    let finished = step(&turn_machine::TABLE, &turn.status, "tools_finished", By::System)?;
    if turn.open_calls > 0 {
        return Err(FlowError::Open(turn.open_calls));
    }
    // The version: a call that is still open would have to count itself down first.
    let mut change = Change::entity(&turn::TABLE, turn_id).moving(finished).epoch(turn.epoch).version(turn.version);
    if let Some(deadline) = turn.deadline_at.filter(|_| waited > Duration::zero()) {
        change = change.set(turn::Column::DeadlineAt, deadline + waited);
    }
    if let Some(agent) = agent {
        change = change.set(turn::Column::Epoch, epoch);
        commit.change(
            Change::entity(&agent::TABLE, agent_id)
                .expecting("agent_lifecycle", "running_turn")
                .epoch(agent.epoch)
                .set(agent::Column::Epoch, epoch)
                .set(agent::Column::Owner, worker.uuid()),
        );
    }
    commit.change(change);
    commit.rune(Draft::new(turn_id, &TurnToolsFinished { results })?.agent(agent_id).turn(turn_id));
    Ok(commit)
}

/// What has been said so far, kept for whoever joins late and for an interrupted turn.
pub fn checkpoint(turn: &turn::Model, worker: WorkerId, content: &str, index: i64) -> Result<Commit, FlowError> {
    let (agent_id, turn_id) = ids(turn);
    let mut commit = begin(turn, worker, turn.epoch);
    let noted = step(&turn_machine::TABLE, &turn.status, "assistant_delta", By::System)?;
    commit.change(with_segment(Change::entity(&turn::TABLE, turn_id).moving(noted).epoch(turn.epoch), turn));
    let told = TurnAssistantDelta { content: content.into(), index };
    commit.rune(Draft::new(turn_id, &told)?.agent(agent_id).turn(turn_id));
    Ok(commit)
}

/// The owner lets go of a streaming turn without an end: it drains, and somebody else goes on.
pub fn hand_back(turn: &turn::Model, worker: WorkerId, so_far: &Spoken, index: i64) -> Result<Commit, FlowError> {
    let mut commit = checkpoint(turn, worker, &so_far.text, index)?;
    let row = Change::entity(&turn::TABLE, TurnId::from(turn.id));
    commit.change(row.set(turn::Column::Usage, used(turn, so_far.usage)));
    let agent = Change::entity(&agent::TABLE, AgentId::from(turn.agent_id));
    commit.change(agent.epoch(turn.epoch).set(agent::Column::Owner, None::<Uuid>));
    settle(&mut commit, turn, so_far.spent(0));
    Ok(commit)
}

/// The provider stopped in the middle of an answer and wants it back to go on: what it said so far is kept as an
/// answer of its own, and whoever takes the turn up next makes the call.
pub fn pause(turn: &turn::Model, worker: WorkerId, spoken: &Spoken, index: i64) -> Result<Commit, FlowError> {
    let mut commit = checkpoint(turn, worker, &spoken.text, index)?;
    commit.change(
        Change::entity(&turn::TABLE, TurnId::from(turn.id))
            .epoch(turn.epoch)
            .version(turn.version)
            .set(turn::Column::Iterations, turn.iterations + 1)
            .set(turn::Column::Input, turn.input.clone())
            .set(turn::Column::Usage, used(turn, spoken.usage)),
    );
    let agent = Change::entity(&agent::TABLE, AgentId::from(turn.agent_id));
    commit.change(agent.epoch(turn.epoch).set(agent::Column::Owner, None::<Uuid>));
    settle(&mut commit, turn, spoken.spent(0));
    said(&mut commit, turn, turn.iterations + 1, spoken);
    Ok(commit)
}

/// The provider wants a wait that is too long to sit out: the turn waits as a row and a timer.
pub fn park(
    turn: &turn::Model,
    worker: WorkerId,
    until: DateTime<Utc>,
    error_type: &str,
    why: &str,
    so_far: &Spoken,
) -> Result<Commit, FlowError> {
    let (agent_id, turn_id) = ids(turn);
    let mut commit = begin(turn, worker, turn.epoch);
    let at = commit.at();
    let n = waits(turn) + 1;
    let call = turn.iterations + 1;
    let control = json!({"action": "wait", "until": until, "reason": error_type, "why": why, "n": n, "call": call});
    let deadline = turn.deadline_at.map(|deadline| deadline + (until - at));
    let change = Change::entity(&turn::TABLE, turn_id)
        .expecting("turn", "streaming")
        .epoch(turn.epoch)
        .version(turn.version)
        .set(turn::Column::DeadlineAt, deadline)
        .set(turn::Column::Usage, used(turn, so_far.usage))
        .set(turn::Column::Control, control);
    commit.change(with_segment(change, turn));
    let agent = Change::entity(&agent::TABLE, agent_id).epoch(turn.epoch);
    commit.change(agent.set(agent::Column::Owner, None::<Uuid>));
    settle(&mut commit, turn, so_far.spent(0));
    commit.insert(&timer::TABLE, timer(turn.session_id, RESUME_TIMER, turn_id.to_string(), until, at));
    let context = json!({"turn_id": turn_id, "retry_at": until});
    let told = SystemError { error_type: error_type.into(), message: why.into(), context };
    commit.rune(Draft::new(turn_id, &told)?.agent(agent_id).turn(turn_id));
    Ok(commit)
}

/// How often a turn has waited for the provider call that comes next.
pub fn waits(turn: &turn::Model) -> i64 {
    let waited = turn.control.as_ref().filter(|control| control["call"] == turn.iterations + 1);
    waited.and_then(|control| control["n"].as_i64()).unwrap_or(0)
}

/// Keeps the answer's text where the next provider call and a reader of the history find it.
pub(super) fn said(commit: &mut Commit, turn: &turn::Model, iteration: i64, spoken: &Spoken) {
    if let Some(row) = said_row(turn, iteration, spoken) {
        let row = message::Model { created_at: commit.at(), ..row };
        commit.insert(&message::TABLE, row);
    }
}

/// The message that an answer becomes; none where nothing was said and no thought was shown.
pub fn said_row(turn: &turn::Model, iteration: i64, spoken: &Spoken) -> Option<message::Model> {
    if spoken.text.is_empty() && spoken.blocks.is_none() && spoken.reasoning.is_none() {
        return None;
    }
    let mut data = json!({"iteration": iteration});
    if let Some(blocks) = &spoken.blocks {
        data["blocks"] = blocks.clone();
    }
    if let Some(reasoning) = &spoken.reasoning {
        data["reasoning"] = json!(reasoning);
    }
    // Of an answer that is not whole nobody knows why the model would have stopped.
    if spoken.finish.is_none() {
        data[CUT_OFF] = json!(true);
    }
    Some(message::Model {
        id: Uuid::now_v7(),
        session_id: turn.session_id,
        agent_id: turn.agent_id,
        turn_id: Some(turn.id),
        version: 0,
        role: "assistant".into(),
        source: "model".into(),
        mode: "queue".into(),
        content: spoken.text.clone(),
        data: Some(data),
        created_at: clock::now(),
    })
}

/// Usage so far and that of the newest provider call.
pub fn used(turn: &turn::Model, more: Usage) -> Value {
    used_with(turn, more, 0)
}

/// The same with the tool calls that it asks for.
pub fn used_with(turn: &turn::Model, more: Usage, calls: usize) -> Value {
    let before = |field: &str| turn.usage.get(field).and_then(Value::as_u64).unwrap_or(0);
    let mut usage = json!({
        "input_tokens": before("input_tokens") + more.input_tokens,
        "output_tokens": before("output_tokens") + more.output_tokens,
    });
    let calls = before("tool_calls") + calls as u64;
    if calls > 0 {
        usage["tool_calls"] = json!(calls);
    }
    usage
}
