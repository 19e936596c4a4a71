//! Tools that act on the store itself, and so need no world outside to answer.
//!
//! Who calls is read from the call's row: the model cannot say it. What such a tool changes and the
//! result of its call are one commit, which expects the call's row as it was read; of two attempts one
//! lands, and a crash leaves both or neither. A further tool is a further arm of [`plan`].

mod critique;
mod mission;
mod propose;
mod read;
mod report;
mod role;
mod search;
mod send;
mod spawn;
mod terminate;
mod wait;

use crate::attempt::{Attempt, refusal};
use crate::call::{acknowledge, follow, record};
use crate::runner::Runner;
use chrono::{DateTime, Utc};
use instar_core::id::{AgentId, CallId, SessionId, TurnId};
use instar_core::machine::By;
use instar_core::rune::payload::ResultStatus;
use instar_core::rune::{Actor, Rune};
use instar_runtime::flow::{self, FlowError, Outcome};
use instar_runtime::plan::Purpose;
use instar_runtime::{Act, ActError};
use instar_store::clock;
use instar_store::entity::{agent, plan, plan_turn, session, tool_call};
use instar_store::{Commit, Landed, StoreError};
use instar_tools::{Kind, Native, Spec};
use sea_orm::EntityTrait;
use serde_json::Value;
use std::time::Duration;

/// How often a tool looks again because others changed the same rows.
const LOOKS_MAX: usize = 16;
/// How long a delivery rests when the database did not answer.
const REST: Duration = Duration::from_millis(300);

/// Who calls, from where, and what with.
pub(crate) struct Caller<'a> {
    pub(crate) runner: &'a Runner,
    pub(crate) call: &'a tool_call::Model,
    pub(crate) spec: &'a Spec,
}

impl Caller<'_> {
    pub(crate) fn agent(&self) -> AgentId {
        AgentId::from(self.call.agent_id)
    }

    pub(crate) fn turn(&self) -> Option<TurnId> {
        self.call.turn_id.map(TurnId::from)
    }

    /// The caller's session and the caller as they are now.
    pub(crate) async fn rows(&self) -> Result<Option<(session::Model, agent::Model)>, StoreError> {
        let store = self.runner.hub.store();
        let session = session::Entity::find_by_id(self.call.session_id).one(store.db());
        let (session, agent) = (session.await?, store.agent(self.agent()).await?);
        Ok(session.zip(agent))
    }

    /// What a native tool does is done by the agent that calls it.
    fn actor(&self) -> Actor {
        Actor::new(By::Agent, self.agent().to_string())
    }

    /// What comes of a call without being an act of the agent.
    fn system(&self) -> Actor {
        Actor::new(By::System, self.runner.id.to_string())
    }

    pub(crate) fn commit(&self) -> Commit {
        Commit::new(SessionId::from(self.call.session_id), self.actor()).traced(self.call.traceparent.clone())
    }

    /// What the caller's turn does for a plan, and the plan, as they are now; the error says that it does nothing.
    pub(crate) async fn work(
        &self,
        purpose: &[Purpose],
    ) -> Result<Result<(plan_turn::Model, plan::Model), Outcome>, Failed> {
        let store = self.runner.hub.store();
        let none = || Ok(Err(error_of("this turn works on nothing that could be reported on: nothing was changed")));
        let Some(turn) = self.turn() else { return none() };
        let Some(work) = store.plan_turn(turn).await? else { return none() };
        if !purpose.iter().any(|purpose| purpose.token() == work.purpose) {
            return none();
        }
        match store.plan(work.plan_id.into()).await? {
            Some(plan) => Ok(Ok((work, plan))),
            None => none(),
        }
    }

    /// The result alone: an effect is put before it, or added.
    pub(crate) fn result(&self, outcome: &Outcome) -> Result<Commit, FlowError> {
        flow::result(self.call, self.actor(), outcome)
    }
}

