//! A claim or a resume that is not written yet.
//!
//! An owner under a valid lease may call the provider before the commit that records it. If the answer comes
//! within `worker.fold_ms`, both are written as one commit; if it does not, the first is written then. Should
//! the worker die before that, the turn is as it was, and a sweep finds it.

use crate::held::Held;
use crate::worker::Worker;
use anyhow::Result;
use chrono::Duration;
use instar_core::id::{MessageId, WorkerId};
use instar_core::rune::payload::{CallSummary, TurnInput};
use instar_runtime::flow::{self, FlowError};
use instar_runtime::{Insisted, Ready};
use instar_store::entity::{agent, turn};
use instar_store::{Answer, Change, Commit};

/// The rows as they were before it.
pub(crate) enum Unwritten {
    Claim {
        agent: Box<agent::Model>,
        turn: turn::Model,
        prompt: Option<MessageId>,
        deadline: Duration,
        inputs: Vec<TurnInput>,
    },
    Resume {
        turn: turn::Model,
        waited: Duration,
        results: Vec<CallSummary>,
    },
}

impl Unwritten {
    fn alone(&self, worker: WorkerId) -> Result<Commit, FlowError> {
        match self {
            Unwritten::Claim { agent, turn, prompt, deadline, inputs } => {
                flow::claim(agent, turn, &[], *prompt, worker, *deadline, inputs.clone())
            }
            Unwritten::Resume { turn, waited, results } => flow::resume(turn, None, worker, *waited, results.clone()),
        }
    }

    /// Before what follows from it, as one commit.
    fn before(&self, worker: WorkerId, later: Commit) -> Result<Commit, FlowError> {
        let mut first = self.alone(worker)?;
        if let Unwritten::Claim { agent, .. } = self {
            // A message that came in meanwhile has written the agent's row: it must be seen.
            let seen = Change::entity(&agent::TABLE, instar_core::id::AgentId::from(agent.id)).version(agent.version);
            first.change(seen);
        }
        Ok(first.then(later))
    }

    fn is_claim(&self) -> bool {
        matches!(self, Unwritten::Claim { .. })
    }
}

impl Held {
    /// A commit with what is still to be written before it.
    pub(crate) fn after_unwritten(&self, worker: WorkerId, commit: Commit) -> Result<Commit, FlowError> {
        match &self.unwritten {
            Some(first) => first.before(worker, commit),
            None => Ok(commit),
        }
    }

    /// Both landed as one: rows that both write were written once.
    pub(crate) fn written_together(&mut self, with_agent: bool) {
        let Some(first) = self.unwritten.take() else { return };
        self.turn.version -= 1;
        self.agent.version -= i64::from(with_agent && first.is_claim());
    }
}

/// Writes it by itself, if there is one; false if it does not land: the turn is not ours.
pub(crate) async fn write(worker: &Worker, held: &mut Held) -> Result<bool> {
    let Some(first) = held.unwritten.take() else { return Ok(true) };
    match worker.hub.insist(&worker.lost, || first.alone(worker.id)).await {
        Ok(Answer::Moved(_)) => Ok(true),
        Err(Insisted::Ended) => Ok(false),
        Ok(_) => {
            tracing::info!(turn = %held.turn_id(), "the turn is not as it was known to be; its row is looked at");
            // Whoever takes it up now, perhaps ourselves, decides by the row.
            held.flight = None;
            let ready = Ready::of(&held.turn, "overtaken");
            worker.hub.wake_turn(ready, Some(worker.id.uuid()), held.turn.traceparent.as_deref());
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}
