//! A request in Anthropic's words.
//!
//! Written through raw JSON text where bytes must come back as they were: thinking is signed.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::Profile;
use crate::error::ModelError;
use crate::history::{repair, wire_name};
use crate::message::{Assistant, Dialect, Message, Request, ToolChoice, ToolResult, ToolSpec};

type Block = Box<RawValue>;

#[derive(Serialize)]
struct Turn {
    role: &'static str,
    content: Vec<Block>,
}

pub(super) fn body(request: Request, profile: &Profile) -> Result<Vec<u8>, ModelError> {
    encode(request, profile)
        .map_err(|error| ModelError::permanent(format!("the conversation can't be written as JSON: {error}")))
}

fn encode(request: Request, profile: &Profile) -> Result<Vec<u8>, serde_json::Error> {
    let messages = repair(request.messages, Dialect::Anthropic);
    let mut choice = request.tool_choice;
    let mut tools: Vec<Value> = request.tools.iter().map(tool).collect();
    if tools.is_empty() {
        // A history with calls is refused unless tools are described.
        tools = called(&messages).map(|name| json!({ "name": name, "input_schema": { "type": "object" } })).collect();
        choice = ToolChoice::None;
    }
    let mut body: BTreeMap<&str, Block> = BTreeMap::new();
    body.insert("model", to_raw_value(&profile.model)?);
    body.insert("max_tokens", to_raw_value(&request.max_tokens.unwrap_or(profile.max_tokens))?);
    body.insert("stream", to_raw_value(&true)?);
    body.insert("messages", to_raw_value(&turns(messages)?)?);
    if let Some(system) = request.system.filter(|system| !system.trim().is_empty()) {
        body.insert("system", to_raw_value(&system)?);
    }
    if let Some(temperature) = request.temperature {
        body.insert("temperature", to_raw_value(&temperature)?);
    }
    if !tools.is_empty() {
        body.insert("tools", to_raw_value(&tools)?);
        let choice = match choice {
            ToolChoice::Auto => "auto",
            ToolChoice::None => "none",
            ToolChoice::Required => "any",
        };
        body.insert("tool_choice", to_raw_value(&json!({ "type": choice }))?);
    }
    for (field, value) in &profile.extra_body {
        body.insert(field, to_raw_value(value)?);
    }
    serde_json::to_vec(&body)
}

fn tool(tool: &ToolSpec) -> Value {
    json!({ "name": wire_name(&tool.name), "description": tool.description, "input_schema": tool.schema() })
}

fn called(messages: &[Message]) -> impl Iterator<Item = &str> {
    let calls = messages.iter().flat_map(|message| match message {
        Message::Assistant(assistant) => assistant.tool_calls.as_slice(),
        Message::User { .. } | Message::Tool(_) => &[],
    });
    calls.map(|call| call.name.as_str()).collect::<std::collections::BTreeSet<_>>().into_iter()
}

/// All results of a message and the words of the user after them are one turn, results first.
fn turns(messages: Vec<Message>) -> Result<Vec<Turn>, serde_json::Error> {
    let mut turns: Vec<Turn> = Vec::with_capacity(messages.len());
    let last = messages.len().saturating_sub(1);
    for (place, message) in messages.into_iter().enumerate() {
        let (role, mut content) = match message {
            Message::User { text } => ("user", vec![text_block(&text)?]),
            Message::Tool(result) => ("user", vec![result_block(&result)?]),
            Message::Assistant(mut assistant) => {
                if place == last {
                    // Blanks at the end of what the model shall continue are refused.
                    assistant.text.truncate(assistant.text.trim_end().len());
                }
                ("assistant", assistant_blocks(&assistant)?)
            }
        };
        match turns.last_mut() {
            Some(turn) if turn.role == role => turn.content.append(&mut content),
            _ => turns.push(Turn { role, content }),
        }
    }
    Ok(turns)
}

fn text_block(text: &str) -> Result<Block, serde_json::Error> {
    to_raw_value(&json!({ "type": "text", "text": text }))
}

fn result_block(result: &ToolResult) -> Result<Block, serde_json::Error> {
    let mut block = json!({ "type": "tool_result", "tool_use_id": result.call_id });
    if !result.content.trim().is_empty() {
        block["content"] = json!(result.content);
    }
    if result.is_error {
        block["is_error"] = json!(true);
    }
    to_raw_value(&block)
}

