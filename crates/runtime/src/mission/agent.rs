//! Who plans a mission's hops: whether it takes work, and what becomes of the mission where it does not.

use super::advance::runes;
use super::ask::Task;
use crate::act::{Act, ActError};
use crate::hub::Hub;
use instar_core::decide::Awaits;
use instar_core::id::{AgentId, MissionId, SessionId};
use instar_core::machine::mission as mission_machine;
use instar_core::rune::payload::MissionAttention;
use instar_core::rune::{Actor, Draft, Rune};
use instar_store::entity::{agent, hop, mission};
use instar_store::{AGENT_STOPPED, Answer, Change, Commit};
use instar_tools::Native;
use serde_json::{Value, json};

/// Agents among whom another one is looked for when a mission has lost its own.
const LIVING_MAX: u64 = 500;

/// How a mission's agent stands to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hand {
    /// It has ended.
    Gone,
    /// It takes no work until somebody starts it, and nobody was called for that yet.
    Held,
    /// People were called because it took no work, and it does again.
    Back,
    /// It can be asked, unless it is in a turn.
    Free,
    /// It comes by itself, or people know that it does not.
    Away,
}

impl Hand {
    pub(super) fn of(mission: &mission::Model, agent: &agent::Model) -> Hand {
        let called = is_called_for(mission.attention.as_ref());
        match (agent.lifecycle.as_str(), agent.drive.as_str()) {
            ("terminated" | "failed", _) | (_, "deleted") => Hand::Gone,
            (_, "stopped" | "errored") if called => Hand::Away,
            (_, "stopped" | "errored") => Hand::Held,
            _ if called => Hand::Back,
            ("idle", "idle" | "running") => Hand::Free,
            _ => Hand::Away,
        }
    }
}

/// Whether people were called because the mission's agent takes no work.
pub(super) fn is_called_for(attention: Option<&Value>) -> bool {
    attention.is_some_and(|attention| attention["reason"] == AGENT_STOPPED)
}

impl Hub {
    /// Whether one of an agent's tools is there that a step could run.
    pub(super) async fn has_step_tools(&self, agent: &agent::Model) -> bool {
        let names = agent.tools();
        match self.tools_for(&names).await {
            Some(tools) => !tools.for_steps_of(&names).is_empty(),
            None => names.iter().any(|name| Native::named(name).is_none()),
        }
    }

    /// The mission's agent takes no work: people are told, once, and what they can do.
    pub(super) async fn call_for_agent(
        &self,
        mission: &mission::Model,
        agent: &agent::Model,
        actor: &Actor,
    ) -> Result<Vec<Rune>, ActError> {
        let (id, who, state) = (MissionId::from(mission.id), AgentId::from(agent.id), &agent.drive);
        let why = agent.last_error.as_deref().filter(|_| state == "errored");
        let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
        let detail = format!(
            "its agent {} is {state}{why}: start the agent (instar agent start {who}), or give the mission another one \
             (instar mission set {id} --agent AGENT)",
            agent.name
        );
        let error = json!({"agent_id": who, "state": state, "detail": detail});
        let mut attention = json!({"reason": AGENT_STOPPED, "agent_id": who, "state": state, "detail": detail});
        // What people were called for before is still so when it takes work again.
        attention["besides"] = mission.attention.clone().unwrap_or_default();
        self.attend(mission, AGENT_STOPPED, error, Some(attention), actor).await
    }

    /// It takes work again: nobody need look after it any more.
    pub(super) async fn call_off(
        &self,
        mission: &mission::Model,
        agent: &agent::Model,
        actor: &Actor,
    ) -> Result<Vec<Rune>, ActError> {
        let error = json!({"agent_id": AgentId::from(agent.id)});
        self.attend(mission, "agent_started", error, besides(mission), actor).await
    }

