//! A request in OpenAI's words.

use serde_json::{Value, json};

use super::Profile;
use crate::history::{repair, wire_name};
use crate::message::{Assistant, Dialect, Message, Request, ToolChoice, ToolResult, ToolSpec};

pub(super) fn body(request: Request, profile: &Profile) -> Vec<u8> {
    let mut messages = Vec::with_capacity(request.messages.len() + 1);
    if let Some(system) = request.system.filter(|system| !system.trim().is_empty()) {
        messages.push(json!({ "role": "system", "content": system }));
    }
    messages.extend(repair(request.messages, Dialect::OpenAi).into_iter().map(message));
    let mut stream_options = json!({ "include_usage": true });
    let mut limit = "max_tokens";
    if profile.genuine {
        // Padding against eavesdroppers on the packet sizes, a cost on every token.
        stream_options["include_obfuscation"] = json!(false);
        limit = "max_completion_tokens";
    }
    let mut body = json!({
        "model": profile.model, "messages": messages, "stream": true, "stream_options": stream_options,
    });
    if let Some(tokens) = request.max_tokens.or(profile.max_tokens) {
        body[limit] = json!(tokens);
    }
    if let Some(temperature) = request.temperature {
        body["temperature"] = json!(temperature);
    }
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(tool).collect();
        match request.tool_choice {
            ToolChoice::Auto => {}
            ToolChoice::None => body["tool_choice"] = json!("none"),
            ToolChoice::Required => body["tool_choice"] = json!("required"),
        }
    }
    for (field, value) in &profile.extra_body {
        body[field] = value.clone();
    }
    body.to_string().into_bytes()
}

fn tool(tool: &ToolSpec) -> Value {
    let name = wire_name(&tool.name);
    let function = json!({ "name": name, "description": tool.description, "parameters": tool.schema() });
    json!({ "type": "function", "function": function })
}

fn message(message: Message) -> Value {
    match message {
        Message::User { text } => json!({ "role": "user", "content": text }),
        Message::Assistant(Assistant { text, tool_calls, .. }) => {
            let content = if text.is_empty() { Value::Null } else { json!(text) };
            let mut message = json!({ "role": "assistant", "content": content });
            if !tool_calls.is_empty() {
                let calls = tool_calls.iter().map(|call| {
                    let function = json!({ "name": call.name, "arguments": call.arguments.for_history() });
                    json!({ "id": call.id, "type": "function", "function": function })
                });
                message["tool_calls"] = calls.collect();
            }
            message
        }
        Message::Tool(ToolResult { call_id, content, is_error }) => {
            // There is no field for failure in this format: the words must say it.
            let content = if is_error { format!("Error: {content}") } else { content };
            json!({ "role": "tool", "tool_call_id": call_id, "content": content })
        }
    }
}

#[cfg(test)]
mod tests {
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
