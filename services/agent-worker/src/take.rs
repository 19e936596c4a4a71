//! A turn is ready, somebody said: what the row says decides whether and how it is taken up.

use crate::control::Flight;
use crate::held::{Held, control, event_of};
use crate::purse::{self, Asked};
use crate::turn::Ending;
use crate::unwritten::{self, Unwritten};
use crate::worker::Worker;
use crate::{gather, stream, turn};
use anyhow::{Context, Result};
use chrono::{Duration, Utc};
use instar_bus::Delivery;
use instar_bus::message::WorkTurn;
use instar_bus::message::work_turn::News;
use instar_core::decide::{self, FinishedTools, Pending};
use instar_core::id::{AgentId, MessageId, SessionId, TurnId, WorkerId};
use instar_core::machine::{By, turn as turn_machine};
use instar_core::rune::Actor;
use instar_runtime::context::CALLS_MAX;
use instar_runtime::flow::{self, Fatal, Loss, Spoken};
use instar_runtime::plan::Work;
use instar_runtime::{Act, Done, Ready, hangs, may_hang, order};
use instar_store::clock;
use instar_store::entity::{message, tool_call};
use instar_store::{Answer, Scene, StoreError, TAKEN_MAX};
use uuid::Uuid;

/// How long a delivery rests when the database did not answer.
const REST: std::time::Duration = std::time::Duration::from_millis(300);

/// `None`: there is nothing to do, or somebody else does it.
pub(crate) async fn take_up(worker: &Worker, id: TurnId, delivery: Delivery<WorkTurn>) -> Result<Option<Held>> {
    let Some(flight) = worker.flights.take_off(id) else {
        // One that has lost its lease is about to let go of the turn: somebody else shall hear of it.
        match worker.lost.is_cancelled() {
            true => drop(delivery.nak(REST).await),
            false => acknowledge(delivery).await,
        }
        return Ok(None);
    };
    let hint = delivery.value();
    let mut flight = Some(flight);
    if let Some(held) = take_warm(worker, &mut flight, hint, delivery.traceparent()).await? {
        acknowledge(delivery).await;
        return Ok(Some(held));
    }
    let Some(flight) = flight.or_else(|| worker.flights.take_off(id)) else {
        acknowledge(delivery).await;
        return Ok(None);
    };
    let agent: AgentId = hint.agent_id.parse().context("agent_id")?;
    let looked = look(worker, id, agent, hint.reason != "queued").await;
    let (scene, said, calls) = match looked {
        Ok(Some(found)) => found,
        Ok(None) => {
            tracing::warn!(turn = %id, "there is no such turn");
            acknowledge(delivery).await;
            return Ok(None);
        }
        Err(error) => {
            drop(delivery.nak(REST).await);
            return Err(error.into());
        }
    };
    let taken = take(worker, flight, scene, said, calls).await;
    match &taken {
        Ok(_) => acknowledge(delivery).await,
        Err(_) => drop(delivery.nak(REST).await),
    }
    taken
}

/// Without a look, if this worker knows the agent; what does not land is taken up as by anybody else.
async fn take_warm(
    worker: &Worker,
    flight: &mut Option<Flight>,
    hint: &WorkTurn,
    trace: Option<&str>,
) -> Result<Option<Held>> {
    // Who can write to the bus alone must not put words into an agent's mouth.
    if !worker.hub.is_ours_turn(hint) {
        return Ok(None);
    }
    let taken = match &hint.news {
        Some(News::Queued(news)) => match worker.warm.queued(flight, hint, news, trace) {
            Some(held) => claim(worker, held).await,
            None => Ok(None),
        },
        Some(News::Finished(news)) => match worker.warm.finished(flight, hint, news) {
            Some(held) => finished(worker, held).await,
            None => Ok(None),
        },
        None => Ok(None),
    };
    // An error here is met again, and dealt with, on the way over the rows.
    Ok(taken.unwrap_or_else(|error| {
        tracing::debug!(%error, "what was known does not do; the rows are looked at");
        None
    }))
}

async fn acknowledge(delivery: Delivery<WorkTurn>) {
    instar_crashpoint::crash_point!("worker.ack.before");
    if let Err(error) = delivery.ack().await {
        tracing::debug!(%error, "not acknowledged; it may come again");
    }
    instar_crashpoint::crash_point!("worker.ack.after");
}

type Looked = (Scene, Vec<message::Model>, Vec<tool_call::Model>);

