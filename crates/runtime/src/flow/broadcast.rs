//! A broadcast: one record of the session, one message per agent that takes it. As many of them as fit go
//! into one commit.

use super::message::{queue, refused, takes_input};
use super::turn::timer;
use super::{FlowError, step};
use chrono::{DateTime, Duration, Utc};
use instar_core::id::{AgentId, BroadcastId, MessageId, SessionId, TurnId};
use instar_core::machine::{Answer, By, agent_drive, apply};
use instar_core::rune::payload::{AgentDriveStarted, AgentMessageReceived};
use instar_core::rune::{Actor, Draft};
use instar_store::clock;
use instar_store::entity::{agent, broadcast, message, session, timer as timer_row, turn};
use instar_store::{Addressee, COMMIT_BYTES_MAX, Change, Commit, RUNES_MAX, WRITES_MAX};
use serde_json::json;
use uuid::Uuid;

/// A timer that has the scheduler finish what the API began.
pub const BROADCAST_TIMER: &str = "broadcast";
/// Longer than the API takes for what it has begun.
const UNFINISHED: Duration = Duration::seconds(10);
/// Runes and rows that an agent's part has at most.
const RUNES_EACH: usize = 3;
const WRITES_EACH: usize = 3;
/// What a part weighs beside its text, which is in a row and in a rune.
const BYTES_EACH: usize = 4 * 1024;

/// How many agents one commit can hold.
pub fn recipients_max(content: &str) -> usize {
    // One row and one timer go along, and JSON may write a character as several.
    let bytes = COMMIT_BYTES_MAX / 4 * 3 / (3 * content.len() + BYTES_EACH);
    bytes.min((RUNES_MAX - 1) / RUNES_EACH).clamp(1, (WRITES_MAX - 4) / WRITES_EACH)
}

/// Why an agent cannot take a broadcast now; `None` if it can.
pub fn skips(found: &Addressee) -> Option<String> {
    let agent = &found.agent;
    if matches!(agent.lifecycle.as_str(), "terminated" | "failed") {
        return Some(format!("the agent is {}: it has ended", agent.lifecycle));
    }
    match apply(&agent_drive::TABLE, Some(&agent.drive), "broadcast_received", By::User) {
        Answer::Refused(no) => Some(no.advice.clone()),
        _ => None,
    }
}

/// Refused where the session takes no input, or nobody would hear it.
pub fn may_broadcast(session: &session::Model, takers: usize) -> Result<(), FlowError> {
    takes_input(session)?;
    if takers == 0 {
        let advice = "no agent of the session can take a broadcast: make or relaunch one with start, then send again";
        return Err(refused(session, advice));
    }
    Ok(())
}

/// The commit that records a broadcast and delivers it to `first`. `more`: others follow, and if whoever sends it
/// dies in between, the scheduler goes on.
pub fn broadcast(
    row: &broadcast::Model,
    first: &[&Addressee],
    more: bool,
    actor: Actor,
    traceparent: Option<String>,
) -> Result<Commit, FlowError> {
    let mut commit = Commit::new(SessionId::from(row.session_id), actor).traced(traceparent.clone());
    commit.insert(&broadcast::TABLE, row.clone());
    if more {
        let (id, at) = (BroadcastId::from(row.id), commit.at());
        let timer = timer(row.session_id, BROADCAST_TIMER, id.to_string(), at + UNFINISHED, at);
        commit.insert(&timer_row::TABLE, timer);
    }
    deliver(&mut commit, row, first, traceparent)?;
    Ok(commit)
}

/// The same for those that come after the first.
pub fn broadcast_more(
    row: &broadcast::Model,
    some: &[&Addressee],
    traceparent: Option<String>,
) -> Result<Commit, FlowError> {
    let actor = Actor::new(By::User, row.sender.clone());
    let mut commit = Commit::new(SessionId::from(row.session_id), actor).traced(traceparent.clone());
    deliver(&mut commit, row, some, traceparent)?;
    Ok(commit)
}

