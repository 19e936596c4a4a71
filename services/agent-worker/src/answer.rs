//! What the provider said becomes a commit: calls to make, an end, or a reason to wait.

use crate::held::{Held, control};
use crate::stream::{Said, usage};
use crate::turn::{Ending, end, look};
use crate::worker::Worker;
use crate::{judge, unwritten};
use anyhow::Result;
use chrono::{DateTime, Duration, Utc};
use instar_bus::message::Call;
use instar_model::{Class, ModelError, Response, attribute};
use instar_runtime::flow::{self, Asked, Fatal, Spoken};
use instar_runtime::order::{self, Slot};
use instar_runtime::{INLINE_BYTES_MAX, Insisted, Ready, Startable};
use instar_store::Answer;

/// Waits up to this long are sat out; longer ones are a row and a timer.
const SIT_OUT_MAX: Duration = Duration::seconds(2);
const RETRIES_MAX: u32 = 3;
/// How often a turn may wait for its provider before it gives up.
const WAITS_MAX: i64 = 20;

pub(crate) enum Next {
    /// Call the provider once more.
    Again,
    Over,
}

pub(crate) async fn record(worker: &Worker, held: &mut Held, said: Said) -> Result<Next> {
    // Only a whole answer goes into one commit with what it answers.
    if !matches!(said, Said::Whole(_) | Said::Lost) && !unwritten::write(worker, held).await? {
        return Ok(Next::Over);
    }
    match said {
        Said::Lost => {}
        Said::Whole(response) if response.tool_calls.is_empty() => {
            attribute::succeeded(&held.chat, &response);
            count(&response, held);
            held.chat = tracing::Span::none();
            end(worker, held, Ending::Complete(spoken(response))).await?;
        }
        Said::Whole(response) => {
            attribute::succeeded(&held.chat, &response);
            count(&response, held);
            held.chat = tracing::Span::none();
            calls(worker, held, response).await?;
        }
        Said::Cut { event, partial } => end(worker, held, Ending::Interrupted { event, partial }).await?,
        Said::Late { partial } => {
            let why = "the turn took longer than it may".to_owned();
            let ending = Ending::Failed { event: "turn_deadline", kind: "timeout", why, partial, fatal: Fatal::Drive };
            end(worker, held, ending).await?;
        }
        Said::Drained { partial } => hand_back(worker, held, &partial).await?,
        Said::Failed { error, partial } => return failed(worker, held, error, partial).await,
    }
    Ok(Next::Over)
}

fn count(response: &Response, held: &Held) {
    let used = usage(response.usage);
    let model = held.agent.model.clone();
    metrics::counter!("gen_ai.client.token.usage", "gen_ai.token.type" => "input", "model" => model.clone())
        .increment(used.input_tokens);
    metrics::counter!("gen_ai.client.token.usage", "gen_ai.token.type" => "output", "model" => model)
        .increment(used.output_tokens);
}

fn spoken(response: Response) -> Spoken {
    let silent = response.text.is_empty() && response.tool_calls.is_empty();
    let blocks = (!response.provider_blocks.is_empty()).then(|| serde_json::json!(response.provider_blocks));
    Spoken {
        text: if silent && response.reasoning.is_empty() { "(no response)".into() } else { response.text },
        reasoning: (!response.reasoning.is_empty()).then_some(response.reasoning),
        blocks,
        usage: usage(response.usage),
    }
}

