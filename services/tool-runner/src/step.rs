//! Calls of steps: their arguments come out of assets, their answers go into them, and their end begins the next
//! step, all of it in one commit.

use crate::attempt::failed;
use crate::call::{acknowledge, late};
use crate::runner::Runner;
use anyhow::Result;
use instar_bus::Delivery;
use instar_bus::message::WorkTool;
use instar_core::decide::FailureClass;
use instar_core::id::{AgentId, CallId, SessionId, StepId};
use instar_core::machine::{By, agent_drive};
use instar_core::mapping;
use instar_core::rune::Actor;
use instar_core::rune::payload::ResultStatus;
use instar_runtime::flow::Outcome;
use instar_runtime::step::{self, End, Ended, Ready};
use instar_runtime::{Act, ActError, AssetError, Done, hangs};
use instar_store::StoreError;
use instar_store::clock;
use instar_store::entity::tool_call;
use serde_json::Value;
use std::time::Duration;

/// How long a delivery rests when the database did not answer.
const REST: Duration = Duration::from_millis(300);
const WAIT_MIN: Duration = Duration::from_millis(20);
const WAIT_MAX: Duration = Duration::from_secs(1);

/// A step may go on, somebody said: what its row says decides.
pub(crate) async fn handle(runner: &Runner, delivery: Delivery<WorkTool>, id: StepId) {
    match go_on(runner, id).await {
        Ok(()) => acknowledge(delivery).await,
        Err(error) => {
            tracing::warn!(step = %id, %error, "could not go on with the step; it comes again");
            drop(delivery.nak(REST).await);
        }
    }
}

async fn go_on(runner: &Runner, id: StepId) -> Result<()> {
    let hub = &runner.hub;
    match hub.step_ready(id, &runner.steps, actor(runner), clock::now()).await? {
        Ready::Nothing => {}
        Ready::Call(call) => hub.wake_call_row(&call, true),
        Ready::Begin(act) => match act.carry_out(hub).await {
            Ok(Done::Moved { runes }) => hub.follow(&runes),
            // Somebody was faster, or it has to wait.
            Ok(Done::Ignored) | Err(ActError::Refused(_) | ActError::Contended | ActError::Absent(_)) => {}
            Err(error) => return Err(error.into()),
        },
    }
    Ok(())
}

fn actor(runner: &Runner) -> Actor {
    Actor::new(By::System, runner.id.to_string())
}

/// A call's arguments with the whole value in place of every reference.
pub(crate) async fn arguments(runner: &Runner, call: &tool_call::Model) -> Result<Value, (Outcome, bool)> {
    let mut arguments = call.arguments.clone();
    let Some(fields) = arguments.as_object_mut().filter(|_| call.step_id.is_some()) else { return Ok(arguments) };
    for value in fields.values_mut() {
        let Some(version) = mapping::reference(value) else { continue };
        *value = runner.hub.value(version, actor(runner)).await.map_err(|error| {
            let passes = error.passes();
            (failed(ResultStatus::Error, format!("an input could not be read: {error}")), passes)
        })?;
    }
    Ok(arguments)
}

/// Writes down how a step's call ended, however long the database or the object storage is away.
pub(crate) async fn record(runner: &Runner, call: &tool_call::Model, outcome: Outcome, retryable: bool) {
    let gone = runner.tools.for_step(&call.name).is_none();
    let class = (gone && outcome.status == ResultStatus::Error).then_some(FailureClass::Fatal);
    let mut end = End { outcome, retryable, class };
    let (mut wait, mut unsure) = (WAIT_MIN, false);
    instar_crashpoint::crash_point!("runner.step.before");
    loop {
        match settle(runner, call, &end, unsure).await {
            Ok(()) => break,
            Err(Failed::Unkeepable(why)) => {
                // It happened, whatever the store thinks of its output: the call must have its result.
                tracing::warn!(call = %CallId::from(call.id), why, "the output could not be kept");
                let outcome = Outcome { output: Value::Null, truncated: true, ..end.outcome.clone() };
                end = End { outcome: Outcome { error: Some(why), ..outcome }, retryable: false, class };
            }
            Err(Failed::Passing { ambiguous, why }) => {
                tracing::debug!(call = %CallId::from(call.id), why, "the result is tried again");
                unsure |= ambiguous;
                if runner.lost.is_cancelled() {
                    // Whoever settles a dead runner's calls has it by now.
                    return;
                }
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(WAIT_MAX);
            }
        }
    }
    instar_crashpoint::crash_point!("runner.step.after");
}

