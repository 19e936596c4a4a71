//! The end of a turn, as the worker that owns its agent writes it: turn and agent end it together,
//! and input that waits gets the next turn in the same commit.

use super::daily::{self, Day};
use super::letter;
use super::message::queue;
use super::nudge::{NUDGE, count, is_autonomous, nudge_later};
use super::relaunch::relaunch_later;
use super::turn::{Spoken, begin, ids, said, timer, used};
use super::{FlowError, booked, settle, step, unheard};
use crate::snapshot::doom;
use chrono::Duration;
use instar_core::budget::Spent;
use instar_core::decide::{LATE_MAX, PROVIDER_CALLS_LIMIT};
use instar_core::id::{MessageId, SessionId, TurnId, WorkerId};
use instar_core::machine::{By, agent_drive, agent_lifecycle, turn as turn_machine};
use instar_core::rune::Draft;
use instar_core::rune::payload::{
    AgentDriveErrored, AgentTerminated, CallSummary, TurnAssistantFinal, TurnCompleted, TurnError, TurnInterrupted,
    TurnToolsFinished, Usage,
};
use instar_store::entity::{agent, message, timer as timer_row, turn};
use instar_store::{Change, Commit};
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

/// A timer that ends what an agent made, after the agent itself.
pub const ORPHANS_TIMER: &str = "orphans";
/// Where an agent's configuration says how many provider calls a turn may have.
pub const CALLS_MAX: &str = "provider_calls_max";

/// Provider calls that a turn of this agent may have; `usual`: where it says nothing of it.
pub fn provider_calls_max(agent: &agent::Model, usual: u32) -> u32 {
    let own = agent.config[CALLS_MAX].as_u64().and_then(|n| u32::try_from(n).ok());
    own.filter(|n| (1..=PROVIDER_CALLS_LIMIT).contains(n)).unwrap_or(usual)
}

/// What an end is worked out from. `agent` as read before `waiting`: its version says whether a
/// message came in between.
#[derive(Clone, Copy)]
pub struct Ending<'a> {
    pub turn: &'a turn::Model,
    pub agent: &'a agent::Model,
    pub worker: WorkerId,
    /// Steering messages first.
    pub waiting: &'a [MessageId],
    /// How long an autonomous agent rests before it goes on by itself.
    pub pause: Duration,
    /// Provider calls that the turn may have.
    pub calls_max: u32,
    /// Turns in a row that letters of other agents may cause; 0: any number.
    pub letters_max: u32,
    pub day: Day,
}

