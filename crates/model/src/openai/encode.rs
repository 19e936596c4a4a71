//! A request in OpenAI's words.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;

use super::Profile;
use crate::history::{repair, wire_name};
use crate::message::{Assistant, Dialect, Message, Request, ToolChoice, ToolResult, ToolSpec};

/// Written straight from its parts: a conversation is sent anew with every call, and a tree of values
/// would cost more than everything else about it.
#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: Vec<Said>,
    stream: bool,
    stream_options: StreamOptions,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<&'static str>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    include_obfuscation: Option<bool>,
}

#[derive(Serialize)]
struct Said {
    role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<String>,
    content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call>,
}

#[derive(Serialize)]
struct Call {
    id: String,
    r#type: &'static str,
    function: Function,
}

#[derive(Serialize)]
struct Function {
    name: String,
    arguments: String,
}

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    function: Offer<'a>,
}

#[derive(Serialize)]
struct Offer<'a> {
    name: Cow<'a, str>,
    description: &'a str,
    parameters: Value,
}

pub(super) fn body(request: Request, profile: &Profile) -> Vec<u8> {
    let mut messages = Vec::with_capacity(request.messages.len() + 1);
    if let Some(system) = request.system.filter(|system| !system.trim().is_empty()) {
        messages.push(said("system", Some(system)));
    }
    messages.extend(repair(request.messages, Dialect::OpenAi).into_iter().map(message));
    let tools: Vec<Tool<'_>> = request.tools.iter().map(tool).collect();
    let limit = request.max_tokens.or(profile.max_tokens);
    let body = Body {
        model: &profile.model,
        stream: true,
        stream_options: StreamOptions {
            include_usage: true,
            // Padding against eavesdroppers on the packet sizes, a cost on every token.
            include_obfuscation: profile.genuine.then_some(false),
        },
        max_tokens: limit.filter(|_| !profile.genuine),
        max_completion_tokens: limit.filter(|_| profile.genuine),
        temperature: request.temperature,
        tool_choice: match request.tool_choice {
            _ if tools.is_empty() => None,
            ToolChoice::Auto => None,
            ToolChoice::None => Some("none"),
            ToolChoice::Required => Some("required"),
        },
        messages,
        tools,
    };
    if profile.extra_body.is_empty() {
        return serde_json::to_vec(&body).unwrap_or_default();
    }
    // These may take the place of any field.
    let mut body = serde_json::to_value(&body).unwrap_or_default();
    for (field, value) in &profile.extra_body {
        body[field] = value.clone();
    }
    body.to_string().into_bytes()
}

fn tool(tool: &ToolSpec) -> Tool<'_> {
    let (name, description, parameters) = (wire_name(&tool.name), tool.description.as_str(), tool.schema());
    Tool { r#type: "function", function: Offer { name, description, parameters } }
}

fn said(role: &'static str, content: Option<String>) -> Said {
    Said { role, content, tool_call_id: None, tool_calls: Vec::new() }
}

fn message(message: Message) -> Said {
    match message {
        Message::User { text } => said("user", Some(text)),
        Message::Assistant(Assistant { text, tool_calls, .. }) => {
            let calls = tool_calls.into_iter().map(|call| {
                let arguments = call.arguments.for_history();
                Call { id: call.id, r#type: "function", function: Function { name: call.name, arguments } }
            });
            Said { tool_calls: calls.collect(), ..said("assistant", Some(text).filter(|text| !text.is_empty())) }
        }
        Message::Tool(ToolResult { call_id, content, is_error }) => {
            // There is no field for failure in this format: the words must say it.
            let content = if is_error { format!("Error: {content}") } else { content };
            Said { tool_call_id: Some(call_id), ..said("tool", Some(content)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::call::{Arguments, ToolCall};
    use crate::config::Kind;

    fn encoded(request: Request, host: &str) -> Value {
        let profile = Profile::new(Kind::OpenAi, host, "gpt".to_owned());
        serde_json::from_slice(&body(request, &profile)).unwrap()
    }

    #[test]
    fn a_conversation_is_written_to_the_field() {
        let call = |id: &str, arguments| ToolCall { id: id.to_owned(), name: "clock.now".to_owned(), arguments };
        let assistant = Assistant {
            tool_calls: vec![call("c1", Arguments::from_text("{\"a\": 1}")), call("c2", Arguments::from_text("oops"))],
            ..Assistant::default()
        };
        let request = Request {
            system: Some("be brief".to_owned()),
            messages: vec![Message::user("hi"), Message::Assistant(assistant), Message::failure("c2", "bad")],
            tools: vec![ToolSpec {
                name: "clock.now".to_owned(),
                description: "time".to_owned(),
                parameters: json!({ "type": "object" }),
            }],
            max_tokens: Some(9),
            ..Request::default()
        };
        let body = encoded(request, "api.openai.com");
        assert_eq!(body["max_completion_tokens"], 9);
        assert_eq!(body["stream_options"], json!({ "include_usage": true, "include_obfuscation": false }));
        assert_eq!(body["tools"][0]["function"]["name"], "clock__now");
        assert_eq!(body["tools"][0]["function"]["parameters"], json!({ "type": "object", "properties": {} }));
        let messages = body["messages"].as_array().unwrap();
        assert_eq!(messages[0], json!({ "role": "system", "content": "be brief" }));
        let calls = &messages[2]["tool_calls"];
        assert_eq!(calls[0]["function"], json!({ "name": "clock__now", "arguments": "{\"a\": 1}" }));
        assert_eq!(calls[1]["function"]["arguments"], r#"{"invalid_arguments":"oops"}"#);
        assert!(messages[3]["content"].as_str().unwrap().starts_with("Error: interrupted"));
        assert_eq!(messages[4], json!({ "role": "tool", "tool_call_id": "c2", "content": "Error: bad" }));
    }

    #[test]
    fn an_imitator_gets_the_older_fields_and_no_empty_lists() {
        let request = Request { messages: vec![Message::user("hi")], max_tokens: Some(9), ..Request::default() };
        let body = encoded(request, "localhost");
        assert_eq!((&body["max_tokens"], &body["stream_options"]), (&json!(9), &json!({ "include_usage": true })));
        assert!(body.get("tools").is_none() && body.get("temperature").is_none());
    }
}
