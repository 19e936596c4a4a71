//! OpenAI's stream of chunks.
//!
//! Read as loose JSON on purpose: the servers that imitate this format put null, nothing or something
//! new into every field there is, and a strict type would lose the answer for it.

use std::collections::VecDeque;

use serde_json::Value;

use crate::call::Arguments;
use crate::classify::Signal;
use crate::error::ModelError;
use crate::event::{Event, Finish, Usage};
use crate::history::Names;
use crate::message::Dialect;
use crate::reader::{Decode, parse};
use crate::retry::random;
use crate::sse::Frame;

/// The usual chunk, read without making a tree of it: most of an answer is pieces of text. Anything that is
/// not as here goes the slow way.
#[derive(serde::Deserialize)]
struct Plain<'a> {
    #[serde(borrow)]
    choices: [PlainChoice<'a>; 1],
    error: Option<&'a serde_json::value::RawValue>,
    usage: Option<&'a serde_json::value::RawValue>,
}

#[derive(serde::Deserialize)]
struct PlainChoice<'a> {
    #[serde(default)]
    index: u64,
    #[serde(borrow)]
    delta: PlainDelta<'a>,
    finish_reason: Option<&'a str>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct PlainDelta<'a> {
    #[serde(borrow)]
    content: std::borrow::Cow<'a, str>,
    #[serde(default, rename = "role")]
    _role: Option<&'a str>,
}

#[derive(Default)]
struct Slot {
    /// The server's number for it; absent on servers that give none.
    wire: Option<u64>,
    id: String,
    name: String,
    arguments: String,
    announced: bool,
}

pub(crate) struct Decoder {
    names: Names,
    expected_tokens: Option<u64>,
    started: bool,
    refused: bool,
    slots: Vec<Slot>,
    finish: Option<Finish>,
    /// For calls that come without an id.
    id_prefix: String,
}

impl Decoder {
    pub(crate) fn new(names: Names, expected_tokens: Option<u64>) -> Self {
        let id_prefix = format!("call_{:016x}", random());
        Self { names, expected_tokens, started: false, refused: false, slots: Vec::new(), finish: None, id_prefix }
    }

    /// Takes a chunk that is a piece of text and nothing else; false if it is more, or something else.
    fn plain(&mut self, data: &str, events: &mut VecDeque<Event>) -> bool {
        let Ok(Plain { choices: [choice], error: None, usage: None }) = serde_json::from_str(data) else {
            return false;
        };
        if choice.index != 0 || choice.finish_reason.is_some() {
            return false;
        }
        let text = choice.delta.content.into_owned();
        if !text.is_empty() {
            events.push_back(Event::TextDelta { text });
        }
        true
    }

    fn delta(&mut self, delta: &Value, events: &mut VecDeque<Event>) {
        let reasoning = text(&delta["reasoning_content"]).or_else(|| text(&delta["reasoning"]));
        events.extend(reasoning.map(|text| Event::ReasoningDelta { text }));
        events.extend(text(&delta["content"]).map(|text| Event::TextDelta { text }));
        if let Some(text) = text(&delta["refusal"]) {
            self.refused = true;
            events.push_back(Event::TextDelta { text });
        }
        for call in list(&delta["tool_calls"]) {
            self.tool_call(call, events);
        }
    }

    fn tool_call(&mut self, call: &Value, events: &mut VecDeque<Event>) {
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (id, name) = (word(&call["id"]), word(&call["function"]["name"]));
        let index = self.slot(call["index"].as_u64(), &id, &name);
        let taken = self.slots.iter().enumerate().any(|(other, slot)| other != index && slot.id == id);
        let Some(slot) = self.slots.get_mut(index) else { return };
        // Never overwritten: later deltas repeat the fields, sometimes empty.
        if slot.id.is_empty() && !taken {
            slot.id = id;
        }
        if slot.name.is_empty() {
            slot.name = name;
        }
        let fragment = match &call["function"]["arguments"] {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            // Some servers send the arguments as the object they mean.
            whole => whole.to_string(),
        };
        slot.arguments.push_str(&fragment);
        let mut news = fragment;
        if !slot.announced {
            if slot.name.is_empty() {
                return;
            }
            if slot.id.is_empty() {
                slot.id = format!("{}_{index}", self.id_prefix);
            }
            slot.announced = true;
            let (id, name) = (slot.id.clone(), self.names.original(&slot.name));
            events.push_back(Event::ToolCallStarted { index, id, name });
            news = slot.arguments.clone();
        }
        if !news.is_empty() {
            events.push_back(Event::ToolCallDelta { index, fragment: news });
        }
    }

