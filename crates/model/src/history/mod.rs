//! Making any conversation one that the provider accepts.
//!
//! A crash or a cancel between "the model asked" and "the result is stored" leaves a call without a
//! result, and providers refuse the whole conversation for it, for ever. The stored log is left as it
//! is; what is sent is repaired, each time, by one pure function.
//!
//! Must not know: wire formats, or why something is missing.

mod check;
mod name;

use std::collections::{HashMap, HashSet};

pub use check::check;
pub(crate) use name::Names;
pub use name::{wire_id, wire_name};

use crate::message::{Assistant, Dialect, Message, ToolResult};

/// The result of a call that has none. It must not say that nothing happened.
pub const INTERRUPTED: &str =
    "interrupted: no result of this call was recorded, and it is unknown whether it took effect";
/// What the user is taken to have said where the rules demand that the user speak first.
pub const OPENING: &str = "Continue.";
const BETWEEN: &str = "\n\n";

/// The same conversation, valid for the provider:
///
/// - each call has one result, right after its message and in the order of the calls: the first that
///   came, or [`INTERRUPTED`]; results without a call before them are dropped;
/// - nothing is empty, and no two messages of one role follow each other (providers that merge them
///   do no harm, and the chat templates of local models refuse them);
/// - names and ids have the letters and lengths that providers allow ([`wire_name`], [`wire_id`]);
/// - blocks of other providers are gone.
///
/// A valid conversation comes back unchanged.
pub fn repair(messages: Vec<Message>, dialect: Dialect) -> Vec<Message> {
    let messages: Vec<Message> = messages.into_iter().map(|message| conform(message, dialect)).collect();
    let mut results = pair(&messages);
    let mut repaired: Vec<Message> = Vec::with_capacity(messages.len());
    for (place, message) in messages.into_iter().enumerate() {
        match message {
            Message::User { text } => add_user(&mut repaired, text),
            Message::Assistant(assistant) if is_empty(&assistant) => {}
            Message::Assistant(assistant) => {
                let ids: Vec<String> = assistant.tool_calls.iter().map(|call| call.id.clone()).collect();
                add_assistant(&mut repaired, assistant);
                repaired.extend(ids.into_iter().enumerate().map(|(slot, call_id)| {
                    let missing = || ToolResult { call_id, content: INTERRUPTED.to_owned(), is_error: true };
                    Message::Tool(results.remove(&(place, slot)).unwrap_or_else(missing))
                }));
            }
            // Placed with its call, or nobody asked for it.
            Message::Tool(_) => {}
        }
    }
    let user_first = matches!(repaired.first(), Some(Message::User { .. }));
    if repaired.is_empty() || (dialect == Dialect::Anthropic && !user_first) {
        repaired.insert(0, Message::user(OPENING));
    }
    repaired
}

/// What can be put right looking at one message alone.
fn conform(mut message: Message, dialect: Dialect) -> Message {
    match &mut message {
        Message::User { .. } => {}
        Message::Tool(result) => result.call_id = wire_id(&result.call_id).into_owned(),
        Message::Assistant(assistant) => {
            for call in &mut assistant.tool_calls {
                call.id = wire_id(&call.id).into_owned();
                call.name = wire_name(&call.name).into_owned();
            }
            // Two calls with one id can't both be answered.
            let mut seen = HashSet::new();
            assistant.tool_calls.retain(|call| seen.insert(call.id.clone()));
            if assistant.text.trim().is_empty() {
                assistant.text.clear();
            }
            conform_blocks(assistant, dialect);
        }
    }
    message
}

fn conform_blocks(assistant: &mut Assistant, dialect: Dialect) {
    let (text, calls) = (&assistant.text, assistant.tool_calls.len());
    assistant.provider_blocks.retain(|block| block.dialect == dialect);
    for block in &mut assistant.provider_blocks {
        block.text_before = text.floor_char_boundary(block.text_before);
        block.calls_before = block.calls_before.min(calls);
    }
    // A message must not end in thinking.
    let at_end = |text_before, calls_before| text_before == text.len() && calls_before == calls;
    while let Some(last) = assistant.provider_blocks.last()
        && last.is_thinking()
        && at_end(last.text_before, last.calls_before)
    {
        assistant.provider_blocks.pop();
    }
}

fn is_empty(assistant: &Assistant) -> bool {
    assistant.text.is_empty() && assistant.tool_calls.is_empty() && assistant.provider_blocks.is_empty()
}

/// The result of each call, by the place of its message and its place in it. Ids may come back in a
/// later turn, so a result belongs to the latest call before it.
fn pair(messages: &[Message]) -> HashMap<(usize, usize), ToolResult> {
    let mut latest: HashMap<&str, (usize, usize)> = HashMap::new();
    let mut results = HashMap::new();
    for (place, message) in messages.iter().enumerate() {
        match message {
            Message::User { .. } => {}
            Message::Assistant(assistant) => {
                let calls = assistant.tool_calls.iter().enumerate();
                latest.extend(calls.map(|(slot, call)| (call.id.as_str(), (place, slot))));
            }
            Message::Tool(result) => {
                if let Some(call) = latest.get(result.call_id.as_str()) {
                    results.entry(*call).or_insert_with(|| result.clone());
                }
            }
        }
    }
    results
}

fn add_user(repaired: &mut Vec<Message>, text: String) {
    if text.trim().is_empty() {
        return;
    }
    match repaired.last_mut() {
        Some(Message::User { text: before }) => *before = [before.as_str(), &text].join(BETWEEN),
        _ => repaired.push(Message::User { text }),
    }
}

/// Follows another message of the assistant only if that one has no calls: they have results between.
fn add_assistant(repaired: &mut Vec<Message>, mut assistant: Assistant) {
    let Some(Message::Assistant(before)) = repaired.last_mut() else {
        return repaired.push(Message::Assistant(assistant));
    };
    if !before.text.is_empty() && !assistant.text.is_empty() {
        before.text.push_str(BETWEEN);
    }
    let shift = before.text.len();
    for block in &mut assistant.provider_blocks {
        block.text_before += shift;
    }
    before.text.push_str(&assistant.text);
    before.reasoning.push_str(&assistant.reasoning);
    before.tool_calls.append(&mut assistant.tool_calls);
    before.provider_blocks.append(&mut assistant.provider_blocks);
}

#[cfg(test)]
mod tests;
