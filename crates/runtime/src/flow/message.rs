//! A message for an agent: stored, and a turn queued for it unless one is under way.

use super::child::{Waits, letter_waits};
use super::daily::{Ceiling, rest_for_today};
use super::{FlowError, birth, letter, step};
use chrono::{DateTime, Utc};
use instar_core::id::{AgentId, MessageId, SessionId, TurnId};
use instar_core::machine::{Refusal, agent_drive, session as session_machine, turn as turn_machine};
use instar_core::rune::payload::{
    AgentDriveStarted, AgentMessageReceived, SessionActivated, TurnControlRequested, TurnQueued,
};
use instar_core::rune::{Actor, Draft};
use instar_store::entity::{agent, message, session, turn};
use instar_store::{Change, Commit, clock};
use serde_json::{Value, json};
use uuid::Uuid;

/// How a message wants to be taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// After the turn that runs.
    #[default]
    Queue,
    /// Instead of the rest of the turn that runs, before anything that was queued.
    Steer,
    /// The turn that runs is interrupted; the message gets the next one.
    Interrupt,
}

impl Mode {
    pub const fn token(self) -> &'static str {
        match self {
            Mode::Queue => "queue",
            Mode::Steer => "steer",
            Mode::Interrupt => "interrupt",
        }
    }
}

pub struct Accepted {
    pub commit: Commit,
    pub message: MessageId,
    /// The turn that will answer it; none while it waits behind another.
    pub turn: Option<TurnId>,
}

/// `busy`: the agent has a turn that is queued or live. Read together with the agent's row, whose
/// version the commit expects: every commit that queues, starts or ends a turn writes that row.
pub fn message(
    session: &session::Model,
    agent: &agent::Model,
    busy: bool,
    content: &str,
    actor: Actor,
    traceparent: Option<String>,
) -> Result<Accepted, FlowError> {
    takes_input(session)?;
    let (session_id, agent_id) = (SessionId::from(session.id), AgentId::from(agent.id));
    let by = actor.by;
    let drive = step(&agent_drive::TABLE, &agent.drive, "message_received", by)?;
    let id = MessageId::from(Uuid::now_v7());
    let turn_id = (!busy).then(|| TurnId::from(Uuid::now_v7()));
    let mut commit = Commit::new(session_id, actor).traced(traceparent.clone());

    hear(&mut commit, agent, drive, id, content, Mode::Queue)?;
    let first = session.status == "created" && session.root_agent_id == Some(agent.id);
    let active = first.then(|| step(&session_machine::TABLE, &session.status, "first_message", by)).transpose()?;
    if let Some(active) = active {
        commit.change(Change::entity(&session::TABLE, session_id).moving(active));
        commit.rune(Draft::new(session_id, &SessionActivated { root_agent_id: Some(agent_id) })?);
    }
    let at = commit.at();
    commit.insert(&message::TABLE, row(session_id, agent_id, id, turn_id, content, Mode::Queue, at));
    if let Some(turn_id) = turn_id {
        queue(&mut commit, session_id, agent_id, turn_id, vec![id], "user", traceparent)?;
    }
    Ok(Accepted { commit, message: id, turn: turn_id })
}

/// The agent's row and runes for a message that arrives.
fn hear(
    commit: &mut Commit,
    agent: &agent::Model,
    drive: instar_core::machine::Move,
    id: MessageId,
    content: &str,
    mode: Mode,
) -> Result<(), FlowError> {
    let agent_id = AgentId::from(agent.id);
    commit.change(
        Change::entity(&agent::TABLE, agent_id)
            .moving(drive)
            .version(agent.version)
            .set(agent::Column::NudgeCount, 0i64)
            .set(agent::Column::LetterCount, None::<i64>),
    );
    let received = AgentMessageReceived {
        message_id: id,
        source: "direct".into(),
        content: content.into(),
        mode: (mode != Mode::Queue).then(|| mode.token().into()),
        broadcast_id: None,
    };
    commit.rune(Draft::new(agent_id, &received)?.agent(agent_id));
    if drive.changes_state() {
        let started = AgentDriveStarted { reason: Some("message".into()), relaunched_from: None };
        commit.rune(Draft::new(agent_id, &started)?.agent(agent_id));
    }
    Ok(())
}

/// A message for a turn that is under way: stored, and a control recorded on the turn. A stronger control that is there already stays.
pub fn steer(
    session: &session::Model,
    agent: &agent::Model,
    live: &turn::Model,
    content: &str,
    mode: Mode,
    actor: Actor,
    traceparent: Option<String>,
) -> Result<Accepted, FlowError> {
    takes_input(session)?;
    if session.status == "paused" {
        return Err(refused(session, "the session is paused: send with mode queue, or resume it first"));
    }
    let drive = step(&agent_drive::TABLE, &agent.drive, "message_received", actor.by)?;
    let control = step(&turn_machine::TABLE, &live.status, "request_control", actor.by)?;
    let (session_id, agent_id, turn_id) =
        (SessionId::from(session.id), AgentId::from(agent.id), instar_core::id::TurnId::from(live.id));
    let id = MessageId::from(Uuid::now_v7());
    let mut commit = Commit::new(session_id, actor).traced(traceparent);
    let at = commit.at();
    hear(&mut commit, agent, drive, id, content, mode)?;
    commit.insert(&message::TABLE, row(session_id, agent_id, id, None, content, mode, at));
    let interrupted = live.control.as_ref().is_some_and(|c| c["action"] == "interrupt");
    let mut change = Change::entity(&turn::TABLE, turn_id).moving(control).version(live.version);
    if !interrupted {
        let action = json!({"action": mode.token(), "reason": mode.token(), "message_id": id});
        change = change.set(turn::Column::Control, action);
    }
    commit.change(change);
    let told = TurnControlRequested { action: mode.token().into(), reason: None, message_id: Some(id) };
    commit.rune(Draft::new(turn_id, &told)?.agent(agent_id).turn(turn_id));
    Ok(Accepted { commit, message: id, turn: None })
}

