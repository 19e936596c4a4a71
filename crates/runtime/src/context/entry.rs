//! Rows as entries of a conversation.

use super::window::SUMMARY;
use crate::flow::CUT_OFF;
use instar_core::context::{Assistant, Call, Message, Outcome, Part, Said, Source};
use instar_core::id::{CallId, MessageId};
use instar_store::entity::{message, tool_call};
use serde_json::Value;
use std::borrow::Cow;

/// What the summary of earlier turns begins with.
const SUMMARISED: &str = "Summary of what was said before:\n";

/// What the model is shown at the end of an answer that it could not finish.
const CUT_OFF_HERE: &str = "\n\n[This answer was cut off here: you were stopped before it was complete.]";

/// Earlier turns, in order. Calls count from the first turn on that the window shows.
pub(super) fn of_turns<'a>(messages: &[&'a message::Model], calls: &'a [tool_call::Model]) -> Vec<Message<'a>> {
    let mut entries = Vec::with_capacity(messages.len() + 2 * calls.len());
    let first = messages.iter().find(|m| m.source != SUMMARY).map(|m| m.turn_id);
    let mut rest: &[tool_call::Model] = match first {
        Some(first) => &calls[calls.partition_point(|call| call.turn_id < first)..],
        None => &[],
    };
    for said in messages.chunk_by(|a, b| a.turn_id == b.turn_id) {
        let turn = said.first().and_then(|m| m.turn_id);
        let (before, others) = rest.split_at(rest.partition_point(|call| call.turn_id < turn));
        before.chunk_by(|a, b| a.turn_id == b.turn_id).for_each(|calls| put(&mut entries, &[], calls, i64::MAX));
        let (own, others) = others.split_at(others.partition_point(|call| call.turn_id == turn));
        put(&mut entries, said, own, i64::MAX);
        rest = others;
    }
    rest.chunk_by(|a, b| a.turn_id == b.turn_id).for_each(|calls| put(&mut entries, &[], calls, i64::MAX));
    entries
}

/// One turn, up to so many answers.
pub(super) fn of_turn<'a>(
    messages: &[&'a message::Model],
    calls: &'a [tool_call::Model],
    answers: i64,
) -> Vec<Message<'a>> {
    let mut entries = Vec::with_capacity(messages.len() + 2 * calls.len());
    put(&mut entries, messages, calls, answers);
    entries
}

fn put<'a>(entries: &mut Vec<Message<'a>>, said: &[&'a message::Model], calls: &'a [tool_call::Model], answers: i64) {
    entries.extend(said.iter().filter(|m| m.role == "user").map(|m| prompt(m)));
    let mut groups = calls.chunk_by(|a, b| a.iteration == b.iteration).filter(|g| g[0].iteration <= answers).peekable();
    for message in said.iter().filter(|m| m.role == "assistant") {
        let iteration = iteration(message);
        if iteration.is_some_and(|n| n > answers) {
            continue;
        }
        // An answer of calls only has no message of its own.
        while let Some(calls) = groups.next_if(|calls| iteration.is_some_and(|n| calls[0].iteration < n)) {
            answer(entries, None, calls);
        }
        let calls = groups.next_if(|calls| iteration == Some(calls[0].iteration));
        answer(entries, Some(message), calls.unwrap_or_default());
    }
    groups.for_each(|calls| answer(entries, None, calls));
}

fn iteration(message: &message::Model) -> Option<i64> {
    message.data.as_ref().and_then(|data| data["iteration"].as_i64())
}

fn prompt(message: &message::Model) -> Message<'_> {
    let text = match message.source.as_str() {
        SUMMARY => Cow::Owned([SUMMARISED, &message.content].concat()),
        _ => Cow::Borrowed(message.content.as_str()),
    };
    let id = Some(MessageId::from(message.id));
    Message { id, source: Source::of(&message.source), part: Part::Before, said: Said::User { text } }
}

/// Whether an answer was ended before the model had ended it.
fn is_cut_off(message: &message::Model) -> bool {
    message.data.as_ref().is_some_and(|data| data[CUT_OFF] == true)
}

/// As many bytes as the model is shown of what was said.
pub fn shown_bytes(message: &message::Model) -> usize {
    message.content.len() + if is_cut_off(message) { CUT_OFF_HERE.len() } else { 0 }
}

fn answer<'a>(entries: &mut Vec<Message<'a>>, said: Option<&'a message::Model>, calls: &'a [tool_call::Model]) {
    let blocks = said.and_then(|m| m.data.as_ref()).and_then(|data| data["blocks"].as_array());
    let assistant = Assistant {
        text: match said {
            Some(said) if is_cut_off(said) => Cow::Owned([&said.content, CUT_OFF_HERE].concat()),
            Some(said) => Cow::Borrowed(said.content.as_str()),
            None => Cow::Borrowed(""),
        },
        calls: calls.iter().map(call).collect(),
        blocks: blocks.into_iter().flatten().map(Cow::Borrowed).collect(),
    };
    let id = said.map(|m| MessageId::from(m.id));
    entries.push(Message { id, source: Source::Model, part: Part::Before, said: Said::Assistant(assistant) });
    entries.extend(calls.iter().map(|call| Message::result(Part::Before, outcome(call))));
}

/// Under our own id: providers repeat theirs from one answer to the next.
fn call(call: &tool_call::Model) -> Call<'_> {
    Call { id: CallId::from(call.id), name: Cow::Borrowed(&call.name), arguments: Cow::Borrowed(&call.arguments) }
}

fn outcome(call: &tool_call::Model) -> Outcome<'_> {
    let result = call.result.as_ref().unwrap_or(&Value::Null);
    let output: Cow<'_, str> = match &result["output"] {
        Value::Null => Cow::Borrowed(""),
        Value::String(text) => Cow::Borrowed(text),
        other => Cow::Owned(other.to_string()),
    };
    let (content, is_error) = match (call.result_status.as_deref(), result["error"].as_str()) {
        (Some("success"), _) => (output, false),
        (None, _) => (Cow::Borrowed("interrupted: there is no result"), true),
        (Some(status), error) => {
            let error = error.unwrap_or("no details");
            let text =
                if output.is_empty() { format!("{status}: {error}") } else { format!("{status}: {error}\n{output}") };
            (Cow::Owned(text), true)
        }
    };
    Outcome { call_id: CallId::from(call.id), content, is_error }
}
