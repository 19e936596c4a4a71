//! What this worker knows of agents it owns, so that it need not read it again.
//!
//! Bounded, and never trusted: every commit that is worked out from here names the version or the
//! epoch it was worked out from, and one that does not land is worked out anew from the rows.

use crate::control::Flight;
use crate::held::Held;
use instar_bus::message::{Finished, Queued, WorkTurn};
use instar_core::context::json_bytes;
use instar_core::id::{AgentId, CallId, MessageId, TurnId};
use instar_runtime::context::{self, Frozen};
use instar_store::clock;
use instar_store::entity::{agent, message, tool_call, turn};
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Idle agents, and turns that wait for a call. Waiting must cost nothing: what is beyond this is
/// forgotten, the oldest first.
const BYTES_MAX: usize = 8 << 20;
/// What was sent in turns that wait for a call: a few bytes each, which outlast the turn on its shelf.
const NOTES_BYTES_MAX: usize = 1 << 20;
const NOTE_BYTES: usize = 200;
/// What a row weighs besides its texts.
const ROW_BYTES: usize = 600;

/// An agent between two turns.
struct Rested {
    agent: agent::Model,
    transcript: Vec<message::Model>,
    /// Calls of the last answer that had any.
    latest: Vec<tool_call::Model>,
}

/// A turn that waits for its only call.
struct Parked {
    turn: turn::Model,
    agent: agent::Model,
    transcript: Vec<message::Model>,
    calls: Vec<tool_call::Model>,
    earlier: Vec<tool_call::Model>,
}

pub(crate) struct Warm {
    agents: Mutex<Shelf<AgentId, Rested>>,
    turns: Mutex<Shelf<TurnId, Parked>>,
    /// Digests that are in no row yet, with the epoch under which they were made.
    notes: Mutex<Shelf<TurnId, (i64, Vec<String>)>>,
}

impl Default for Warm {
    fn default() -> Warm {
        let (agents, turns) = (Mutex::new(Shelf::of(BYTES_MAX)), Mutex::new(Shelf::of(BYTES_MAX)));
        Warm { agents, turns, notes: Mutex::new(Shelf::of(NOTES_BYTES_MAX)) }
    }
}

impl Warm {
    /// The turn is over and nothing waits: the next message finds the agent as it is now.
    pub(crate) fn rest(&self, held: Held, history: usize) {
        let Held { turn, mut agent, mut transcript, calls, earlier, .. } = held;
        lock(&self.notes).take(&TurnId::from(turn.id));
        agent.version += 1;
        agent.lifecycle = "idle".into();
        let latest = context::latest_loop(calls, earlier);
        context::forget(&mut transcript, &latest, history);
        let bytes = weigh(&agent, &transcript, &latest);
        lock(&self.agents).put(AgentId::from(agent.id), Rested { agent, transcript, latest }, bytes);
    }

    /// The turn waits for the only call of its answer.
    pub(crate) fn park(&self, held: Held) {
        let Held { turn, agent, transcript, calls, earlier, .. } = held;
        let bytes = weigh(&agent, &transcript, &calls) + weigh_calls(&earlier);
        let sent = Frozen::of(&turn).sent;
        let weight = NOTE_BYTES + sent.iter().map(String::len).sum::<usize>();
        lock(&self.notes).put(TurnId::from(turn.id), (turn.epoch, sent), weight);
        lock(&self.turns).put(TurnId::from(turn.id), Parked { turn, agent, transcript, calls, earlier }, bytes);
    }

    pub(crate) fn forget(&self, turn: TurnId) {
        lock(&self.turns).take(&turn);
    }

    /// Adds to a turn that was read from its row what only this worker knows of it: what it was sent.
    pub(crate) fn recall(&self, turn: &mut turn::Model) {
        let Some((epoch, sent)) = lock(&self.notes).take(&TurnId::from(turn.id)) else { return };
        let mut frozen = Frozen::of(turn);
        if epoch == turn.epoch && frozen.sent.len() < sent.len() {
            frozen.sent = sent;
            frozen.write(turn);
        }
    }

    /// A queued turn without a look at the rows, if the agent is as it was left but for this message.
    pub(crate) fn queued(
        &self,
        flight: &mut Option<Flight>,
        hint: &WorkTurn,
        news: &Queued,
        trace: Option<&str>,
    ) -> Option<Held> {
        let (agent, turn): (AgentId, TurnId) = (hint.agent_id.parse().ok()?, hint.turn_id.parse().ok()?);
        let message: MessageId = news.message_id.parse().ok()?;
        let Rested { mut agent, mut transcript, latest } = lock(&self.agents).take(&agent)?;
        if agent.version + 1 != news.agent_version || agent.epoch != hint.epoch {
            return None;
        }
        agent.version = news.agent_version;
        // As the message has left it.
        (agent.drive, agent.nudge_count, agent.letter_count) = ("running".into(), 0, None);
        transcript.push(message::Model {
            id: message.uuid(),
            session_id: agent.session_id,
            agent_id: agent.id,
            turn_id: Some(turn.uuid()),
            version: 0,
            role: "user".into(),
            source: "direct".into(),
            mode: "queue".into(),
            content: news.content.clone(),
            data: None,
            created_at: clock::now(),
        });
        let turn = fresh(&agent, turn, trace);
        Some(Held::known(flight.take()?, turn, agent, transcript, Vec::new(), latest))
    }

