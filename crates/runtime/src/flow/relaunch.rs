//! An agent whose provider failed is started again by itself, if it was made so: a timer row, and a start in the name
//! of the system. It counts as no word of a person.

use super::nudge::{is_autonomous, nudge_later};
use super::turn::timer;
use super::{FlowError, step};
use chrono::Duration;
use instar_core::id::{AgentId, SessionId};
use instar_core::machine::{By, agent_drive};
use instar_core::rune::payload::AgentDriveStarted;
use instar_core::rune::{Actor, Draft};
use instar_store::entity::{agent, timer as timer_row};
use instar_store::{Change, Commit};
use serde_json::json;

/// A timer that starts an agent again whose provider failed.
pub const RELAUNCH_TIMER: &str = "relaunch";
/// Where an agent's configuration says after how long.
pub const RELAUNCH_AFTER: &str = "relaunch_after_ms";
/// So many starts in a row that led to another error, and a person has to look.
pub const RELAUNCHES_MAX: u64 = 3;

/// How long after a failure of its provider the agent is started again, if it is.
pub fn relaunch_after(agent: &agent::Model) -> Option<Duration> {
    let ms = agent.config[RELAUNCH_AFTER].as_i64().filter(|ms| *ms > 0)?;
    Duration::try_milliseconds(ms)
}

/// `epoch` is the agent's after this commit: once a turn was claimed since, somebody else has started it.
pub(super) fn relaunch_later(commit: &mut Commit, agent: &agent::Model, epoch: i64) {
    let Some(wait) = relaunch_after(agent) else { return };
    let (id, at) = (AgentId::from(agent.id), commit.at());
    let mut row = timer(agent.session_id, RELAUNCH_TIMER, id.to_string(), at + wait, at);
    row.payload = Some(json!({"epoch": epoch}));
    commit.insert(&timer_row::TABLE, row);
}

/// The start of an errored agent that is in no turn.
pub fn relaunch(agent: &agent::Model, actor: Actor) -> Result<Commit, FlowError> {
    let id = AgentId::from(agent.id);
    let starts = step(&agent_drive::TABLE, &agent.drive, "start", By::System)?;
    let mut commit = Commit::new(SessionId::from(agent.session_id), actor);
    let change = Change::entity(&agent::TABLE, id).expecting("agent_lifecycle", "idle").version(agent.version);
    commit.change(change.moving(starts).set(agent::Column::LastError, None::<String>));
    let told = AgentDriveStarted { reason: Some("relaunch_after".into()), relaunched_from: Some(agent.drive.clone()) };
    commit.rune(Draft::new(id, &told)?.agent(id));
    if is_autonomous(agent) {
        let now = commit.at();
        nudge_later(&mut commit, agent, agent.epoch, now);
    }
    Ok(commit)
}
