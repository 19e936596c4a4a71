//! Each body here is one that the provider, or somebody who imitates it, sends.

use serde_json::json;

use super::*;
use crate::call::Flaw;
use crate::error::Class;
use crate::reader::tests::{cutting_changes_nothing, read};
use crate::response::Response;

fn body(events: &[Value]) -> String {
    events.iter().map(|event| format!("event: {}\r\ndata: {event}\r\n\r\n", event["type"].as_str().unwrap())).collect()
}

fn start(index: u64, block: Value) -> Value {
    json!({ "type": "content_block_start", "index": index, "content_block": block })
}

fn delta(index: u64, delta: Value) -> Value {
    json!({ "type": "content_block_delta", "index": index, "delta": delta })
}

fn stop(index: u64) -> Value {
    json!({ "type": "content_block_stop", "index": index })
}

fn message(blocks: &[Value], reason: &str) -> Vec<Value> {
    let usage = json!({ "input_tokens": 5, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 2, "output_tokens": 1 });
    let mut events =
        vec![json!({ "type": "message_start", "message": { "id": "m1", "model": "claude", "usage": usage } })];
    events.extend_from_slice(blocks);
    events
        .push(json!({ "type": "message_delta", "delta": { "stop_reason": reason }, "usage": { "output_tokens": 7 } }));
    events.push(json!({ "type": "message_stop" }));
    events
}

fn answer(events: &[Value]) -> Response {
    read(Decoder::default(), [body(events).as_bytes()]).unwrap().1
}

#[test]
fn everything_in_one_answer_and_however_it_is_cut() {
    let events = message(
        &[
            start(0, json!({ "type": "thinking", "thinking": "", "signature": "" })),
            json!({ "type": "ping" }),
            delta(0, json!({ "type": "thinking_delta", "thinking": "let me " })),
            delta(0, json!({ "type": "thinking_delta", "thinking": "see…" })),
            delta(0, json!({ "type": "signature_delta", "signature": "c2ln" })),
            stop(0),
            start(1, json!({ "type": "text", "text": "" })),
            delta(1, json!({ "type": "text_delta", "text": "Hé " })),
            delta(1, json!({ "type": "citations_delta", "citation": {} })),
            delta(1, json!({ "type": "text_delta", "text": "\u{1f600}" })),
            stop(1),
            start(2, json!({ "type": "tool_use", "id": "t1", "name": "echo", "input": {} })),
            delta(2, json!({ "type": "input_json_delta", "partial_json": "{\"a\"" })),
            delta(2, json!({ "type": "input_json_delta", "partial_json": ":1}" })),
            stop(2),
            start(3, json!({ "type": "redacted_thinking", "data": "b3BhcXVl" })),
            stop(3),
            json!({ "type": "invented_later", "index": 3 }),
            start(4, json!({ "type": "tool_use", "id": "t2", "name": "echo", "input": {} })),
            stop(4),
        ],
        "tool_use",
    );
    let response = answer(&events);
    assert_eq!((response.id.as_str(), response.model.as_str()), ("m1", "claude"));
    assert_eq!((response.text.as_str(), response.reasoning.as_str()), ("Hé \u{1f600}", "let me see…"));
    let arguments: Vec<_> = response.tool_calls.iter().map(|call| call.arguments.json()).collect();
    assert_eq!(arguments, [Some("{\"a\":1}"), Some("{}")]);
    assert_eq!(response.finish, Finish::ToolCalls);
    let usage = response.usage.unwrap();
    assert_eq!((usage.input_tokens, usage.output_tokens), (10, 7), "snapshots, never sums");
    assert_eq!((usage.cache_read_input_tokens, usage.cache_creation_input_tokens), (3, 2));
    let [signed, redacted] = response.provider_blocks.as_slice() else { panic!("{:?}", response.provider_blocks) };
    let fields: Value = serde_json::from_str(&signed.json).unwrap();
    assert_eq!(fields, json!({ "type": "thinking", "thinking": "let me see…", "signature": "c2ln" }));
    assert_eq!((signed.text_before, signed.calls_before), (0, 0));
    assert_eq!((redacted.text_before, redacted.calls_before), (response.text.len(), 1));
    cutting_changes_nothing(&body(&events), Decoder::default, "{\"type\":\"message_stop\"}\r");
}

