//! What the provider said becomes a commit: calls to make, an end, or a reason to wait.

use crate::brake::brake;
use crate::held::{Held, event_of};
use crate::patience::{Failure, Rested, Verdict, rest};
use crate::stream::{Said, told, usage};
use crate::summarise::{Scope, Summarised, is_tried, summarise};
use crate::turn::{Ending, end, look};
use crate::worker::Worker;
use crate::{judge, purse, unwritten};
use anyhow::Result;
use chrono::{DateTime, Duration, Utc};
use instar_bus::message::Call;
use instar_core::machine::turn as turn_machine;
use instar_model::{Class, Finish, ModelError, Response, attribute};
use instar_runtime::flow::{self, Asked, Fatal, Spoken};
use instar_runtime::order::{self, Slot};
use instar_runtime::plan::Work;
use instar_runtime::telemetry::name::metric;
use instar_runtime::{BUDGET_EXHAUSTED, INLINE_BYTES_MAX, Insisted, Ready, Startable};
use instar_store::Answer;
use instar_store::clock;
use instar_store::entity::budget;
use instar_tools::Native;
use tokio::time::Instant;

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
        Said::Whole(response) => {
            attribute::succeeded(&held.chat, &response);
            count(&response, held);
            held.chat = tracing::Span::none();
            return whole(worker, held, response).await;
        }
        Said::Cut { event, partial } => {
            instar_crashpoint::crash_point!("worker.cut.before");
            end(worker, held, Ending::Interrupted { event, partial }).await?;
        }
        Said::Late { partial } => {
            let why = "the turn took longer than it may".to_owned();
            let event = turn_machine::Event::TurnDeadline.token();
            let ending = Ending::Failed { event, kind: "timeout", why, partial, fatal: Fatal::No };
            end(worker, held, ending).await?;
        }
        Said::Nothing => return crowded(worker, held).await,
        Said::Drained { partial } => hand_back(worker, held, &partial).await?,
        Said::Failed { error, partial, broken } => return failed(worker, held, error, partial, broken).await,
    }
    Ok(Next::Over)
}

fn count(response: &Response, held: &mut Held) {
    let used = usage(response.usage);
    held.spent(used);
    let model = held.agent.model.clone();
    let record = |kind: &'static str, tokens: u64| {
        let model = model.clone();
        metrics::histogram!(metric::TOKEN_USAGE, "gen_ai.token.type" => kind, "model" => model).record(tokens as f64);
    };
    record("input", used.input_tokens);
    record("output", used.output_tokens);
}

/// The provider said that the answer is over; not always that the model had finished.
async fn whole(worker: &Worker, held: &mut Held, response: Response) -> Result<Next> {
    if !response.tool_calls.is_empty() {
        calls(worker, held, response).await?;
        return Ok(Next::Over);
    }
    let calls_max = flow::provider_calls_max(&held.agent, worker.config.provider_calls_max);
    match response.finish {
        Finish::Pause if held.turn.iterations + 1 < i64::from(calls_max) => {
            let spoken = spoken(held, response);
            go_on_later(worker, held, &spoken).await?;
            Ok(Next::Over)
        }
        Finish::ContextWindow if !is_tried(held) => filled(worker, held, response).await,
        _ => {
            let spoken = spoken(held, response);
            end(worker, held, Ending::Complete(spoken)).await?;
            Ok(Next::Over)
        }
    }
}