impl Ending<'_> {
    /// By which event the agent shall end after its turn. Asked of the row and of nobody else, so that no way to end
    /// a turn can forget it.
    fn ends(&self) -> Option<&'static str> {
        doom(self.turn)
    }

    /// Whether a worker ends it that does not own the agent: a turn that waited for tools may be anybody's.
    fn takes_over(&self) -> bool {
        self.agent.owner != Some(self.worker.uuid())
    }

    /// Each epoch has one owner.
    fn epoch(&self) -> i64 {
        self.turn.epoch + i64::from(self.takes_over())
    }

    fn begin(&self) -> Commit {
        begin(self.turn, self.worker, self.epoch())
    }

    fn tell(&self, commit: &mut Commit, draft: Draft) {
        let (agent, turn) = ids(self.turn);
        commit.rune(draft.agent(agent).turn(turn));
    }

    /// The turn's row at its end; the version: a control that came in meanwhile is seen first.
    fn turn(&self, event: &str, at: chrono::DateTime<chrono::Utc>) -> Result<Change, FlowError> {
        let ended = step(&turn_machine::TABLE, &self.turn.status, event, By::System)?;
        let change = Change::entity(&turn::TABLE, ids(self.turn).1)
            .moving(ended)
            .epoch(self.turn.epoch)
            .version(self.turn.version)
            .set(turn::Column::Input, self.turn.input.clone())
            .set(turn::Column::EndedAt, at);
        Ok(if self.takes_over() { change.set(turn::Column::Epoch, self.epoch()) } else { change })
    }

    /// The agent's row; `usage` is that of the whole turn.
    fn agent(&self, event: &str, usage: &Value) -> Result<Change, FlowError> {
        let idle = step(&agent_lifecycle::TABLE, &self.agent.lifecycle, event, By::System)?;
        let change = Change::entity(&agent::TABLE, ids(self.turn).0);
        let change = change.moving(idle).epoch(self.turn.epoch).version(self.agent.version);
        let change = count_late(self.agent, change.set(agent::Column::Usage, booked(self.agent, usage)), false);
        Ok(match self.takes_over() {
            true => change.set(agent::Column::Epoch, self.epoch()).set(agent::Column::Owner, self.worker.uuid()),
            false => change,
        })
    }

    /// What follows the turn: the end of the agent if that was asked for, else the turn for what waits. `usage` as for
    /// the agent's row.
    fn after(
        &self,
        commit: &mut Commit,
        agent: Change,
        drive: &str,
        usage: &Value,
    ) -> Result<Option<TurnId>, FlowError> {
        let Some(event) = self.ends() else {
            let today = self.day.after(self.agent, usage, commit.at());
            let more = !self.waiting.is_empty() || is_autonomous(self.agent);
            if more && drive == "running" && !self.day.asked && self.day.ceiling.is_reached(today) {
                let agent = daily::rest(commit, self.agent, agent, drive, today)?;
                commit.change(agent);
                return Ok(None);
            }
            let agent = if self.day.counts { agent.set(agent::Column::Today, json!(today)) } else { agent };
            if !self.waiting.is_empty()
                && drive == "running"
                && letter::letters_are_enough(self.agent, self.letters_max)
            {
                let agent = letter::rest(commit, self.agent, agent, drive)?;
                commit.change(agent);
                return Ok(None);
            }
            commit.change(if self.waiting.is_empty() { agent } else { letter::count(self.agent, agent) });
            let next = self.next(commit)?;
            if next.is_none() && drive == "running" && is_autonomous(self.agent) {
                nudge_later(commit, self.agent, self.epoch(), commit.at() + self.pause);
            }
            return Ok(next);
        };
        let mut agent = agent.moving(step(&agent_lifecycle::TABLE, "idle", event, By::System)?);
        if drive == "running" {
            agent = agent.moving(step(&agent_drive::TABLE, drive, "lifecycle_terminated", By::System)?);
        }
        let id = ids(self.turn).0;
        let told = AgentTerminated { reason: event.into(), stats: json!(null) };
        commit.rune(Draft::new(id, &told)?.agent(id));
        commit.change(agent.set(agent::Column::Owner, None::<Uuid>));
        // What it made ends with it. Who that is nobody looked up here: the scheduler does, at once.
        let at = commit.at();
        commit.insert(&timer_row::TABLE, timer(self.turn.session_id, ORPHANS_TIMER, id.to_string(), at, at));
        Ok(None)
    }

    /// What follows a turn that is complete.
    fn completed(&self, commit: &mut Commit, agent: Change, usage: &Value) -> Result<Option<TurnId>, FlowError> {
        let counts = self.turn.cause == NUDGE && self.agent.drive == "running" && self.ends().is_none();
        if !counts {
            return self.after(commit, agent, &self.agent.drive, usage);
        }
        let (agent, drive) = count(commit, self.agent, agent)?;
        self.after(commit, agent, drive, usage)
    }

    /// The turn after this one, if messages wait.
    fn next(&self, commit: &mut Commit) -> Result<Option<TurnId>, FlowError> {
        if self.waiting.is_empty() {
            return Ok(None);
        }
        let (session, (agent, _)) = (SessionId::from(self.turn.session_id), ids(self.turn));
        let id = TurnId::from(Uuid::now_v7());
        for message in self.waiting {
            commit.change(Change::new(&message::TABLE, message.uuid()).set(message::Column::TurnId, id.uuid()));
        }
        queue(commit, session, agent, id, self.waiting.to_vec(), "user", self.turn.traceparent.clone())?;
        Ok(Some(id))
    }
}

