//! A call that waits for agents or for an account: a row, and a timer if it does not wait for ever.

use super::call::place;
use super::turn::timer;
use super::{FlowError, step};
use chrono::{DateTime, Utc};
use instar_core::id::{CallId, SessionId, WorkerId};
use instar_core::machine::{By, tool_call as call_machine};
use instar_core::rune::payload::{ToolProgress, ToolStarted};
use instar_core::rune::{Actor, Draft};
use instar_store::entity::{timer as timer_row, tool_call};
use instar_store::{Change, Commit, Wanted};
use serde::{Deserialize, Serialize};
use serde_json::json;
use uuid::Uuid;

/// A timer that ends the wait of a call.
pub const WAIT_TIMER: &str = "wait_timeout";

/// What a call waits for, as its row keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Waits {
    /// In the form in which both databases can compare them with ids of rows.
    #[serde(with = "simple", default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<Uuid>,
    /// What its agent must hold before it can begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<Wanted>,
    /// None: however long it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<DateTime<Utc>>,
}

impl Waits {
    /// `None` for a call that waits for nothing.
    pub fn of(call: &tool_call::Model) -> Option<Waits> {
        serde_json::from_value(call.waits_for.clone()?).ok()
    }
}

mod simple {
    use serde::{Deserialize, Deserializer, Serializer};
    use uuid::Uuid;

    pub(super) fn serialize<S: Serializer>(ids: &[Uuid], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(ids.iter().map(|id| id.simple().to_string()))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Uuid>, D::Error> {
        Vec::deserialize(from)
    }
}

/// Whether the call waited for a person, for agents or for an account: its turn's deadline does not count that.
pub fn has_waited(call: &tool_call::Model) -> bool {
    call.approval.is_some() || call.waits_for.is_some()
}

/// The call waits from now on, and nobody has it.
pub fn wait(call: &tool_call::Model, waits: &Waits, runner: WorkerId) -> Result<Commit, FlowError> {
    let id = CallId::from(call.id);
    let actor = Actor::new(By::System, runner.to_string());
    let mut commit = Commit::new(SessionId::from(call.session_id), actor).traced(call.traceparent.clone());
    let at = commit.at();
    let begun = step(&call_machine::TABLE, &call.status, "attempt_started", By::System)?;
    commit.change(
        Change::entity(&tool_call::TABLE, id)
            .moving(begun)
            .epoch(call.epoch)
            .set(tool_call::Column::Epoch, call.epoch + 1)
            .set(tool_call::Column::Attempts, call.attempts + 1)
            .set(tool_call::Column::WaitsFor, json!(waits))
            .set(tool_call::Column::ExpiresAt, waits.until),
    );
    if let Some(until) = waits.until {
        commit.insert(&timer_row::TABLE, timer(call.session_id, WAIT_TIMER, id.to_string(), until, at));
    }
    let told = ToolStarted { attempt: call.attempts + 1, runner: None };
    commit.rune(place(call, Draft::new(id, &told)?));
    Ok(commit)
}

/// The call waits from now on until its agent can have an account; nothing of it has begun.
pub fn wait_for_account(
    call: &tool_call::Model,
    wanted: Wanted,
    until: DateTime<Utc>,
    runner: WorkerId,
) -> Result<Commit, FlowError> {
    let id = CallId::from(call.id);
    let actor = Actor::new(By::System, runner.to_string());
    let mut commit = Commit::new(SessionId::from(call.session_id), actor).traced(call.traceparent.clone());
    let at = commit.at();
    let said = step(&call_machine::TABLE, &call.status, "progress_update", By::System)?;
    let chunk = format!("waits for {wanted}: others have what there is");
    let waits = Waits { agents: Vec::new(), account: Some(wanted), until: Some(until) };
    commit.change(
        Change::entity(&tool_call::TABLE, id)
            .moving(said)
            .epoch(call.epoch)
            .set(tool_call::Column::WaitsFor, json!(waits))
            .set(tool_call::Column::ExpiresAt, until),
    );
    commit.insert(&timer_row::TABLE, timer(call.session_id, WAIT_TIMER, id.to_string(), until, at));
    commit.rune(place(call, Draft::new(id, &ToolProgress { chunk, stream: None })?));
    Ok(commit)
}
