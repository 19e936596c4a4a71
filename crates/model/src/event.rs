//! What a model says while it says it: one vocabulary for all providers.
//!
//! Must not know: wire formats.

use std::pin::Pin;

use futures::Stream;
use serde::{Deserialize, Serialize};

use crate::call::Arguments;
use crate::error::ModelError;
use crate::message::ProviderBlock;

/// Ends after [`Event::Done`] or after the first error. Dropping it ends the request.
pub type EventStream = Pin<Box<dyn Stream<Item = Result<Event, ModelError>> + Send>>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The provider's names for the answer and for the model that gives it.
    Started {
        response_id: String,
        model: String,
    },
    TextDelta {
        text: String,
    },
    ReasoningDelta {
        text: String,
    },
    ToolCallStarted {
        index: usize,
        id: String,
        name: String,
    },
    ToolCallDelta {
        index: usize,
        fragment: String,
    },
    /// The whole call: what came before for the same index were its parts.
    ToolCall {
        index: usize,
        id: String,
        name: String,
        arguments: Arguments,
    },
    ProviderBlock(ProviderBlock),
    /// A snapshot that replaces the one before.
    Usage(Usage),
    Done {
        finish: Finish,
    },
}

impl Event {
    /// Whether it shows something of the answer. Failures before that can be retried unseen.
    pub(crate) fn is_content(&self) -> bool {
        !matches!(self, Self::Started { .. } | Self::Usage(_))
    }
}

/// Tokens of one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// All that went in, whether read from a cache or not.
    pub input_tokens: u64,
    pub cache_read_input_tokens: u64,
    pub cache_creation_input_tokens: u64,
    /// All that came out, reasoning included.
    pub output_tokens: u64,
    pub reasoning_output_tokens: u64,
}

/// Why the model stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    Stop,
    ToolCalls,
    /// The token limit: the answer is cut off.
    Length,
    /// The context window is full: time to compact.
    ContextWindow,
    /// The provider's filter or the model itself declined.
    Refusal,
    /// The provider paused a long turn: send the answer back to go on.
    Pause,
    Other(String),
}

impl Finish {
    pub fn as_str(&self) -> &str {
        match self {
            Self::Stop => "stop",
            Self::ToolCalls => "tool_calls",
            Self::Length => "length",
            Self::ContextWindow => "context_window",
            Self::Refusal => "refusal",
            Self::Pause => "pause",
            Self::Other(reason) => reason,
        }
    }

    /// Whether the answer may end in the middle of something.
    pub fn is_truncated(&self) -> bool {
        matches!(self, Self::Length | Self::ContextWindow)
    }
}