/// The answer is complete.
pub fn complete(ending: Ending<'_>, spoken: &Spoken) -> Result<(Commit, Option<TurnId>), FlowError> {
    let turn = ending.turn;
    let (_, turn_id) = ids(turn);
    let mut commit = ending.begin();
    let usage = used(turn, spoken.usage);
    let change = ending
        .turn("response_done", commit.at())?
        .set(turn::Column::Iterations, turn.iterations + 1)
        .set(turn::Column::Output, spoken.text.clone())
        .set(turn::Column::FinishReason, spoken.finish.clone())
        .set(turn::Column::Usage, usage.clone());
    commit.change(change);
    settle(&mut commit, turn, spoken.spent(0));
    said(&mut commit, turn, turn.iterations + 1, spoken);
    let told = TurnAssistantFinal { content: spoken.text.clone(), reasoning: spoken.reasoning.clone() };
    ending.tell(&mut commit, Draft::new(turn_id, &told)?);
    let agent = ending.agent("turn_completed", &usage)?;
    let told = TurnCompleted {
        usage: Usage::deserialize(&usage)?,
        final_output: None,
        finish_reason: spoken.finish.clone(),
        iterations: turn.iterations + 1,
    };
    ending.tell(&mut commit, Draft::new(turn_id, &told)?);
    let next = ending.completed(&mut commit, agent, &usage)?;
    Ok((commit, next))
}

/// Every call has its result and no provider call may follow, or a tool has ended the turn.
pub fn complete_by_limit(ending: Ending<'_>, results: Vec<CallSummary>) -> Result<(Commit, Option<TurnId>), FlowError> {
    let turn = ending.turn;
    let used_up = turn.iterations >= i64::from(ending.calls_max);
    let (_, turn_id) = ids(turn);
    if turn.open_calls > 0 {
        return Err(FlowError::Open(turn.open_calls));
    }
    let mut commit = ending.begin();
    let why = if used_up { "provider_calls_max" } else { "ended_by_tool" };
    commit.change(ending.turn("tools_finished_last", commit.at())?.set(turn::Column::FinishReason, why));
    ending.tell(&mut commit, Draft::new(turn_id, &TurnToolsFinished { results })?);
    let agent = ending.agent("turn_completed", &turn.usage)?;
    let told = TurnCompleted {
        usage: serde_json::from_value(used(turn, Default::default()))?,
        final_output: None,
        finish_reason: Some(why.into()),
        iterations: turn.iterations,
    };
    ending.tell(&mut commit, Draft::new(turn_id, &told)?);
    let next = ending.completed(&mut commit, agent, &turn.usage)?;
    Ok((commit, next))
}

/// Whether an error also stops the agent's own drive, so that a person looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fatal {
    No,
    Drive,
    /// The provider failed: it may be well again later.
    Provider,
}

/// Turns in a row that passed their deadline, with the one that ends. No write of its own, and none where nothing was
/// counted.
pub(crate) fn count_late(agent: &agent::Model, change: Change, late: bool) -> Change {
    match (late, agent.late_count) {
        (true, before) => change.set(agent::Column::LateCount, before.unwrap_or(0) + 1),
        (false, Some(_)) => change.set(agent::Column::LateCount, None::<i64>),
        (false, None) => change,
    }
}

/// Whether the agent needs a person if one more of its turns passes its deadline.
pub(crate) fn is_late_too_often(agent: &agent::Model) -> bool {
    agent.late_count.unwrap_or(0) + 1 >= LATE_MAX
}

/// The turn cannot go on. Its agent can, unless the error is fatal to its drive.
pub fn fail(
    ending: Ending<'_>,
    event: &str,
    error_type: &str,
    why: &str,
    partial: &Spoken,
    fatal: Fatal,
) -> Result<(Commit, Option<TurnId>), FlowError> {
    let late = event == turn_machine::Event::TurnDeadline.token();
    let fatal = match fatal {
        _ if late && is_late_too_often(ending.agent) => Fatal::Drive,
        _ if late => Fatal::No,
        // Whoever goes on by itself would only meet the same error again, and no breaker counts turns that failed.
        Fatal::No if ending.turn.cause == NUDGE => Fatal::Drive,
        fatal => fatal,
    };
    let agent = count_late(ending.agent, ending.agent("turn_error", &used(ending.turn, partial.usage))?, late);
    broken(ending, agent, Failure { event, error_type, why, partial, spent: partial.spent(0), fatal })
}