/// The provider paused in the middle and wants to be sent what it has said. The turn is taken up anew, so that
/// budgets and controls are asked like before any other call.
async fn go_on_later(worker: &Worker, held: &mut Held, spoken: &Spoken) -> Result<()> {
    if !unwritten::write(worker, held).await? {
        return Ok(());
    }
    loop {
        match worker.hub.insist(&worker.lost, || flow::pause(&held.turn, worker.id, spoken, 0)).await {
            Ok(Answer::Moved(_)) => break,
            Ok(_) => {
                if let Overtaken::Over = overtaken(worker, held, spoken).await? {
                    return Ok(());
                }
            }
            Err(Insisted::Ended) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    held.flight = None;
    let trace = held.turn.traceparent.as_deref();
    worker.hub.wake_turn(Ready::of(&held.turn, "provider_paused"), None, trace);
    Ok(())
}

/// The model filled its window before it had finished: with what was said before summarised, it can. Where there
/// is nothing to gain, what it said stands, cut off as it is.
async fn filled(worker: &Worker, held: &mut Held, response: Response) -> Result<Next> {
    if !unwritten::write(worker, held).await? {
        return Ok(Next::Over);
    }
    match summarise(worker, held, Scope::All).await? {
        Summarised::Kept => Ok(Next::Again),
        Summarised::Over => Ok(Next::Over),
        Summarised::Drained => give_up(worker, held).await,
        Summarised::Useless(why) => {
            tracing::info!(turn = %held.turn_id(), why, "there is no summary; the answer stays cut off");
            let spoken = spoken(held, response);
            end(worker, held, Ending::Complete(spoken)).await?;
            Ok(Next::Over)
        }
    }
}

fn spoken(held: &Held, response: Response) -> Spoken {
    let silent = response.text.is_empty() && response.tool_calls.is_empty();
    let blocks = (!response.provider_blocks.is_empty()).then(|| serde_json::json!(response.provider_blocks));
    Spoken {
        text: if silent && response.reasoning.is_empty() { "(no response)".into() } else { response.text },
        reasoning: (!response.reasoning.is_empty()).then_some(response.reasoning),
        blocks,
        usage: held.unbooked.usage,
        cached: held.unbooked.cached,
        finish: Some(response.finish.as_str().to_owned()),
    }
}

async fn calls(worker: &Worker, held: &mut Held, response: Response) -> Result<()> {
    let wait = worker.config.approval_timeout_ms;
    let wait = (wait > 0).then(|| Duration::milliseconds(i64::try_from(wait).unwrap_or(i64::MAX / 2)));
    let granted = Work::granted(&held.turn);
    let judged = |call| judge::judge(&worker.tools, &held.agent, &granted, call, wait);
    let mut asked: Vec<Asked> = response.tool_calls.iter().map(judged).collect();
    let spoken = spoken(held, response);
    if let Some(why) = brake(&held.calls, &mut asked, worker.config.repeated_calls_max) {
        let (event, kind, fatal) = ("stream_error", "runaway", Fatal::No);
        return end(worker, held, Ending::Failed { event, kind, why, partial: spoken, fatal }).await;
    }
    let only = kept(&asked).cloned();
    let landed = loop {
        let build = || {
            let calls = match only {
                Some(_) => flow::calls_in_mind(&held.turn, worker.id, &spoken, asked.clone())?,
                None => flow::calls(&held.turn, worker.id, &spoken, asked.clone())?,
            };
            held.after_unwritten(worker.id, calls)
        };
        let answer = worker.hub.insist(&worker.lost, build).await;
        match answer {
            Ok(Answer::Moved(landed)) => {
                held.written_together(false);
                break landed;
            }
            Ok(Answer::Found(found)) if purse::tight(held, &found).is_some() => {
                return too_many(worker, held, purse::tight(held, &found).cloned(), spoken).await;
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
    };
    if !held.purse.is_empty() {
        let turn = held.turn.clone();
        if purse::settled(worker, held, &landed, Some(&turn)).await? {
            return Ok(());
        }
    }
    // Whoever is told may be ourselves.
    held.flight = None;
    if let Some(work) = Work::of(&held.turn) {
        // What the answer cost, the plan has cost.
        worker.hub.hint_plan(work.plan);
    }
    if let Some(only) = &only {
        keep(worker, held, only, &spoken);
    }
    wake(worker, held, &asked);
    Ok(())
}

/// The only call of an answer, if it is made at once and is soon over: its turn is kept in mind.
fn kept(asked: &[Asked]) -> Option<&Asked> {
    let [only] = asked else { return None };
    let begins = matches!(only.verdict, flow::Verdict::Free | flow::Verdict::Approved);
    (begins && !Native::named(&only.name).is_some_and(Native::waits)).then_some(only)
}

/// A limit has no room for the calls that the answer asks for: none of them is made.
async fn too_many(worker: &Worker, held: &mut Held, limit: Option<budget::Model>, spoken: Spoken) -> Result<()> {
    let partial = Spoken { blocks: None, ..spoken };
    end(worker, held, Ending::Interrupted { event: BUDGET_EXHAUSTED, partial }).await?;
    match limit {
        Some(limit) => purse::exhaust(worker, &limit, None).await,
        None => Ok(()),
    }
}

/// The turn as its commit left it, for when its only call has its result.
fn keep(worker: &Worker, held: &mut Held, only: &Asked, spoken: &Spoken) {
    let said = flow::said_row(&held.turn, held.turn.iterations + 1, spoken);
    let turn = &mut held.turn;
    turn.usage = flow::used_with(turn, spoken.usage, 1);
    turn.iterations += 1;
    turn.version += 1;
    turn.status = "tool_executing".into();
    turn.open_calls = 1;
    held.transcript.extend(said);
    held.calls.push(flow::call_row(&held.turn, 0, only));
    worker.warm.park(held.take());
}

pub(crate) enum Overtaken {
    /// The turn has its end, or is somebody else's.
    Over,
    /// Somebody wrote the row and asked for nothing: the same once more.
    Again,
}

/// The row is not as it was known to be.
pub(crate) async fn overtaken(worker: &Worker, held: &mut Held, partial: &Spoken) -> Result<Overtaken> {
    let before = (held.turn.epoch, held.turn.status.clone());
    let found = look(worker, held).await;
    if found.is_none() || before != (held.turn.epoch, held.turn.status.clone()) {
        tracing::info!(turn = %held.turn_id(), "the turn is no longer ours; nothing was written");
        return Ok(Overtaken::Over);
    }
    let Some(event) = event_of(&held.turn) else { return Ok(Overtaken::Again) };
    // Calls that no commit has recorded are not made, and what the provider wants back may name them.
    let partial = Spoken { blocks: None, ..partial.clone() };
    end(worker, held, Ending::Interrupted { event, partial }).await?;
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

pub(crate) async fn hand_back(worker: &Worker, held: &mut Held, partial: &Spoken) -> Result<()> {
    let turn = held.turn.clone();
    let answer = worker.hub.insist(&worker.lost, || flow::hand_back(&turn, worker.id, partial, 0)).await;
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

/// With or without a summary, the call is then made with what fits.
async fn crowded(worker: &Worker, held: &mut Held) -> Result<Next> {
    match summarise(worker, held, held.sum_up).await? {
        Summarised::Kept => Ok(Next::Again),
        Summarised::Useless(why) => {
            tracing::info!(turn = %held.turn_id(), why, "there is no summary; the oldest messages are left out");
            Ok(Next::Again)
        }
        Summarised::Over => Ok(Next::Over),
        Summarised::Drained => give_up(worker, held).await,
    }
}

/// The process ends before anything was said that could be kept.
async fn give_up(worker: &Worker, held: &mut Held) -> Result<Next> {
    let silence = held.silence();
    hand_back(worker, held, &silence).await?;
    Ok(Next::Over)
}

/// The provider says that the conversation is too long: it is summarised, once.
async fn overflown(worker: &Worker, held: &mut Held, error: &ModelError, partial: Spoken) -> Result<Next> {
    let tried = if is_tried(held) {
        Summarised::Useless("it was summarised already".into())
    } else {
        summarise(worker, held, Scope::All).await?
    };
    let why = match tried {
        Summarised::Kept => return Ok(Next::Again),
        Summarised::Over => return Ok(Next::Over),
        Summarised::Drained => return give_up(worker, held).await,
        Summarised::Useless(why) => why,
    };
    let why = format!(
        "the conversation is longer than the model can read, and cannot be shortened further ({why}): send a shorter \
         message, set context_window of model {:?} to what it can read, or use another model; the provider said: {}",
        held.agent.model, error.message
    );
    let (event, kind, fatal) = ("stream_error", error.class.as_str(), Fatal::No);
    end(worker, held, Ending::Failed { event, kind, why, partial, fatal }).await?;
    Ok(Next::Over)
}

async fn failed(worker: &Worker, held: &mut Held, error: ModelError, partial: Spoken, broken: bool) -> Result<Next> {
    attribute::failed(&held.chat, &error);
    held.chat = tracing::Span::none();
    // Its words may repeat what was said: they are for the runelog, not for traces and logs of processes.
    tracing::info!(
        turn = %held.turn_id(), class = error.class.as_str(), status = error.status, code = error.code.as_deref(),
        "the provider call failed"
    );
    let told = error.retry_in.and_then(|wait| Duration::from_std(wait).ok());
    if error.retryable() {
        // Where tokens or money are limited, a call that has used some is paid for before it is made again.
        let retries = if purse::is_begun(held) { u32::MAX } else { held.retries };
        let waits = flow::waits(&held.turn);
        let failure = Failure { broken, retries, waits, told };
        match failure.judge(instar_model::chance()) {
            Verdict::Now(wait) => {
                held.retries += 1;
                metrics::counter!(metric::RETRIES, "class" => error.class.as_str()).increment(1);
                return sit_out(worker, held, wait, partial).await;
            }
            Verdict::Later(wait) => return park(worker, held, clock::now() + wait, &error, partial).await,
            Verdict::Never => {}
        }
    }
    if error.class == Class::ContextOverflow {
        return overflown(worker, held, &error, partial).await;
    }
    let refused = matches!(error.status, Some(401 | 403)) || error.class == Class::QuotaExhausted;
    let fatal = match () {
        _ if error.retryable() => Fatal::Provider,
        _ if refused => Fatal::Drive,
        _ => Fatal::No,
    };
    let (kind, why) = (error.class.as_str(), error.to_string());
    end(worker, held, Ending::Failed { event: "stream_error", kind, why, partial, fatal }).await?;
    Ok(Next::Over)
}

/// A short wait before the same call is made again; what ends a call ends it too.
async fn sit_out(worker: &Worker, held: &mut Held, wait: Duration, partial: Spoken) -> Result<Next> {
    let until = Instant::now() + wait.to_std().unwrap_or_default();
    loop {
        match rest(until, &worker.lost, &worker.draining, told(held)).await {
            Rested::Over => return Ok(Next::Again),
            Rested::Lost => return Ok(Next::Over),
            Rested::Drained => {
                hand_back(worker, held, &partial).await?;
                return Ok(Next::Over);
            }
            Rested::Told => match worker.hub.store().turn(held.turn_id()).await {
                Ok(Some(row)) if row.epoch == held.turn.epoch && row.status == held.turn.status => {
                    held.turn.control = row.control;
                }
                // Ended or taken over: there is nothing to ask for any more.
                Ok(_) => return Ok(Next::Over),
                Err(error) => tracing::debug!(%error, "the row could not be looked at"),
            },
        }
        if let Some(event) = event_of(&held.turn) {
            end(worker, held, Ending::Interrupted { event, partial }).await?;
            return Ok(Next::Over);
        }
    }
}

async fn park(
    worker: &Worker,
    held: &mut Held,
    until: DateTime<Utc>,
    error: &ModelError,
    partial: Spoken,
) -> Result<Next> {
    let (class, why) = (error.class.as_str(), error.to_string());
    loop {
        let turn = held.turn.clone();
        match worker.hub.insist(&worker.lost, || flow::park(&turn, worker.id, until, class, &why, &partial)).await {
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
