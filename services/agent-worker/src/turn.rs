//! A turn in hand, from provider call to provider call, to its end.

use crate::answer::{self, Next};
use crate::held::{Held, control, event_of};
use crate::unwritten;
use crate::worker::Worker;
use crate::{gather, purse, stream};
use anyhow::Result;
use futures::FutureExt;
use instar_core::id::{AgentId, MessageId, SessionId, TurnId};
use instar_core::machine::{By, turn as turn_machine};
use instar_core::rune::Actor;
use instar_runtime::context;
use instar_runtime::flow::{self, Ceiling, Day, Fatal, Spoken, Today};
use instar_runtime::plan::Work;
use instar_runtime::{BUDGET, BUDGET_EXHAUSTED, Insisted, Ready};
use instar_store::Answer;
use instar_store::clock;
use std::panic::AssertUnwindSafe;
use tracing::Instrument;

/// How often an end is worked out anew because somebody wrote the same rows.
const LOOKS_MAX: usize = 16;

/// Messages beyond the window that are kept in mind until they are summed up.
const UNSUMMED_MAX: usize = 50;

pub(crate) async fn run(worker: &Worker, mut held: Held) {
    let span = held.span(worker);
    async {
        metrics::gauge!("instar.turn.active").increment(1.0);
        // A panic must not leave the turn to a watchdog.
        let driven = AssertUnwindSafe(drive(worker, &mut held)).catch_unwind().await;
        let driven = driven.unwrap_or_else(|_| Err(anyhow::anyhow!("the worker failed on this turn; see its log")));
        metrics::gauge!("instar.turn.active").decrement(1.0);
        let Err(error) = driven else { return };
        tracing::error!(turn = %held.turn_id(), %error, "the turn cannot go on");
        let (why, partial) = (error.to_string(), held.silence());
        let ending = Ending::Failed { event: "stream_error", kind: "internal", why, partial, fatal: Fatal::No };
        if let Err(error) = end(worker, &mut held, ending).await {
            tracing::error!(turn = %held.turn_id(), %error, "nor could its end be written; a sweep will");
        }
    }
    .instrument(span)
    .await;
}

async fn drive(worker: &Worker, held: &mut Held) -> Result<()> {
    loop {
        if let Some(event) = event_of(&held.turn) {
            // Somebody else may have heard the beginning of an answer.
            let partial = Spoken { text: said_before(worker, held).await, ..held.silence() };
            return end(worker, held, Ending::Interrupted { event, partial }).await;
        }
        if let Some(why) = purse::unpayable(worker, held) {
            let (event, kind, partial, fatal) = ("stream_error", "unpriced", Spoken::default(), Fatal::Drive);
            return end(worker, held, Ending::Failed { event, kind, why, partial, fatal }).await;
        }
        let said = stream::answer(worker, held).await;
        match answer::record(worker, held, said).await? {
            Next::Over => return Ok(()),
            // What was set aside was for one call: it is asked for anew, by whoever takes the turn up.
            Next::Again if purse::is_begun(held) => {
                let silence = held.silence();
                return answer::hand_back(worker, held, &silence).await;
            }
            Next::Again => {}
        }
    }
}

/// What the log has of an answer that was begun and is in no message yet. Asked until the database answers; where it
/// cannot be had the turn goes on without.
pub(crate) async fn said_before(worker: &Worker, held: &Held) -> String {
    let (store, session, turn) = (worker.hub.store(), held.session_id(), held.turn_id());
    let mut wait = std::time::Duration::from_millis(20);
    let said = loop {
        match store.said_so_far(session, &[turn]).await {
            Ok(mut said) => break said.remove(&turn).unwrap_or_default(),
            Err(error) if error.retryable() => {
                tracing::debug!(%error, "what was said could not be read; it is tried again");
            }
            Err(error) => {
                tracing::warn!(%turn, %error, "what was said cannot be read; the turn goes on without");
                return String::new();
            }
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => wait = (wait * 2).min(std::time::Duration::from_secs(1)),
            () = worker.lost.cancelled() => return String::new(),
        }
    };
    // An answer in which the provider paused is a message already; one with calls is a chapter of its own.
    let own = held.transcript.iter().rev().find(|m| m.turn_id == Some(held.turn.id) && m.role == "assistant");
    let paused = held.calls.iter().all(|call| call.iteration != held.turn.iterations);
    if paused && own.is_some_and(|own| own.content == said) { String::new() } else { said }
}