async fn look(worker: &Worker, id: TurnId, agent: AgentId, begun: bool) -> Result<Option<Looked>, StoreError> {
    let store = worker.hub.store();
    let most = u64::from(worker.config.history_messages_max);
    let calls = async { if begun { store.calls_seen(agent, id, most).await } else { Ok(Vec::new()) } };
    let said = store.messages(agent, most);
    let (scene, said, calls) = tokio::try_join!(store.scene(id), said, calls)?;
    let Some(scene) = scene else { return Ok(None) };
    let calls = if !begun && scene.turn.iterations > 0 { store.calls_seen(agent, id, most).await? } else { calls };
    Ok(Some((scene, said, calls)))
}

async fn take(
    worker: &Worker,
    flight: Flight,
    scene: Scene,
    said: Vec<message::Model>,
    calls: Vec<tool_call::Model>,
) -> Result<Option<Held>> {
    let (calls, earlier): (Vec<_>, Vec<_>) = calls.into_iter().partition(|call| call.turn_id == Some(scene.turn.id));
    let (status, standing) = (scene.turn.status.clone(), scene.standing);
    match status.as_str() {
        "tool_executing" if scene.turn.open_calls > 0 => {
            parked(worker, &scene, &calls).await?;
            return Ok(None);
        }
        "queued" | "streaming" | "tool_executing" => {}
        _ => return Ok(None),
    }
    let mut held = Held::new(flight, scene, said, calls, earlier);
    worker.warm.recall(&mut held.turn);
    if standing && status == "queued" {
        gather::briefing(worker, &mut held).await?;
    }
    gather::earlier(worker, &mut held, status == "queued").await?;
    match status.as_str() {
        "queued" => claim(worker, held).await,
        "streaming" => recover(worker, held).await,
        _ => finished(worker, held).await,
    }
}

async fn claim(worker: &Worker, mut held: Held) -> Result<Option<Held>> {
    let busy = held.agent.lifecycle != "idle" || held.agent.drive != "running";
    if busy {
        return Ok(None);
    }
    let reserved = match purse::ask(worker, &mut held).await? {
        Asked::Unlimited => None,
        Asked::Granted(made) => Some(made),
        Asked::Refused => return Ok(None),
    };
    let own = held.transcript.iter().filter(|m| m.turn_id == Some(held.turn.id)).count();
    let room = usize::try_from(TAKEN_MAX).unwrap_or(0).saturating_sub(own);
    // What steers is answered by itself, before what was queued.
    let steered = held.transcript.iter().any(|m| m.turn_id == Some(held.turn.id) && m.mode != "queue");
    let waiting = held.transcript.iter().filter(|m| m.turn_id.is_none() && !steered).take(room);
    let waiting: Vec<MessageId> = waiting.map(|m| MessageId::from(m.id)).collect();
    let deadline = Duration::milliseconds(worker.config.turn_deadline_ms as i64);
    // An owner under a valid lease may begin the provider call before the commit that records it has
    // landed, since a provider call can be repeated; unless it is limited what it may use.
    let warm = held.agent.owner == Some(worker.id.uuid())
        && waiting.is_empty()
        && reserved.is_none()
        && held.briefing.is_none();
    let prompt = gather::prompt(&held, &waiting);
    if warm {
        held.opening = stream::open(worker, &mut held).await?;
        let (agent, turn) = (Box::new(held.agent.clone()), held.turn.clone());
        let inputs = gather::inputs(&held, &waiting);
        held.unwritten = Some(Unwritten::Claim { agent, turn, prompt, deadline, inputs });
        if worker.config.fold_ms == 0 && !unwritten::write(worker, &mut held).await? {
            return Ok(None);
        }
    } else {
        let (agent, turn, inputs) = (&held.agent, &held.turn, gather::inputs(&held, &waiting));
        let mut commit = flow::claim(agent, turn, &waiting, prompt, worker.id, deadline, inputs)?;
        if let Some(made) = &reserved {
            flow::reserve(&mut commit, &held.turn, made);
        }
        if let Some(briefing) = &held.briefing {
            commit.insert(&message::TABLE, briefing.clone());
        }
        match worker.hub.commit(commit).await? {
            Answer::Moved(_) => held.reserved(reserved.as_ref()),
            // Others were faster: whether there is room, or will be, is asked again.
            Answer::Found(found) if purse::tight(&held, &found).is_some() => {
                return Box::pin(claim(worker, held)).await;
            }
            _ => return Ok(None),
        }
    }
    metrics::counter!("instar.turns", "status" => "claimed").increment(1);
    let queued_for = clock::now() - held.turn.created_at;
    metrics::histogram!("instar.turn.schedule_to_start.duration").record(queued_for.as_seconds_f64().max(0.0));
    held.claimed(worker.id.uuid(), &waiting, deadline);
    Ok(Some(held))
}