/// Text and calls, with the provider's own blocks at the places where they stood.
fn assistant_blocks(assistant: &Assistant) -> Result<Vec<Block>, serde_json::Error> {
    #[derive(Serialize)]
    struct ToolUse<'a> {
        r#type: &'static str,
        id: &'a str,
        name: &'a str,
        input: Block,
    }
    let mut blocks = Vec::new();
    let (mut text_done, mut calls_done) = (0, 0);
    let mut up_to = |blocks: &mut Vec<Block>, text_end: usize, calls_end: usize| {
        let text = assistant.text.get(text_done..text_end).unwrap_or_default();
        if !text.trim().is_empty() {
            blocks.push(text_block(text)?);
            text_done = text_end;
        }
        for call in assistant.tool_calls.get(calls_done..calls_end).unwrap_or_default() {
            let input = RawValue::from_string(call.arguments.for_history())?;
            blocks.push(to_raw_value(&ToolUse { r#type: "tool_use", id: &call.id, name: &call.name, input })?);
        }
        calls_done = calls_done.max(calls_end);
        Ok::<(), serde_json::Error>(())
    };
    for block in &assistant.provider_blocks {
        up_to(&mut blocks, block.text_before, block.calls_before)?;
        blocks.push(RawValue::from_string(block.json.clone())?);
    }
    up_to(&mut blocks, assistant.text.len(), assistant.tool_calls.len())?;
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{Arguments, ToolCall};
    use crate::message::ProviderBlock;

    fn encoded(request: Request) -> (Value, String) {
        let text = String::from_utf8(body(request, &Profile::new("claude".to_owned())).unwrap()).unwrap();
        (serde_json::from_str(&text).unwrap(), text)
    }

    fn call(id: &str, arguments: &str) -> ToolCall {
        ToolCall { id: id.to_owned(), name: "clock.now".to_owned(), arguments: Arguments::from_text(arguments) }
    }

    fn block(json: &str, text_before: usize, calls_before: usize) -> ProviderBlock {
        let (kind, json) = ("thinking".to_owned(), json.to_owned());
        ProviderBlock { dialect: Dialect::Anthropic, kind, text_before, calls_before, json }
    }

    #[test]
    fn results_and_words_after_them_are_one_turn() {
        let assistant = Assistant { tool_calls: vec![call("a", "{}"), call("b", "nonsense")], ..Assistant::default() };
        let (body, _) = encoded(Request {
            system: Some("be brief".to_owned()),
            messages: vec![
                Message::user("hi"),
                Message::Assistant(assistant),
                Message::user("and?"),
                Message::failure("b", "no"),
                Message::result("a", " "),
            ],
            ..Request::default()
        });
        assert_eq!((&body["system"], &body["max_tokens"]), (&json!("be brief"), &json!(8192)));
        let expected = json!([
            { "role": "user", "content": [{ "type": "text", "text": "hi" }] },
            { "role": "assistant", "content": [
                { "type": "tool_use", "id": "a", "name": "clock__now", "input": {} },
                { "type": "tool_use", "id": "b", "name": "clock__now", "input": { "invalid_arguments": "nonsense" } },
            ] },
            { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "a" },
                { "type": "tool_result", "tool_use_id": "b", "content": "no", "is_error": true },
                { "type": "text", "text": "and?" },
            ] },
        ]);
        assert_eq!(body["messages"], expected);
        // No tools were offered, yet the history has calls.
        assert_eq!(body["tools"][0]["name"], "clock__now");
        assert_eq!(body["tool_choice"], json!({ "type": "none" }));
    }

    #[test]
    fn signed_thinking_goes_back_byte_for_byte_and_in_its_place() {
        let (one, two) = (r#"{"thinking":"é\u0041","type":"thinking","signature":"c2ln"}"#, r#"{"type" : "thinking"}"#);
        let assistant = Assistant {
            text: "before after".to_owned(),
            tool_calls: vec![call("a", r#"{"n":1.0}"#), call("b", "{}")],
            provider_blocks: vec![block(one, 0, 0), block(two, 6, 1)],
            ..Assistant::default()
        };
        let (body, text) = encoded(Request {
            messages: vec![Message::user("hi"), Message::Assistant(assistant)],
            ..Request::default()
        });
        assert!(text.contains(one) && text.contains(two) && text.contains(r#"{"n":1.0}"#), "{text}");
        let kinds: Vec<&str> =
            body["messages"][1]["content"].as_array().unwrap().iter().map(|b| b["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["thinking", "text", "tool_use", "thinking", "text", "tool_use"]);
    }

    #[test]
    fn an_answer_to_be_continued_does_not_end_in_blanks() {
        let (body, _) = encoded(Request {
            messages: vec![Message::user("hi"), Message::assistant("well \n")],
            ..Request::default()
        });
        assert_eq!(body["messages"][1]["content"][0]["text"], "well");
        assert!(body.get("tools").is_none() && body.get("tool_choice").is_none());
    }
}