/// What a look at the rows came to.
pub(crate) enum Plan {
    /// Nothing to change: the result, by itself.
    Answer(Outcome),
    /// An effect with the result that goes with it.
    Commit(Box<Commit>, Outcome),
    /// The call waits from now on; it is looked at once more, since what it waits for may have come meanwhile.
    Park(Box<Commit>),
    /// It waits already, and goes on.
    Nothing,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Flow(#[from] FlowError),
    #[error(transparent)]
    Asset(#[from] instar_runtime::asset::AssetError),
    #[error("others keep changing the same rows")]
    Contended,
}

impl Failed {
    fn passes(&self) -> bool {
        match self {
            Failed::Store(error) => error.retryable() || matches!(error, StoreError::Ambiguous(_)),
            Failed::Asset(error) => error.passes(),
            Failed::Contended => true,
            Failed::Flow(_) => false,
        }
    }
}

/// The native tool that a call is of.
pub(crate) fn of(runner: &Runner, call: &tool_call::Model) -> Option<Native> {
    let tool = runner.tools.get(&call.name).filter(|tool| tool.spec().kind == Kind::Native)?;
    Native::named(tool.name())
}

pub(crate) async fn carry_out(
    runner: &Runner,
    native: Native,
    attempt: Attempt,
    holds: bool,
    owner: Option<instar_core::id::WorkerId>,
) {
    let Attempt { flight, mut call, delivery, .. } = attempt;
    instar_crashpoint::crash_point!("runner.native.before");
    let done = settle(runner, native, &mut call).await;
    instar_crashpoint::crash_point!("runner.native.after");
    let outcome = match done {
        Ok(Settled::Moot) => None,
        Ok(Settled::Answered(outcome)) => Some(outcome),
        Ok(Settled::Landed(outcome, landed)) => {
            tell_others(runner, &call, &landed);
            if let Err(error) = follow(runner, &call, &outcome, &landed, holds, owner).await {
                tracing::debug!(call = %CallId::from(call.id), %error, "nobody was told; a sweep will find it");
            }
            None
        }
        Err(error) if error.passes() => {
            // Nothing outside was touched: whoever gets it next reads the row and begins anew.
            tracing::warn!(call = %CallId::from(call.id), %error, "could not be done now; it comes again");
            drop(flight);
            if let Some(delivery) = delivery {
                drop(delivery.nak(REST).await);
            }
            return;
        }
        Err(error) => Some(error_of(format!("it could not be done: {error}"))),
    };
    if let Some(outcome) = outcome
        && let Err(error) = record(runner, &call, &outcome, holds, owner).await
    {
        tracing::error!(call = %CallId::from(call.id), %error, "the result could not be written");
    }
    if let Some(delivery) = delivery {
        acknowledge(delivery).await;
    }
}

enum Settled {
    Answered(Outcome),
    Landed(Outcome, Landed),
    /// Somebody else has done it, or it is no longer wanted.
    Moot,
}

/// Looks, works out what to change, commits; looks again if something moved in between.
async fn settle(runner: &Runner, native: Native, call: &mut tool_call::Model) -> Result<Settled, Failed> {
    let began = clock::now();
    let tool = match refusal(runner, call) {
        Ok(tool) => tool,
        Err(outcome) => return Ok(Settled::Answered(outcome)),
    };
    for _ in 0..LOOKS_MAX {
        let (commit, outcome) = match plan(native, &Caller { runner, call, spec: tool.spec() }).await? {
            Plan::Answer(outcome) => return Ok(Settled::Answered(timed(outcome, began))),
            Plan::Commit(commit, outcome) => (commit, Some(outcome)),
            Plan::Park(commit) => (commit, None),
            Plan::Nothing => return Ok(Settled::Moot),
        };
        let (landed, parks) = (runner.hub.commit(*commit).await?.landed(), outcome.is_none());
        let parked = parks && landed.is_some();
        if let (Some(landed), Some(outcome)) = (landed, outcome) {
            return Ok(Settled::Landed(outcome, landed));
        }
        match runner.hub.store().call(call.id.into()).await? {
            Some(row) if row.ended_at.is_none() && (parked || row.epoch == call.epoch) => *call = row,
            _ => return Ok(Settled::Moot),
        }
    }
    Err(Failed::Contended)
}

async fn plan(native: Native, caller: &Caller<'_>) -> Result<Plan, Failed> {
    match native {
        Native::SearchMessages | Native::SearchReasoning | Native::SearchBroadcasts => {
            search::plan(native, caller).await
        }
        Native::SpawnAgent => spawn::plan(caller).await,
        Native::SendMessage => send::plan(caller).await,
        Native::WaitFor => wait::plan(caller).await,
        Native::TerminateAgent => terminate::plan(caller).await,
        Native::ProposeMission => mission::propose_mission(caller).await,
        Native::ProposeHopPlan => mission::propose_plan(caller).await,
        Native::ProposeHopImpl => mission::propose_impl(caller).await,
        Native::AskPerson => mission::ask_person(caller).await,
        Native::FailHop => mission::fail_hop(caller).await,
        Native::ReplanHop => mission::replan_hop(caller).await,
        Native::ProposePlan => propose::plan(caller).await,
        Native::CompleteTask | Native::FailTask | Native::BlockTask => report::plan(native, caller).await,
        Native::SubmitCritique => critique::plan(caller).await,
        Native::ReadAsset => read::plan(caller).await,
    }
}

/// What came with the effect: turns that wait for a worker, agents that ended. The result has its own way.
fn tell_others(runner: &Runner, call: &tool_call::Model, landed: &Landed) {
    let others: Vec<Rune> = landed.runes.iter().filter(|rune| rune.entity.id != call.id).cloned().collect();
    runner.hub.follow(&others);
    mission::go_on(runner, landed);
}

/// A command of the caller's with its result, as one commit; what the machine refuses is the result.
pub(crate) async fn act(caller: &Caller<'_>, act: Act<'_>, outcome: Outcome) -> Result<Plan, Failed> {
    match act.prepare(&caller.runner.hub).await {
        Ok(Some(commit)) => Ok(Plan::Commit(Box::new(commit.then(caller.result(&outcome)?)), outcome)),
        Ok(None) => Ok(Plan::Answer(outcome)),
        Err(ActError::Store(error)) => Err(error.into()),
        Err(error) => Ok(Plan::Answer(error_of(error.to_string()))),
    }
}

pub(crate) fn success(output: Value) -> Outcome {
    Outcome { status: ResultStatus::Success, output, error: None, duration_ms: 0, truncated: false }
}

/// A refusal in words that the model can act on.
pub(crate) fn error_of(why: impl Into<String>) -> Outcome {
    let error = Some(why.into());
    Outcome { status: ResultStatus::Error, output: Value::Null, error, duration_ms: 0, truncated: false }
}

fn timed(outcome: Outcome, began: DateTime<Utc>) -> Outcome {
    Outcome { duration_ms: (clock::now() - began).num_milliseconds().max(0), ..outcome }
}