async fn recover(worker: &Worker, mut held: Held) -> Result<Option<Held>> {
    if let Some(until) = held.turn.control.as_ref().and_then(|c| c["until"].as_str()) {
        let waits = until.parse::<chrono::DateTime<Utc>>().is_ok_and(|until| until > clock::now());
        if waits && held.turn.control.as_ref().is_some_and(|c| c["action"] == "wait") {
            return Ok(None);
        }
    }
    let loss = match held.agent.owner.map(WorkerId::from) {
        None => Loss::HandedBack,
        // It was ours and is in no task of ours: we lost track of it.
        Some(owner) if owner == worker.id => Loss::Died,
        Some(owner) if worker.hub.store().is_alive(owner).await? => {
            // Whether it still knows of the turn, only the owner can say.
            let trace = held.turn.traceparent.as_deref();
            worker.hub.wake_turn(Ready::of(&held.turn, "passed_on"), Some(owner.uuid()), trace);
            return Ok(None);
        }
        Some(_) => Loss::Died,
    };
    let said = turn::said_before(worker, &held).await;
    if flow::is_last(&held.turn, loss) {
        if held.turn.reserved.is_some() {
            purse::look(worker, &mut held).await?;
        }
        let partial = Spoken { text: said, ..Spoken::default() };
        turn::end(worker, &mut held, Ending::GivenUp(partial)).await?;
        return Ok(None);
    }
    // What the old owner had set aside is kept for the call that is made again.
    let reserved = match held.turn.reserved {
        Some(_) => {
            purse::look(worker, &mut held).await?;
            None
        }
        None => match purse::ask(worker, &mut held).await? {
            Asked::Unlimited => None,
            Asked::Granted(made) => Some(made),
            Asked::Refused => return Ok(None),
        },
    };
    let mut commit = flow::recover(&held.agent, &held.turn, worker.id, loss, &said)?;
    if let Some(made) = &reserved {
        flow::reserve(&mut commit, &held.turn, made);
    }
    let Answer::Moved(_) = worker.hub.commit(commit).await? else { return Ok(None) };
    metrics::counter!("instar.lease.expirations").increment(1);
    let attempts = held.turn.attempts + i64::from(loss == Loss::Died);
    held.transcript.retain(|m| m.turn_id.is_some());
    held.reserved(reserved.as_ref());
    held.recovered(worker.id.uuid(), attempts);
    Ok(Some(held))
}

/// The turn waits for calls. An interrupt does not: its calls are cancelled and it ends. Calls that
/// nobody was told of are told of again.
async fn parked(worker: &Worker, scene: &Scene, calls: &[tool_call::Model]) -> Result<()> {
    if let Some(("interrupt", why)) = control(&scene.turn) {
        return interrupt_parked(worker, scene, why).await;
    }
    let parallel = |name: &str| worker.tools.get(name).is_some_and(|tool| tool.spec().parallel_safe());
    let latest: Vec<_> = calls.iter().filter(|c| c.iteration == scene.turn.iterations).collect();
    for at in order::startable(latest.iter().map(|call| (*call).into()), parallel) {
        worker.hub.wake_call_row(latest[at], false);
    }
    Ok(())
}

async fn interrupt_parked(worker: &Worker, scene: &Scene, why: &str) -> Result<()> {
    let (session, turn) = (SessionId::from(scene.turn.session_id), TurnId::from(scene.turn.id));
    let actor = Actor::new(By::System, worker.id.to_string());
    // If the agent was asked to end with its turn, that is part of the same commit.
    let event = event_of(&scene.turn).unwrap_or("interrupt");
    let mut act = Act::new(session, turn, &turn_machine::TABLE, event, actor).reason(why);
    act.traceparent = scene.turn.traceparent.clone();
    if let Done::Moved { runes } = act.carry_out(&worker.hub).await? {
        worker.hub.follow(&runes);
    }
    turn::next_for_waiting(worker, AgentId::from(scene.agent.id)).await
}

