//! Which messages a turn sees, and in which order: that of turns, and within one that of ids. Whoever holds the rows
//! may have them in another, such as a worker whose turn takes up a message that had waited since before the turn's own.

use super::{Frozen, Rows};
use crate::plan::Work;
use instar_core::id::{MessageId, TurnId};
use instar_store::entity::{message, tool_call, turn};
use serde::Deserialize;
use serde_json::json;
use std::collections::HashSet;
use uuid::Uuid;

/// A message's source if it is a summary.
pub const SUMMARY: &str = "summary";

/// Something that a turn answers.
pub fn is_prompt(message: &message::Model) -> bool {
    message.role == "user" && message.source != SUMMARY
}

/// The summary that stands for everything that was said before its turn: the newest, of those that were
/// there before the answer number `answers + 1`.
pub fn summary<'a>(turn: &turn::Model, messages: &'a [message::Model], answers: i64) -> Option<&'a message::Model> {
    let there = |m: &&message::Model| {
        m.turn_id != Some(turn.id) || m.data.as_ref().and_then(|data| data["iteration"].as_i64()) <= Some(answers + 1)
    };
    messages.iter().filter(|m| m.source == SUMMARY && m.turn_id.is_some()).filter(there).max_by_key(|m| m.id)
}

/// The first turn that a summary does not stand for.
pub fn since(summary: &message::Model) -> Option<Uuid> {
    let from = summary.data.as_ref().and_then(|data| data["from"].as_str()?.parse::<TurnId>().ok());
    from.map(|turn| turn.uuid()).or(summary.turn_id)
}

/// What was said before the turn and no summary stands for, in order.
pub fn uncovered<'a>(turn: &turn::Model, messages: &'a [message::Model]) -> Vec<&'a message::Model> {
    let since = summary(turn, messages, turn.iterations).and_then(since);
    let mut said = window(turn.id, messages, usize::MAX);
    said.retain(|m| m.turn_id >= since);
    said
}

/// The message with which the last prompt begins. Fixed when the turn starts: what its row says, else what
/// the messages say.
pub fn epoch(turn: &turn::Model, messages: &[message::Model]) -> Option<MessageId> {
    let first = |of: Uuid| messages.iter().filter(|m| m.turn_id == Some(of) && is_prompt(m)).map(|m| m.id).min();
    if let Some(own) = first(turn.id) {
        return Some(MessageId::from(own));
    }
    if let Some(frozen) = Frozen::of(turn).epoch {
        return Some(frozen);
    }
    let last = messages.iter().filter(|m| is_prompt(m)).filter_map(|m| m.turn_id).max()?;
    first(last).map(MessageId::from)
}

/// The newest messages of earlier turns, `most` at the most.
pub fn window(turn: Uuid, messages: &[message::Model], most: usize) -> Vec<&message::Model> {
    let earlier = |m: &&message::Model| m.turn_id.is_some_and(|of| of != turn) && m.source != SUMMARY;
    let mut kept: Vec<&message::Model> = messages.iter().filter(earlier).collect();
    kept.sort_by_key(|m| (m.turn_id, m.id));
    kept.drain(..kept.len().saturating_sub(most));
    kept
}

/// The turns that a turn which works on a plan goes on with: those of the same attempt at the same task, verdict or
/// draft. Each is done by itself, whatever else its agent was asked before.
fn thread(turn: &turn::Model, messages: &[message::Model]) -> Option<HashSet<Uuid>> {
    let work = Work::of(turn)?;
    let same = |m: &&message::Model| {
        let of = m.data.as_ref().and_then(|data| Work::deserialize(data).ok());
        is_prompt(m) && of.is_some_and(|of| work.goes_on_with(&of))
    };
    Some(messages.iter().filter(same).filter_map(|m| m.turn_id).collect())
}

/// What earlier turns said, and what this one did, up to now.
pub(super) fn parts<'a>(rows: Rows<'a>, most: usize) -> (Vec<&'a message::Model>, Vec<&'a message::Model>) {
    let Rows { turn, messages, answers, .. } = rows;
    let mut history = window(turn.id, messages, most);
    let thread = thread(turn, messages);
    if let Some(thread) = &thread {
        history.retain(|m| m.turn_id.is_some_and(|of| thread.contains(&of)));
    }
    let mut front: Vec<&message::Model> = Vec::new();
    if thread.is_none()
        && let Some(summary) = summary(turn, messages, answers)
    {
        history.retain(|m| m.turn_id >= since(summary));
        front.push(summary);
    }
    // An order is not lost because much was said since.
    let epoch = epoch(turn, messages);
    let lost = messages.iter().find(|m| epoch == Some(MessageId::from(m.id)) && m.turn_id != Some(turn.id));
    front.extend(lost.filter(|lost| !history.iter().any(|m| m.id == lost.id)));
    front.append(&mut history);
    let mut own: Vec<_> = messages.iter().filter(|m| m.turn_id == Some(turn.id) && m.source != SUMMARY).collect();
    own.sort_by_key(|m| m.id);
    (front, own)
}

/// Calls of the last answer that had any; `calls` are those of a later turn than `earlier`.
pub fn latest_loop(calls: Vec<tool_call::Model>, earlier: Vec<tool_call::Model>) -> Vec<tool_call::Model> {
    let mut calls = if calls.is_empty() { earlier } else { calls };
    let Some((turn, iteration)) = calls.last().map(|call| (call.turn_id, call.iteration)) else { return calls };
    calls.retain(|call| (call.turn_id, call.iteration) == (turn, iteration));
    calls
}

/// Leaves of a transcript what the next turn will see.
pub fn forget(transcript: &mut Vec<message::Model>, latest: &[tool_call::Model], most: usize) {
    let summary = transcript.iter().filter(|m| m.source == SUMMARY).max_by_key(|m| m.id);
    let (summary, covered) = (summary.map(|m| m.id), summary.and_then(since));
    transcript.retain(|m| if m.source == SUMMARY { Some(m.id) == summary } else { m.turn_id >= covered });
    let mut excess = transcript.len().saturating_sub(most + usize::from(summary.is_some()));
    transcript.retain(|m| {
        m.source == SUMMARY || excess == 0 || {
            excess -= 1;
            false
        }
    });
    let of = latest.last().and_then(|call| call.turn_id);
    for message in transcript.iter_mut().filter(|m| m.source != SUMMARY) {
        // What belongs to a provider's blocks is for the turn that is over; which answer asked for the
        // latest calls is still needed.
        let iteration = message.data.take().and_then(|data| data["iteration"].as_i64());
        message.data = iteration.filter(|_| of.is_some() && message.turn_id == of).map(|n| json!({"iteration": n}));
    }
}