async fn calls(worker: &Worker, held: &mut Held, response: Response) -> Result<()> {
    let wait = worker.config.approval_timeout_ms;
    let wait = (wait > 0).then(|| Duration::milliseconds(i64::try_from(wait).unwrap_or(i64::MAX / 2)));
    let asked: Vec<Asked> =
        response.tool_calls.iter().map(|call| judge::judge(&worker.tools, &held.agent, call, wait)).collect();
    let spoken = spoken(response);
    loop {
        let build = || {
            let calls = flow::calls(&held.turn, worker.id, &spoken, asked.clone())?;
            held.after_unwritten(worker.id, calls)
        };
        let answer = worker.hub.insist(&worker.lost, build).await;
        match answer {
            Ok(Answer::Moved(_)) => {
                held.written_together(false);
                break;
            }
            Ok(_) if held.unwritten.is_some() => {
                if !unwritten::write(worker, held).await? {
                    return Ok(());
                }
            }
            Ok(_) => {
                if let Overtaken::Over = overtaken(worker, held, &spoken).await? {
                    return Ok(());
                }
            }
            Err(Insisted::Ended) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    // Whoever is told may be ourselves.
    held.flight = None;
    if let [only] = asked.as_slice()
        && matches!(only.verdict, flow::Verdict::Free | flow::Verdict::Approved)
    {
        keep(worker, held, only, &spoken);
    }
    wake(worker, held, &asked);
    Ok(())
}

/// The turn as its commit left it, for when its only call has its result.
fn keep(worker: &Worker, held: &mut Held, only: &Asked, spoken: &Spoken) {
    let said = flow::said_row(&held.turn, held.turn.iterations + 1, spoken);
    let turn = &mut held.turn;
    turn.usage = flow::used(turn, spoken.usage);
    turn.iterations += 1;
    turn.version += 1;
    turn.status = "tool_executing".into();
    turn.open_calls = 1;
    held.transcript.extend(said);
    held.calls.push(flow::call_row(&held.turn, 0, only));
    worker.warm.park(held.take());
}

enum Overtaken {
    /// The turn has its end, or is somebody else's.
    Over,
    /// Somebody wrote the row and asked for nothing: the same once more.
    Again,
}

/// The row is not as it was known to be.
async fn overtaken(worker: &Worker, held: &mut Held, partial: &Spoken) -> Result<Overtaken> {
    let before = (held.turn.epoch, held.turn.status.clone());
    let found = look(worker, held).await;
    if found.is_none() || before != (held.turn.epoch, held.turn.status.clone()) {
        tracing::info!(turn = %held.turn_id(), "the turn is no longer ours; nothing was written");
        return Ok(Overtaken::Over);
    }
    let event = match control(&held.turn) {
        Some(("steer", _)) => "steer",
        Some(_) => "interrupt",
        None => return Ok(Overtaken::Again),
    };
    end(worker, held, Ending::Interrupted { event, partial: partial.clone() }).await?;
    Ok(Overtaken::Over)
}

/// Tells the runners of what may start; if nothing may, because nothing is open, the turn goes on.
fn wake(worker: &Worker, held: &Held, asked: &[Asked]) {
    let parallel = |name: &str| worker.tools.get(name).is_some_and(|tool| tool.spec().parallel_safe());
    let ready = |a: &Asked| !matches!(a.verdict, flow::Verdict::Ask { .. });
    let slots = asked.iter().map(|a| Slot { name: &a.name, open: a.is_open(), ready: ready(a) });
    let trace = held.turn.traceparent.as_deref();
    for at in order::startable(slots, parallel) {
        let (session, turn, call) = (held.session_id(), Some(held.turn_id()), asked[at].id);
        let row = (asked.len() == 1).then(|| sent_along(held, &asked[at])).flatten();
        worker.hub.wake_call(Startable { session, turn, call, owner: Some(worker.id), row }, false, trace);
    }
    if !asked.iter().any(Asked::is_open) {
        worker.hub.wake_turn(Ready::of(&held.turn, "tools_finished"), held.agent.owner, trace);
    }
}

/// A call that is alone in its answer goes along with the word that it may start.
fn sent_along(held: &Held, asked: &Asked) -> Option<Call> {
    let arguments = asked.arguments.to_string();
    (arguments.len() <= INLINE_BYTES_MAX).then(|| Call {
        agent_id: held.agent_id().to_string(),
        name: asked.name.clone(),
        arguments,
        digest: asked.digest.clone(),
        effect: asked.effect.to_owned(),
    })
}

async fn hand_back(worker: &Worker, held: &mut Held, partial: &Spoken) -> Result<()> {
    let turn = held.turn.clone();
    let answer = worker.hub.insist(&worker.lost, || flow::hand_back(&turn, worker.id, &partial.text, 0)).await;
    match answer {
        Ok(Answer::Moved(_)) => {
            tracing::info!(turn = %held.turn_id(), "handed back");
            held.flight = None;
            worker.hub.wake_turn(Ready::of(&held.turn, "handed_back"), None, held.turn.traceparent.as_deref());
            Ok(())
        }
        Ok(_) | Err(Insisted::Ended) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn failed(worker: &Worker, held: &mut Held, error: ModelError, partial: Spoken) -> Result<Next> {
    attribute::failed(&held.chat, &error);
    held.chat = tracing::Span::none();
    tracing::info!(turn = %held.turn_id(), class = error.class.as_str(), status = error.status, "the provider call failed");
    let now = Utc::now();
    let at = error.retry_at_ms.and_then(DateTime::from_timestamp_millis);
    if error.retryable() {
        let wait = at.map_or_else(Duration::zero, |at| at - now);
        if wait <= SIT_OUT_MAX && held.retries < RETRIES_MAX {
            held.retries += 1;
            let wait = wait.max(Duration::milliseconds(100 << held.retries));
            tokio::time::sleep(wait.to_std().unwrap_or_default()).await;
            return Ok(Next::Again);
        }
        if flow::waits(&held.turn) < WAITS_MAX {
            let until = at.unwrap_or(now).max(now + SIT_OUT_MAX);
            return park(worker, held, until, &error, partial).await;
        }
    }
    let refused = matches!(error.status, Some(401 | 403)) || error.class == Class::QuotaExhausted;
    let fatal = if refused { Fatal::Drive } else { Fatal::No };
    let (kind, why) = (error.class.as_str(), error.message.clone());
    end(worker, held, Ending::Failed { event: "stream_error", kind, why, partial, fatal }).await?;
    Ok(Next::Over)
}

async fn park(
    worker: &Worker,
    held: &mut Held,
    until: DateTime<Utc>,
    error: &ModelError,
    partial: Spoken,
) -> Result<Next> {
    let (class, why) = (error.class.as_str(), error.message.as_str());
    loop {
        let turn = held.turn.clone();
        match worker.hub.insist(&worker.lost, || flow::park(&turn, worker.id, until, class, why)).await {
            Ok(Answer::Moved(_)) | Err(Insisted::Ended) => return Ok(Next::Over),
            Ok(_) => {
                if let Overtaken::Over = overtaken(worker, held, &partial).await? {
                    return Ok(Next::Over);
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}
