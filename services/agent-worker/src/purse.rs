//! The budgets that a turn draws on: asked before each provider call, told after it.
//!
//! The rows decide; what is read here only saves a commit that would not land. Where nothing is limited nothing
//! is read, and the turn goes its usual way.

use crate::compose::offered;
use crate::held::Held;
use crate::judge;
use crate::worker::Worker;
use anyhow::Result;
use instar_core::budget::{Kind, Meter, Reservation, Room};
use instar_core::context::{ANSWER, CONTEXT_WINDOW, json_bytes, slots_in};
use instar_core::id::{AgentId, SessionId, TurnId};
use instar_core::machine::By;
use instar_core::rune::Actor;
use instar_core::rune::payload::Usage;
use instar_runtime::context::{self, Facts};
use instar_runtime::plan::Work;
use instar_runtime::{Ready, flow};
use instar_store::clock;
use instar_store::entity::{budget, message, tool_call, turn};
use instar_store::{Found, Landed};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};
use uuid::Uuid;

/// What frames a message or a call, in bytes.
const FRAME_BYTES: usize = 16;
/// What a slot stands for at the most, but for a broadcast, and what is said where nobody said anything.
const SLOT_BYTES: usize = 256;
/// Turns that wait for one limit and are told when there is room; a sweep finds the others.
const WAITING_MAX: usize = 4_096;
/// Turns that are told of one that is done.
const TOLD: usize = 2;

/// What the budgets say to a provider call.
pub(crate) enum Asked {
    /// Nothing limits it.
    Unlimited,
    /// It is to be set aside with the commit that records the call.
    Granted(Reservation),
    /// Not now, or no more: the turn is left to whoever is told of it next.
    Refused,
}

/// Turns of this worker that found no room, by limit: hints, as on the bus.
#[derive(Default)]
pub(crate) struct Waiting {
    turns: Mutex<HashMap<Uuid, VecDeque<Waiter>>>,
    /// Limits of which it is just being said that they are used up.
    ending: Mutex<HashSet<Uuid>>,
}

/// One who says that a limit is used up.
struct Ends<'a>(&'a Waiting, Uuid);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.ending.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
    }
}

struct Waiter {
    session: SessionId,
    agent: AgentId,
    turn: TurnId,
    epoch: i64,
    trace: Option<String>,
}

impl Waiting {
    /// `None` while somebody else does.
    fn ends(&self, limit: Uuid) -> Option<Ends<'_>> {
        let first = self.ending.lock().unwrap_or_else(PoisonError::into_inner).insert(limit);
        first.then_some(Ends(self, limit))
    }

    fn push(&self, limit: Uuid, held: &Held) {
        let mut all = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = all.entry(limit).or_default();
        let turn = held.turn_id();
        if queue.len() < WAITING_MAX && !queue.iter().any(|waiter| waiter.turn == turn) {
            let (session, agent, epoch) = (held.session_id(), held.agent_id(), held.agent.epoch);
            queue.push_back(Waiter { session, agent, turn, epoch, trace: held.turn.traceparent.clone() });
        }
    }

    fn pop(&self, limit: Uuid) -> Option<Waiter> {
        let mut all = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = all.get_mut(&limit)?;
        let first = queue.pop_front();
        if queue.is_empty() {
            all.remove(&limit);
        }
        first
    }
}

fn kind(row: &budget::Model) -> Option<Kind> {
    Kind::parse(&row.kind)
}

fn room(row: &budget::Model) -> Room {
    let meter = Meter { cap: row.cap, used: row.used, reserved: row.reserved };
    match kind(row) {
        Some(Kind::Tokens | Kind::Cost) => meter.room(1),
        Some(Kind::WallTime) if meter.is_spent() => Room::Spent,
        // Calls are counted when they are made; an answer without any may still be given.
        Some(Kind::WallTime | Kind::ToolCalls) | None => Room::Free,
    }
}

fn actor(worker: &Worker) -> Actor {
    Actor::new(By::System, worker.id.to_string())
}

