//! A request as the model server received it, and what scripts ask about it.
//!
//! It must not know who sends requests; the two formats are told apart here only where they differ
//! in reading.

use std::time::SystemTime;

use serde_json::Value;

/// The wire format of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// OpenAI Chat Completions.
    Chat,
    /// Anthropic Messages.
    Messages,
}

/// A recorded request.
#[derive(Clone, Debug)]
pub struct Request {
    /// From 1, in order of arrival.
    pub number: u64,
    pub dialect: Dialect,
    pub at: SystemTime,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Value,
}

/// What a tool answered, as the model is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolResult {
    pub call_id: String,
    pub content: String,
    pub is_error: bool,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub fn model(&self) -> &str {
        self.body["model"].as_str().unwrap_or_default()
    }

    pub fn is_streaming(&self) -> bool {
        self.body["stream"].as_bool().unwrap_or(false)
    }

    pub fn messages(&self) -> &[Value] {
        list(&self.body["messages"])
    }

    /// The names of the tools offered to the model.
    pub fn tools(&self) -> Vec<&str> {
        // Chat wraps the definition in `function`.
        let tools = list(&self.body["tools"]).iter();
        tools.filter_map(|tool| tool["function"]["name"].as_str().or(tool["name"].as_str())).collect()
    }

    /// The results that follow the last message of the assistant: none in a fresh turn.
    pub fn tool_results(&self) -> Vec<ToolResult> {
        let messages = self.messages();
        let last = messages.iter().rposition(|message| message["role"] == "assistant");
        let after = &messages[last.map_or(0, |last| last + 1)..];
        after.iter().flat_map(|message| results_in(self.dialect, message)).collect()
    }

    /// All the text of the last message of the user that has any.
    pub fn user_text(&self) -> String {
        let of_user = self.messages().iter().rev().filter(|message| message["role"] == "user");
        of_user.map(|message| text(&message["content"])).find(|text| !text.is_empty()).unwrap_or_default()
    }

    /// Whatever the real provider would refuse before the model runs; the words are for a person.
    pub(crate) fn problem(&self) -> Option<String> {
        if self.model().is_empty() {
            return Some("model: field required".to_owned());
        }
        if self.messages().is_empty() {
            return Some("messages: at least one message is required".to_owned());
        }
        if self.dialect == Dialect::Messages {
            if self.header("anthropic-version").is_none() {
                return Some("anthropic-version: header is required".to_owned());
            }
            if self.body["max_tokens"].as_u64().is_none_or(|tokens| tokens == 0) {
                return Some("max_tokens: field required".to_owned());
            }
        }
        self.unanswered()
    }

    /// Each call of the assistant must be answered, and each answer must belong to a call: in the
    /// messages that follow (Chat) or in the very next one (Messages).
    fn unanswered(&self) -> Option<String> {
        let messages = self.messages();
        let mut open: Vec<String> = Vec::new();
        for (number, message) in messages.iter().enumerate() {
            let results = results_in(self.dialect, message);
            for result in &results {
                let Some(found) = open.iter().position(|id| *id == result.call_id) else {
                    let id = &result.call_id;
                    return Some(format!("messages.{number}: result for {id}, which no call asked for"));
                };
                open.remove(found);
            }
            if (results.is_empty() || self.dialect == Dialect::Messages) && !open.is_empty() {
                return Some(format!("messages.{number}: calls without results before it: {open:?}"));
            }
            open.extend(calls_in(self.dialect, message));
        }
        (!open.is_empty()).then(|| format!("the last calls have no results: {open:?}"))
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn calls_in(dialect: Dialect, message: &Value) -> Vec<String> {
    if message["role"] != "assistant" {
        return Vec::new();
    }
    let ids: Vec<&Value> = match dialect {
        Dialect::Chat => list(&message["tool_calls"]).iter().map(|call| &call["id"]).collect(),
        Dialect::Messages => {
            let blocks = list(&message["content"]).iter();
            blocks.filter(|block| block["type"] == "tool_use").map(|block| &block["id"]).collect()
        }
    };
    ids.into_iter().map(word).collect()
}

fn results_in(dialect: Dialect, message: &Value) -> Vec<ToolResult> {
    match dialect {
        Dialect::Chat if message["role"] == "tool" => vec![ToolResult {
            call_id: word(&message["tool_call_id"]),
            content: text(&message["content"]),
            is_error: false,
        }],
        Dialect::Messages if message["role"] == "user" => list(&message["content"])
            .iter()
            .filter(|block| block["type"] == "tool_result")
            .map(|block| ToolResult {
                call_id: word(&block["tool_use_id"]),
                content: text(&block["content"]),
                is_error: block["is_error"].as_bool().unwrap_or(false),
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// Content is a string, or a list of parts of which some are text.
fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}
