//! Replies in the wire format of Anthropic Messages.
//!
//! It must not know how bytes are sent: it makes frames and bodies.

use serde_json::{Value, json};

use super::reply::{Finish, Part, Refusal, Reply};
use super::{Request, encode};

fn frame(event: &Value) -> String {
    format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default())
}

/// The frames of a streamed answer, in order.
pub(super) fn frames(reply: &Reply, request: &Request) -> Vec<String> {
    let mut message = envelope(request);
    message["usage"] = usage(reply, 1);
    let mut frames = vec![frame(&json!({ "type": "message_start", "message": message }))];
    for (index, part) in reply.parts.iter().enumerate() {
        let block = match part {
            Part::Text(_) => json!({ "type": "text", "text": "" }),
            Part::Call { id, name, .. } => {
                let id = encode::call_id(id, "toolu_");
                json!({ "type": "tool_use", "id": id, "name": name, "input": {} })
            }
        };
        let start = json!({ "type": "content_block_start", "index": index, "content_block": block });
        frames.push(frame(&start));
        if index == 0 {
            frames.push(frame(&json!({ "type": "ping" })));
        }
        let deltas: Vec<Value> = match part {
            Part::Text(fragments) => {
                let delta = |text| json!({ "type": "text_delta", "text": text });
                fragments.iter().map(delta).collect()
            }
            Part::Call { arguments, .. } => {
                let delta = |json| json!({ "type": "input_json_delta", "partial_json": json });
                arguments.iter().map(delta).collect()
            }
        };
        frames.extend(
            deltas.iter().map(|delta| frame(&json!({ "type": "content_block_delta", "index": index, "delta": delta }))),
        );
        // A call that ran into the token limit is never closed.
        let last = index + 1 == reply.parts.len();
        let truncated = last && reply.finish_reason() == Finish::Length;
        if !(truncated && matches!(part, Part::Call { .. })) {
            frames.push(frame(&json!({ "type": "content_block_stop", "index": index })));
        }
    }
    let delta = json!({ "stop_reason": finish(reply), "stop_sequence": null });
    let ending = json!({
        "type": "message_delta", "delta": delta, "usage": usage(reply, reply.usage.output),
    });
    frames.push(frame(&ending));
    frames.push(frame(&json!({ "type": "message_stop" })));
    frames
}

/// The body of an answer that is not streamed.
pub(super) fn whole(reply: &Reply, request: &Request) -> Value {
    let mut message = envelope(request);
    let blocks = reply.parts.iter().map(|part| match part {
        Part::Text(fragments) => json!({ "type": "text", "text": fragments.concat() }),
        Part::Call { id, name, arguments } => {
            // This format carries the arguments as an object, so text that is none cannot be said
            // in it.
            let input: Value = serde_json::from_str(&arguments.concat()).unwrap_or(json!({}));
            let id = encode::call_id(id, "toolu_");
            json!({ "type": "tool_use", "id": id, "name": name, "input": input })
        }
    });
    message["content"] = blocks.collect();
    message["stop_reason"] = json!(finish(reply));
    message["usage"] = usage(reply, reply.usage.output);
    message
}

fn envelope(request: &Request) -> Value {
    json!({
        "id": format!("msg_{}", encode::token()), "type": "message", "role": "assistant",
        "model": request.model(), "content": [], "stop_reason": null, "stop_sequence": null,
    })
}

fn finish(reply: &Reply) -> &'static str {
    match reply.finish_reason() {
        Finish::Stop => "end_turn",
        Finish::ToolCalls => "tool_use",
        Finish::Length => "max_tokens",
        Finish::Pause => "pause_turn",
        Finish::ContextWindow => "model_context_window_exceeded",
        Finish::Refusal => "refusal",
    }
}

/// Counts are snapshots, not increments, and `input_tokens` leaves out what came from the cache.
fn usage(reply: &Reply, output: u64) -> Value {
    let usage = reply.usage;
    json!({
        "input_tokens": usage.input.saturating_sub(usage.cached), "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached, "output_tokens": output, "service_tier": "standard",
    })
}

/// Status and body of an error that comes instead of an answer.
pub(super) fn refusal(refusal: &Refusal) -> (u16, Value) {
    let (status, kind, message) = match refusal {
        Refusal::RateLimited { .. } => (429, "rate_limit_error", "This request would exceed your rate limit"),
        Refusal::SlowDown => (429, "rate_limit_error", "Your usage rose faster than the acceleration limit"),
        Refusal::SpendLimit => (429, "rate_limit_error", "You have reached your spend limit"),
        Refusal::ServerError => (500, "api_error", "Internal server error"),
        Refusal::Overloaded => (529, "overloaded_error", "Overloaded"),
        Refusal::ContextOverflow => {
            (400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum")
        }
        Refusal::Unauthorized => (401, "authentication_error", "invalid x-api-key"),
        Refusal::Invalid(why) => (400, "invalid_request_error", why.as_str()),
    };
    let mut error = json!({ "type": kind, "message": message });
    if *refusal == Refusal::SpendLimit {
        error["details"] = json!({ "error_code": "enforced_spend_limit_reached" });
    }
    let id = format!("req_{}", encode::token());
    (status, json!({ "type": "error", "error": error, "request_id": id }))
}

/// The frame of an error that comes after the stream has begun.
pub(super) fn error_frame() -> String {
    frame(&refusal(&Refusal::Overloaded).1)
}