/// Whether the turn's next provider call may be made.
pub(crate) async fn ask(worker: &Worker, held: &mut Held) -> Result<Asked> {
    let payers = flow::payers(&held.agent);
    if payers.is_empty() {
        return Ok(Asked::Unlimited);
    }
    let mut waits = false;
    loop {
        held.purse = limits(worker, &payers).await?;
        if let Some(spent) = held.purse.iter().find(|row| room(row) == Room::Spent) {
            let begun = (held.turn.status != "queued").then_some(&held.turn);
            exhaust(worker, spent, begun).await?;
            return Ok(Asked::Refused);
        }
        match held.purse.iter().find(|row| room(row) == Room::Later) {
            None => break,
            Some(_) if waits => return Ok(Asked::Refused),
            // Whoever gave something back before this stood in the queue has told nobody: a second look.
            Some(tight) => worker.budgets.push(tight.id, held),
        }
        waits = true;
    }
    if held.purse.is_empty() {
        return Ok(Asked::Unlimited);
    }
    let limits = held.purse.iter().filter_map(|row| kind(row).map(|kind| (row.id, kind)));
    let limits: Vec<_> = limits.filter(|(_, kind)| *kind != Kind::WallTime).collect();
    let about = worker.models.get(&held.agent.model).ok().map(|model| model.about());
    let price = about.and_then(|about| about.price);
    let facts = Facts::read(worker.hub.store(), &held.agent, clock::now()).await?;
    Ok(Asked::Granted(Reservation::estimate(limits, estimate(worker, held, &facts), price)))
}

/// The limits of a turn that goes on with what it has set aside.
pub(crate) async fn look(worker: &Worker, held: &mut Held) -> Result<()> {
    held.purse = limits(worker, &flow::payers(&held.agent)).await?;
    Ok(())
}

async fn limits(worker: &Worker, payers: &[Uuid]) -> Result<Vec<budget::Model>> {
    let mut rows = worker.hub.store().budgets(payers).await?;
    rows.retain(flow::is_limit);
    Ok(rows)
}

/// What so many bytes come to at the most: code, numbers and scripts other than Latin have up to one token for two
/// bytes.
pub(crate) const fn tokens_at_most(bytes: usize) -> u64 {
    bytes.div_ceil(2) as u64
}

/// Tokens that the model can read and write, and write.
fn sizes(worker: &Worker, held: &Held) -> (u32, u32) {
    let about = worker.models.get(&held.agent.model).ok().map(|model| model.about());
    let window = about.and_then(|about| about.context_window).unwrap_or(CONTEXT_WINDOW);
    (window, about.and_then(|about| about.max_tokens).unwrap_or(ANSWER).min(window / 2))
}

fn is_metered(held: &Held) -> bool {
    held.purse.iter().any(|row| matches!(kind(row), Some(Kind::Tokens | Kind::Cost)))
}

/// The longest answer that may be given where tokens or money are limited: what is set aside for it.
pub(crate) fn answer_max(worker: &Worker, held: &Held) -> Option<u32> {
    is_metered(held).then(|| sizes(worker, held).1)
}

/// Whether a call of the turn has used some of what is set aside for the next one.
pub(crate) fn is_begun(held: &Held) -> bool {
    let Usage { input_tokens, output_tokens } = held.unbooked.usage;
    is_metered(held) && input_tokens + output_tokens > 0
}

