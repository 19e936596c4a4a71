//! A turn in hand: its rows as this worker knows them to be.
//!
//! Nobody else may write them under this epoch, so that what this worker wrote can be counted along
//! instead of being read again. Where somebody did (a control, a message), the version says so.

use crate::control::Flight;
use crate::segment::Segment;
use crate::summarise::Scope;
use crate::unwritten::Unwritten;
use instar_core::budget::{Reservation, Spent};
use instar_core::id::{AgentId, SessionId, TurnId};
use instar_model::{EventStream, ModelError};
use instar_runtime::flow::Spoken;
use instar_runtime::{BUDGET_EXHAUSTED, flow};
use instar_store::Scene;
use instar_store::clock;
use instar_store::entity::{agent, budget, message, tool_call, turn};
use tokio_util::task::AbortOnDropHandle;

/// A provider call under way; given up when dropped.
pub(crate) type Opening = AbortOnDropHandle<Result<EventStream, ModelError>>;

pub(crate) struct Held {
    /// Let go of before anybody is told that the turn is ready again.
    pub(crate) flight: Option<Flight>,
    pub(crate) turn: turn::Model,
    pub(crate) agent: agent::Model,
    /// What was said, in order; of this turn and before.
    pub(crate) transcript: Vec<message::Model>,
    pub(crate) calls: Vec<tool_call::Model>,
    /// Of earlier turns, as far as this one sees them.
    pub(crate) earlier: Vec<tool_call::Model>,
    /// A provider call that was begun before the commit that records it has landed.
    pub(crate) opening: Option<Opening>,
    /// That commit, as long as it is not on its way.
    pub(crate) unwritten: Option<Unwritten>,
    /// The span of the provider call under way, until its answer is whole.
    pub(crate) chat: tracing::Span,
    pub(crate) segment: Segment,
    /// Messages waited when the rows were read.
    pub(crate) waiting: bool,
    /// A broadcast that stood before the agent was there, until the claim of its first turn has stored it.
    pub(crate) briefing: Option<message::Model>,
    /// What a summary is to stand for, if one is to be made before the next provider call.
    pub(crate) sum_up: Scope,
    waiting_count: i64,
    /// Pieces of the answer sent out.
    pub(crate) deltas: u64,
    /// Tokens that the provider call under way has sent, by estimate.
    pub(crate) sent: u64,
    /// What provider calls have come to that no commit has booked yet.
    pub(crate) unbooked: Spent,
    /// Provider calls in a row that failed and were made again.
    pub(crate) retries: u32,
    /// The limits that the turn draws on; none where nothing is limited.
    pub(crate) purse: Vec<budget::Model>,
}

impl Held {
    pub(crate) fn new(
        flight: Flight,
        scene: Scene,
        transcript: Vec<message::Model>,
        calls: Vec<tool_call::Model>,
        earlier: Vec<tool_call::Model>,
    ) -> Held {
        let (waiting, waiting_count) = (scene.waiting > 0, scene.waiting);
        let (turn, agent) = (scene.turn, scene.agent);
        let flight = Some(flight);
        Held {
            flight,
            turn,
            agent,
            transcript,
            calls,
            earlier,
            opening: None,
            unwritten: None,
            chat: tracing::Span::none(),
            segment: Segment::default(),
            waiting,
            briefing: None,
            waiting_count,
            sum_up: Scope::All,
            deltas: 0,
            sent: 0,
            unbooked: Spent::default(),
            retries: 0,
            purse: Vec::new(),
        }
    }

    /// From what is known without a look; nothing waited then.
    pub(crate) fn known(
        flight: Flight,
        turn: turn::Model,
        agent: agent::Model,
        transcript: Vec<message::Model>,
        calls: Vec<tool_call::Model>,
        earlier: Vec<tool_call::Model>,
    ) -> Held {
        let (flight, waiting, waiting_count) = (Some(flight), false, 0);
        Held {
            flight,
            turn,
            agent,
            transcript,
            calls,
            earlier,
            opening: None,
            unwritten: None,
            chat: tracing::Span::none(),
            segment: Segment::default(),
            waiting,
            briefing: None,
            waiting_count,
            sum_up: Scope::All,
            deltas: 0,
            sent: 0,
            unbooked: Spent::default(),
            retries: 0,
            purse: Vec::new(),
        }
    }

    pub(crate) fn turn_id(&self) -> TurnId {
        TurnId::from(self.turn.id)
    }

    pub(crate) fn agent_id(&self) -> AgentId {
        AgentId::from(self.agent.id)
    }

