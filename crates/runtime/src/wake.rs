//! Hints: this turn or call can be taken up now. Never awaited, never needed: whoever gets one
//! decides by the row, and the scheduler finds what nobody was told of.

use crate::hub::Hub;
use instar_bus::BusError;
use instar_bus::message::{Call, Control, Delta, Live, Progress, WorkTool, WorkTurn, control, live, work_turn};
use instar_core::id::{AgentId, CallId, SessionId, StepId, TurnId, WorkerId};
use instar_core::rune::Rune;
use instar_core::rune::payload::StepStarted;
use instar_store::entity::{tool_call, turn};
use uuid::Uuid;

/// The lane that workers without a lane of their own serve.
pub const LANE: &str = "default";
/// The class of runner that has every kind of tool.
pub const CLASS: &str = "default";

/// A turn that somebody can take up.
#[derive(Clone, Debug)]
pub struct Ready<'a> {
    pub session: SessionId,
    pub agent: AgentId,
    pub turn: TurnId,
    pub epoch: i64,
    pub reason: &'a str,
    /// What saves a worker that knows the agent from reading.
    pub news: Option<work_turn::News>,
}

impl<'a> Ready<'a> {
    pub fn of(turn: &turn::Model, reason: &'a str) -> Ready<'a> {
        Ready {
            session: SessionId::from(turn.session_id),
            agent: AgentId::from(turn.agent_id),
            turn: TurnId::from(turn.id),
            epoch: turn.epoch,
            reason,
            news: None,
        }
    }
}

impl From<Ready<'_>> for WorkTurn {
    fn from(ready: Ready<'_>) -> WorkTurn {
        WorkTurn {
            session_id: ready.session.to_string(),
            agent_id: ready.agent.to_string(),
            turn_id: ready.turn.to_string(),
            reason: ready.reason.to_owned(),
            epoch: ready.epoch,
            news: ready.news,
            mac: Vec::new(),
        }
    }
}

/// A call that a runner can start.
#[derive(Clone, Debug)]
pub struct Startable {
    pub session: SessionId,
    pub turn: Option<TurnId>,
    pub call: CallId,
    /// Who waits for its result, if the sender knows.
    pub owner: Option<WorkerId>,
    /// What saves a runner from reading: only for a call that is alone in its answer.
    pub row: Option<Call>,
}

/// Longer texts are read from their rows.
pub const INLINE_BYTES_MAX: usize = 16 * 1024;

impl Hub {
    /// Tells the agent's owner if it lives, else any worker.
    pub fn wake_turn(&self, ready: Ready<'_>, owner: Option<Uuid>, traceparent: Option<&str>) {
        let owner = owner.map(WorkerId::from).filter(|owner| self.live().has(*owner));
        let turn = ready.turn;
        let message = self.seal().turn(WorkTurn::from(ready));
        let space = self.bus().space();
        let subject = match owner {
            Some(owner) => space.owner_turn(&owner.to_string()),
            None => space.work_turn(LANE),
        };
        let sent = subject.map_err(BusError::from).and_then(|subject| self.bus().hint(&subject, &message, traceparent));
        if let Err(error) = sent {
            tracing::debug!(%turn, %error, "nobody was told of the turn; a sweep will find it");
        }
    }

    /// Tells the runners of a call that may start.
    /// `again`: somebody may have begun it before.
    pub fn wake_call(&self, call: Startable, again: bool, traceparent: Option<&str>) {
        let message = WorkTool {
            session_id: call.session.to_string(),
            turn_id: call.turn.map(|t| t.to_string()).unwrap_or_default(),
            call_id: call.call.to_string(),
            class: CLASS.to_owned(),
            epoch: 0,
            again,
            owner: call.owner.map(|owner| owner.to_string()).unwrap_or_default(),
            call: call.row,
            mac: Vec::new(),
            step_id: String::new(),
        };
        let message = self.seal().call(message);
        let subject = self.bus().space().work_tool(CLASS).map_err(BusError::from);
        if let Err(error) = subject.and_then(|subject| self.bus().hint(&subject, &message, traceparent)) {
            tracing::debug!(call = %call.call, %error, "nobody was told of the call; a sweep will find it");
        }
    }

    /// Tells the runners of a step that may go on.
    pub fn wake_step(&self, session: SessionId, step: StepId, traceparent: Option<&str>) {
        let message = WorkTool {
            session_id: session.to_string(),
            step_id: step.to_string(),
            class: CLASS.to_owned(),
            ..WorkTool::default()
        };
        let subject = self.bus().space().work_tool(CLASS).map_err(BusError::from);
        if let Err(error) = subject.and_then(|subject| self.bus().hint(&subject, &message, traceparent)) {
            tracing::debug!(%step, %error, "nobody was told of the step; a sweep will find it");
        }
    }

    pub fn wake_call_row(&self, call: &tool_call::Model, again: bool) {
        let (session, turn) = (SessionId::from(call.session_id), call.turn_id.map(TurnId::from));
        let startable = Startable { session, turn, call: CallId::from(call.id), owner: None, row: None };
        self.wake_call(startable, again, call.traceparent.as_deref());
    }