/// A step's call ran out of time. Should the server behind it hang, the agent in whose name it ran stops: it is
/// idle while its steps run, unless it is in a turn of its own, which goes on.
pub(crate) async fn judge(runner: &Runner, call: &tool_call::Model) -> Result<()> {
    let Some(step) = call.step_id.filter(|_| !call.agent_id.is_nil()) else { return Ok(()) };
    let calls = runner.hub.store().last_calls_of_step(step.into()).await?;
    let Some(why) = hangs(&calls.iter().collect::<Vec<_>>(), &runner.tools) else { return Ok(()) };
    let (session, agent) = (SessionId::from(call.session_id), AgentId::from(call.agent_id));
    let act = Act::new(session, agent, &agent_drive::TABLE, "execution_error", actor(runner)).reason(&why);
    let act = act.provided(|snapshot| match snapshot.agents.get(&agent.uuid()) {
        Some(row) if row.lifecycle == "idle" => Ok(()),
        _ => Err(ActError::Unfit("the agent is in a turn, or has ended".into())),
    });
    match act.carry_out(&runner.hub).await {
        Ok(Done::Moved { runes }) => runner.hub.follow(&runes),
        Ok(Done::Ignored) | Err(ActError::Refused(_) | ActError::Absent(_) | ActError::Unfit(_)) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

enum Failed {
    Passing { ambiguous: bool, why: String },
    Unkeepable(String),
}

impl From<AssetError> for Failed {
    fn from(error: AssetError) -> Failed {
        match error.passes() {
            true => Failed::Passing { ambiguous: false, why: error.to_string() },
            false => Failed::Unkeepable(error.to_string()),
        }
    }
}

async fn settle(runner: &Runner, call: &tool_call::Model, end: &End, unsure: bool) -> Result<(), Failed> {
    let hub = &runner.hub;
    let ended: Ended = hub.step_ended(call, end.clone()).await?;
    let passing = |error: &dyn std::fmt::Display| Failed::Passing { ambiguous: false, why: error.to_string() };
    let bench = hub.bench_of(call, &runner.steps).await.map_err(|error| passing(&error))?;
    match step::finish(call, &ended, actor(runner), &bench).carry_out(hub).await {
        Ok(Done::Moved { runes }) => {
            let status = serde_json::json!(ended.status());
            metrics::counter!("instar.tool_calls", "status" => status.as_str().unwrap_or("error").to_owned())
                .increment(1);
            // The call itself is nobody's to stop any more.
            for rune in runes.iter().filter(|rune| rune.entity.id != call.id) {
                hub.follow(std::slice::from_ref(rune));
            }
            Ok(())
        }
        Ok(Done::Ignored) | Err(ActError::Unfit(_) | ActError::Absent(_)) => Ok(()),
        Err(ActError::Refused(_)) => {
            metrics::counter!("instar.tool_calls", "status" => "late").increment(1);
            // One that was told to stop has stopped; and one whose commit nobody answered may have landed.
            if !unsure && ended.status() != ResultStatus::Cancelled {
                late(runner, call, ended.status()).await;
            }
            Ok(())
        }
        Err(ActError::Store(StoreError::Ambiguous(why))) => {
            Err(Failed::Passing { ambiguous: true, why: why.to_string() })
        }
        Err(ActError::Store(error)) if !error.retryable() => Err(Failed::Unkeepable(error.to_string())),
        Err(error) => Err(passing(&error)),
    }
}
