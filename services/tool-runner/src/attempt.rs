//! One attempt of one call, to exactly one outcome.

use crate::call::acknowledge;
use crate::cancel::Flight;
use crate::runner::Runner;
use instar_bus::Delivery;
use instar_bus::message::{Progress, WorkTool};
use instar_core::decide::Effect;
use instar_core::id::{CallId, SessionId, TurnId};
use instar_core::rune::payload::ResultStatus;
use instar_runtime::flow::{self, Outcome};
use instar_runtime::telemetry;
use instar_store::Answer;
use instar_store::entity::tool_call;
use instar_tools::{Invocation, Sink};
use serde_json::Value;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

/// A call that runs longer than this has its start recorded, whatever it does: sweeps then know who
/// has it.
const UNRECORDED_MAX: Duration = Duration::from_secs(1);
/// How often a long call looks whether it is still wanted, should nobody have told it.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Reports that may wait to be sent.
const PROGRESS_ROOM: usize = 64;

pub(crate) struct Attempt {
    pub(crate) flight: Flight,
    pub(crate) call: tool_call::Model,
    /// Until the start is recorded or the call is over.
    pub(crate) delivery: Option<Delivery<WorkTool>>,
    /// Somebody may have begun it before.
    pub(crate) again: bool,
}

/// The call as it is now, what came of it, and the delivery if it is still to be acknowledged.
pub(crate) struct Made {
    pub(crate) call: tool_call::Model,
    pub(crate) outcome: Outcome,
    pub(crate) delivery: Option<Delivery<WorkTool>>,
    /// Kept until the result is written.
    _flight: Flight,
}

/// `None` where somebody else has it.
pub(crate) async fn make(runner: &Runner, mut attempt: Attempt) -> Option<Made> {
    let effect = Effect::parse(&attempt.call.effect).unwrap_or(Effect::AtMostOnce);
    let Some(tool) = runner.tools.get(&attempt.call.name) else {
        let why = format!("there is no tool {:?} any more", attempt.call.name);
        return Some(made(attempt, failed(ResultStatus::Error, why)));
    };
    if tool.digest(&attempt.call.arguments) != attempt.call.digest {
        let why = "the tool's definition changed since the call was made; it was not run".to_owned();
        return Some(made(attempt, failed(ResultStatus::Error, why)));
    }
    if (effect == Effect::AtMostOnce || attempt.again) && !start(runner, &mut attempt).await {
        return None;
    }
    let span = tracing::info_span!(
        "execute_tool",
        otel.name = format!("execute_tool {}", attempt.call.name),
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = attempt.call.name,
        gen_ai.tool.call.id = %CallId::from(attempt.call.id),
        gen_ai.conversation.id = %SessionId::from(attempt.call.session_id),
        instar.attempt = attempt.call.attempts.max(1),
    );
    if let Some(trace) = &attempt.call.traceparent {
        telemetry::set_parent(&span, trace);
    }
    let (cancel, (sink, reports)) = (CancellationToken::new(), Sink::channel(PROGRESS_ROOM));
    let invocation = Invocation {
        arguments: attempt.call.arguments.clone(),
        call_id: CallId::from(attempt.call.id),
        attempt: u32::try_from(attempt.call.attempts.max(1)).unwrap_or(1),
        deadline: None,
        workspace: None,
        traceparent: telemetry::traceparent_of(&span).or_else(|| attempt.call.traceparent.clone()),
        tool,
    };
    tokio::spawn(report(runner.hub.clone(), attempt.call.clone(), reports));
    let (effects, stop) = (runner.effects.clone(), cancel.clone());
    let running = async move {
        instar_crashpoint::crash_point!("runner.effect.before");
        let outcome = effects.run(invocation, stop, sink).await;
        instar_crashpoint::crash_point!("runner.effect.after");
        outcome
    };
    // A task of its own: it goes on while a commit of ours waits for the database.
    let mut running = tokio::spawn(running.instrument(span));
    let (mut recorded, mut look) = (attempt.delivery.is_none(), tokio::time::interval(LOOK_EVERY));
    look.reset();
    let long = tokio::time::sleep(UNRECORDED_MAX);
    tokio::pin!(long);
    let outcome = loop {
        tokio::select! {
            biased;
            outcome = &mut running => break outcome,
            () = runner.lost.cancelled(), if !cancel.is_cancelled() => cancel.cancel(),
            () = &mut long, if !recorded => {
                recorded = true;
                if !start(runner, &mut attempt).await {
                    cancel.cancel();
                    let _ = running.await;
                    return None;
                }
            }
            () = attempt.flight.told() => if !wanted(runner, &attempt.call).await { cancel.cancel() },
            _ = look.tick() => if !wanted(runner, &attempt.call).await { cancel.cancel() },
        }
    };
    let given_up = outcome.as_ref().is_ok_and(|outcome| outcome.status == ResultStatus::Cancelled);
    if runner.lost.is_cancelled() && given_up {
        // Whether it took effect is for whoever settles a dead runner's calls to say.
        return None;
    }
    let outcome = outcome.map_or_else(
        |error| {
            let status = if effect.repeatable() { ResultStatus::Error } else { ResultStatus::Unknown };
            failed(status, format!("the runner failed on this call: {error}"))
        },
        |outcome| Outcome {
            status: outcome.status,
            error: outcome.error.map(|failure| failure.to_string()),
            output: outcome.output.into_json(),
            duration_ms: i64::try_from(outcome.duration.as_millis()).unwrap_or(i64::MAX),
            truncated: outcome.truncated,
        },
    );
    Some(made(attempt, outcome))
}

