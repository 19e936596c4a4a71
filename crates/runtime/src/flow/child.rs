//! Agents among themselves: one says something to another, one makes another. Parts of a commit that
//! also holds the result of the call they come from.

use super::birth::{NewAgent, Newborn, bear, takes_agents};
use super::budget::payers_of;
use super::daily::{self, Ceiling, Today};
use super::letter;
use super::message::queue;
use super::{FlowError, step};
use chrono::{DateTime, Utc};
use instar_core::id::{AgentId, MessageId, SessionId, TurnId};
use instar_core::machine::{By, agent_drive, agent_lifecycle};
use instar_core::rune::payload::{AgentDriveStarted, AgentFailed, AgentMessage, AgentReady};
use instar_core::rune::{Actor, Draft};
use instar_store::entity::{agent, message, session};
use instar_store::{Change, Commit};
use serde_json::json;
use uuid::Uuid;

/// Why a turn is there that a message of another agent caused.
pub const AGENT_CAUSE: &str = "agent";
/// Where such a message comes from.
pub const AGENT_SOURCE: &str = "agent";

/// What one agent says to another.
#[derive(Clone, Copy, Debug)]
pub struct Letter<'a> {
    pub from: &'a agent::Model,
    pub content: &'a str,
}

impl Letter<'_> {
    /// As the receiver's model reads it: it must know whom to answer.
    fn text(&self) -> String {
        format!("Message from {} ({}):\n{}", self.from.name, AgentId::from(self.from.id), self.content)
    }
}

/// A letter that is on its way.
pub struct Told {
    pub message: MessageId,
    /// The turn that will answer it; none while it waits behind another.
    pub turn: Option<TurnId>,
    /// Why it lies there for now, if it does.
    pub waits: Option<Waits>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// Until a person says something or starts the agent.
    Person,
    /// Until tomorrow, or until the agent's ceiling is raised.
    Tomorrow,
}

/// Why a letter causes no turn of an agent that is free.
pub fn letter_waits(to: &agent::Model, turns_max: u32, ceiling: Ceiling, at: DateTime<Utc>) -> Option<Waits> {
    if letter::letters_are_enough(to, turns_max) {
        return Some(Waits::Person);
    }
    // One that rests for another reason goes on for no day that is over.
    let goes_on = to.drive == "running" || daily::rests_for_today(to);
    let reached = Ceiling::of(to, ceiling).is_reached(Today::of(to, at));
    reached.then_some(if goes_on { Waits::Tomorrow } else { Waits::Person })
}

/// Has `to` receive a letter: it wakes if it is idle, and else reads it after what it does now. `busy` as
/// for a person's message. Nudges go on being counted, and after `turns_max` turns without a word of a person it
/// rests and the letter waits: two agents must not keep each other alive for ever. So it does once it has caused as much
/// today as `ceiling` allows.
pub fn tell(
    commit: &mut Commit,
    letter: Letter<'_>,
    to: &agent::Model,
    busy: bool,
    turns_max: u32,
    ceiling: Ceiling,
) -> Result<Told, FlowError> {
    let (session, id) = (SessionId::from(to.session_id), AgentId::from(to.id));
    let message = MessageId::from(Uuid::now_v7());
    let change = Change::entity(&agent::TABLE, id).version(to.version);
    let waits = letter_waits(to, turns_max, ceiling, commit.at()).filter(|_| !busy);
    if let Some(why) = waits {
        // Written, so that whoever has a word of a person at the same moment looks again.
        let mut change = change.set(agent::Column::NudgeCount, to.nudge_count);
        if to.drive == "running" {
            change = change.moving(step(&agent_drive::TABLE, &to.drive, "agent_message_received", By::Agent)?);
        }
        received(commit, letter, id, message, false)?;
        match why {
            Waits::Person if to.drive == "running" => change = letter::rest(commit, to, change, &to.drive)?,
            Waits::Tomorrow if !daily::rests_for_today(to) => {
                let today = Today::of(to, commit.at());
                change = daily::rest(commit, to, change, &to.drive, today)?;
            }
            _ => {}
        }
        commit.change(change);
        commit.insert(&message::TABLE, row(commit, letter.from, id, message, None, letter.text()));
        return Ok(Told { message, turn: None, waits });
    }
    let drive = step(&agent_drive::TABLE, &to.drive, "agent_message_received", By::Agent)?;
    let turn = (!busy).then(|| TurnId::from(Uuid::now_v7()));
    let mut change = change.moving(drive);
    if turn.is_some() {
        change = letter::count(to, change);
    } else if !drive.changes_state() {
        // Written, so that whoever ends a turn of this agent at the same moment sees the letter.
        change = change.set(agent::Column::NudgeCount, to.nudge_count);
    }
    commit.change(change);
    received(commit, letter, id, message, drive.changes_state())?;
    commit.insert(&message::TABLE, row(commit, letter.from, id, message, turn, letter.text()));
    if let Some(turn) = turn {
        queue(commit, session, id, turn, vec![message], AGENT_CAUSE, None)?;
    }
    Ok(Told { message, turn, waits: None })
}

