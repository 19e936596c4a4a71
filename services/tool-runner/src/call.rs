//! A call may start, somebody said: what the row says decides.

use crate::attempt::{self, Attempt};
use crate::runner::Runner;
use crate::{native, step};
use anyhow::Result;
use instar_bus::Delivery;
use instar_bus::message::{Call, Finished, WorkTool, work_turn};
use instar_core::decide::Approval;
use instar_core::id::{AgentId, CallId, SessionId, StepId, TurnId, WorkerId};
use instar_core::machine::{By, tool_call as call_machine};
use instar_core::rune::payload::{ResultStatus, SystemInvariantViolation};
use instar_core::rune::{Actor, Draft};
use instar_runtime::flow::{self, Outcome};
use instar_runtime::{Act, ActError, INLINE_BYTES_MAX, Insisted, Ready, order};
use instar_store::clock;
use instar_store::entity::{session, tool_call};
use instar_store::{Answer, Change, Commit, Landed, StoreError};
use instar_tools::Kind;
use serde_json::{Value, json};
use std::time::Duration;

/// How long a delivery rests when the database did not answer.
const REST: Duration = Duration::from_millis(300);

pub(crate) async fn handle(runner: &Runner, delivery: Delivery<WorkTool>) {
    let hint = delivery.value();
    if let Ok(id) = hint.step_id.parse::<StepId>() {
        return step::handle(runner, delivery, id).await;
    }
    let Ok(id) = hint.call_id.parse::<CallId>() else {
        return drop(delivery.dead_letter("call_id is not the id of a call").await);
    };
    let (turn, owner) = (hint.turn_id.parse::<TurnId>().ok(), hint.owner.parse::<WorkerId>().ok());
    let again = hint.again || delivery.deliveries() > 1;
    let Some(flight) = runner.flights.take_off(id, turn) else { return acknowledge(delivery).await };
    if !runner.servers.is_empty() {
        runner.discovered.refresh().await;
    } else if let Some(call) = &hint.call {
        runner.discovered.refresh_for(std::slice::from_ref(&call.name)).await;
    }
    // Only for tools that do nothing but look, by their own definition: whatever else a hint says, it
    // may cause a look and no more.
    let looks = |call: &Call| {
        runner.tools.get(&call.name).is_some_and(|tool| {
            let spec = tool.spec();
            !spec.side_effects && spec.requires_approval != Approval::Always && spec.kind != Kind::Native
        })
    };
    let given = hint.call.clone().filter(|call| !again && looks(call) && runner.hub.is_ours_call(hint));
    if let Some(call) = given.and_then(|given| row(given, hint, id, delivery.traceparent())) {
        let delivery = Some(delivery);
        let attempt = Attempt { flight, call, delivery, again };
        return run(runner, attempt, false, owner).await;
    }
    match ready(runner, id, turn).await {
        Ok(Some((call, holds))) => {
            let attempt = Attempt { flight, call, delivery: Some(delivery), again };
            run(runner, attempt, holds, owner).await;
        }
        Ok(None) => acknowledge(delivery).await,
        Err(error) => {
            tracing::warn!(call = %id, %error, "could not look at the call; it comes again");
            drop(delivery.nak(REST).await);
        }
    }
}

/// `holds`: others may have to wait for the end of this one.
async fn run(runner: &Runner, attempt: Attempt, holds: bool, owner: Option<WorkerId>) {
    if let Some(native) = native::of(runner, &attempt.call) {
        return native::carry_out(runner, native, attempt, holds, owner).await;
    }
    let Some(made) = attempt::make(runner, attempt).await else { return };
    if made.call.step_id.is_some() {
        let late = made.outcome.status == ResultStatus::Timeout;
        step::record(runner, &made.call, made.outcome, made.retryable).await;
        if late && let Err(error) = step::judge(runner, &made.call).await {
            tracing::warn!(call = %CallId::from(made.call.id), %error, "its agent was not told that a server hangs");
        }
    } else if let Err(error) = record(runner, &made.call, &made.outcome, holds, owner).await {
        tracing::error!(call = %CallId::from(made.call.id), %error, "the result could not be written");
    }
    if let Some(delivery) = made.delivery {
        acknowledge(delivery).await;
    }
}