#[test]
fn a_block_that_no_delta_changed_is_kept_byte_for_byte() {
    let raw = r#"{"type":"redacted_thinking",  "data":"x", "n":1.50, "b":1, "a":2}"#;
    let frame = format!("data: {{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{raw}}}\n\n");
    let body = format!("{frame}{}{}", body(&[stop(0)]), body(&message(&[], "end_turn")));
    let response = read(Decoder::default(), [body.as_bytes()]).unwrap().1;
    assert_eq!(response.provider_blocks[0].json, raw);
}

#[test]
fn a_call_cut_off_by_the_token_limit_is_closed_and_marked() {
    for text in ["", "{\"text\":\"unfin"] {
        let blocks = [
            start(0, json!({ "type": "tool_use", "id": "t", "name": "echo", "input": {} })),
            delta(0, json!({ "type": "input_json_delta", "partial_json": text })),
        ];
        let response = answer(&message(&blocks, "max_tokens"));
        let expected = Arguments::Invalid { text: text.to_owned(), reason: Flaw::Truncated };
        assert_eq!((&response.tool_calls[0].arguments, response.finish), (&expected, Finish::Length));
    }
}

#[test]
fn thinking_cut_off_by_the_token_limit_is_shown_but_not_sent_back() {
    let blocks = [
        start(0, json!({ "type": "thinking", "thinking": "" })),
        delta(0, json!({ "type": "thinking_delta", "thinking": "half a tho" })),
    ];
    let response = answer(&message(&blocks, "max_tokens"));
    assert_eq!((response.reasoning.as_str(), response.provider_blocks), ("half a tho", vec![]));
}

#[test]
fn input_that_comes_whole_and_input_that_is_no_json_are_both_read() {
    let blocks = [
        start(0, json!({ "type": "tool_use", "id": "a", "name": "echo", "input": { "x": 1 } })),
        stop(0),
        start(1, json!({ "type": "tool_use", "id": "b", "name": "echo", "input": {} })),
        delta(1, json!({ "type": "input_json_delta", "partial_json": "{oops}" })),
        stop(1),
        start(2, json!({ "type": "server_tool_use", "id": "s", "name": "web_search", "input": {} })),
        delta(2, json!({ "type": "input_json_delta", "partial_json": "{\"query\":\"q\"}" })),
        stop(2),
    ];
    let response = answer(&message(&blocks, "pause_turn"));
    assert_eq!(response.tool_calls[0].arguments.json(), Some("{\"x\":1}"));
    assert!(response.tool_calls[1].arguments.problem().is_some());
    let block = &response.provider_blocks[0];
    assert_eq!((block.kind.as_str(), block.is_thinking(), block.calls_before), ("server_tool_use", false, 2));
    assert!(block.json.contains(r#""input":{"query":"q"}"#), "{}", block.json);
    assert_eq!(response.finish, Finish::Pause);
}

#[test]
fn reasons_to_finish_are_translated() {
    for (wire, expected) in [
        ("end_turn", Finish::Stop),
        ("stop_sequence", Finish::Stop),
        ("refusal", Finish::Refusal),
        ("model_context_window_exceeded", Finish::ContextWindow),
        ("new_reason", Finish::Other("new_reason".to_owned())),
    ] {
        assert_eq!(answer(&message(&[], wire)).finish, expected);
    }
}

#[test]
fn an_error_event_and_a_missing_end_are_errors() {
    let error = |events: &[Value]| read(Decoder::default(), [body(events).as_bytes()]).unwrap_err();
    let mut events = message(&[start(0, json!({ "type": "text", "text": "so" }))], "end_turn");
    events.truncate(events.len() - 1);
    assert_eq!(error(&events).message, "ended early");
    events.push(json!({ "type": "error", "error": { "type": "overloaded_error", "message": "Overloaded" } }));
    assert_eq!(error(&events).class, Class::Overloaded);
}