/// The same whoever delivers it and however often, so that nobody gets it twice; in the order of time, as ids are.
pub fn message_of(broadcast: Uuid, agent: Uuid) -> MessageId {
    let ((high, one), (_, two)) = (broadcast.as_u64_pair(), agent.as_u64_pair());
    let variant = 0b10 << 62;
    MessageId::from(Uuid::from_u64_pair(high, variant | ((one ^ two) & !(0b11 << 62))))
}

fn message_row(row: &broadcast::Model, to: AgentId, turn: Option<TurnId>, at: DateTime<Utc>) -> message::Model {
    message::Model {
        id: message_of(row.id, to.uuid()).uuid(),
        session_id: row.session_id,
        agent_id: to.uuid(),
        turn_id: turn.map(TurnId::uuid),
        version: 0,
        role: "user".into(),
        source: "broadcast".into(),
        mode: "queue".into(),
        content: row.content.clone(),
        data: Some(json!({"broadcast_id": BroadcastId::from(row.id), "sender": row.sender})),
        created_at: at,
    }
}

/// What an agent that came after a broadcast gets of it: a message of its first turn, before what caused that. It
/// is stored with the claim, so that whoever asks later what was sent finds it, whether it has expired by then or not.
pub fn brief(row: &broadcast::Model, first: &turn::Model) -> message::Model {
    message_row(row, AgentId::from(first.agent_id), Some(TurnId::from(first.id)), clock::now())
}

fn deliver(
    commit: &mut Commit,
    row: &broadcast::Model,
    some: &[&Addressee],
    traceparent: Option<String>,
) -> Result<(), FlowError> {
    for Addressee { agent, busy, .. } in some {
        let (session, id) = (SessionId::from(agent.session_id), AgentId::from(agent.id));
        let drive = step(&agent_drive::TABLE, &agent.drive, "broadcast_received", By::User)?;
        let message = message_of(row.id, agent.id);
        let turn = (!busy).then(|| TurnId::from(Uuid::now_v7()));
        let mut change = Change::entity(&agent::TABLE, id)
            .moving(drive)
            .set(agent::Column::NudgeCount, 0i64)
            .set(agent::Column::LetterCount, None::<i64>);
        if !busy {
            // One that is in a turn writes its row all the time. Should the turn end in this very moment, the
            // message waits for the sweep instead of keeping everybody's from landing.
            change = change.version(agent.version);
        }
        commit.change(change);
        let told = AgentMessageReceived {
            message_id: message,
            source: "broadcast".into(),
            content: row.content.clone(),
            mode: None,
            broadcast_id: Some(BroadcastId::from(row.id).to_string()),
        };
        commit.rune(Draft::new(id, &told)?.agent(id));
        if drive.changes_state() {
            let told = AgentDriveStarted { reason: Some("broadcast".into()), relaunched_from: None };
            commit.rune(Draft::new(id, &told)?.agent(id));
        }
        let model = message_row(row, id, turn, commit.at());
        commit.insert(&message::TABLE, model);
        if let Some(turn) = turn {
            queue(commit, session, id, turn, vec![message], "user", traceparent.clone())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_a_commit_holds_and_never_none() {
        assert_eq!(recipients_max("hello"), 333);
        assert_eq!(recipients_max(&"x".repeat(256 * 1024)), 7);
        assert_eq!(recipients_max(&"x".repeat(COMMIT_BYTES_MAX)), 1);
    }

    #[test]
    fn a_recipients_message_has_one_id_and_the_time_of_the_broadcast() {
        let (broadcast, one, two) = (Uuid::now_v7(), Uuid::now_v7(), Uuid::now_v7());
        let id = message_of(broadcast, one);
        assert_eq!(id, message_of(broadcast, one));
        assert_ne!(id, message_of(broadcast, two));
        assert_ne!(id, message_of(Uuid::now_v7(), one));
        assert_eq!(id.uuid().get_version_num(), 7);
        assert_eq!(id.uuid().as_bytes()[..6], broadcast.as_bytes()[..6]);
    }
}