/// The row of a call that nobody has begun, as the worker that recorded it sent it along. Whether it
/// is still like that, the compare-and-set of its start or result says.
fn row(given: Call, hint: &WorkTool, id: CallId, trace: Option<&str>) -> Option<tool_call::Model> {
    let session: SessionId = hint.session_id.parse().ok()?;
    let (agent, turn): (AgentId, TurnId) = (given.agent_id.parse().ok()?, hint.turn_id.parse().ok()?);
    let now = clock::now();
    Some(tool_call::Model {
        id: id.uuid(),
        session_id: session.uuid(),
        agent_id: agent.uuid(),
        turn_id: Some(turn.uuid()),
        step_id: None,
        status: "executing".into(),
        epoch: 0,
        version: 0,
        owner: None,
        iteration: 0,
        position: 0,
        name: given.name,
        provider_call_id: None,
        arguments: serde_json::from_str(&given.arguments).ok()?,
        digest: given.digest,
        effect: given.effect,
        attempts: 0,
        approval: None,
        result_status: None,
        result: None,
        waits_for: None,
        expires_at: None,
        traceparent: trace.map(str::to_owned),
        created_at: now,
        updated_at: now,
        ended_at: None,
    })
}

pub(crate) async fn acknowledge(delivery: Delivery<WorkTool>) {
    instar_crashpoint::crash_point!("runner.ack.before");
    if let Err(error) = delivery.ack().await {
        tracing::debug!(%error, "not acknowledged; it may come again");
    }
    instar_crashpoint::crash_point!("runner.ack.after");
}

/// The call, if it may start now: past its approval, not begun by anybody, and not behind another; and whether
/// others may have to wait for its end.
async fn ready(
    runner: &Runner,
    id: CallId,
    turn: Option<TurnId>,
) -> Result<Option<(tool_call::Model, bool)>, StoreError> {
    let (store, parallel) = (runner.hub.store(), |name: &str| runner.parallel(name));
    if turn.is_none_or(|turn| runner.beside.knows(turn)) {
        let Some(call) = store.call(id).await? else { return Ok(None) };
        if turn.is_none() || runner.beside.has(&call) {
            let slot = order::Slot::from(&call);
            return Ok((slot.open && slot.ready).then_some((call, false)));
        }
    }
    match turn {
        Some(turn) => Ok(in_order(runner, store.calls_of(turn).await?, id, parallel)),
        None => Ok(None),
    }
}

/// The same by all calls of its turn.
fn in_order(
    runner: &Runner,
    calls: Vec<tool_call::Model>,
    id: CallId,
    parallel: impl Fn(&str) -> bool,
) -> Option<(tool_call::Model, bool)> {
    let call = calls.iter().find(|call| call.id == id.uuid())?;
    let together: Vec<_> = calls.iter().filter(|other| other.iteration == call.iteration).collect();
    runner.beside.learn(&together, &parallel);
    let startable = order::startable(together.iter().map(|call| (*call).into()), &parallel);
    let ready = startable.into_iter().map(|at| together[at]).find(|ready| ready.id == call.id)?;
    // Only a call that must go alone can be held up, or hold others up.
    Some((ready.clone(), together.iter().any(|other| !parallel(&other.name))))
}

