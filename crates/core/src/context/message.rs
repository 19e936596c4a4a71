//! A conversation as values: calls are calls, not text.

use crate::id::{CallId, MessageId};
use serde::Serialize;
use serde_json::Value;
use std::borrow::Cow;

/// Where a message comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    Direct,
    Broadcast,
    System,
    Agent,
    Model,
    Tool,
    /// A summary of what was said before.
    Summary,
    Other,
}

impl Source {
    pub const ALL: [Source; 8] = [
        Source::Direct,
        Source::Broadcast,
        Source::System,
        Source::Agent,
        Source::Model,
        Source::Tool,
        Source::Summary,
        Source::Other,
    ];

    /// As the column `messages.source` has it.
    pub fn of(token: &str) -> Source {
        Source::ALL.into_iter().find(|source| source.token() == token).unwrap_or(Source::Other)
    }

    pub const fn token(self) -> &'static str {
        match self {
            Source::Direct => "direct",
            Source::Broadcast => "broadcast",
            Source::System => "system",
            Source::Agent => "agent",
            Source::Model => "model",
            Source::Tool => "tool",
            Source::Summary => "summary",
            Source::Other => "other",
        }
    }
}

/// Which part of the context a message belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Said before the epoch.
    Before,
    /// Of the epoch, in an earlier turn.
    Epoch,
    /// Of the turn that runs.
    Turn,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Message<'a> {
    /// The stored message, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<MessageId>,
    pub source: Source,
    pub part: Part,
    #[serde(flatten)]
    pub said: Said<'a>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Said<'a> {
    User { text: Cow<'a, str> },
    Assistant(Assistant<'a>),
    Tool(Outcome<'a>),
}

/// An answer of the model.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Assistant<'a> {
    pub text: Cow<'a, str>,
    #[serde(rename = "tool_calls", skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<Call<'a>>,
    /// What the provider wants back unchanged; each says by `calls_before` how many calls came before it.
    #[serde(rename = "provider_blocks", skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<Cow<'a, Value>>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Call<'a> {
    pub id: CallId,
    pub name: Cow<'a, str>,
    /// An object; or a text, where the model wrote something that is none.
    pub arguments: Cow<'a, Value>,
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome<'a> {
    pub call_id: CallId,
    pub content: Cow<'a, str>,
    pub is_error: bool,
}

impl<'a> Message<'a> {
    pub fn user(source: Source, part: Part, text: impl Into<Cow<'a, str>>) -> Self {
        Message { id: None, source, part, said: Said::User { text: text.into() } }
    }

    pub fn assistant(part: Part, assistant: Assistant<'a>) -> Self {
        Message { id: None, source: Source::Model, part, said: Said::Assistant(assistant) }
    }

    pub fn result(part: Part, outcome: Outcome<'a>) -> Self {
        Message { id: None, source: Source::Tool, part, said: Said::Tool(outcome) }
    }

    pub fn is_user(&self) -> bool {
        matches!(self.said, Said::User { .. })
    }

    pub fn is_result(&self) -> bool {
        matches!(self.said, Said::Tool(_))
    }

    pub fn calls(&self) -> &[Call<'a>] {
        match &self.said {
            Said::Assistant(assistant) => &assistant.calls,
            _ => &[],
        }
    }

    /// Bytes of what is said, names and arguments included.
    pub(super) fn content_bytes(&self) -> usize {
        match &self.said {
            Said::User { text } => text.len(),
            Said::Tool(outcome) => outcome.content.len(),
            Said::Assistant(assistant) => {
                let asked = |call: &Call| call.name.len() + super::budget::json_bytes(&call.arguments);
                assistant.text.len() + assistant.calls.iter().map(asked).sum::<usize>()
            }
        }
    }

    /// Bytes of the model's reasoning that its provider wants back.
    pub(super) fn reasoning_bytes(&self) -> usize {
        match &self.said {
            Said::Assistant(assistant) => {
                assistant.blocks.iter().map(|block| block["json"].as_str().map_or(0, str::len)).sum()
            }
            _ => 0,
        }
    }
}
