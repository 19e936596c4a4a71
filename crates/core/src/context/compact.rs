//! Snapshots that a newer one supersedes, and calls and results without each other.
//!
//! Everything here is about pairs: a call leaves its message together with its result, and the message goes
//! only when neither a call nor a word is left of it.

use super::message::{Message, Said};
use crate::id::CallId;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// Which earlier results a new one replaces when a context is compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum SnapshotKey {
    /// Those of the same tool.
    #[serde(rename = "name")]
    Name,
    /// Those of the same tool with the same arguments.
    #[serde(rename = "name+arguments")]
    NameAndArguments,
    /// Not one.
    #[serde(rename = "none")]
    None,
}

pub(super) fn compact<'a>(messages: &mut Vec<Message<'a>>, snapshot: &dyn Fn(&str) -> Option<SnapshotKey>) {
    let paired = pairs(messages);
    if paired.is_empty() && !messages.iter().any(|m| m.is_result() || !m.calls().is_empty()) {
        return;
    }
    let superseded = superseded(messages, &paired, snapshot);
    let stays = |id: &CallId| paired.contains_key(id) && !superseded.contains(id);
    let mut results: HashMap<CallId, Message<'a>> = HashMap::with_capacity(paired.len());
    let chosen: HashSet<usize> = paired.values().map(|pair| pair.result).collect();
    let mut kept = Vec::with_capacity(messages.len());
    for (at, message) in messages.drain(..).enumerate() {
        match &message.said {
            Said::Tool(outcome) if chosen.contains(&at) => drop(results.insert(outcome.call_id, message)),
            Said::Tool(_) => {}
            _ => kept.push((at, message)),
        }
    }
    for (at, mut message) in kept {
        let Said::Assistant(assistant) = &mut message.said else {
            messages.push(message);
            continue;
        };
        let before = assistant.calls.len();
        // A call that comes a second time under one id is none.
        let goes: Vec<bool> = assistant
            .calls
            .iter()
            .enumerate()
            .map(|(slot, call)| !stays(&call.id) || paired.get(&call.id).is_some_and(|pair| pair.call != (at, slot)))
            .collect();
        let mut slots = goes.iter();
        assistant.calls.retain(|_| !slots.next().copied().unwrap_or(false));
        if assistant.calls.len() < before {
            shift(&mut assistant.blocks, &goes);
        }
        if before > 0 && assistant.calls.is_empty() && assistant.text.trim().is_empty() {
            continue;
        }
        let ids: Vec<CallId> = assistant.calls.iter().map(|call| call.id).collect();
        messages.push(message);
        // Right behind their message and in the order of the calls, as every provider wants them.
        messages.extend(ids.iter().filter_map(|id| results.remove(id)));
    }
}

struct Pair {
    /// Its message, and its place in it.
    call: (usize, usize),
    result: usize,
    failed: bool,
}

/// Each call that has a result after it: the first one counts, and the first call of an id.
fn pairs(messages: &[Message<'_>]) -> HashMap<CallId, Pair> {
    let mut calls: HashMap<CallId, (usize, usize)> = HashMap::new();
    let mut pairs: HashMap<CallId, Pair> = HashMap::new();
    for (at, message) in messages.iter().enumerate() {
        for (slot, call) in message.calls().iter().enumerate() {
            calls.entry(call.id).or_insert((at, slot));
        }
        if let Said::Tool(outcome) = &message.said
            && let Some(call) = calls.get(&outcome.call_id)
        {
            let pair = Pair { call: *call, result: at, failed: outcome.is_error };
            pairs.entry(outcome.call_id).or_insert(pair);
        }
    }
    pairs
}

/// Calls whose result a later one of the same key makes worthless. A failure shows nothing, so that it
/// supersedes nothing.
fn superseded(
    messages: &[Message<'_>],
    paired: &HashMap<CallId, Pair>,
    snapshot: &dyn Fn(&str) -> Option<SnapshotKey>,
) -> HashSet<CallId> {
    let mut superseded = HashSet::new();
    let mut seen: HashSet<(&str, Option<String>)> = HashSet::new();
    for (at, message) in messages.iter().enumerate().rev() {
        for (slot, call) in message.calls().iter().enumerate().rev() {
            let Some(pair) = paired.get(&call.id).filter(|pair| pair.call == (at, slot)) else { continue };
            let arguments = match snapshot(&call.name) {
                None | Some(SnapshotKey::None) => continue,
                Some(SnapshotKey::Name) => None,
                // Maps are in order of their keys, so that one value has one text.
                Some(SnapshotKey::NameAndArguments) => Some(call.arguments.to_string()),
            };
            let key = (call.name.as_ref(), arguments);
            if seen.contains(&key) {
                superseded.insert(call.id);
            } else if !pair.failed {
                seen.insert(key);
            }
        }
    }
    superseded
}

/// Blocks count the calls before them.
fn shift(blocks: &mut [Cow<'_, Value>], goes: &[bool]) {
    for block in blocks {
        let Some(before) = block["calls_before"].as_u64() else { continue };
        let gone = goes.iter().take(usize::try_from(before).unwrap_or(usize::MAX)).filter(|goes| **goes).count();
        if gone > 0 {
            block.to_mut()["calls_before"] = Value::from(before - gone as u64);
        }
    }
}
