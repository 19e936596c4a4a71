//! Anthropic's stream of content blocks.

use std::collections::{BTreeMap, VecDeque};

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::call::Arguments;
use crate::classify::Signal;
use crate::error::ModelError;
use crate::event::{Event, Finish, Usage};
use crate::history::Names;
use crate::message::{Dialect, ProviderBlock};
use crate::reader::{Decode, parse};
use crate::sse::Frame;

enum Block {
    Text,
    Call {
        index: usize,
        id: String,
        name: String,
        input: Value,
        fragments: String,
    },
    /// Thinking and whatever else only the provider understands: kept to be sent back.
    Opaque {
        kind: String,
        fields: Map<String, Value>,
        untouched: Option<String>,
        input: String,
    },
}

#[derive(Default)]
pub(crate) struct Decoder {
    names: Names,
    open: BTreeMap<u64, Block>,
    calls: usize,
    text_bytes: usize,
    usage: Counts,
    finish: Option<Finish>,
}

/// The provider's counts: each is a snapshot, and an event names only some of them.
#[derive(Clone, Copy, Default)]
struct Counts {
    input: u64,
    cache_read: u64,
    cache_creation: u64,
    output: u64,
}

impl Counts {
    fn update(&mut self, wire: &Value) -> Option<Event> {
        let before = (self.input, self.cache_read, self.cache_creation, self.output);
        let take = |count: &mut u64, value: &Value| *count = value.as_u64().unwrap_or(*count);
        take(&mut self.input, &wire["input_tokens"]);
        take(&mut self.cache_read, &wire["cache_read_input_tokens"]);
        take(&mut self.cache_creation, &wire["cache_creation_input_tokens"]);
        take(&mut self.output, &wire["output_tokens"]);
        let after = (self.input, self.cache_read, self.cache_creation, self.output);
        (before != after).then(|| {
            Event::Usage(Usage {
                // `input_tokens` of this provider leaves out what the cache gave or took.
                input_tokens: self.input + self.cache_read + self.cache_creation,
                cache_read_input_tokens: self.cache_read,
                cache_creation_input_tokens: self.cache_creation,
                output_tokens: self.output,
                reasoning_output_tokens: 0,
            })
        })
    }
}

impl Decoder {
    pub(crate) fn new(names: Names) -> Self {
        Self { names, ..Self::default() }
    }

    fn start(&mut self, frame: &Frame, event: &Value, events: &mut VecDeque<Event>) {
        let content = &event["content_block"];
        let block = match word(&content["type"]).as_str() {
            "text" => {
                self.text(&content["text"], events);
                Block::Text
            }
            "tool_use" => {
                let (index, id, name) =
                    (self.calls, word(&content["id"]), self.names.original(&word(&content["name"])));
                self.calls += 1;
                events.push_back(Event::ToolCallStarted { index, id: id.clone(), name: name.clone() });
                Block::Call { index, id, name, input: content["input"].clone(), fragments: String::new() }
            }
            kind => {
                let fields = content.as_object().cloned().unwrap_or_default();
                events.extend(text_of(&content["thinking"]).map(|text| Event::ReasoningDelta { text }));
                Block::Opaque { kind: kind.to_owned(), fields, untouched: raw_block(frame), input: String::new() }
            }
        };
        self.open.insert(event["index"].as_u64().unwrap_or_default(), block);
    }

    fn text(&mut self, value: &Value, events: &mut VecDeque<Event>) {
        if let Some(text) = text_of(value) {
            self.text_bytes += text.len();
            events.push_back(Event::TextDelta { text });
        }
    }

    fn delta(&mut self, event: &Value, events: &mut VecDeque<Event>) {
        let delta = &event["delta"];
        match self.open.get_mut(&event["index"].as_u64().unwrap_or_default()) {
            Some(Block::Call { index, fragments, .. }) => {
                if let Some(fragment) = text_of(&delta["partial_json"]) {
                    fragments.push_str(&fragment);
                    events.push_back(Event::ToolCallDelta { index: *index, fragment });
                }
            }
            Some(Block::Opaque { fields, untouched, input, .. }) => {
                for name in ["thinking", "signature"] {
                    let Some(more) = text_of(&delta[name]) else { continue };
                    *untouched = None;
                    match fields.get_mut(name) {
                        Some(Value::String(before)) => before.push_str(&more),
                        _ => drop(fields.insert(name.to_owned(), Value::String(more.clone()))),
                    }
                    if name == "thinking" {
                        events.push_back(Event::ReasoningDelta { text: more });
                    }
                }
                if let Some(more) = text_of(&delta["partial_json"]) {
                    *untouched = None;
                    input.push_str(&more);
                }
            }
            // A block whose start was lost is still text if it says so.
            Some(Block::Text) | None => self.text(&delta["text"], events),
        }
    }

