//! How a mission is run, changed while it is under way: its agent, its gates, what becomes of it when a hop fails.

use super::agent::besides;
use super::form::{Faults, Terms};
use crate::act::ActError;
use crate::snapshot::{GATE_TIMEOUT, Missions, forgive, gates};
use instar_core::decide::{Gates, OnHopFailure};
use instar_core::id::{AgentId, MissionId, SessionId};
use instar_core::rune::payload::MissionTermsChanged;
use instar_core::rune::{Actor, Draft};
use instar_store::entity::mission;
use instar_store::{Change, Commit};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// What changes: what is left out stays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TermsEdit {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    /// Policies by gate; a gate that is not named stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gates: Option<Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate_timeout_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_hop_failure: Option<OnHopFailure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hop_attempts_max: Option<i64>,
}

impl TermsEdit {
    pub fn is_empty(&self) -> bool {
        *self == TermsEdit::default()
    }

    fn gates(&self, now: Gates) -> Gates {
        let mut named = json!(now);
        if let (Some(changes), Some(named)) = (&self.gates, named.as_object_mut()) {
            named.extend(changes.clone());
        }
        // Names and policies were checked when they came in.
        serde_json::from_value(named).unwrap_or(now)
    }

    fn apply(&self, row: &mut mission::Model) {
        row.agent_id = self.agent_id.map(AgentId::uuid).or(row.agent_id);
        row.gates = json!(self.gates(gates(row)));
        row.gate_timeout_ms = self.gate_timeout_ms.or(row.gate_timeout_ms);
        if let Some(on) = self.on_hop_failure {
            row.on_hop_failure = on.token().to_owned();
        }
        row.hop_attempts_max = self.hop_attempts_max.unwrap_or(row.hop_attempts_max);
    }
}

/// Everything that would be wrong with how the mission is run after the change.
pub fn check_terms(row: &mission::Model, edit: &TermsEdit) -> Result<(), Faults> {
    let mut after = row.clone();
    edit.apply(&mut after);
    let hop_attempts_max = Some(after.hop_attempts_max);
    let terms =
        Terms { gates: gates(&after), gate_timeout_ms: after.gate_timeout_ms, hop_attempts_max, ..Terms::default() };
    terms.check()
}

/// The change with what follows from it: who acts next, what people need no longer look after. It counts as another
/// revision, so that nobody decides on terms that he has not seen.
pub fn set_terms(rows: &Missions, id: MissionId, edit: &TermsEdit, actor: Actor) -> Result<Commit, ActError> {
    let was = rows.missions.get(&id.uuid()).ok_or(ActError::Absent(id.into()))?;
    let mut commit = Commit::new(SessionId::from(was.session_id), actor);
    let mut after = rows.clone();
    let row = after.missions.entry(was.id).or_insert_with(|| was.clone());
    edit.apply(row);
    row.revision += 1;
    if row.agent_id != was.agent_id {
        // Whoever comes has been asked nothing, and has asked nothing.
        (row.asked, row.asked_turn_id, row.question) = (0, None, None);
        row.attention = besides(was).filter(|attention| attention["reason"] != "agent_gone");
        forgive(row);
    }
    if edit.gates.is_some() || edit.gate_timeout_ms.is_some() {
        row.gate_due_at = None;
        row.attention = row.attention.take().filter(|attention| attention["reason"] != GATE_TIMEOUT);
    }
    let revision = row.revision;
    after.reckon(was.id, commit.at());
    let row = after.missions.remove(&was.id).ok_or(ActError::Absent(id.into()))?;
    commit.change(Change::entity(&mission::TABLE, id).version(was.version).between(was.clone(), row));
    commit.rune(Draft::new(id, &MissionTermsChanged { revision, changes: json!(edit) })?);
    Ok(commit)
}
