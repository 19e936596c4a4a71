//! A conversation as Instar keeps it: the same for every provider.
//!
//! Must not know: wire formats. What only one provider understands travels in [`ProviderBlock`].

use instar_core::id::AgentId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::call::ToolCall;

/// Whose rules a conversation must follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// OpenAI Chat Completions, and everything compatible.
    OpenAi,
    /// Anthropic Messages.
    Anthropic,
}

/// One call of a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// The name in the configuration. Which model of the provider that is, the adapter knows.
    pub model: String,
    /// For whom; not sent. What goes wrong with one caller's calls alone is not held against the provider.
    #[serde(skip)]
    pub caller: Option<AgentId>,
    pub system: Option<String>,
    pub messages: Vec<Message>,
    pub tools: Vec<ToolSpec>,
    pub tool_choice: ToolChoice,
    /// The most tokens to answer with; the model's configured limit if absent.
    pub max_tokens: Option<u32>,
    pub temperature: Option<f32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    #[default]
    Auto,
    /// The tools stay described (a history with calls demands it) but must not be called.
    None,
    Required,
}

/// A tool as the model is told about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    pub name: String,
    #[serde(default)]
    pub description: String,
    /// A JSON Schema of an object.
    pub parameters: Value,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    User { text: String },
    Assistant(Assistant),
    Tool(ToolResult),
}

impl Message {
    pub fn user(text: impl Into<String>) -> Self {
        Self::User { text: text.into() }
    }

    pub fn assistant(text: impl Into<String>) -> Self {
        Self::Assistant(Assistant { text: text.into(), ..Assistant::default() })
    }

    pub fn result(call_id: impl Into<String>, content: impl Into<String>) -> Self {
        Self::Tool(ToolResult { call_id: call_id.into(), content: content.into(), is_error: false })
    }

    pub fn failure(call_id: impl Into<String>, content: impl Into<String>) -> Self {
        Self::Tool(ToolResult { call_id: call_id.into(), content: content.into(), is_error: true })
    }
}

/// What the model said in one go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Assistant {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// For people to read. It is not sent back: what a provider wants back is in the blocks.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reasoning: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub provider_blocks: Vec<ProviderBlock>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResult {
    pub call_id: String,
    pub content: String,
    #[serde(default)]
    pub is_error: bool,
}

/// A piece of an answer that its provider wants back unchanged, such as signed thinking. Others
/// never see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderBlock {
    pub dialect: Dialect,
    /// The provider's name for what it is.
    pub kind: String,
    /// Bytes of the answer's text that came before it.
    pub text_before: usize,
    /// Tool calls that came before it.
    pub calls_before: usize,
    /// The block as JSON text: parsing it into a map would reorder it.
    pub json: String,
}

impl ProviderBlock {
    pub fn is_thinking(&self) -> bool {
        self.kind.ends_with("thinking")
    }
}

impl ToolSpec {
    /// The parameters as providers take them: an object that says what its properties are, be it
    /// none.
    pub(crate) fn schema(&self) -> Value {
        let mut schema = match &self.parameters {
            Value::Object(fields) => fields.clone(),
            _ => serde_json::Map::new(),
        };
        schema.entry("type").or_insert_with(|| Value::from("object"));
        schema.entry("properties").or_insert_with(|| Value::Object(serde_json::Map::new()));
        Value::Object(schema)
    }
}