/// A turn for messages that wait although the agent is free: what the end of a turn did not see.
fn take_waiting(
    agent: &agent::Model,
    waiting: &[MessageId],
    actor: Actor,
    traceparent: Option<String>,
) -> Result<(Commit, TurnId), FlowError> {
    let (session, agent_id) = (SessionId::from(agent.session_id), AgentId::from(agent.id));
    let id = TurnId::from(Uuid::now_v7());
    let mut commit = Commit::new(session, actor).traced(traceparent.clone());
    // Written, so that whoever ends or queues a turn of this agent at the same moment looks again.
    commit.change(
        Change::entity(&agent::TABLE, agent_id)
            .expecting("agent_lifecycle", "idle")
            .version(agent.version)
            .set(agent::Column::Owner, agent.owner)
            .set(agent::Column::LetterCount, agent.letter_count.unwrap_or(0) + 1),
    );
    for message in waiting {
        commit.change(Change::new(&message::TABLE, message.uuid()).set(message::Column::TurnId, id.uuid()));
    }
    queue(&mut commit, session, agent_id, id, waiting.to_vec(), "user", traceparent)?;
    Ok((commit, id))
}

/// What follows from messages that wait although the agent is free: a turn, or a rest where only agents have written them
/// and the agent has caused enough. `asked`: a person has written one of them.
pub fn take_up(
    agent: &agent::Model,
    waiting: &[MessageId],
    asked: bool,
    letters_max: u32,
    ceiling: Ceiling,
    actor: Actor,
) -> Result<(Commit, Option<TurnId>), FlowError> {
    match letter_waits(agent, letters_max, ceiling, clock::now()).filter(|_| !asked && agent.drive == "running") {
        None => take_waiting(agent, waiting, actor, None).map(|(commit, turn)| (commit, Some(turn))),
        Some(Waits::Tomorrow) => Ok((rest_for_today(agent, None, actor)?, None)),
        Some(Waits::Person) => {
            let mut commit = Commit::new(SessionId::from(agent.session_id), actor);
            let change = Change::entity(&agent::TABLE, AgentId::from(agent.id)).version(agent.version);
            let change = change.expecting("agent_lifecycle", "idle");
            let change = letter::rest(&mut commit, agent, change, &agent.drive)?;
            commit.change(change);
            Ok((commit, None))
        }
    }
}

pub(super) fn takes_input(session: &session::Model) -> Result<(), FlowError> {
    let advice = match session.status.as_str() {
        "created" | "active" | "paused" => return Ok(()),
        "suspended" => "the session is suspended: replenish its budget or reset it, then send again",
        _ => "the session takes no more input",
    };
    Err(refused(session, advice))
}

pub(super) fn refused(session: &session::Model, advice: &str) -> FlowError {
    let table = &session_machine::TABLE;
    FlowError::Refused(Box::new(Refusal {
        machine: table.name,
        from: session.status.clone(),
        event: "first_message".into(),
        allowed: table.allowed(table.state(&session.status), instar_core::machine::By::User),
        advice: advice.into(),
    }))
}

fn row(
    session: SessionId,
    agent: AgentId,
    id: MessageId,
    turn: Option<TurnId>,
    content: &str,
    mode: Mode,
    at: DateTime<Utc>,
) -> message::Model {
    message::Model {
        id: id.uuid(),
        session_id: session.uuid(),
        agent_id: agent.uuid(),
        turn_id: turn.map(|t| t.uuid()),
        version: 0,
        role: "user".into(),
        source: "direct".into(),
        mode: mode.token().into(),
        content: content.into(),
        data: None,
        created_at: at,
    }
}

/// Puts a new turn into a commit, for these messages.
pub(super) fn queue(
    commit: &mut Commit,
    session: SessionId,
    agent: AgentId,
    id: TurnId,
    message_ids: Vec<MessageId>,
    cause: &str,
    traceparent: Option<String>,
) -> Result<(), FlowError> {
    queue_for(commit, session, agent, id, Why { cause, message_ids, input: json!({}) }, traceparent)
}

/// What a turn is there for.
pub(crate) struct Why<'a> {
    pub(crate) cause: &'a str,
    pub(crate) message_ids: Vec<MessageId>,
    /// The row's `input`.
    pub(crate) input: Value,
}

pub(crate) fn queue_for(
    commit: &mut Commit,
    session: SessionId,
    agent: AgentId,
    id: TurnId,
    why: Why<'_>,
    traceparent: Option<String>,
) -> Result<(), FlowError> {
    let born = birth(&turn_machine::TABLE, "queue_turn", instar_core::machine::By::System)?;
    let at = commit.at();
    let model = turn::Model {
        id: id.uuid(),
        session_id: session.uuid(),
        agent_id: agent.uuid(),
        status: born.to().into(),
        epoch: 0,
        version: 0,
        cause: why.cause.into(),
        attempts: 0,
        iterations: 0,
        open_calls: 0,
        input: why.input,
        output: None,
        finish_reason: None,
        segment: None,
        usage: json!({}),
        reserved: None,
        control: None,
        error: None,
        deadline_at: None,
        traceparent,
        created_at: at,
        updated_at: at,
        ended_at: None,
    };
    commit.bear(&turn::TABLE, id, &[born], model);
    let queued = TurnQueued { cause: why.cause.into(), number: 0, message_ids: why.message_ids, input: None };
    commit.rune(Draft::new(id, &queued)?.agent(agent).turn(id));
    Ok(())
}
