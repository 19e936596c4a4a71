//! What the provider is sent: instructions, what was said, and the calls of this turn with their
//! results. Pure; the window it works on was read by index, so that its cost does not grow with the
//! session's history.

use instar_model::{Arguments, Assistant, Message, ProviderBlock, Request, ToolCall, ToolSpec};
use instar_store::entity::{agent, message, tool_call, turn};
use instar_tools::Tool;
use serde_json::Value;
use std::sync::Arc;

pub(crate) fn request(
    agent: &agent::Model,
    turn: &turn::Model,
    transcript: &[message::Model],
    calls: &[tool_call::Model],
    tools: &[Arc<Tool>],
) -> Request {
    let (now, before): (Vec<_>, Vec<_>) = transcript.iter().partition(|m| m.turn_id == Some(turn.id));
    let mut messages: Vec<Message> = before.iter().filter_map(|m| plain(m)).collect();
    // A window that begins with an answer would show the model half an exchange.
    let first = messages.iter().position(|m| matches!(m, Message::User { .. })).unwrap_or(messages.len());
    messages.drain(..first);
    messages.extend(now.iter().filter(|m| m.role == "user").filter_map(|m| plain(m)));
    for iteration in 1..=turn.iterations {
        let said = now.iter().find(|m| m.role == "assistant" && of_iteration(m, iteration));
        let asked: Vec<_> = calls.iter().filter(|c| c.iteration == iteration).collect();
        if said.is_none() && asked.is_empty() {
            continue;
        }
        messages.push(Message::Assistant(Assistant {
            text: said.map(|m| m.content.clone()).unwrap_or_default(),
            reasoning: String::new(),
            tool_calls: asked.iter().map(|c| call(c)).collect(),
            provider_blocks: said.map(|m| blocks(m)).unwrap_or_default(),
        }));
        messages.extend(asked.iter().map(|c| result(c)));
    }
    if messages.is_empty() {
        messages.push(Message::user("Continue."));
    }
    Request {
        model: agent.model.clone(),
        system: agent.config["system_prompt"].as_str().filter(|s| !s.is_empty()).map(str::to_owned),
        messages,
        tools: tools.iter().map(|tool| offer(tool)).collect(),
        ..Request::default()
    }
}

fn offer(tool: &Tool) -> ToolSpec {
    let offer = tool.offer();
    ToolSpec { name: offer.name, description: offer.description, parameters: offer.parameters }
}

fn plain(message: &message::Model) -> Option<Message> {
    match message.role.as_str() {
        "user" => Some(Message::user(message.content.clone())),
        "assistant" if !message.content.is_empty() => Some(Message::assistant(message.content.clone())),
        _ => None,
    }
}

fn of_iteration(message: &message::Model, iteration: i64) -> bool {
    message.data.as_ref().and_then(|data| data["iteration"].as_i64()) == Some(iteration)
}

fn blocks(message: &message::Model) -> Vec<ProviderBlock> {
    let blocks = message.data.as_ref().map(|data| data["blocks"].clone()).unwrap_or_default();
    serde_json::from_value(blocks).unwrap_or_default()
}

/// Under our own id: providers repeat theirs from one answer to the next.
fn name(call: &tool_call::Model) -> String {
    instar_core::id::CallId::from(call.id).to_string()
}

fn call(call: &tool_call::Model) -> ToolCall {
    let arguments = match &call.arguments {
        Value::Object(map) => Arguments::from_map(map),
        // Arguments that were not an object were refused; the model sees its own text.
        other => Arguments::from_text(other.as_str().unwrap_or_default()),
    };
    ToolCall { id: name(call), name: call.name.clone(), arguments }
}

fn result(call: &tool_call::Model) -> Message {
    let empty = Value::Null;
    let result = call.result.as_ref().unwrap_or(&empty);
    let output = match &result["output"] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match (call.result_status.as_deref(), result["error"].as_str()) {
        (Some("success"), _) => Message::result(name(call), output),
        (None, _) => Message::failure(name(call), "interrupted: there is no result"),
        (Some(status), error) => {
            let error = error.unwrap_or("no details");
            let text =
                if output.is_empty() { format!("{status}: {error}") } else { format!("{status}: {error}\n{output}") };
            Message::failure(name(call), text)
        }
    }
}
