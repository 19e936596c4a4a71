//! Replies in the wire format of OpenAI Chat Completions.
//!
//! It must not know how bytes are sent: it makes frames and bodies.

use serde_json::{Value, json};

use super::reply::{Finish, Part, Refusal, Reply};
use super::{Request, encode};

/// What all chunks of an answer have in common.
struct Chunk<'a> {
    id: String,
    created: u64,
    model: &'a str,
    with_usage: bool,
}

impl Chunk<'_> {
    fn frame(&self, choices: Value, usage: Value) -> String {
        let mut chunk = json!({
            "id": self.id, "object": "chat.completion.chunk", "created": self.created, "model": self.model,
            "service_tier": "default", "system_fingerprint": "fp_scripted", "choices": choices,
        });
        if self.with_usage {
            // Null on every chunk but the last, which has no choices; absent if it was not asked
            // for.
            chunk["usage"] = usage;
        }
        format!("data: {chunk}\n\n")
    }

    fn delta(&self, delta: Value, finish: Value) -> String {
        let choice = json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish });
        self.frame(json!([choice]), Value::Null)
    }
}

/// The frames of a streamed answer, in order.
pub(super) fn frames(reply: &Reply, request: &Request) -> Vec<String> {
    let chunk = Chunk {
        id: format!("chatcmpl-{}", encode::token()),
        created: encode::seconds(request.at),
        model: request.model(),
        with_usage: request.body["stream_options"]["include_usage"].as_bool().unwrap_or(false),
    };
    let text_first = !matches!(reply.parts.first(), Some(Part::Call { .. }));
    let content = if text_first { json!("") } else { Value::Null };
    let first = json!({ "role": "assistant", "content": content, "refusal": null });
    let mut frames = vec![chunk.delta(first, Value::Null)];
    frames.extend(reply.reasoning.iter().map(|text| chunk.delta(json!({ "reasoning_content": text }), Value::Null)));
    let mut slot = 0;
    for part in &reply.parts {
        match part {
            Part::Text(fragments) => {
                frames.extend(fragments.iter().map(|text| chunk.delta(json!({ "content": text }), Value::Null)))
            }
            Part::Call { id, name, arguments } => {
                let id = encode::call_id(id, "call_");
                let function = json!({ "name": name, "arguments": "" });
                let opening = json!({ "index": slot, "id": id, "type": "function", "function": function });
                frames.push(chunk.delta(json!({ "tool_calls": [opening] }), Value::Null));
                frames.extend(arguments.iter().map(|fragment| {
                    let call = json!({ "index": slot, "function": { "arguments": fragment } });
                    chunk.delta(json!({ "tool_calls": [call] }), Value::Null)
                }));
                slot += 1;
            }
        }
    }
    frames.push(chunk.delta(json!({}), json!(finish(reply))));
    if chunk.with_usage {
        frames.push(chunk.frame(json!([]), usage(reply)));
    }
    frames.push("data: [DONE]\n\n".to_owned());
    frames
}

/// The body of an answer that is not streamed.
pub(super) fn whole(reply: &Reply, request: &Request) -> Value {
    let mut text: Option<String> = None;
    let mut calls = Vec::new();
    for part in &reply.parts {
        match part {
            Part::Text(fragments) => text.get_or_insert_default().push_str(&fragments.concat()),
            Part::Call { id, name, arguments } => calls.push(json!({
                "id": encode::call_id(id, "call_"), "type": "function",
                "function": { "name": name, "arguments": arguments.concat() },
            })),
        }
    }
    let mut message = json!({ "role": "assistant", "content": text, "refusal": null, "annotations": [] });
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    let choice = json!({ "index": 0, "message": message, "logprobs": null, "finish_reason": finish(reply) });
    json!({
        "id": format!("chatcmpl-{}", encode::token()), "object": "chat.completion",
        "created": encode::seconds(request.at), "model": request.model(), "choices": [choice],
        "usage": usage(reply), "service_tier": "default", "system_fingerprint": "fp_scripted",
    })
}

fn finish(reply: &Reply) -> &'static str {
    match reply.finish_reason() {
        Finish::Stop | Finish::Pause => "stop",
        Finish::ToolCalls => "tool_calls",
        Finish::Length | Finish::ContextWindow => "length",
        Finish::Refusal => "content_filter",
    }
}

fn usage(reply: &Reply) -> Value {
    let usage = reply.usage;
    json!({
        "prompt_tokens": usage.input, "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": { "cached_tokens": usage.cached, "audio_tokens": 0 },
        "completion_tokens_details": {
            "reasoning_tokens": 0, "audio_tokens": 0,
            "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0,
        },
    })
}

/// Status and body of an error that comes instead of an answer.
pub(super) fn refusal(refusal: &Refusal) -> (u16, Value) {
    let (status, kind, code, message) = match refusal {
        Refusal::RateLimited { .. } => {
            (429, "requests", json!("rate_limit_exceeded"), "Rate limit reached for requests")
        }
        Refusal::SlowDown => (429, "requests", json!("slow_down"), "Your rate rose too fast"),
        Refusal::SpendLimit => (
            429,
            "insufficient_quota",
            json!("organization_spend_limit_exceeded"),
            "Your organization has reached its spend limit",
        ),
        Refusal::ServerError => (500, "server_error", Value::Null, "The server had an error"),
        Refusal::Overloaded => (503, "server_error", json!("server_is_overloaded"), "The server is overloaded"),
        Refusal::ContextOverflow => (
            400,
            "invalid_request_error",
            json!("context_length_exceeded"),
            "This model's maximum context length is exceeded",
        ),
        Refusal::Unauthorized => (401, "invalid_request_error", json!("invalid_api_key"), "Incorrect API key provided"),
        Refusal::Invalid(why) => (400, "invalid_request_error", Value::Null, why.as_str()),
    };
    let error = json!({ "message": message, "type": kind, "param": null, "code": code });
    (status, json!({ "error": error }))
}

/// The frame of an error that comes after the stream has begun.
pub(super) fn error_frame() -> String {
    format!("data: {}\n\n", refusal(&Refusal::Overloaded).1)
}