fn received(
    commit: &mut Commit,
    letter: Letter<'_>,
    to: AgentId,
    message: MessageId,
    wakes: bool,
) -> Result<(), FlowError> {
    let told = AgentMessage {
        from_agent_id: AgentId::from(letter.from.id),
        to_agent_id: to,
        content: letter.content.into(),
        message_id: Some(message),
    };
    commit.rune(Draft::new(to, &told)?.agent(to));
    if wakes {
        let started = AgentDriveStarted { reason: Some("agent_message".into()), relaunched_from: None };
        commit.rune(Draft::new(to, &started)?.agent(to));
    }
    Ok(())
}

fn row(
    commit: &Commit,
    from: &agent::Model,
    to: AgentId,
    id: MessageId,
    turn: Option<TurnId>,
    content: String,
) -> message::Model {
    message::Model {
        id: id.uuid(),
        session_id: from.session_id,
        agent_id: to.uuid(),
        turn_id: turn.map(TurnId::uuid),
        version: 0,
        role: "user".into(),
        source: AGENT_SOURCE.into(),
        mode: "queue".into(),
        content,
        data: Some(json!({"from_agent_id": AgentId::from(from.id)})),
        created_at: commit.at(),
    }
}

/// An agent that another one makes.
pub struct Child {
    pub agent: agent::Model,
    /// The turn of its task; none while that waits for a place.
    pub turn: Option<TurnId>,
}

/// The parent's row is written with it: of two children that would be one too many, one is born.
fn begin(commit: &mut Commit, session: &session::Model, parent: &agent::Model) -> Result<(), FlowError> {
    let open = takes_agents(session)?;
    commit.change(Change::entity(&session::TABLE, SessionId::from(session.id)).expecting("session", open));
    commit.change(
        Change::entity(&agent::TABLE, AgentId::from(parent.id))
            .version(parent.version)
            .set(agent::Column::NudgeCount, parent.nudge_count),
    );
    Ok(())
}

/// A child with its task, which it begins at once. Without `starts` it stays in the making, and its task waits,
/// until there is a place.
pub fn bear_child(
    commit: &mut Commit,
    session: &session::Model,
    parent: &agent::Model,
    mut new: NewAgent,
    task: &str,
    starts: bool,
) -> Result<Child, FlowError> {
    begin(commit, session, parent)?;
    new.paid_by(payers_of(SessionId::from(session.id), &session.budget, Some(parent)));
    let (session, id) = (SessionId::from(session.id), AgentId::from(Uuid::now_v7()));
    let tools = new.tools.clone();
    let ready = step(&agent_lifecycle::TABLE, "spawning", "init_complete", By::System)?;
    let wakes = step(&agent_drive::TABLE, "idle", "agent_message_received", By::Agent)?;
    let after = if starts { vec![ready, wakes] } else { vec![] };
    let agent = bear(commit, session, Newborn { id, new, by: By::Agent, after: &after, last_error: None })?;
    let message = MessageId::from(Uuid::now_v7());
    let turn = starts.then(|| TurnId::from(Uuid::now_v7()));
    commit.insert(&message::TABLE, row(commit, parent, id, message, turn, task.to_owned()));
    if let Some(turn) = turn {
        commit.rune(Draft::new(id, &AgentReady { tools })?.agent(id));
        received(commit, Letter { from: parent, content: task }, id, message, true)?;
        queue(commit, session, id, turn, vec![message], AGENT_CAUSE, None)?;
    }
    Ok(Child { agent, turn })
}

