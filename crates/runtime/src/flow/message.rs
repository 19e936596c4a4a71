//! A message for an agent: stored, and a turn queued for it unless one is under way.

use super::{FlowError, birth, step};
use chrono::{DateTime, Utc};
use instar_core::id::{AgentId, MessageId, SessionId, TurnId};
use instar_core::machine::{Refusal, agent_drive, session as session_machine, turn as turn_machine};
use instar_core::rune::payload::{AgentDriveStarted, AgentMessageReceived, SessionActivated, TurnQueued};
use instar_core::rune::{Actor, Draft};
use instar_store::entity::{agent, message, session, turn};
use instar_store::{Change, Commit};
use serde_json::json;
use uuid::Uuid;

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

    let first = session.status == "created" && session.root_agent_id == Some(agent.id);
    let active = first.then(|| step(&session_machine::TABLE, &session.status, "first_message", by)).transpose()?;
    commit.change(
        Change::entity(&agent::TABLE, agent_id)
            .moving(drive)
            .version(agent.version)
            .set(agent::Column::NudgeCount, 0i64),
    );
    let received = AgentMessageReceived {
        message_id: id,
        source: "direct".into(),
        content: content.into(),
        mode: None,
        broadcast_id: None,
    };
    commit.rune(Draft::new(agent_id, &received)?.agent(agent_id));
    if drive.changes_state() {
        let started = AgentDriveStarted { reason: Some("message".into()), relaunched_from: None };
        commit.rune(Draft::new(agent_id, &started)?.agent(agent_id));
    }
    if let Some(active) = active {
        commit.change(Change::entity(&session::TABLE, session_id).moving(active));
        commit.rune(Draft::new(session_id, &SessionActivated { root_agent_id: Some(agent_id) })?);
    }
    let at = commit.at();
    commit.insert(&message::TABLE, row(session_id, agent_id, id, turn_id, content, at));
    if let Some(turn_id) = turn_id {
        queue(&mut commit, session_id, agent_id, turn_id, vec![id], "user", traceparent)?;
    }
    Ok(Accepted { commit, message: id, turn: turn_id })
}

fn takes_input(session: &session::Model) -> Result<(), FlowError> {
    let advice = match session.status.as_str() {
        "created" | "active" | "paused" => return Ok(()),
        "suspended" => "the session is suspended: replenish its budget or reset it, then send again",
        _ => "the session takes no more input",
    };
    let table = &session_machine::TABLE;
    Err(FlowError::Refused(Box::new(Refusal {
        machine: table.name,
        from: session.status.clone(),
        event: "first_message".into(),
        allowed: table.allowed(table.state(&session.status), instar_core::machine::By::User),
        advice: advice.into(),
    })))
}

fn row(
    session: SessionId,
    agent: AgentId,
    id: MessageId,
    turn: Option<TurnId>,
    content: &str,
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
        mode: "queue".into(),
        content: content.into(),
        data: None,
        created_at: at,
    }
}

/// Puts a new turn into a commit.
pub(super) fn queue(
    commit: &mut Commit,
    session: SessionId,
    agent: AgentId,
    id: TurnId,
    message_ids: Vec<MessageId>,
    cause: &str,
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
        cause: cause.into(),
        attempts: 0,
        iterations: 0,
        open_calls: 0,
        input: json!({}),
        output: None,
        usage: json!({}),
        control: None,
        error: None,
        deadline_at: None,
        traceparent,
        created_at: at,
        updated_at: at,
        ended_at: None,
    };
    commit.bear(&turn::TABLE, id, &[born], model);
    let queued = TurnQueued { cause: cause.into(), number: 0, message_ids, input: None };
    commit.rune(Draft::new(id, &queued)?.agent(agent).turn(id));
    Ok(())
}