/// The most that the next call may come to: all that could be sent, and the longest answer.
fn estimate(worker: &Worker, held: &Held, facts: &Facts) -> Usage {
    let (window, answer) = sizes(worker, held);
    // A thought that the provider wants back is sent with the answer that it belongs to.
    let blocks = |m: &message::Model| m.data.as_ref().and_then(|data| data.get("blocks")).map_or(0, json_bytes);
    let said: usize = held.transcript.iter().map(|m| context::shown_bytes(m) + blocks(m) + FRAME_BYTES).sum();
    let call = |call: &tool_call::Model| {
        json_bytes(&call.arguments) + call.result.as_ref().map_or(0, json_bytes) + call.name.len() + 2 * FRAME_BYTES
    };
    let calls: usize = held.calls.iter().chain(&held.earlier).map(call).sum();
    let template = context::template(&held.agent).unwrap_or_default();
    let slot = |name: &str| match name {
        "LATEST_BROADCAST" => facts.broadcast.as_ref().map_or(0, String::len) + SLOT_BYTES,
        _ => SLOT_BYTES,
    };
    let prompt = template.len() + slots_in(template).map(slot).sum::<usize>();
    let waits = held.transcript.iter().any(|m| m.turn_id.is_none());
    let prompted = waits || context::is_prompted(&held.turn, &held.transcript);
    let made_up = if prompted { 0 } else { SLOT_BYTES };
    let tools = judge::tools(&worker.tools, &held.agent, &Work::granted(&held.turn));
    let tools: usize = tools.iter().map(|tool| offered(tool) + FRAME_BYTES).sum();
    let input = tokens_at_most(said + calls + prompt + made_up + tools).min(u64::from(window - answer));
    Usage { input_tokens: input, output_tokens: u64::from(answer) }
}

/// Why a turn whose cost is limited cannot be paid for.
pub(crate) fn unpayable(worker: &Worker, held: &Held) -> Option<String> {
    let costs = held.purse.iter().any(|row| kind(row) == Some(Kind::Cost));
    let priced = || worker.models.get(&held.agent.model).is_ok_and(|model| model.about().price.is_some());
    (costs && !priced()).then(|| {
        format!(
            "what the turn may cost is limited, and model {:?} has no price: give it one in the configuration, or \
             the agent another model",
            held.agent.model
        )
    })
}

/// The limit that a commit found no room in, if that is all that kept it from landing.
pub(crate) fn tight<'a>(held: &'a Held, found: &[Found]) -> Option<&'a budget::Model> {
    let only = found.iter().all(|found| found.table == budget::TABLE.name);
    let first = found.first().filter(|_| only)?;
    held.purse.iter().find(|row| row.id == first.id)
}

/// What the turn has used is booked: limits that this used up are, and whoever waited for room is told. True if
/// `turn`, which has begun and not ended, ends with that.
pub(crate) async fn settled(
    worker: &Worker,
    held: &mut Held,
    landed: &Landed,
    turn: Option<&turn::Model>,
) -> Result<bool> {
    held.turn.reserved = None;
    if held.purse.is_empty() {
        return Ok(false);
    }
    let spent = spent(held, landed);
    for row in &spent {
        exhaust(worker, row, turn).await?;
    }
    for row in &held.purse {
        for waiter in (0..TOLD).map_while(|_| worker.budgets.pop(row.id)) {
            let Waiter { session, agent, turn, epoch, trace } = waiter;
            let ready = Ready { session, agent, turn, epoch, reason: "budget", news: None };
            worker.hub.wake_turn(ready, Some(worker.id.uuid()), trace.as_deref());
        }
    }
    Ok(!spent.is_empty() && turn.is_some())
}

/// The limits that a commit has used up.
pub(crate) fn spent(held: &mut Held, landed: &Landed) -> Vec<budget::Model> {
    for row in &mut held.purse {
        if let Some(left) = landed.counter(row.id) {
            row.used = row.cap.saturating_sub(left);
        }
    }
    let spent = |row: &&budget::Model| kind(row) != Some(Kind::ToolCalls) && row.used >= row.cap;
    held.purse.iter().filter(spent).cloned().collect()
}

/// A limit is used up; `turn`: one that has begun and ends with that.
pub(crate) async fn exhaust(worker: &Worker, spent: &budget::Model, turn: Option<&turn::Model>) -> Result<()> {
    let first = worker.budgets.ends(spent.id);
    if first.is_some() || turn.is_some() {
        worker.hub.exhaust(spent, turn, &actor(worker)).await?;
    }
    Ok(())
}