/// A child that could not be brought up. Its parent is told, in the turn that asked for it: the letter is
/// already taken up, since the call's result says the same.
pub fn fail_child(
    commit: &mut Commit,
    session: &session::Model,
    parent: &agent::Model,
    turn: Option<TurnId>,
    new: NewAgent,
    why: &str,
) -> Result<Child, FlowError> {
    begin(commit, session, parent)?;
    let (session, id) = (SessionId::from(session.id), AgentId::from(Uuid::now_v7()));
    let failed = step(&agent_lifecycle::TABLE, "spawning", "init_error", By::System)?;
    let errored = step(&agent_drive::TABLE, "idle", "lifecycle_failed", By::System)?;
    let after = [failed, errored];
    let last_error = Some(why.to_owned());
    let agent = bear(commit, session, Newborn { id, new, by: By::Agent, after: &after, last_error })?;
    commit.rune(Draft::new(id, &AgentFailed { error: why.into() })?.agent(id));
    let parent_id = AgentId::from(parent.id);
    // One that was stopped in the middle of its turn takes no letters.
    if let Ok(heard) = step(&agent_drive::TABLE, &parent.drive, "agent_message_received", By::Agent) {
        commit.change(Change::entity(&agent::TABLE, parent_id).moving(heard));
        let letter = Letter { from: &agent, content: why };
        let message = MessageId::from(Uuid::now_v7());
        received(commit, letter, parent_id, message, heard.changes_state())?;
        commit.insert(&message::TABLE, row(commit, &agent, parent_id, message, turn, letter.text()));
    }
    Ok(Child { agent, turn: None })
}

/// There is a place for a child that was in the making: it is ready, and begins its task. `task` is that message
/// where nobody has woken it meanwhile; else the turn that waits takes it up.
pub fn finish_child(
    parent: &agent::Model,
    child: &agent::Model,
    task: Option<&message::Model>,
    scheduler: Actor,
) -> Result<(Commit, Option<TurnId>), FlowError> {
    let (session, id) = (SessionId::from(child.session_id), AgentId::from(child.id));
    let ready = step(&agent_lifecycle::TABLE, &child.lifecycle, "init_complete", By::System)?;
    // The parent gave the task: that it begins only now changes nothing about that.
    let actor = match task {
        Some(_) => Actor::new(By::Agent, AgentId::from(parent.id).to_string()),
        None => scheduler,
    };
    let mut commit = Commit::new(session, actor);
    let mut change = Change::entity(&agent::TABLE, id).moving(ready).version(child.version);
    let wakes =
        task.map(|_| step(&agent_drive::TABLE, &child.drive, "agent_message_received", By::Agent)).transpose()?;
    if let Some(wakes) = wakes {
        change = change.moving(wakes);
    }
    commit.change(change);
    commit.rune(Draft::new(id, &AgentReady { tools: child.tools() })?.agent(id));
    let (Some(task), Some(wakes)) = (task, wakes) else { return Ok((commit, None)) };
    let turn = TurnId::from(Uuid::now_v7());
    commit.change(Change::new(&message::TABLE, task.id).set(message::Column::TurnId, turn.uuid()));
    let letter = Letter { from: parent, content: &task.content };
    received(&mut commit, letter, id, MessageId::from(task.id), wakes.changes_state())?;
    queue(&mut commit, session, id, turn, vec![MessageId::from(task.id)], AGENT_CAUSE, None)?;
    Ok((commit, Some(turn)))
}