/// The turn has cost too many workers: it is tried no more, and its agent errs. What the last of them called has its
/// price, although nobody heard the answer to its end.
pub fn give_up(ending: Ending<'_>, partial: &Spoken) -> Result<(Commit, Option<TurnId>), FlowError> {
    let event = "recovery_exhausted";
    let why = format!("{} workers died while they had this turn; it is not tried again", ending.turn.attempts);
    // Whoever finds that out never had it.
    let agent = ending.agent(event, &ending.turn.usage)?.set(agent::Column::Owner, None::<Uuid>);
    let (error_type, spent) = ("worker_lost", unheard(ending.turn));
    broken(ending, agent, Failure { event, error_type, why: &why, partial, spent, fatal: Fatal::Drive })
}

struct Failure<'a> {
    event: &'a str,
    error_type: &'a str,
    why: &'a str,
    partial: &'a Spoken,
    spent: Spent,
    fatal: Fatal,
}

fn broken(ending: Ending<'_>, mut agent: Change, failure: Failure<'_>) -> Result<(Commit, Option<TurnId>), FlowError> {
    let Failure { event, error_type, why, partial, spent, fatal } = failure;
    let (agent_id, turn_id) = ids(ending.turn);
    let mut commit = ending.begin();
    let error = json!({"error_type": error_type, "message": why});
    let usage = used(ending.turn, partial.usage);
    let mut change = ending.turn(event, commit.at())?.set(turn::Column::Error, error);
    if partial.usage != Usage::default() {
        change = change.set(turn::Column::Usage, usage.clone());
    }
    commit.change(change);
    settle(&mut commit, ending.turn, spent);
    said(&mut commit, ending.turn, ending.turn.iterations + 1, partial);
    let partial_output = (!partial.text.is_empty()).then(|| partial.text.clone());
    let told = TurnError { error_type: error_type.into(), message: why.into(), partial_output };
    ending.tell(&mut commit, Draft::new(turn_id, &told)?);
    if fatal != Fatal::No && ending.agent.drive == "running" {
        agent = agent
            .moving(step(&agent_drive::TABLE, "running", "execution_error", By::System)?)
            .set(agent::Column::LastError, why.to_owned());
        let told = AgentDriveErrored { last_error: why.into(), error_type: Some(error_type.into()) };
        commit.rune(Draft::new(agent_id, &told)?.agent(agent_id));
        if fatal == Fatal::Provider && ending.ends().is_none() {
            relaunch_later(&mut commit, ending.agent, ending.epoch());
        }
        // What waits goes on waiting: an errored agent takes no turn until it is relaunched.
        let waits = Ending { waiting: &[], ..ending };
        let next = waits.after(&mut commit, agent, "errored", &usage)?;
        return Ok((commit, next));
    }
    let next = ending.after(&mut commit, agent, &ending.agent.drive, &usage)?;
    Ok((commit, next))
}

/// A control takes effect.
pub fn interrupt(
    ending: Ending<'_>,
    event: &str,
    reason: &str,
    partial: &Spoken,
) -> Result<(Commit, Option<TurnId>), FlowError> {
    let (_, turn_id) = ids(ending.turn);
    if ending.turn.open_calls > 0 {
        return Err(FlowError::Open(ending.turn.open_calls));
    }
    let mut commit = ending.begin();
    let usage = used(ending.turn, partial.usage);
    let mut change = ending.turn(event, commit.at())?.set(turn::Column::Usage, usage.clone());
    if !partial.text.is_empty() {
        change = change.set(turn::Column::Output, partial.text.clone());
    }
    commit.change(change);
    settle(&mut commit, ending.turn, partial.spent(0));
    said(&mut commit, ending.turn, ending.turn.iterations + 1, partial);
    let agent = ending.agent("turn_interrupted", &usage)?;
    let told = TurnInterrupted {
        reason: reason.into(),
        partial_output: (!partial.text.is_empty()).then(|| partial.text.clone()),
        forced: event == turn_machine::Event::InterruptTimeout.token(),
    };
    ending.tell(&mut commit, Draft::new(turn_id, &told)?);
    let next = ending.after(&mut commit, agent, &ending.agent.drive, &usage)?;
    Ok((commit, next))
}
