//! What a mission does by itself: a gate that opens by policy, an agent that is asked for what it has to do.
//!
//! By the rows alone, so that whoever looks does the same: right after a command, or from a sweep if nobody did.

use super::agent::Hand;
use super::ask::{self, Task};
use super::propose;
use crate::act::{Act, ActError, Done};
use crate::hub::Hub;
use crate::snapshot::{GATE_TIMEOUT, INPUT_MISSING, Missions};
use instar_core::decide::{Awaits, FailureClass, GatePolicy};
use instar_core::id::{AgentId, HopId, MissionId, SessionId, StepId};
use instar_core::machine::{By, hop as hop_machine, mission as mission_machine};
use instar_core::rune::payload::MissionAttention;
use instar_core::rune::{Actor, Draft, Rune};
use instar_store::entity::{agent, hop, mission, session, tool_step};
use instar_store::{Answer, Change, Commit};
use serde_json::json;

/// How often an agent is asked for the same thing before that counts as failed.
const ASKED_MAX: i64 = 3;
/// How many things in a row a mission does by itself before others get their turn.
const STEPS_MAX: usize = 8;
/// Whose decision an open gate is.
const POLICY: &str = "policy";

impl Hub {
    /// Has a mission do what it can by itself now. Answers the runes of that, which are followed already.
    pub async fn advance_mission(&self, id: MissionId, actor: Actor) -> Result<Vec<Rune>, ActError> {
        let mut told = Vec::new();
        for _ in 0..STEPS_MAX {
            match self.advance_once(id, &actor).await {
                Ok(runes) if runes.is_empty() => break,
                Ok(runes) => {
                    self.follow(&runes);
                    told.extend(runes);
                }
                // Somebody else was faster, or a sweep will find it in another state.
                Err(ActError::Contended | ActError::Refused(_) | ActError::Absent(_)) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(told)
    }

    async fn advance_once(&self, id: MissionId, actor: &Actor) -> Result<Vec<Rune>, ActError> {
        let mut rows = Missions::default();
        rows.add(self.store().mission_rows(id, None).await?);
        let Some(mission) = rows.missions.get(&id.uuid()).cloned() else { return Ok(Vec::new()) };
        let Some(standing) = rows.standing(&mission) else { return Ok(Vec::new()) };
        let hop = rows.current_hop(&mission).cloned();
        match standing.awaits() {
            Awaits::Policy => match (standing.gate(), hop) {
                (Some((gate, _)), hop) => self.open_gate(&mission, hop.as_ref(), gate, actor).await,
                (None, Some(hop)) => self.entrust(&hop, actor).await,
                (None, None) => Ok(Vec::new()),
            },
            Awaits::Agent => self.ask_agent(&rows, &mission, hop.as_ref(), actor).await,
            Awaits::Person | Awaits::Steps | Awaits::Nobody => Ok(Vec::new()),
        }
    }

    async fn open_gate(
        &self,
        mission: &mission::Model,
        hop: Option<&hop::Model>,
        gate: &str,
        asker: &Actor,
    ) -> Result<Vec<Rune>, ActError> {
        let (session, actor) = (SessionId::from(mission.session_id), Actor::new(By::Policy, POLICY));
        let (version, id) = (mission.version, mission.id);
        let act = match (gate, hop) {
            ("mission", _) => {
                let id = MissionId::from(mission.id);
                Act::new(session, id, &mission_machine::TABLE, "approve_mission", actor)
            }
            (gate, Some(hop)) => {
                if matches!(gate, "impl" | "execute") {
                    let found = self.inspect_hop(HopId::from(hop.id), None, asker).await?;
                    if !found.wrong.is_empty() {
                        return Ok(found.runes);
                    }
                }
                let event = match gate {
                    "plan" => "approve_hop_plan",
                    "impl" => "approve_hop_impl",
                    "execute" => "execute_hop",
                    _ => "retry_hop",
                };
                Act::new(session, HopId::from(hop.id), &hop_machine::TABLE, event, actor)
            }
            _ => return Ok(Vec::new()),
        };
        let act = act.reason("the gate opens by policy").provided(move |snapshot| {
            // A policy decides on what it has seen, like anybody.
            let found = snapshot.missions.missions.get(&id).map(|row| row.version);
            if found == Some(version) { Ok(()) } else { Err(ActError::Contended) }
        });
        runes(act.carry_out(self).await)
    }

    /// A hop that a plan carries out needs no steps: it is ready for its execution with its plan accepted.
    async fn entrust(&self, hop: &hop::Model, actor: &Actor) -> Result<Vec<Rune>, ActError> {
        let (session, id, table) = (SessionId::from(hop.session_id), HopId::from(hop.id), &hop_machine::TABLE);
        let act = match hop.status == hop_machine::State::PlanReady.token() {
            true => Act::new(session, id, table, "start_hop_impl", actor.clone()).then(id, table, "propose_hop_impl"),
            false => Act::new(session, id, table, "propose_hop_impl", actor.clone()),
        };
        runes(act.reason("a plan carries it out").carry_out(self).await)
    }

    async fn ask_agent(
        &self,
        rows: &Missions,
        mission: &mission::Model,
        hop: Option<&hop::Model>,
        actor: &Actor,
    ) -> Result<Vec<Rune>, ActError> {
        let (Some(task), Some(agent)) = (Task::of(mission, hop), mission.agent_id) else { return Ok(Vec::new()) };
        let store = self.store();
        let session = store.session(SessionId::from(mission.session_id)).await?;
        let Some(session) = session.filter(|session| session.status == "active") else { return Ok(Vec::new()) };
        let found = store.addressee(AgentId::from(agent)).await?;
        let agent = match found {
            Some(found) => match Hand::of(mission, &found.agent) {
                Hand::Gone => return self.replace_agent(mission, hop, task, actor).await,
                Hand::Held => return self.call_for_agent(mission, &found.agent, actor).await,
                Hand::Back => return self.call_off(mission, &found.agent, actor).await,
                Hand::Free if !found.busy => found.agent,
                Hand::Free | Hand::Away => return Ok(Vec::new()),
            },
            None => return Ok(Vec::new()),
        };
        if let (Task::Resolve, Some(hop)) = (task, hop)
            && !self.has_step_tools(&agent).await
        {
            let why = format!(
                "no usable tool: of the tools that agent {} may use none is there that a step could run; give it some, \
                 then fix the hop",
                agent.name
            );
            return self.unresolved(hop, &why, actor).await;
        }
        if mission.asked >= ASKED_MAX {
            return self.give_up(mission, hop, task, actor).await;
        }
        let text = ask::prompt(rows, mission, hop, task, &agent.tools());
        self.ask(rows, &session, mission, hop, (task, text), agent, actor).await
    }

    #[expect(clippy::too_many_arguments)]
    async fn ask(
        &self,
        rows: &Missions,
        session: &session::Model,
        mission: &mission::Model,
        hop: Option<&hop::Model>,
        (task, text): (Task, String),
        agent: agent::Model,
        actor: &Actor,
    ) -> Result<Vec<Rune>, ActError> {
        let (id, asked) = (MissionId::from(mission.id), mission.asked + 1);
        let session_id = SessionId::from(session.id);
        let act = match (task, hop) {
            (Task::Begin, _) => Some(propose::hop(rows, mission, None, actor.clone())?.0),
            (Task::Resolve, Some(hop)) => {
                let id = HopId::from(hop.id);
                Some(Act::new(session_id, id, &hop_machine::TABLE, "start_hop_impl", actor.clone()))
            }
            _ => None,
        };
        let Some(act) = act else {
            let mut commit = Commit::new(session_id, actor.clone());
            let turn = ask::ask(&mut commit, id, &agent, text)?;
            commit.change(
                Change::entity(&mission::TABLE, id)
                    .version(mission.version)
                    .set(mission::Column::Asked, asked)
                    .set(mission::Column::AskedTurnId, turn.uuid()),
            );
            commit.change(Change::entity(&session::TABLE, session_id).expecting("session", "active"));
            return match self.commit(commit).await? {
                Answer::Moved(landed) => Ok(landed.runes),
                Answer::Found(_) | Answer::Absent { .. } => Err(ActError::Contended),
            };
        };
        let act = act.reason("the next step of the mission").while_session("active").also(move |commit, _| {
            let made = ask::ask(commit, id, &agent, text.clone())?;
            commit.change(
                Change::entity(&mission::TABLE, id)
                    .set(mission::Column::Asked, 1i64)
                    .set(mission::Column::AskedTurnId, made.uuid()),
            );
            Ok(())
        });
        runes(act.carry_out(self).await)
    }

    /// The agent was asked often enough and has proposed nothing.
    async fn give_up(
        &self,
        mission: &mission::Model,
        hop: Option<&hop::Model>,
        task: Task,
        actor: &Actor,
    ) -> Result<Vec<Rune>, ActError> {
        let why = format!("the agent was asked {ASKED_MAX} times and proposed nothing");
        let session = SessionId::from(mission.session_id);
        let (Some(event), Some(hop)) = (task.failure(), hop) else { return self.lose_agent(mission, actor).await };
        let mut act = Act::new(session, HopId::from(hop.id), &hop_machine::TABLE, event, actor.clone()).reason(&why);
        act.said.class = Some(FailureClass::Recoverable);
        runes(act.carry_out(self).await)
    }

    /// Nothing is there that the steps of a hop could be made of, or nobody who could make them. People give an agent
    /// the tools, or the hop another plan.
    pub(super) async fn unresolved(&self, hop: &hop::Model, why: &str, actor: &Actor) -> Result<Vec<Rune>, ActError> {
        let (session, id) = (SessionId::from(hop.session_id), HopId::from(hop.id));
        let act = Act::new(session, id, &hop_machine::TABLE, "tool_resolution_failed", actor.clone());
        let mut act = act.reason(why).while_session("active");
        act.said.class = Some(FailureClass::Recoverable);
        runes(act.carry_out(self).await)
    }

    /// Calls people to a step that cannot begin before they make what it reads. Once: it begins by itself then.
    pub async fn miss_input(&self, step: &tool_step::Model, why: &str, actor: Actor) -> Result<(), ActError> {
        let id = MissionId::from(step.mission_id);
        let Some(mission) = self.store().mission(id).await? else { return Ok(()) };
        let called = mission.attention.as_ref().is_some_and(|attention| attention["reason"] == INPUT_MISSING);
        if called || mission.current_hop_id != Some(step.hop_id) {
            return Ok(());
        }
        let mut commit = Commit::new(SessionId::from(mission.session_id), actor);
        let (at, hop, step) = (commit.at(), HopId::from(step.hop_id), StepId::from(step.id));
        commit.change(Change::entity(&mission::TABLE, id).version(mission.version).set(
            mission::Column::Attention,
            json!({"reason": INPUT_MISSING, "hop_id": hop, "step_id": step, "detail": why, "at": at}),
        ));
        let error = json!({"step_id": step, "detail": why});
        commit.rune(Draft::new(id, &MissionAttention { reason: INPUT_MISSING.into(), hop_id: Some(hop), error })?);
        // If something has moved meanwhile, the next look sees it.
        self.commit(commit).await?;
        Ok(())
    }

    /// Reminds people of a gate that nobody has opened in time. It stays closed.
    pub async fn remind(&self, id: MissionId, actor: Actor) -> Result<(), ActError> {
        let mut rows = Missions::default();
        rows.add(self.store().mission_rows(id, None).await?);
        let Some(mission) = rows.missions.get(&id.uuid()) else { return Ok(()) };
        let gate = rows.standing(mission).and_then(|standing| standing.gate());
        let mut commit = Commit::new(SessionId::from(mission.session_id), actor);
        let at = commit.at();
        let Some((gate, GatePolicy::Timed)) = gate.filter(|_| mission.gate_due_at.is_some_and(|due| due <= at)) else {
            return Ok(());
        };
        let hop = mission.current_hop_id.map(HopId::from);
        commit.change(
            Change::entity(&mission::TABLE, id)
                .version(mission.version)
                .set(mission::Column::GateDueAt, None::<chrono::DateTime<chrono::Utc>>)
                .set(
                    mission::Column::Attention,
                    json!({"reason": GATE_TIMEOUT, "gate": gate, "hop_id": hop, "at": at}),
                ),
        );
        let told = MissionAttention { reason: GATE_TIMEOUT.into(), hop_id: hop, error: json!({"gate": gate}) };
        commit.rune(Draft::new(id, &told)?);
        // If somebody has decided meanwhile there is nothing to remind of.
        self.commit(commit).await?;
        Ok(())
    }
}

pub(super) fn runes(done: Result<Done, ActError>) -> Result<Vec<Rune>, ActError> {
    Ok(match done? {
        Done::Moved { runes } => runes,
        Done::Ignored => Vec::new(),
    })
}