    async fn attend(
        &self,
        mission: &mission::Model,
        reason: &str,
        error: Value,
        attention: Option<Value>,
        actor: &Actor,
    ) -> Result<Vec<Rune>, ActError> {
        let id = MissionId::from(mission.id);
        let mut commit = Commit::new(SessionId::from(mission.session_id), actor.clone());
        let at = commit.at();
        let attention = attention.map(|mut attention| {
            if attention["at"].is_null() {
                attention["at"] = json!(at);
            }
            attention
        });
        let change = Change::entity(&mission::TABLE, id).version(mission.version);
        commit.change(change.set(mission::Column::Attention, attention));
        commit.rune(Draft::new(id, &MissionAttention { reason: reason.into(), hop_id: None, error })?);
        match self.commit(commit).await? {
            Answer::Moved(landed) => Ok(landed.runes),
            Answer::Found(_) | Answer::Absent { .. } => Err(ActError::Contended),
        }
    }

    /// A mission's agent has ended. Another one that has the tools goes on in its place; where there is none a person
    /// has to act; where nobody lives at all nobody can.
    pub(super) async fn replace_agent(
        &self,
        mission: &mission::Model,
        hop: Option<&hop::Model>,
        task: Task,
        actor: &Actor,
    ) -> Result<Vec<Rune>, ActError> {
        let (id, session) = (MissionId::from(mission.id), SessionId::from(mission.session_id));
        let living = self.store().living_agents(session, LIVING_MAX).await?;
        if living.is_empty() {
            let why = "its agent has ended, and nobody is left in the session who could go on with it";
            let act = Act::new(session, id, &mission_machine::TABLE, "system_error", actor.clone());
            return runes(act.reason(why).while_session("active").carry_out(self).await);
        }
        let held = |agent: &agent::Model, tool: &str| agent.tools().iter().any(|name| name == tool);
        let works = |agent: &&agent::Model| super::TOOLS.iter().all(|tool| held(agent, tool));
        match (living.iter().find(works), task, hop) {
            (Some(next), ..) => {
                let mut commit = Commit::new(session, actor.clone());
                commit.change(
                    Change::entity(&mission::TABLE, id)
                        .version(mission.version)
                        .set(mission::Column::AgentId, next.id)
                        .set(mission::Column::Asked, 0i64),
                );
                let error = json!({"agent_id": AgentId::from(next.id)});
                let told = MissionAttention { reason: "agent_replaced".into(), hop_id: None, error };
                commit.rune(Draft::new(id, &told)?);
                match self.commit(commit).await? {
                    Answer::Moved(landed) => Ok(landed.runes),
                    Answer::Found(_) | Answer::Absent { .. } => Err(ActError::Contended),
                }
            }
            (None, Task::Resolve, Some(hop)) => {
                let why = "its agent has ended, and no other one of the session can choose tools for it";
                self.unresolved(hop, why, actor).await
            }
            (None, ..) => self.lose_agent(mission, actor).await,
        }
    }

    /// Nobody is there who could be asked: from now on a person has to act.
    pub(super) async fn lose_agent(&self, mission: &mission::Model, actor: &Actor) -> Result<Vec<Rune>, ActError> {
        let (id, session) = (MissionId::from(mission.id), SessionId::from(mission.session_id));
        let mut commit = Commit::new(session, actor.clone());
        let at = commit.at();
        commit.change(
            Change::entity(&mission::TABLE, id)
                .version(mission.version)
                .set(mission::Column::AgentId, None::<uuid::Uuid>)
                .set(mission::Column::Awaits, Awaits::Person.token())
                .set(mission::Column::Attention, json!({"reason": "agent_gone", "at": at})),
        );
        let told = MissionAttention { reason: "agent_gone".into(), hop_id: None, error: json!(null) };
        commit.rune(Draft::new(id, &told)?);
        match self.commit(commit).await? {
            Answer::Moved(landed) => Ok(landed.runes),
            Answer::Found(_) | Answer::Absent { .. } => Err(ActError::Contended),
        }
    }
}

/// What people are called for apart from the mission's agent.
pub(super) fn besides(mission: &mission::Model) -> Option<Value> {
    match &mission.attention {
        Some(attention) if is_called_for(Some(attention)) => {
            attention.get("besides").filter(|before| !before.is_null()).cloned()
        }
        other => other.clone(),
    }
}
