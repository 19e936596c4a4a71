//! From events to the whole answer, in one pure place.
//!
//! Must not know: where events come from.

use std::collections::BTreeMap;

use futures::StreamExt;

use crate::call::{Arguments, ToolCall};
use crate::error::ModelError;
use crate::event::{Event, EventStream, Finish, Usage};
use crate::message::{Assistant, Message, ProviderBlock};

/// A whole answer. It exists only if the provider said that it is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    pub id: String,
    /// The provider's name of the model that answered; empty if it gave none.
    pub model: String,
    pub text: String,
    pub reasoning: String,
    pub tool_calls: Vec<ToolCall>,
    pub provider_blocks: Vec<ProviderBlock>,
    /// Absent if the provider did not count.
    pub usage: Option<Usage>,
    pub finish: Finish,
}

impl Response {
    pub fn into_message(self) -> Message {
        let Self { text, reasoning, tool_calls, provider_blocks, .. } = self;
        Message::Assistant(Assistant { text, reasoning, tool_calls, provider_blocks })
    }
}

/// Collects events. Also of use for what has come so far: an aborted answer is shown and its cost
/// estimated from it.
#[derive(Clone, Debug, Default)]
pub struct Accumulator {
    id: String,
    model: String,
    text: String,
    reasoning: String,
    calls: BTreeMap<usize, ToolCall>,
    blocks: Vec<ProviderBlock>,
    usage: Option<Usage>,
    finish: Option<Finish>,
    /// Bytes of calls that are not whole yet, or are by now.
    fragments: usize,
}

impl Accumulator {
    pub fn push(&mut self, event: Event) {
        match event {
            Event::Started { response_id, model } => (self.id, self.model) = (response_id, model),
            Event::TextDelta { text } => self.text.push_str(&text),
            Event::ReasoningDelta { text } => self.reasoning.push_str(&text),
            // Fragments are for those who watch; the whole call follows.
            Event::ToolCallStarted { name, .. } => self.fragments += name.len(),
            Event::ToolCallDelta { fragment, .. } => self.fragments += fragment.len(),
            Event::ToolCall { index, id, name, arguments } => {
                self.calls.insert(index, ToolCall { id, name, arguments });
            }
            Event::ProviderBlock(block) => self.blocks.push(block),
            Event::Usage(usage) => self.usage = Some(usage),
            Event::Done { finish } => self.finish = Some(finish),
        }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn usage(&self) -> Option<Usage> {
        self.usage
    }

    /// All that was heard, shown or not.
    pub fn bytes(&self) -> usize {
        let call = |call: &ToolCall| match &call.arguments {
            Arguments::Json(text) | Arguments::Invalid { text, .. } => call.name.len() + text.len(),
        };
        let calls: usize = self.calls.values().map(call).sum();
        self.text.len() + self.reasoning.len() + calls.max(self.fragments)
    }

    /// An answer without its end is an error, never a success.
    pub fn finish(self) -> Result<Response, ModelError> {
        let Some(finish) = self.finish else {
            return Err(ModelError::transient("the answer ended before it was whole"));
        };
        Ok(Response {
            id: self.id,
            model: self.model,
            text: self.text,
            reasoning: self.reasoning,
            tool_calls: self.calls.into_values().collect(),
            provider_blocks: self.blocks,
            usage: self.usage,
            finish,
        })
    }
}

/// Reads a stream to its end.
pub async fn collect(mut stream: EventStream) -> Result<Response, ModelError> {
    let mut accumulator = Accumulator::default();
    while let Some(event) = stream.next().await {
        accumulator.push(event?);
    }
    accumulator.finish()
}
