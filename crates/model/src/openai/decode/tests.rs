//! Each body here is one that some server sends.

use serde_json::json;

use super::*;
use crate::call::Flaw;
use crate::error::Class;
use crate::message::ToolSpec;
use crate::reader::tests::{cutting_changes_nothing, read};
use crate::response::Response;

fn decoder() -> Decoder {
    let tool = |name: &str| ToolSpec { name: name.to_owned(), description: String::new(), parameters: json!({}) };
    let mut decoder = Decoder::new(Names::new(&[tool("clock.now"), tool("echo")]).unwrap(), None);
    decoder.id_prefix = "made".to_owned();
    decoder
}

fn body(frames: &[Value]) -> String {
    let frames: String = frames.iter().map(|frame| format!("data: {frame}\n\n")).collect();
    frames + "data: [DONE]\n\n"
}

fn delta(delta: Value) -> Value {
    json!({ "id": "r1", "model": "gpt", "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] })
}

fn finish(reason: &str) -> Value {
    json!({ "id": "r1", "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] })
}

fn answer(frames: &[Value]) -> Response {
    read(decoder(), [body(frames).as_bytes()]).unwrap().1
}

fn calls(response: &Response) -> Vec<(&str, &str, Option<&str>)> {
    response.tool_calls.iter().map(|call| (call.id.as_str(), call.name.as_str(), call.arguments.json())).collect()
}

#[test]
fn everything_in_one_answer_and_however_it_is_cut() {
    let frames = [
        delta(json!({ "role": "assistant", "content": "", "refusal": null })),
        delta(json!({ "reasoning_content": "hmm…" })),
        delta(json!({ "content": "Hé \u{1f600}" })),
        delta(json!({ "content": null, "tool_calls": [
            { "index": 0, "id": "a", "type": "function", "function": { "name": "clock__now", "arguments": "" } },
            { "index": 1, "id": "b", "type": "function", "function": { "name": "echo", "arguments": "{\"t\"" } },
        ] })),
        delta(json!({ "tool_calls": [{ "index": 1, "function": { "arguments": ":1}" } }] })),
        finish("tool_calls"),
        json!({ "id": "r1", "choices": [], "usage": {
            "prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": { "cached_tokens": 3 },
            "completion_tokens_details": { "reasoning_tokens": 2 },
        }, "service_tier": "brand-new", "extend_fields": {} }),
    ];
    let response = answer(&frames);
    assert_eq!((response.id.as_str(), response.model.as_str()), ("r1", "gpt"));
    assert_eq!((response.text.as_str(), response.reasoning.as_str()), ("Hé \u{1f600}", "hmm…"));
    assert_eq!(calls(&response), [("a", "clock.now", Some("{}")), ("b", "echo", Some("{\"t\":1}"))]);
    assert_eq!(response.finish, Finish::ToolCalls);
    let usage = response.usage.unwrap();
    assert_eq!((usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens), (9, 3, 4));
    assert_eq!(usage.reasoning_output_tokens, 2);
    cutting_changes_nothing(&body(&frames), decoder, "\"finish_reason\":\"tool_calls\",\"index\":0}],\"id\":\"r1\"}\n");
}

#[test]
fn a_whole_message_in_one_delta_is_not_lost() {
    let response = answer(&[json!({ "id": "r", "choices": [{ "delta": {
        "reasoning": "r", "content": "c", "tool_calls": [
            { "index": 0, "id": "a", "function": { "name": "echo", "arguments": "{}" } },
            { "index": 1, "id": "b", "function": { "name": "echo", "arguments": { "as": "object" } } },
        ] }, "finish_reason": "stop" }] })]);
    assert_eq!((response.text.as_str(), response.reasoning.as_str()), ("c", "r"));
    assert_eq!(calls(&response), [("a", "echo", Some("{}")), ("b", "echo", Some("{\"as\":\"object\"}"))]);
    assert_eq!(response.finish, Finish::ToolCalls, "a call means that it stopped for a call");
}

#[test]
fn a_repeated_empty_name_does_not_overwrite() {
    let response = answer(&[
        delta(json!({ "tool_calls": [{ "index": 0, "id": "a", "function": { "name": "echo", "arguments": "{" } }] })),
        delta(json!({ "tool_calls": [{ "index": 0, "id": "", "function": { "name": "", "arguments": "}" } }] })),
        finish(""),
        finish("tool_calls"),
    ]);
    assert_eq!(calls(&response), [("a", "echo", Some("{}"))]);
}

#[test]
fn calls_without_numbers_or_all_with_the_same_are_told_apart() {
    let call = |id: &str| json!({ "id": id, "function": { "name": "echo", "arguments": "{" } });
    let rest = json!({ "function": { "arguments": "}" } });
    let unnumbered = [call("a"), rest.clone(), call("b"), rest];
    let response = answer(&unnumbered.map(|call| delta(json!({ "tool_calls": [call] }))));
    assert_eq!(calls(&response), [("a", "echo", Some("{}")), ("b", "echo", Some("{}"))]);

    let same = ["a", "b"].map(|id| {
        delta(json!({ "tool_calls": [{ "index": 0, "id": id, "function": { "name": "echo", "arguments": "{}" } }] }))
    });
    assert_eq!(calls(&answer(&same)), [("a", "echo", Some("{}")), ("b", "echo", Some("{}"))]);
}

#[test]
fn ids_that_are_missing_or_alike_are_made_up() {
    let call = |index, id: Value| json!({ "index": index, "id": id, "function": { "name": "echo" } });
    let response =
        answer(&[delta(json!({ "tool_calls": [call(0, json!("x")), call(1, json!("x")), call(2, json!(null))] }))]);
    assert_eq!(
        calls(&response),
        [("x", "echo", Some("{}")), ("made_1", "echo", Some("{}")), ("made_2", "echo", Some("{}"))]
    );
}

#[test]
fn arguments_before_the_name_are_kept() {
    let frames = [
        delta(json!({ "tool_calls": [{ "index": 0, "function": { "arguments": "{\"a\"" } }] })),
        delta(json!({ "tool_calls": [{ "index": 0, "id": "x", "function": { "name": "echo", "arguments": ":1}" } }] })),
        finish("tool_calls"),
    ];
    let (events, response) = read(decoder(), [body(&frames).as_bytes()]).unwrap();
    assert_eq!(calls(&response), [("x", "echo", Some("{\"a\":1}"))]);
    assert!(events.contains(&Event::ToolCallDelta { index: 0, fragment: "{\"a\":1}".to_owned() }));
}

#[test]
fn odd_usage_and_choices_are_no_reason_to_fail() {
    let response = answer(&[
        json!({ "id": "r", "choices": null, "usage": {} }),
        json!({ "choices": [{ "index": 1, "delta": { "content": "another choice" } }], "usage": "none" }),
        json!({ "choices": [{ "delta": { "content": [{ "type": "text", "text": "hi" }, { "type": "image" }] } }] }),
        finish("eos_token"),
    ]);
    assert_eq!((response.text.as_str(), response.usage, response.finish), ("hi", None, Finish::Stop));
}

#[test]
fn reasons_to_finish_are_translated() {
    for (wire, expected) in [
        ("stop", Finish::Stop),
        ("length", Finish::Length),
        ("content_filter", Finish::Refusal),
        ("new_reason", Finish::Other("new_reason".to_owned())),
    ] {
        assert_eq!(answer(&[delta(json!({ "content": "x" })), finish(wire)]).finish, expected);
    }
    let refused = answer(&[delta(json!({ "refusal": "I won't" })), finish("stop")]);
    assert_eq!((refused.text.as_str(), refused.finish), ("I won't", Finish::Refusal));
}

#[test]
fn a_call_at_the_token_limit_is_marked_as_cut_off() {
    let start = |arguments| json!({ "tool_calls": [{ "index": 0, "id": "a", "function": { "name": "echo", "arguments": arguments } }] });
    for text in ["", "{\"a\":"] {
        let response = answer(&[delta(start(text)), finish("length")]);
        let expected = Arguments::Invalid { text: text.to_owned(), reason: Flaw::Truncated };
        assert_eq!(response.tool_calls[0].arguments, expected);
    }
}

#[test]
fn errors_inside_the_stream_and_streams_without_answer_are_errors() {
    let error = |frames: &str| read(decoder(), [frames.as_bytes()]).unwrap_err();
    let overloaded =
        error("data: {\"error\":{\"code\":\"server_is_overloaded\",\"message\":\"m\"}}\n\ndata: [DONE]\n\n");
    assert_eq!((overloaded.class, overloaded.message.as_str()), (Class::Overloaded, "m"));
    let bare = error("data: {\"object\":\"error\",\"message\":\"m\",\"type\":\"BadRequestError\",\"code\":400}\n\n");
    assert_eq!(bare.class, Class::Permanent);
    assert_eq!(error("data: {\"id\":\n\n").code.as_deref(), Some("malformed_event"));
    assert_eq!(error("data: [DONE]\n\n").code.as_deref(), Some("empty_stream"));
    assert_eq!(error("").message, "ended early");
    // The other way round: nothing is wrong with "error": null.
    assert_eq!(answer(&[json!({ "error": null, "choices": [{ "delta": { "content": "x" } }] })]).text, "x");
}
