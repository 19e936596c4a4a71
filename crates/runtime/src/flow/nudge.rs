//! An autonomous agent goes on by itself: a pause as a timer row after each turn, then a turn whose
//! prompt nobody sent. Three such turns in a row without a word from a person, and it rests.

use super::message::{Why, queue_for};
use super::turn::timer;
use super::{FlowError, step};
use chrono::{DateTime, Utc};
use instar_core::decide::NUDGES_MAX;
use instar_core::id::{AgentId, SessionId, TurnId};
use instar_core::machine::{By, agent_drive};
use instar_core::rune::payload::{AgentDriveIdled, AgentNudged};
use instar_core::rune::{Actor, Draft};
use instar_store::entity::{agent, session, timer as timer_row};
use instar_store::{Change, Commit};
use serde_json::json;
use uuid::Uuid;

/// A timer that lets an autonomous agent go on.
pub const NUDGE_TIMER: &str = "nudge";
/// Why a turn that nobody asked for is there.
pub const NUDGE: &str = "nudge";

pub fn is_autonomous(agent: &agent::Model) -> bool {
    agent.config["loop"] == "autonomous"
}

/// Has the scheduler look at the agent when its pause is over. `epoch` is the agent's after this
/// commit: once a turn was claimed since, the timer is about the past, so that an agent never has two
/// loops.
pub fn nudge_later(commit: &mut Commit, agent: &agent::Model, epoch: i64, due: DateTime<Utc>) {
    let (id, at) = (AgentId::from(agent.id), commit.at());
    let mut row = timer(agent.session_id, NUDGE_TIMER, id.to_string(), due, at);
    row.payload = Some(json!({"epoch": epoch}));
    commit.insert(&timer_row::TABLE, row);
}

/// A turn of the agent's own, for one that is free. `fired`: the timer, which is gone with this.
pub fn nudge(agent: &agent::Model, fired: Option<Uuid>, actor: Actor) -> Result<(Commit, TurnId), FlowError> {
    let (session, id) = (SessionId::from(agent.session_id), AgentId::from(agent.id));
    let turn = TurnId::from(Uuid::now_v7());
    let mut commit = Commit::new(session, actor);
    commit.change(Change::entity(&session::TABLE, session).expecting("session", "active"));
    // Written, so that whoever sends it a message or queues a turn at the same moment looks again.
    commit.change(
        Change::entity(&agent::TABLE, id)
            .expecting("agent_lifecycle", "idle")
            .expecting("agent_drive", "running")
            .version(agent.version)
            .set(agent::Column::Owner, agent.owner),
    );
    queue_for(&mut commit, session, id, turn, Why { cause: NUDGE, message_ids: vec![], input: json!({}) }, None)?;
    if let Some(timer) = fired {
        commit.delete(&timer_row::TABLE, timer);
    }
    Ok((commit, turn))
}

/// A turn that nobody asked for is complete: one more, and a rest if that was the last.
/// Answers the agent's change and its drive after it.
pub(super) fn count(
    commit: &mut Commit,
    agent: &agent::Model,
    change: Change,
) -> Result<(Change, &'static str), FlowError> {
    let (id, table, n) = (AgentId::from(agent.id), &agent_drive::TABLE, agent.nudge_count + 1);
    let counted = step(table, &agent.drive, "nudge_turn_ended", By::System)?;
    let mut change = change.moving(counted).set(agent::Column::NudgeCount, n);
    commit.rune(Draft::new(id, &AgentNudged { n })?.agent(id));
    if n < NUDGES_MAX {
        return Ok((change, counted.to()));
    }
    let rests = step(table, counted.to(), "nudge_limit_reached", By::System)?;
    change = change.moving(rests).set(agent::Column::LastError, None::<String>);
    let told = AgentDriveIdled { reason: "nudge_limit".into(), needs_attention: true };
    commit.rune(Draft::new(id, &told)?.agent(id));
    Ok((change, rests.to()))
}