    pub(crate) fn session_id(&self) -> SessionId {
        SessionId::from(self.turn.session_id)
    }

    /// Nothing was said, but calls that failed have had their price.
    pub(crate) fn silence(&self) -> Spoken {
        Spoken { usage: self.unbooked.usage, cached: self.unbooked.cached, ..Spoken::default() }
    }

    /// Everything but the flight, leaving empty rows behind: for one that is done with it.
    pub(crate) fn take(&mut self) -> Held {
        Held {
            flight: None,
            turn: self.turn.clone(),
            agent: self.agent.clone(),
            transcript: std::mem::take(&mut self.transcript),
            calls: std::mem::take(&mut self.calls),
            earlier: std::mem::take(&mut self.earlier),
            opening: None,
            unwritten: None,
            chat: tracing::Span::none(),
            segment: Segment::default(),
            waiting: self.waiting,
            briefing: None,
            waiting_count: self.waiting_count,
            sum_up: self.sum_up,
            deltas: 0,
            sent: 0,
            unbooked: Spent::default(),
            retries: 0,
            purse: Vec::new(),
        }
    }

    /// The claim landed: agent and turn were each written once, under a new epoch.
    pub(crate) fn claimed(
        &mut self,
        worker: uuid::Uuid,
        waiting: &[instar_core::id::MessageId],
        deadline: chrono::Duration,
    ) {
        self.agent.epoch += 1;
        self.agent.version += 1;
        self.agent.lifecycle = "running_turn".into();
        self.agent.owner = Some(worker);
        self.turn.epoch = self.agent.epoch;
        self.turn.version += 1;
        self.turn.status = "streaming".into();
        self.turn.cause = flow::cause_with(&self.turn, waiting).to_owned();
        self.turn.attempts += 1;
        self.turn.deadline_at = Some(clock::now() + deadline);
        for message in self.transcript.iter_mut().filter(|m| waiting.iter().any(|id| id.uuid() == m.id)) {
            message.turn_id = Some(self.turn.id);
        }
        self.transcript.retain(|m| m.turn_id.is_some());
        if !waiting.is_empty() {
            // As the rows are in order from now on.
            self.transcript.sort_by_key(|m| (m.turn_id, m.id));
        }
        // Those that came while the rows were read, or are too many for one turn.
        self.waiting = self.waiting_count > waiting.len() as i64;
    }

    /// What was asked of the budgets is set aside.
    pub(crate) fn reserved(&mut self, made: Option<&Reservation>) {
        if let Some(made) = made {
            self.turn.reserved = Some(serde_json::json!(made));
        }
    }

    /// A recovery landed.
    pub(crate) fn recovered(&mut self, worker: uuid::Uuid, attempts: i64) {
        self.agent.epoch += 1;
        self.agent.version += 1;
        self.agent.owner = Some(worker);
        self.turn.epoch = self.agent.epoch;
        self.turn.version += 1;
        self.segment.retries = attempts > self.turn.attempts;
        self.turn.attempts = attempts;
    }

    /// A resume landed; `taken_over` if under a new epoch.
    pub(crate) fn resumed(&mut self, worker: uuid::Uuid, taken_over: bool, waited: chrono::Duration) {
        if taken_over {
            self.agent.epoch += 1;
            self.agent.version += 1;
            self.agent.owner = Some(worker);
            self.turn.epoch = self.agent.epoch;
        }
        self.turn.version += 1;
        self.turn.status = "streaming".into();
        self.turn.deadline_at = self.turn.deadline_at.map(|deadline| deadline + waited);
    }
}

/// What was asked of a turn and not yet carried out: `interrupt` or `steer`, and why.
pub(crate) fn control(turn: &turn::Model) -> Option<(&str, &str)> {
    let asked = turn.control.as_ref()?;
    let action = asked["action"].as_str().filter(|action| ["interrupt", "steer"].contains(action))?;
    Some((action, asked["reason"].as_str().unwrap_or(action)))
}

/// The same as the event of the turn's machine.
pub(crate) fn event_of(turn: &turn::Model) -> Option<&'static str> {
    match control(turn)?.0 {
        "steer" => Some("steer"),
        _ if is_budget(turn) => Some(BUDGET_EXHAUSTED),
        _ => Some("interrupt"),
    }
}

/// Whether what was asked is because a budget is used up.
fn is_budget(turn: &turn::Model) -> bool {
    turn.control.as_ref().is_some_and(|control| control["cause"] == BUDGET_EXHAUSTED)
}
