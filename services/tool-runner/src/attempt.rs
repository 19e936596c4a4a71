//! One attempt of one call, to exactly one outcome.

use crate::account::{self, Taken};
use crate::call::acknowledge;
use crate::cancel::Flight;
use crate::runner::Runner;
use crate::{progress, step, workspace};
use instar_bus::Delivery;
use instar_bus::message::WorkTool;
use instar_core::decide::Effect;
use instar_core::id::{CallId, SessionId};
use instar_core::rune::payload::ResultStatus;
use instar_runtime::flow::{self, Outcome};
use instar_runtime::telemetry::{self, LinkKind, name::metric};
use instar_store::Answer;
use instar_store::entity::tool_call;
use instar_tools::{Invocation, Sink, Tool};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

/// A call that runs longer than this has its start recorded, whatever it does: sweeps then know who
/// has it.
const UNRECORDED_MAX: Duration = Duration::from_secs(1);
/// How often a long call looks whether it is still wanted, should nobody have told it.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How long a delivery rests when the database did not answer.
const REST: Duration = Duration::from_millis(300);
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
    /// Whether the same call may go better another time.
    pub(crate) retryable: bool,
    pub(crate) delivery: Option<Delivery<WorkTool>>,
    /// Kept until the result is written.
    _flight: Flight,
}

/// `None` where somebody else has it.
pub(crate) async fn make(runner: &Runner, mut attempt: Attempt) -> Option<Made> {
    let effect = Effect::parse(&attempt.call.effect).unwrap_or(Effect::AtMostOnce);
    let mut found = refusal(runner, &attempt.call);
    if found.is_err() {
        // It may have been registered, or a server's definition accepted, this very moment.
        runner.discovered.look().await;
        found = refusal(runner, &attempt.call);
    }
    let tool = match found {
        Ok(tool) => tool,
        Err(outcome) => return Some(made(attempt, outcome, false)),
    };
    let arguments = match step::arguments(runner, &attempt.call).await {
        Ok(arguments) => arguments,
        Err((outcome, retryable)) => return Some(made(attempt, outcome, retryable)),
    };
    let (root, session) = (runner.config.runner.workspaces.as_deref(), SessionId::from(attempt.call.session_id));
    let workspace = match workspace::of(root, &tool, session) {
        Ok(workspace) => workspace,
        Err(why) => return Some(made(attempt, failed(ResultStatus::Error, why), true)),
    };
    let account = match account::take(runner, &tool, &mut attempt.call).await {
        Ok(Taken::Unneeded) => None,
        Ok(Taken::Held(account)) => Some(account),
        Ok(Taken::Waits) => {
            if let Some(delivery) = attempt.delivery.take() {
                acknowledge(delivery).await;
            }
            return None;
        }
        Ok(Taken::Refused(outcome)) => return Some(made(attempt, outcome, false)),
        Err(error) => {
            tracing::warn!(call = %CallId::from(attempt.call.id), %error, "no account could be claimed now; it comes again");
            if let Some(delivery) = attempt.delivery.take() {
                drop(delivery.nak(REST).await);
            }
            return None;
        }
    };
    // One that has waited is somebody's again from here on, and is no longer looked for among those that wait.
    let known = attempt.again || attempt.call.waits_for.is_some();
    if (effect == Effect::AtMostOnce || known) && !start(runner, &mut attempt).await {
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
    // Whoever let it run did so in a trace of their own.
    if let Some(let_run) = attempt.call.approval.as_ref().and_then(|approval| approval["traceparent"].as_str()) {
        telemetry::link(&span, let_run, LinkKind::CausedBy);
    }
    let (cancel, (sink, reports)) = (CancellationToken::new(), Sink::channel(PROGRESS_ROOM));
    let invocation = Invocation {
        arguments,
        call_id: CallId::from(attempt.call.id),
        attempt: u32::try_from(attempt.call.attempts.max(1)).unwrap_or(1),
        deadline: None,
        workspace,
        account,
        traceparent: telemetry::traceparent_of(&span).or_else(|| attempt.call.traceparent.clone()),
        tool,
    };
    let epoch = Arc::new(AtomicI64::new(attempt.call.epoch));
    tokio::spawn(progress::pass_on(runner.hub.clone(), runner.id, attempt.call.clone(), epoch.clone(), reports));
    let (effects, stop, name) = (runner.effects.clone(), cancel.clone(), attempt.call.name.clone());
    let running = async move {
        instar_crashpoint::crash_point!("runner.effect.before");
        metrics::gauge!(metric::CALL_ACTIVE).increment(1.0);
        let outcome = effects.run(invocation, stop, sink).await;
        metrics::gauge!(metric::CALL_ACTIVE).decrement(1.0);
        instar_crashpoint::crash_point!("runner.effect.after");
        let status = json!(outcome.status).as_str().unwrap_or("error").to_owned();
        metrics::histogram!(metric::EXECUTE_TOOL_DURATION, "gen_ai.tool.name" => name, "status" => status)
            .record(outcome.duration.as_secs_f64());
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
                epoch.store(attempt.call.epoch, Ordering::Relaxed);
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
    let retryable = outcome.as_ref().is_ok_and(|outcome| outcome.error.as_ref().is_some_and(|error| error.retryable));
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
    Some(made(attempt, outcome, retryable))
}

/// The tool, if it still is what the call was made and approved for.
pub(crate) fn refusal(runner: &Runner, call: &tool_call::Model) -> Result<Arc<Tool>, Outcome> {
    let Some(tool) = runner.tools.get(&call.name) else {
        return Err(failed(ResultStatus::Error, format!("there is no tool {:?} any more", call.name)));
    };
    if tool.digest(&call.arguments) != call.digest {
        let why =
            "tool_definition_changed: the tool is not what it was when the call was made; it was not run".to_owned();
        return Err(failed(ResultStatus::Error, why));
    }
    Ok(tool)
}

fn made(attempt: Attempt, outcome: Outcome, retryable: bool) -> Made {
    Made { call: attempt.call, outcome, retryable, delivery: attempt.delivery, _flight: attempt.flight }
}

pub(crate) fn failed(status: ResultStatus, why: String) -> Outcome {
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