/// Every call has its result: on to the provider, unless a control or the limit says otherwise.
async fn finished(worker: &Worker, mut held: Held) -> Result<Option<Held>> {
    let asked = control(&held.turn).map(|(action, _)| action);
    let made = u32::try_from(held.turn.iterations).unwrap_or(u32::MAX);
    let event = decide::tools_finished(FinishedTools {
        provider_calls: made,
        provider_calls_max: flow::provider_calls_max(&held.agent, worker.config.provider_calls_max),
        ended_by_tool: has_reported(&held),
        pending: Pending { interrupt: asked == Some("interrupt"), pause: false, steer: asked == Some("steer") },
    });
    held.transcript.retain(|m| m.turn_id.is_some());
    match event {
        turn_machine::Event::ToolsFinished => {
            if let Some(why) = hanging(worker, &held).await? {
                let (event, kind, partial) = ("tool_crash", "mcp_server_hangs", Spoken::default());
                turn::end(worker, &mut held, Ending::Failed { event, kind, why, partial, fatal: Fatal::Drive }).await?;
                return Ok(None);
            }
        }
        other => {
            turn::end_after_tools(worker, held, other).await?;
            return Ok(None);
        }
    }
    let reserved = match purse::ask(worker, &mut held).await? {
        Asked::Unlimited => None,
        Asked::Granted(made) => Some(made),
        Asked::Refused => return Ok(None),
    };
    let waited = waited(&held);
    let ours = held.agent.owner == Some(worker.id.uuid());
    if ours && reserved.is_none() {
        held.opening = stream::open(worker, &mut held).await?;
        let results = gather::results(&held);
        held.unwritten = Some(Unwritten::Resume { turn: held.turn.clone(), waited, results });
        if worker.config.fold_ms == 0 && !unwritten::write(worker, &mut held).await? {
            return Ok(None);
        }
    } else {
        let (agent, results) = ((!ours).then_some(&held.agent), gather::results(&held));
        let mut commit = flow::resume(&held.turn, agent, worker.id, waited, results)?;
        if let Some(made) = &reserved {
            flow::reserve(&mut commit, &held.turn, made);
        }
        match worker.hub.commit(commit).await? {
            Answer::Moved(_) => held.reserved(reserved.as_ref()),
            Answer::Found(found) if purse::tight(&held, &found).is_some() => {
                return Box::pin(finished(worker, held)).await;
            }
            _ => return Ok(None),
        }
    }
    held.resumed(worker.id.uuid(), !ours, waited);
    Ok(Some(held))
}

/// Why the agent should stop waiting for a server. Calls of earlier turns are looked at only where one has just run
/// out of time; a turn that ended in an error was looked at by whoever had the agent go on.
async fn hanging(worker: &Worker, held: &Held) -> Result<Option<String>> {
    let own: Vec<_> = held.calls.iter().filter(|call| call.turn_id == Some(held.turn.id)).collect();
    let why = hangs(&own, &worker.tools);
    if why.is_some() || !may_hang(&own, &worker.tools) {
        return Ok(why);
    }
    let (store, turns) = (worker.hub.store(), u64::from(worker.config.history_messages_max));
    let mut earlier = store.calls_before(held.agent_id(), held.turn_id(), turns, CALLS_MAX).await?;
    let mut of: Vec<Uuid> = earlier.iter().filter_map(|call| call.turn_id).collect();
    of.dedup();
    for id in of.into_iter().rev() {
        if store.turn(TurnId::from(id)).await?.is_some_and(|turn| turn.status == "error") {
            earlier.retain(|call| call.turn_id > Some(id));
            break;
        }
    }
    Ok(hangs(&earlier.iter().chain(own).collect::<Vec<_>>(), &worker.tools))
}

/// Whether a call of the last answer has said what came of the work that the turn is there for.
fn has_reported(held: &Held) -> bool {
    let tools = Work::tools_of(&held.turn);
    let latest = held.calls.iter().filter(|call| call.iteration == held.turn.iterations);
    let mut taken = latest.filter(|call| call.result_status.as_deref() == Some("success"));
    taken.any(|call| tools.contains(&call.name.as_str()))
}

/// How long people and other agents took over the calls of the last answer.
fn waited(held: &Held) -> Duration {
    let latest = held.calls.iter().filter(|c| c.iteration == held.turn.iterations && flow::has_waited(c));
    latest.map(|c| clock::now() - c.created_at).max().unwrap_or_else(Duration::zero).max(Duration::zero())
}