/// How a turn ends; given up is one that has cost too many workers.
pub(crate) enum Ending {
    Complete(Spoken),
    ByLimit,
    Interrupted { event: &'static str, partial: Spoken },
    Failed { event: &'static str, kind: &'static str, why: String, partial: Spoken, fatal: Fatal },
    GivenUp(Spoken),
}

/// Writes the end, looking again when somebody wrote the same rows; a turn that is no longer ours is
/// left alone.
pub(crate) async fn end(worker: &Worker, held: &mut Held, mut ending: Ending) -> Result<()> {
    let mut waiting: Vec<MessageId> = Vec::new();
    // Only a whole answer goes into one commit with what it answers, and only while the rows are as known:
    // a look would find them as they were before.
    let together = matches!(ending, Ending::Complete(_)) && !held.waiting;
    if !together && !unwritten::write(worker, held).await? {
        return Ok(());
    }
    if held.waiting {
        match look(worker, held).await {
            Some(found) => waiting = found,
            None => return Ok(()),
        }
    }
    for _ in 0..LOOKS_MAX {
        let mut next = None;
        let day = today(worker, held, &waiting).await;
        let build = || {
            let (commit, turn) = build(worker, held, &ending, &waiting, day)?;
            next = turn;
            held.after_unwritten(worker.id, commit)
        };
        match worker.hub.insist(&worker.lost, build).await {
            Ok(Answer::Moved(landed)) => {
                held.written_together(true);
                held.flight = None;
                over(worker, held, &ending, next);
                purse::settled(worker, held, &landed, None).await?;
                let rests = next.is_none() && waiting.is_empty() && !flow::is_autonomous(&held.agent);
                if let (Ending::Complete(spoken), true) = (&ending, rests) {
                    let said = flow::said_row(&held.turn, held.turn.iterations + 1, spoken);
                    held.transcript.extend(said);
                    held.agent.late_count = None;
                    let usage = flow::used(&held.turn, spoken.usage);
                    if day.counts {
                        held.agent.today = Some(serde_json::json!(day.after(&held.agent, &usage, clock::now())));
                    }
                    held.agent.usage = flow::booked(&held.agent, &usage);
                    let room = if worker.config.history_summaries { UNSUMMED_MAX } else { 0 };
                    worker.warm.rest(held.take(), worker.config.history_messages_max as usize + room);
                }
                return Ok(());
            }
            Ok(_) if held.unwritten.is_some() => {
                if !unwritten::write(worker, held).await? {
                    return Ok(());
                }
                continue;
            }
            Ok(_) => {}
            Err(Insisted::Ended) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let before = (held.turn.epoch, held.turn.status.clone());
        match look(worker, held).await {
            Some(found) => waiting = found,
            None => return Ok(()),
        }
        if before != (held.turn.epoch, held.turn.status.clone()) {
            tracing::info!(turn = %held.turn_id(), "the turn is no longer ours; nothing was written");
            return Ok(());
        }
        ending = heeding(held, ending);
    }
    anyhow::bail!("others keep writing the same rows");
}

/// A control that came in goes before an end that had not heard of it; what was said is kept.
fn heeding(held: &Held, ending: Ending) -> Ending {
    match (event_of(&held.turn), ending) {
        (Some(event), Ending::Complete(partial)) => Ending::Interrupted { event, partial },
        (_, ending) => ending,
    }
}

/// The rows as they are, then what waits: whoever sends a message after that changes the agent's row.
/// Asked until the database answers; `None` once the turn is no longer ours to end.
pub(crate) async fn look(worker: &Worker, held: &mut Held) -> Option<Vec<MessageId>> {
    let store = worker.hub.store();
    let mut wait = std::time::Duration::from_millis(20);
    loop {
        let looked = async {
            let scene = store.scene(held.turn_id()).await?;
            let waits = scene.as_ref().is_some_and(|scene| scene.waiting > 0);
            let waiting = if waits { store.waiting(held.agent_id()).await? } else { Vec::new() };
            Ok::<_, instar_store::StoreError>((scene, waiting))
        };
        match looked.await {
            Ok((None, _)) => return None,
            Ok((Some(scene), waiting)) => {
                let sent = std::mem::take(&mut held.turn.input);
                (held.turn, held.agent, held.waiting) = (scene.turn, scene.agent, !waiting.is_empty());
                // What was sent last is known only here.
                held.turn.input = sent;
                return Some(waiting);
            }
            Err(error) => tracing::debug!(%error, "the rows could not be read; they are tried again"),
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => wait = (wait * 2).min(std::time::Duration::from_secs(1)),
            () = worker.lost.cancelled() => return None,
        }
    }
}

fn build(
    worker: &Worker,
    held: &Held,
    ending: &Ending,
    waiting: &[MessageId],
    day: Day,
) -> Result<(instar_store::Commit, Option<TurnId>), flow::FlowError> {
    let (turn, agent, pause) = (&held.turn, &held.agent, worker.nudge_pause);
    let calls_max = flow::provider_calls_max(agent, worker.config.provider_calls_max);
    let letters_max = worker.agents.letter_turns_max;
    let rows = flow::Ending { turn, agent, worker: worker.id, waiting, pause, calls_max, letters_max, day };
    match ending {
        Ending::Complete(spoken) => flow::complete(rows, spoken),
        Ending::ByLimit => flow::complete_by_limit(rows, gather::results(held)),
        Ending::Interrupted { event, partial } => {
            let usual = if *event == BUDGET_EXHAUSTED { BUDGET } else { *event };
            let why = control(&held.turn).map_or(usual, |(_, why)| why);
            flow::interrupt(rows, event, why, partial)
        }
        Ending::Failed { event, kind, why, partial, fatal } => flow::fail(rows, event, kind, why, partial, *fatal),
        Ending::GivenUp(partial) => flow::give_up(rows, partial),
    }
}

/// Whether only agents have caused the turn.
fn is_their_own(held: &Held) -> bool {
    let own = held.transcript.iter().filter(|m| m.turn_id == Some(held.turn.id) && context::is_prompt(m));
    let mut own = own.peekable();
    match held.turn.cause.as_str() {
        flow::NUDGE => true,
        flow::AGENT_CAUSE | "user" => own.peek().is_some() && own.all(|m| m.source == flow::AGENT_SOURCE),
        _ => false,
    }
}

/// What the day's ceiling is, and whether the turn counts. Whether somebody waits who is no agent is looked up only
/// where it makes a difference.
async fn today(worker: &Worker, held: &Held, waiting: &[MessageId]) -> Day {
    let ceiling = Ceiling::of(&held.agent, Ceiling::usual(&worker.agents));
    let counts = is_their_own(held);
    let price = worker.models.get(&held.agent.model).ok().and_then(|model| model.about().price);
    let before = Today::of(&held.agent, clock::now());
    let near = ceiling.cost.0 > 0 || ceiling.is_reached(Today { turns: before.turns + 1, ..before });
    let mut asked = false;
    if near && !waiting.is_empty() {
        // Where it cannot be known, nobody is kept waiting.
        asked = worker.hub.store().any_from_people(waiting).await.unwrap_or(true);
    }
    Day { ceiling, counts, price, asked }
}

fn over(worker: &Worker, held: &Held, ending: &Ending, next: Option<TurnId>) {
    let status = match ending {
        Ending::Complete(_) | Ending::ByLimit => "completed",
        Ending::Interrupted { .. } => "interrupted",
        Ending::Failed { .. } | Ending::GivenUp(_) => "error",
    };
    held.ended(ending);
    metrics::counter!("instar.turns", "status" => status).increment(1);
    let took = clock::now() - held.turn.created_at;
    metrics::histogram!("instar.turn.duration", "status" => status).record(took.as_seconds_f64().max(0.0));
    if let Some(turn) = next {
        let (session, agent) = (held.session_id(), held.agent_id());
        let ready = Ready { session, agent, turn, epoch: held.agent.epoch, reason: "queued", news: None };
        worker.hub.wake_turn(ready, Some(worker.id.uuid()), held.turn.traceparent.as_deref());
    } else if let Some(parent) = held.agent.parent_id {
        worker.hub.child_rests(parent.into(), worker.agents.children_at_work_max);
    }
    if let Some(work) = Work::of(&held.turn) {
        worker.hub.hint_plan(work.plan);
    }
}

/// The last call has its result and the turn ends there.
pub(crate) async fn end_after_tools(worker: &Worker, mut held: Held, event: turn_machine::Event) -> Result<()> {
    // Another than the owner may do this: nothing but the row is needed.
    let ending = match event {
        turn_machine::Event::ToolsFinishedLast => Ending::ByLimit,
        turn_machine::Event::ToolsFinishedSteered => {
            Ending::Interrupted { event: "tools_finished_steered", partial: Spoken::default() }
        }
        turn_machine::Event::SessionPaused => {
            Ending::Interrupted { event: "session_paused", partial: Spoken::default() }
        }
        _ => {
            let event = event_of(&held.turn).unwrap_or("interrupt");
            Ending::Interrupted { event, partial: Spoken::default() }
        }
    };
    held.waiting = true;
    end(worker, &mut held, ending).await
}

/// Messages that wait although the agent is free get a turn.
pub(crate) async fn next_for_waiting(worker: &Worker, agent: AgentId) -> Result<()> {
    let store = worker.hub.store();
    let Some(row) = store.agent(agent).await? else { return Ok(()) };
    let waiting = store.waiting(agent).await?;
    if waiting.is_empty() || row.lifecycle != "idle" {
        return Ok(());
    }
    let actor = Actor::new(By::System, worker.id.to_string());
    let (most, ceiling) = (worker.agents.letter_turns_max, Ceiling::usual(&worker.agents));
    let enough = flow::letter_waits(&row, most, ceiling, clock::now()).is_some();
    let asked = !enough || store.any_from_people(&waiting).await?;
    let (commit, turn) = flow::take_up(&row, &waiting, asked, most, ceiling, actor)?;
    if let (Answer::Moved(_), Some(turn)) = (worker.hub.commit(commit).await?, turn) {
        let session = SessionId::from(row.session_id);
        let ready = Ready { session, agent, turn, epoch: row.epoch, reason: "queued", news: None };
        worker.hub.wake_turn(ready, row.owner, None);
    }
    Ok(())
}