    /// Whether what goes along with a hint was sent by a service of this installation.
    pub fn is_ours_turn(&self, hint: &WorkTurn) -> bool {
        self.seal().is_turn(hint)
    }

    pub fn is_ours_call(&self, hint: &WorkTool) -> bool {
        self.seal().is_call(hint)
    }

    /// Shortens the wait of a control that is in the row already.
    pub fn tell_agent(
        &self,
        session: SessionId,
        agent: AgentId,
        turn: Option<TurnId>,
        action: control::Action,
        why: &str,
    ) {
        let message = Control {
            session_id: session.to_string(),
            agent_id: agent.to_string(),
            turn_id: turn.map(|t| t.to_string()).unwrap_or_default(),
            action: action.into(),
            reason: why.to_owned(),
        };
        let topic = self.bus().space().control(&agent.to_string()).map_err(BusError::from);
        if let Err(error) = topic.and_then(|topic| self.bus().cast(&topic, &message)) {
            tracing::debug!(%agent, %error, "the agent's worker was not told; it looks at the row");
        }
    }

    /// Tells whoever has a turn in hand that it was asked for something, or has been ended by somebody else. Part of
    /// every commit, so that no way to stop is forgotten.
    pub(crate) fn tell_owners(&self, runes: &[Rune]) {
        for rune in runes {
            let (action, why) = match rune.kind.as_str() {
                "turn.control_requested" => (control::Action::Interrupt, "control"),
                "turn.interrupted" | "turn.error" => (control::Action::Cancel, "ended"),
                _ => continue,
            };
            if let (Some(agent), Some(turn)) = (rune.agent_id, rune.turn_id) {
                self.tell_agent(rune.session_id, agent, Some(turn), action, why);
            }
        }
    }

    /// A piece of an answer, for whoever listens now.
    pub fn cast_delta(&self, delta: Delta) {
        let session = delta.session_id.clone();
        self.cast_live(&session, Live { event: Some(live::Event::Delta(delta)) });
    }

    pub fn cast_progress(&self, progress: Progress) {
        let session = progress.session_id.clone();
        self.cast_live(&session, Live { event: Some(live::Event::Progress(progress)) });
    }

    fn cast_live(&self, session: &str, message: Live) {
        let topic = self.bus().space().delta(session).map_err(BusError::from);
        if let Err(error) = topic.and_then(|topic| self.bus().cast(&topic, &message)) {
            tracing::trace!(session, %error, "a live message went nowhere");
        }
    }

    /// What a landed command makes ready: calls to run, turns to take up, workers to tell.
    pub fn follow(&self, runes: &[Rune]) {
        self.follow_but_plans(runes);
        // A turn that ended may be one that worked on a plan.
        let concerns = |rune: &&Rune| {
            rune.kind.starts_with("plan.")
                || ["turn.interrupted", "turn.error", "session.resumed"].contains(&&*rune.kind)
        };
        if let Some(rune) = runes.iter().find(concerns) {
            self.hint_plans(rune.session_id);
        }
    }

    /// The same for one that sees to the plans itself.
    pub(crate) fn follow_but_plans(&self, runes: &[Rune]) {
        for rune in runes {
            let (session, agent, turn) = (rune.session_id, rune.agent_id, rune.turn_id);
            match rune.kind.as_str() {
                "tool.approved" | "tool.reclaimed" => {
                    let again = rune.kind == "tool.reclaimed";
                    let call = CallId::from(rune.entity.id);
                    let startable = Startable { session, turn, call, owner: None, row: None };
                    self.wake_call(startable, again, rune.traceparent.as_deref());
                }
                // A call of a step: who makes one of a turn tells of it himself.
                "tool.call" if turn.is_none() => {
                    let call = CallId::from(rune.entity.id);
                    let startable = Startable { session, turn: None, call, owner: None, row: None };
                    self.wake_call(startable, false, rune.traceparent.as_deref());
                }
                "step.started" => {
                    let started = serde_json::from_str::<StepStarted>(rune.payload.get());
                    // Where its call is in the same commit, the call is told of.
                    if started.is_ok_and(|started| started.call_id.is_none()) {
                        self.wake_step(session, StepId::from(rune.entity.id), rune.traceparent.as_deref());
                    }
                }
                "tool.result" if turn.is_none() => {
                    let nobody = AgentId::from(uuid::Uuid::nil());
                    self.tell_agent(session, agent.unwrap_or(nobody), None, control::Action::Cancel, "result");
                }
                "turn.queued" | "tool.result" | "turn.recovered" | "turn.control_requested" => {
                    let (Some(agent), Some(turn)) = (agent, turn) else { continue };
                    if rune.kind == "tool.result" {
                        self.tell_agent(session, agent, Some(turn), control::Action::Cancel, "result");
                    }
                    let ready = Ready { session, agent, turn, epoch: 0, reason: &rune.kind, news: None };
                    self.wake_turn(ready, None, rune.traceparent.as_deref());
                }
                "turn.interrupted" | "turn.error" => {
                    let (Some(agent), Some(_)) = (agent, turn) else { continue };
                    self.ended(agent);
                }
                "agent.terminated" => agent.into_iter().for_each(|agent| self.ended(agent)),
                _ => {}
            }
        }
    }
}
