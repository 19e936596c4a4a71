//! Steps as tool calls: each attempt is one. What a call of a step is made of, and what its end means for step, hop
//! and mission, as one commit.
//!
//! Must not know: how tools run. What of a tool a call depends on is asked for by name.

mod call;
mod end;

pub use call::{Bench, Tools};
pub use end::{End, Ended, Resolved, accept, finish};

use crate::act::Act;
use crate::hub::Hub;
use crate::snapshot::{self, Row};
use chrono::{DateTime, Utc};
use instar_core::decide::{GatePolicy, Mode};
use instar_core::id::{AgentId, CallId, HopId, MissionId, SessionId, StepId};
use instar_core::machine::{tool_call as call_machine, tool_step as step_machine};
use instar_core::rune::Actor;
use instar_store::StoreError;
use instar_store::entity::{tool_call, tool_step};
use serde_json::Value;

/// A timer that begins a step's next attempt.
pub const STEP_TIMER: &str = "step_attempt";

/// What a step that somebody says is ready waits for.
pub enum Ready {
    /// Nothing that a runner could do now.
    Nothing,
    /// Its call, which nobody has begun.
    Call(Box<tool_call::Model>),
    /// Its next attempt.
    Begin(Box<Act<'static>>),
}

impl Hub {
    /// What calls of a mission's steps are made with. A person's approval of the implementation covers the steps;
    /// where a policy approved it, the agent's own policy goes on to hold.
    pub async fn bench(&self, tools: &Tools, mission: MissionId) -> Result<Bench, StoreError> {
        let Some(mission) = self.store().mission(mission).await? else { return Ok(Bench::new(tools, Mode::ReadOnly)) };
        let agent = mission.agent_id.filter(|_| snapshot::gates(&mission).implementation == GatePolicy::Auto);
        let Some(agent) = agent else { return Ok(Bench::new(tools, Mode::FullAccess)) };
        let agent = self.store().agent(AgentId::from(agent)).await?;
        // What does not say what it allows allows least.
        let mode = match agent.as_ref().and_then(|agent| agent.config.get("approval_mode")) {
            None | Some(Value::Null) => Mode::default(),
            Some(mode) => serde_json::from_value(mode.clone()).unwrap_or(Mode::ReadOnly),
        };
        Ok(Bench::new(tools, mode).judged_by(agent))
    }

    /// The same for the mission of a step's call.
    pub async fn bench_of(&self, call: &tool_call::Model, tools: &Tools) -> Result<Bench, StoreError> {
        let step = match call.step_id {
            Some(step) => self.store().step(StepId::from(step)).await?,
            None => None,
        };
        match step {
            Some(step) => self.bench(tools, MissionId::from(step.mission_id)).await,
            None => Ok(Bench::new(tools, Mode::ReadOnly)),
        }
    }

    /// Looks at a step and says what a runner has to do for it, by its row.
    pub async fn step_ready(
        &self,
        id: StepId,
        tools: &Tools,
        actor: Actor,
        now: DateTime<Utc>,
    ) -> Result<Ready, StoreError> {
        let Some(step) = self.store().step(id).await? else { return Ok(Ready::Nothing) };
        let bench = &self.bench(tools, MissionId::from(step.mission_id)).await?;
        if step.status == step_machine::State::ReadyToExecute.token() {
            let act = Act::new(SessionId::from(step.session_id), id, &step_machine::TABLE, "start_step", actor);
            return Ok(Ready::Begin(Box::new(bench.begin(act, Vec::new()))));
        }
        if step.status != step_machine::State::Executing.token() {
            return Ok(Ready::Nothing);
        }
        if let Some(call) = step.call_id
            && let Some(call) = self.store().call(CallId::from(call)).await?
            && call.ended_at.is_none()
        {
            let free = call.status == call_machine::State::Executing.token() && call.owner.is_none();
            return Ok(if free { Ready::Call(Box::new(call)) } else { Ready::Nothing });
        }
        if step.next_at.is_some_and(|due| due > now) {
            return Ok(Ready::Nothing);
        }
        self.attempt(&step, bench, actor).await
    }

    /// One more call of a step that is under way and has none.
    async fn attempt(&self, step: &tool_step::Model, bench: &Bench, actor: Actor) -> Result<Ready, StoreError> {
        let (mission, hop) = (MissionId::from(step.mission_id), HopId::from(step.hop_id));
        let rows = self.store().mission_rows(mission, Some(hop)).await?;
        let session = self.store().session(SessionId::from(step.session_id)).await?;
        let Some(session) = session.filter(|session| session.status == "active") else { return Ok(Ready::Nothing) };
        let mut missions = snapshot::Missions::default();
        missions.add(rows);
        let Some((row, judged)) = bench.call_of(&missions, &session, step, &[]) else { return Ok(Ready::Nothing) };
        let (id, call, before) = (step.id, CallId::from(row.id), step.call_id);
        let mut act = Act::new(SessionId::from(step.session_id), call, &call_machine::TABLE, "call", actor)
            .within(mission)
            .reason("the next attempt")
            .provided(move |snapshot| {
                let found = snapshot.missions.step(id);
                let same = found.is_some_and(|step| step.status == "EXECUTING" && step.call_id == before);
                if same { Ok(()) } else { Err(crate::ActError::Contended) }
            })
            .editing(move |snapshot| {
                if let Some(step) = snapshot.missions.step_mut(id) {
                    step.attempts += 1;
                    (step.call_id, step.next_at) = (Some(call.uuid()), None);
                }
            });
        act.said.gates.insert(row.id, judged);
        act.traceparent = step.traceparent.clone();
        Ok(Ready::Begin(Box::new(act.bringing(Row::Call(row)))))
    }
}