fn made(attempt: Attempt, outcome: Outcome) -> Made {
    Made { call: attempt.call, outcome, delivery: attempt.delivery, _flight: attempt.flight }
}

fn failed(status: ResultStatus, why: String) -> Outcome {
    Outcome { status, output: Value::Null, error: Some(why), duration_ms: 0, truncated: false }
}

/// Records that this runner begins; false if the call is somebody else's or over.
async fn start(runner: &Runner, attempt: &mut Attempt) -> bool {
    let call = &attempt.call;
    match runner.hub.insist(&runner.lost, || flow::start(call, runner.id)).await {
        Ok(Answer::Moved(_)) => {
            attempt.call.epoch += 1;
            attempt.call.attempts += 1;
            attempt.call.owner = Some(runner.id.uuid());
        }
        Ok(_) => {
            if let Some(delivery) = attempt.delivery.take() {
                acknowledge(delivery).await;
            }
            return false;
        }
        Err(error) => {
            tracing::warn!(call = %CallId::from(call.id), %error, "the start could not be recorded; nothing was run");
            return false;
        }
    }
    if let Some(delivery) = attempt.delivery.take() {
        acknowledge(delivery).await;
    }
    true
}

/// Whether the call still waits for this attempt's result.
async fn wanted(runner: &Runner, call: &tool_call::Model) -> bool {
    match runner.hub.store().call(call.id.into()).await {
        Ok(Some(row)) => row.ended_at.is_none() && row.epoch == call.epoch,
        Ok(None) => false,
        Err(_) => true,
    }
}

/// Passes on what the tool says while it runs.
async fn report(
    hub: instar_runtime::Hub,
    call: tool_call::Model,
    mut reports: tokio::sync::mpsc::Receiver<instar_tools::Progress>,
) {
    let mut index = 0;
    while let Some(progress) = reports.recv().await {
        hub.cast_progress(Progress {
            session_id: SessionId::from(call.session_id).to_string(),
            turn_id: call.turn_id.map(|turn| TurnId::from(turn).to_string()).unwrap_or_default(),
            call_id: CallId::from(call.id).to_string(),
            index,
            text: progress.text,
            done_permille: None,
        });
        index += 1;
    }
}