    fn stop(&mut self, block: Block, truncated: bool, events: &mut VecDeque<Event>) {
        match block {
            Block::Text => {}
            Block::Call { index, id, name, input, fragments } => {
                let arguments = match input {
                    _ if truncated => Arguments::from_truncated(&fragments),
                    // Imitators send the whole input at the start and no fragments.
                    Value::Object(input) if fragments.is_empty() => Arguments::from_map(&input),
                    _ => Arguments::from_text(&fragments),
                };
                events.push_back(Event::ToolCall { index, id, name, arguments });
            }
            // Half a signature is worse than none.
            Block::Opaque { .. } if truncated => {}
            Block::Opaque { kind, mut fields, untouched, input } => {
                if !input.is_empty() {
                    fields.insert("input".to_owned(), serde_json::from_str(&input).unwrap_or_default());
                }
                let json = untouched.unwrap_or_else(|| Value::Object(fields).to_string());
                let (text_before, calls_before) = (self.text_bytes, self.calls);
                let dialect = Dialect::Anthropic;
                events.push_back(Event::ProviderBlock(ProviderBlock {
                    dialect,
                    kind,
                    text_before,
                    calls_before,
                    json,
                }));
            }
        }
    }

    /// A call cut off by the token limit is never closed by the provider.
    fn close(&mut self, events: &mut VecDeque<Event>) {
        for (_, block) in std::mem::take(&mut self.open) {
            self.stop(block, true, events);
        }
        let fallback = if self.calls > 0 { Finish::ToolCalls } else { Finish::Stop };
        events.push_back(Event::Done { finish: self.finish.take().unwrap_or(fallback) });
    }
}

impl Decode for Decoder {
    fn frame(&mut self, frame: &Frame, events: &mut VecDeque<Event>) -> Result<(), ModelError> {
        let event = parse(frame)?;
        match event["type"].as_str().unwrap_or(&frame.event) {
            "message_start" => {
                let message = &event["message"];
                let (response_id, model) = (word(&message["id"]), word(&message["model"]));
                events.push_back(Event::Started { response_id, model });
                events.extend(self.usage.update(&message["usage"]));
            }
            "content_block_start" => self.start(frame, &event, events),
            "content_block_delta" => self.delta(&event, events),
            "content_block_stop" => {
                if let Some(block) = self.open.remove(&event["index"].as_u64().unwrap_or_default()) {
                    self.stop(block, false, events);
                }
            }
            "message_delta" => {
                if let Some(reason) = text_of(&event["delta"]["stop_reason"]) {
                    self.finish = Some(finish(reason));
                }
                events.extend(self.usage.update(&event["usage"]));
            }
            "message_stop" => self.close(events),
            "error" => return Err(Signal::from_json(&event).into_error(Dialect::Anthropic)),
            // `ping`, and events yet to be invented.
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, reason: ModelError, _: &mut VecDeque<Event>) -> Result<(), ModelError> {
        Err(reason)
    }
}

fn finish(reason: String) -> Finish {
    match reason.as_str() {
        "end_turn" | "stop_sequence" => Finish::Stop,
        "tool_use" => Finish::ToolCalls,
        "max_tokens" => Finish::Length,
        "model_context_window_exceeded" => Finish::ContextWindow,
        "refusal" => Finish::Refusal,
        "pause_turn" => Finish::Pause,
        _ => Finish::Other(reason),
    }
}

/// The block as the provider wrote it.
fn raw_block(frame: &Frame) -> Option<String> {
    #[derive(Deserialize)]
    struct Start<'a> {
        #[serde(borrow)]
        content_block: &'a RawValue,
    }
    serde_json::from_str::<Start<'_>>(&frame.data).ok().map(|start| start.content_block.get().to_owned())
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn text_of(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests;