pub(crate) async fn record(
    runner: &Runner,
    call: &tool_call::Model,
    outcome: &Outcome,
    holds: bool,
    owner: Option<WorkerId>,
) -> Result<()> {
    let actor = Actor::new(By::System, runner.id.to_string());
    let mut kept = outcome;
    let bare;
    let mut answer = runner.hub.insist(&runner.lost, || flow::result(call, actor.clone(), outcome)).await;
    if let Err(Insisted::Store(error)) = &answer {
        // It happened, whatever the store thinks of its output: the call must have its result.
        tracing::warn!(call = %CallId::from(call.id), %error, "the output could not be kept");
        let why = format!("the output could not be kept: {error}");
        let error = outcome.error.as_ref().map_or(why.clone(), |known| format!("{known:.1000}; {why}"));
        bare = Outcome { output: Value::Null, error: Some(error), truncated: true, ..outcome.clone() };
        answer = runner.hub.insist(&runner.lost, || flow::result(call, actor.clone(), &bare)).await;
        kept = &bare;
    }
    if let Err(Insisted::Ended) = &answer {
        // The lease is gone; the call's own epoch says whether the result still counts.
        let last = flow::result(call, actor.clone(), outcome).map_err(Insisted::Built)?;
        answer = runner.hub.commit(last).await.map_err(Insisted::Store);
    }
    let landed = match answer {
        Ok(Answer::Moved(landed)) => landed,
        Ok(Answer::Absent { .. }) => {
            metrics::counter!("instar.tool_calls", "status" => "unknown_call").increment(1);
            unknown(runner, call, outcome.status).await;
            return Ok(());
        }
        Ok(_) => {
            metrics::counter!("instar.tool_calls", "status" => "late").increment(1);
            tracing::info!(call = %CallId::from(call.id), "the call had its result already; this one is dropped");
            // One that was told to stop has stopped, and that is no result.
            if outcome.status != ResultStatus::Cancelled {
                late(runner, call, outcome.status).await;
            }
            return Ok(());
        }
        Err(Insisted::Ended) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    follow(runner, call, kept, &landed, holds, owner).await
}

/// Tells whoever the result was waited for by.
pub(crate) async fn follow(
    runner: &Runner,
    call: &tool_call::Model,
    outcome: &Outcome,
    landed: &Landed,
    holds: bool,
    owner: Option<WorkerId>,
) -> Result<()> {
    let status = serde_json::json!(outcome.status);
    metrics::counter!("instar.tool_calls", "status" => status.as_str().unwrap_or("error").to_owned()).increment(1);
    let Some(turn) = call.turn_id else { return Ok(()) };
    let open = match landed.counter(turn) {
        Some(open) => open,
        None => runner.hub.store().turn(turn.into()).await?.map_or(0, |turn| turn.open_calls),
    };
    if open == 0 {
        let state = flow::state_after(outcome.status);
        // How long it has waited is in its row.
        let news = if flow::has_waited(call) { None } else { news(call, state, outcome) };
        return wake_turn(runner, call, turn.into(), owner, news).await;
    }
    if holds {
        wake_next(runner, call, turn.into()).await?;
    }
    Ok(())
}

/// Notes that something had a result that is no call: a hint told of one that nobody has recorded.
async fn unknown(runner: &Runner, call: &tool_call::Model, status: ResultStatus) {
    let (session_id, id) = (SessionId::from(call.session_id), CallId::from(call.id));
    tracing::warn!(call = %id, "there is no such call; its result is dropped");
    let noted = async {
        let Some(session) = runner.hub.store().session(session_id).await? else { return anyhow::Ok(()) };
        let Some(live) = flow::live_state(&session) else { return Ok(()) };
        let mut commit = Commit::new(session_id, Actor::new(By::System, runner.id.to_string()));
        commit.change(Change::entity(&session::TABLE, session_id).expecting("session", live));
        let told = SystemInvariantViolation {
            invariant_id: "INV-TOOL-CALL-BEFORE-RESULT".into(),
            severity: "error".into(),
            message: format!("a result came for a call that does not exist: {}", flow::status_token(status)),
            context: json!({"call_id": id, "tool_name": call.name}),
        };
        commit.rune(Draft::new(session_id, &told)?);
        runner.hub.commit(commit).await?;
        Ok(())
    };
    if let Err(error) = noted.await {
        tracing::debug!(call = %id, %error, "not noted");
    }
}

/// Notes that a call got a second result, which was dropped.
pub(crate) async fn late(runner: &Runner, call: &tool_call::Model, status: ResultStatus) {
    let actor = Actor::new(By::System, runner.id.to_string());
    let (session_id, id) = (SessionId::from(call.session_id), CallId::from(call.id));
    let message = format!("the call had its result when another came: {}", flow::status_token(status));
    let told = json!({"invariant_id": "INV-TOOL-TERMINAL", "severity": "error", "message": message});
    let act = Act::new(session_id, id, &call_machine::TABLE, "late_result", actor).also(|commit, snapshot| {
        let gone = || ActError::Unfit("the log of its session has had its last rune".into());
        let live = flow::live_state(&snapshot.session).ok_or_else(gone)?;
        commit.change(Change::entity(&session::TABLE, session_id).expecting("session", live));
        Ok(())
    });
    if let Err(error) = act.telling("system.invariant_violation", told).carry_out(&runner.hub).await {
        tracing::debug!(call = %id, %error, "not noted");
    }
}

/// The result itself, for a worker that still knows the turn.
fn news(call: &tool_call::Model, state: &str, outcome: &Outcome) -> Option<work_turn::News> {
    let result = flow::result_json(outcome).to_string();
    (result.len() <= INLINE_BYTES_MAX).then(|| {
        work_turn::News::Finished(Finished {
            call_id: CallId::from(call.id).to_string(),
            state: state.to_owned(),
            status: flow::status_token(outcome.status),
            result,
        })
    })
}

async fn wake_turn(
    runner: &Runner,
    call: &tool_call::Model,
    turn: TurnId,
    owner: Option<WorkerId>,
    news: Option<work_turn::News>,
) -> Result<()> {
    let (session, agent) = (SessionId::from(call.session_id), AgentId::from(call.agent_id));
    let owner = match owner {
        Some(owner) => Some(owner.uuid()),
        None => runner.hub.store().agent(agent).await?.and_then(|agent| agent.owner),
    };
    let ready = Ready { session, agent, turn, epoch: 0, reason: "tools_finished", news };
    runner.hub.wake_turn(ready, owner, call.traceparent.as_deref());
    Ok(())
}

async fn wake_next(runner: &Runner, call: &tool_call::Model, turn: TurnId) -> Result<()> {
    let calls = runner.hub.store().calls_of(turn).await?;
    let together: Vec<_> = calls.iter().filter(|other| other.iteration == call.iteration).collect();
    for at in order::startable(together.iter().map(|call| (*call).into()), |name| runner.parallel(name)) {
        runner.hub.wake_call_row(together[at], false);
    }
    Ok(())
}