    /// A turn whose only call has this result, without a look at the rows.
    pub(crate) fn finished(&self, flight: &mut Option<Flight>, hint: &WorkTurn, news: &Finished) -> Option<Held> {
        let (turn, call): (TurnId, CallId) = (hint.turn_id.parse().ok()?, news.call_id.parse().ok()?);
        let Parked { mut turn, agent, transcript, mut calls, earlier } = lock(&self.turns).take(&turn)?;
        // Its note is left until something takes its place: the commit that goes on may not land.
        let row = calls.last_mut().filter(|row| row.id == call.uuid())?;
        row.status = news.state.clone();
        row.result_status = Some(news.status.clone());
        row.result = Some(serde_json::from_str(&news.result).ok()?);
        row.ended_at = Some(clock::now());
        // The commit of the result counted the turn's open calls down.
        turn.version += 1;
        turn.open_calls = 0;
        Some(Held::known(flight.take()?, turn, agent, transcript, calls, earlier))
    }
}

/// A turn as the commit that queued it has written it.
fn fresh(agent: &agent::Model, id: TurnId, trace: Option<&str>) -> turn::Model {
    let now = clock::now();
    let nothing = || serde_json::Value::Object(Default::default());
    turn::Model {
        id: id.uuid(),
        session_id: agent.session_id,
        agent_id: agent.id,
        status: "queued".into(),
        epoch: 0,
        version: 0,
        cause: "user".into(),
        attempts: 0,
        iterations: 0,
        open_calls: 0,
        input: nothing(),
        output: None,
        finish_reason: None,
        segment: None,
        usage: nothing(),
        reserved: None,
        control: None,
        error: None,
        deadline_at: None,
        traceparent: trace.map(str::to_owned),
        created_at: now,
        updated_at: now,
        ended_at: None,
    }
}

fn weigh(agent: &agent::Model, transcript: &[message::Model], calls: &[tool_call::Model]) -> usize {
    let json = |value: &serde_json::Value| match value {
        serde_json::Value::Object(map) => map.len() * 64,
        _ => 64,
    };
    let said: usize = transcript.iter().map(|m| ROW_BYTES + m.content.len()).sum();
    let prompt = agent.config["system_prompt"].as_str().map_or(0, str::len);
    said + weigh_calls(calls) + 2 * ROW_BYTES + prompt + json(&agent.config)
}

fn weigh_calls(calls: &[tool_call::Model]) -> usize {
    let text = |call: &tool_call::Model| json_bytes(&call.arguments) + call.result.as_ref().map_or(0, json_bytes);
    calls.iter().map(|call| 2 * ROW_BYTES + text(call)).sum()
}

fn lock<T>(shelf: &Mutex<T>) -> MutexGuard<'_, T> {
    shelf.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A map that forgets what was put in first when it gets too heavy.
struct Shelf<K, V> {
    kept: HashMap<K, (V, usize, u64)>,
    order: VecDeque<(K, u64)>,
    bytes: usize,
    bytes_max: usize,
    next: u64,
}

impl<K, V> Shelf<K, V> {
    fn of(bytes_max: usize) -> Self {
        Shelf { kept: HashMap::new(), order: VecDeque::new(), bytes: 0, bytes_max, next: 0 }
    }
}

impl<K: Copy + Eq + Hash, V> Shelf<K, V> {
    fn put(&mut self, key: K, value: V, bytes: usize) {
        self.take(&key);
        self.next += 1;
        self.kept.insert(key, (value, bytes, self.next));
        self.order.push_back((key, self.next));
        self.bytes += bytes;
        while self.bytes > self.bytes_max || self.order.len() > 2 * self.kept.len() + 64 {
            let Some((oldest, number)) = self.order.pop_front() else { return };
            let current = self.kept.get(&oldest).is_some_and(|(_, _, at)| *at == number);
            match current {
                true if self.bytes > self.bytes_max => drop(self.take(&oldest)),
                // Only its place in the order is old.
                true => self.order.push_back((oldest, number)),
                false => {}
            }
        }
    }

    fn take(&mut self, key: &K) -> Option<V> {
        let (value, bytes, _) = self.kept.remove(key)?;
        self.bytes -= bytes;
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten_when_there_is_too_much() {
        let mut shelf: Shelf<u32, u32> = Shelf::of(BYTES_MAX);
        let share = BYTES_MAX / 4;
        for n in 0..6 {
            shelf.put(n, n, share);
        }
        assert_eq!((shelf.take(&0), shelf.take(&1), shelf.take(&2)), (None, None, Some(2)));
        assert_eq!(shelf.bytes, 3 * share);
        for n in 0..10_000 {
            shelf.put(7, n, 1);
        }
        assert_eq!(shelf.take(&7), Some(9_999));
        assert!(shelf.order.len() < 200, "{}", shelf.order.len());
    }
}