    /// The slot that a delta belongs to. A number that comes again with another id and a name is a
    /// new call from a server that numbers them all alike; a delta without number or id continues the
    /// last call.
    fn slot(&mut self, wire: Option<u64>, id: &str, name: &str) -> usize {
        let known = match wire {
            Some(_) => self.slots.iter().rposition(|slot| slot.wire == wire),
            None if id.is_empty() && name.is_empty() => self.slots.len().checked_sub(1),
            None if id.is_empty() => None,
            None => self.slots.iter().rposition(|slot| slot.id == id),
        };
        let is_other = |slot: &Slot| !id.is_empty() && !slot.id.is_empty() && slot.id != id && !name.is_empty();
        match known.filter(|index| self.slots.get(*index).is_some_and(|slot| !is_other(slot))) {
            Some(index) => index,
            None => {
                self.slots.push(Slot { wire, ..Slot::default() });
                self.slots.len() - 1
            }
        }
    }

    fn usage(&self, wire: &Value, events: &mut VecDeque<Event>) {
        let count = |value: &Value| value.as_u64().unwrap_or_default();
        let usage = Usage {
            input_tokens: count(&wire["prompt_tokens"]),
            cache_read_input_tokens: count(&wire["prompt_tokens_details"]["cached_tokens"]),
            cache_creation_input_tokens: count(&wire["prompt_tokens_details"]["cache_write_tokens"]),
            output_tokens: count(&wire["completion_tokens"]),
            reasoning_output_tokens: count(&wire["completion_tokens_details"]["reasoning_tokens"]),
        };
        if usage == Usage::default() {
            return;
        }
        if self.expected_tokens.is_some_and(|expected| expected > 1000 && usage.input_tokens < expected / 3) {
            tracing::warn!(
                prompt_tokens = usage.input_tokens,
                expected_tokens = self.expected_tokens,
                "the server read far less than was sent: raise its context length (num_ctx), or the start of the \
                 conversation is lost"
            );
        }
        events.push_back(Event::Usage(usage));
    }

    /// Calls are closed together at the very end, since their deltas may alternate.
    fn close(&mut self, events: &mut VecDeque<Event>) {
        let truncated = self.finish.as_ref().is_some_and(Finish::is_truncated);
        let last = self.slots.len().saturating_sub(1);
        for (index, slot) in std::mem::take(&mut self.slots).into_iter().enumerate() {
            let cut = truncated && index == last;
            let read = if cut { Arguments::from_truncated } else { Arguments::from_text };
            let id = if slot.id.is_empty() { format!("{}_{index}", self.id_prefix) } else { slot.id };
            let (name, arguments) = (self.names.original(&slot.name), read(&slot.arguments));
            events.push_back(Event::ToolCall { index, id, name, arguments });
        }
        let calls = matches!(events.back(), Some(Event::ToolCall { .. }));
        let finish = match self.finish.take() {
            // Servers have been seen stopping for a call without saying so.
            None | Some(Finish::Stop) if calls => Finish::ToolCalls,
            None | Some(Finish::Stop) if self.refused => Finish::Refusal,
            finish => finish.unwrap_or(Finish::Stop),
        };
        events.push_back(Event::Done { finish });
    }
}

impl Decode for Decoder {
    fn frame(&mut self, frame: &Frame, events: &mut VecDeque<Event>) -> Result<(), ModelError> {
        if frame.data.trim() == "[DONE]" {
            if !self.started {
                return Err(ModelError::transient("the answer ended before it began").with_code("empty_stream"));
            }
            self.close(events);
            return Ok(());
        }
        if self.started && self.plain(&frame.data, events) {
            return Ok(());
        }
        let chunk = parse(frame)?;
        if chunk.get("error").is_some_and(|error| !error.is_null()) || chunk["object"] == "error" {
            return Err(Signal::from_json(&chunk).into_error(Dialect::OpenAi));
        }
        if !std::mem::replace(&mut self.started, true) {
            let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            events.push_back(Event::Started { response_id: word(&chunk["id"]), model: word(&chunk["model"]) });
        }
        // More than one choice is never asked for.
        for choice in list(&chunk["choices"]).iter().filter(|choice| choice["index"].as_u64().unwrap_or(0) == 0) {
            self.delta(&choice["delta"], events);
            if let Some(reason) = text(&choice["finish_reason"]) {
                self.finish = Some(finish(reason));
            }
        }
        self.usage(&chunk["usage"], events);
        Ok(())
    }

    /// Every server of this format ends its stream with `[DONE]`; those without it speak another one. A
    /// `finish_reason` is no proof: calls, the count of tokens or an error may follow it, and a connection that
    /// breaks there looks the same as one that is closed.
    fn end(&mut self, reason: ModelError, _: &mut VecDeque<Event>) -> Result<(), ModelError> {
        Err(reason)
    }
}

fn finish(reason: String) -> Finish {
    match reason.as_str() {
        "stop" | "eos" | "eos_token" | "end_turn" => Finish::Stop,
        "tool_calls" | "function_call" => Finish::ToolCalls,
        "length" | "max_tokens" => Finish::Length,
        "content_filter" => Finish::Refusal,
        _ => Finish::Other(reason),
    }
}

/// Text that is there: a string, or a list of parts of which some are text.
fn text(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => return None,
    };
    (!text.is_empty()).then_some(text)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests;
