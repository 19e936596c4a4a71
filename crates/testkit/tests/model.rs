//! The scripted model speaks both formats, to the field, and fails in every way that it is told to.

mod http;

use std::time::{Duration, Instant};

use http::{Response, post};
use instar_testkit::Model;
use instar_testkit::model::{Break, Dialect, Finish, Refusal, Reply, Script};
use instar_testkit::wait;
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(10);

async fn ask(model: &Model, dialect: Dialect, body: &Value) -> Response {
    ask_for(model, dialect, body, PATIENCE).await.unwrap()
}

async fn ask_for(model: &Model, dialect: Dialect, body: &Value, patience: Duration) -> anyhow::Result<Response> {
    let path = match dialect {
        Dialect::Chat => "/v1/chat/completions",
        Dialect::Messages => "/v1/messages",
    };
    let headers = [("anthropic-version", "2023-06-01"), ("x-api-key", "k")];
    post(&format!("{}{path}", model.url()), &headers, &body.to_string(), patience).await
}

fn question(dialect: Dialect, streaming: bool) -> Value {
    let mut body = json!({ "model": "m", "messages": [{ "role": "user", "content": "hello there" }] });
    if streaming {
        body["stream"] = json!(true);
    }
    match dialect {
        Dialect::Chat if streaming => body["stream_options"] = json!({ "include_usage": true }),
        Dialect::Chat => {}
        Dialect::Messages => body["max_tokens"] = json!(100),
    }
    body
}

/// The JSON of each frame; the frame `[DONE]` as a string.
fn frames(response: &Response) -> Vec<Value> {
    let data = response.body.split("\n\n").filter_map(|frame| frame.split_once("data: "));
    data.map(|(_, data)| serde_json::from_str(data).unwrap_or_else(|_| json!(data))).collect()
}

fn events(response: &Response) -> Vec<&str> {
    response.body.lines().filter_map(|line| line.strip_prefix("event: ")).collect()
}

#[tokio::test]
async fn a_chat_stream_is_role_text_finish_usage_done() {
    let model = Model::start(Script::replies([Reply::chunks(["Hel", "lo"]).usage(12, 3).cached(4)])).await.unwrap();
    let response = ask(&model, Dialect::Chat, &question(Dialect::Chat, true)).await;
    assert_eq!(response.status, 200);
    assert!(response.complete && response.head.contains("content-type: text/event-stream"));
    let frames = frames(&response);
    assert_eq!(frames.len(), 6);
    assert_eq!(frames[0]["object"], "chat.completion.chunk");
    assert_eq!(frames[0]["choices"][0]["delta"]["role"], "assistant");
    assert_eq!(frames[1]["choices"][0]["delta"], json!({ "content": "Hel" }));
    assert_eq!(frames[2]["choices"][0]["delta"], json!({ "content": "lo" }));
    assert_eq!(frames[3]["choices"][0]["finish_reason"], "stop");
    assert!(frames[..4].iter().all(|frame| frame["usage"].is_null() && frame["id"] == frames[0]["id"]));
    assert_eq!(frames[4]["choices"], json!([]));
    assert_eq!(frames[4]["usage"]["total_tokens"], 15);
    assert_eq!(frames[4]["usage"]["prompt_tokens_details"]["cached_tokens"], 4);
    assert_eq!(frames[5], json!("[DONE]"));
}

#[tokio::test]
async fn a_chat_stream_has_no_usage_unless_asked_for() {
    let model = Model::start(Script::replies([Reply::text("hi")])).await.unwrap();
    let mut body = question(Dialect::Chat, true);
    body["stream_options"] = Value::Null;
    let response = ask(&model, Dialect::Chat, &body).await;
    assert!(!response.body.contains("usage"), "{}", response.body);
}

#[tokio::test]
async fn chat_tool_calls_come_in_slots_and_fragments() {
    let reply = Reply::call("add", json!({ "a": 1, "b": 2 })).and(Reply::call("echo", json!({ "text": "x" })));
    let model = Model::start(Script::replies([reply])).await.unwrap();
    let response = ask(&model, Dialect::Chat, &question(Dialect::Chat, true)).await;
    let mut slots: Vec<(String, String, String)> = Vec::new();
    for frame in frames(&response) {
        let Some(call) = frame["choices"][0]["delta"]["tool_calls"].get(0).cloned() else {
            continue;
        };
        let index = call["index"].as_u64().unwrap() as usize;
        if slots.len() == index {
            let name = call["function"]["name"].as_str().unwrap();
            slots.push((call["id"].as_str().unwrap().to_owned(), name.to_owned(), String::new()));
        } else {
            assert!(call.get("id").is_none(), "only the first delta of a slot has an id");
        }
        slots[index].2.push_str(call["function"]["arguments"].as_str().unwrap());
    }
    assert_eq!(slots.len(), 2);
    assert_ne!(slots[0].0, slots[1].0);
    assert_eq!((slots[0].1.as_str(), slots[0].2.as_str()), ("add", r#"{"a":1,"b":2}"#));
    assert_eq!((slots[1].1.as_str(), slots[1].2.as_str()), ("echo", r#"{"text":"x"}"#));
    assert!(response.body.contains(r#""finish_reason":"tool_calls""#));
}

#[tokio::test]
async fn a_messages_stream_has_the_events_in_their_order() {
    let reply = Reply::text("Well now").and(Reply::call("echo", json!({ "text": "x" }))).usage(12, 7).cached(4);
    let model = Model::start(Script::replies([reply])).await.unwrap();
    let response = ask(&model, Dialect::Messages, &question(Dialect::Messages, true)).await;
    assert!(response.complete && response.head.contains("\r\nrequest-id: req_"));
    let expected = [
        "message_start",
        "content_block_start",
        "ping",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ];
    assert_eq!(events(&response), expected);
    let frames = frames(&response);
    assert!(frames.iter().zip(expected).all(|(frame, event)| frame["type"] == event));
    assert_eq!(frames[0]["message"]["usage"]["input_tokens"], 8);
    assert_eq!(frames[0]["message"]["usage"]["cache_read_input_tokens"], 4);
    assert!(frames[0]["message"]["stop_reason"].is_null());
    assert_eq!(frames[6]["content_block"]["name"], "echo");
    assert_eq!(frames[6]["content_block"]["input"], json!({}));
    let joined: String = frames[7..10].iter().map(|f| f["delta"]["partial_json"].as_str().unwrap()).collect();
    assert_eq!(joined, r#"{"text":"x"}"#);
    assert_eq!(frames[11]["delta"]["stop_reason"], "tool_use");
    assert_eq!(frames[11]["usage"]["output_tokens"], 7);
}

#[tokio::test]
async fn a_messages_call_cut_off_by_the_token_limit_is_not_closed() {
    let reply = Reply::call_raw("echo", r#"{"text":"unfin"#).finish(Finish::Length);
    let model = Model::start(Script::replies([reply])).await.unwrap();
    let response = ask(&model, Dialect::Messages, &question(Dialect::Messages, true)).await;
    assert!(!events(&response).contains(&"content_block_stop"));
    assert!(response.body.contains(r#""stop_reason":"max_tokens""#));
}

#[tokio::test]
async fn whole_answers_carry_text_calls_and_usage() {
    let reply = || Reply::text("Well now").and(Reply::call("echo", json!({ "text": "x" }))).usage(12, 7);
    let model = Model::start(Script::replies([reply(), reply()])).await.unwrap();

    let chat = ask(&model, Dialect::Chat, &question(Dialect::Chat, false)).await.json();
    assert_eq!(chat["object"], "chat.completion");
    let message = &chat["choices"][0]["message"];
    assert_eq!(message["content"], "Well now");
    assert_eq!(message["tool_calls"][0]["function"]["arguments"], r#"{"text":"x"}"#);
    assert_eq!(chat["usage"]["completion_tokens"], 7);

    let whole = ask(&model, Dialect::Messages, &question(Dialect::Messages, false)).await.json();
    assert_eq!(whole["content"][0], json!({ "type": "text", "text": "Well now" }));
    assert_eq!(whole["content"][1]["input"], json!({ "text": "x" }));
    assert_eq!(whole["stop_reason"], "tool_use");
}

#[tokio::test]
async fn the_default_script_calls_echo_and_then_answers_with_its_result() {
    let model = Model::start(Script::default()).await.unwrap();
    for dialect in [Dialect::Chat, Dialect::Messages] {
        let mut body = question(dialect, false);
        let first = ask(&model, dialect, &body).await.json();
        let (assistant, result) = match dialect {
            Dialect::Chat => {
                let message = first["choices"][0]["message"].clone();
                assert_eq!(message["tool_calls"][0]["function"]["arguments"], r#"{"text":"hello there"}"#);
                let id = message["tool_calls"][0]["id"].clone();
                (message, json!({ "role": "tool", "tool_call_id": id, "content": "it worked" }))
            }
            Dialect::Messages => {
                let id = first["content"][0]["id"].clone();
                let block = json!({ "type": "tool_result", "tool_use_id": id, "content": "it worked" });
                let message = json!({ "role": "assistant", "content": first["content"] });
                (message, json!({ "role": "user", "content": [block] }))
            }
        };
        body["messages"].as_array_mut().unwrap().extend([assistant, result]);
        let second = ask(&model, dialect, &body).await;
        assert_eq!(second.status, 200);
        assert!(second.body.contains("The tool said: it worked"), "{}", second.body);
    }
    let requests = model.requests();
    assert_eq!(requests.iter().map(|request| request.number).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(requests[2].header("x-api-key"), Some("k"));
    assert_eq!(requests[1].tool_results()[0].content, "it worked");
    assert_eq!((model.counts().requests, model.counts().answered), (4, 4));
}

#[tokio::test]
async fn what_a_provider_would_refuse_is_refused_and_never_reaches_the_script() {
    let model = Model::start(Script::replies([])).await.unwrap();
    let dangling = json!([{ "role": "user", "content": "a" }, { "role": "assistant", "content": null,
        "tool_calls": [{ "id": "c1", "type": "function", "function": { "name": "f", "arguments": "{}" } }] },
        { "role": "user", "content": "b" }]);
    let orphan = json!([{ "role": "user", "content": "a" },
        { "role": "tool", "tool_call_id": "c1", "content": "x" }]);
    for messages in [dangling, orphan, json!([])] {
        let mut body = question(Dialect::Chat, false);
        body["messages"] = messages;
        let response = ask(&model, Dialect::Chat, &body).await;
        assert_eq!((response.status, &response.json()["error"]["type"]), (400, &json!("invalid_request_error")));
    }
    let mut body = question(Dialect::Messages, false);
    body["max_tokens"] = Value::Null;
    assert_eq!(ask(&model, Dialect::Messages, &body).await.status, 400);
    assert_eq!((model.counts().invalid, model.counts().refused), (4, 0));
}

#[tokio::test]
async fn refusals_have_the_status_and_words_of_their_provider() {
    let limited = |secs| Refusal::RateLimited { retry_after: secs };
    let rows = [
        (limited(Some(Duration::from_secs(7))), 429, "rate_limit_exceeded", 429, "rate_limit_error"),
        (limited(None), 429, "rate_limit_exceeded", 429, "rate_limit_error"),
        (Refusal::SlowDown, 429, "slow_down", 429, "rate_limit_error"),
        (Refusal::SpendLimit, 429, "organization_spend_limit_exceeded", 429, "enforced_spend_limit_reached"),
        (Refusal::ServerError, 500, "server_error", 500, "api_error"),
        (Refusal::Overloaded, 503, "server_is_overloaded", 529, "overloaded_error"),
        (Refusal::ContextOverflow, 400, "context_length_exceeded", 400, "prompt is too long"),
        (Refusal::Unauthorized, 401, "invalid_api_key", 401, "authentication_error"),
    ];
    for (refusal, chat_status, chat_word, messages_status, messages_word) in rows {
        let told = refusal.clone();
        let model = Model::start(Script::function(move |_| Reply::refused(told.clone()))).await.unwrap();
        for (dialect, status, word) in
            [(Dialect::Chat, chat_status, chat_word), (Dialect::Messages, messages_status, messages_word)]
        {
            let response = ask(&model, dialect, &question(dialect, true)).await;
            assert_eq!(response.status, status, "{refusal:?}");
            assert!(response.json()["error"].to_string().contains(word), "{}", response.body);
            let told_to_wait = refusal == limited(Some(Duration::from_secs(7)));
            assert_eq!(response.head.contains("\r\nretry-after: 7"), told_to_wait, "{}", response.head);
        }
    }
}

#[tokio::test]
async fn a_stream_can_break_in_each_way() {
    for dialect in [Dialect::Chat, Dialect::Messages] {
        let terminal = if dialect == Dialect::Chat { "[DONE]" } else { "message_stop" };
        let broken = |how| Reply::chunks(["a", "b", "c"]).broken_after(2, how);
        let script = [Break::Cut, Break::Error, Break::Malformed, Break::Hang].map(broken);
        let model = Model::start(Script::replies(script)).await.unwrap();
        let body = question(dialect, true);

        let cut = ask(&model, dialect, &body).await;
        assert_eq!((cut.complete, frames(&cut).len()), (false, 2), "{}", cut.body);

        let error = ask(&model, dialect, &body).await;
        assert!(error.complete && !error.body.contains(terminal));
        assert!(frames(&error).last().unwrap()["error"]["message"].is_string(), "{}", error.body);

        let malformed = ask(&model, dialect, &body).await;
        assert!(malformed.complete && malformed.body.contains(terminal));
        let unread = frames(&malformed).iter().filter(|frame| frame.is_string() && **frame != "[DONE]").count();
        assert_eq!(unread, 1);

        let hung = ask_for(&model, dialect, &body, Duration::from_millis(500)).await.unwrap();
        assert_eq!((hung.complete, frames(&hung).len()), (false, 2), "{}", hung.body);
    }
}

#[tokio::test]
async fn an_answer_can_be_empty_cut_or_never_come() {
    let replies = [Reply::empty(), Reply::cut(), Reply::hang()];
    let model = Model::start(Script::replies(replies)).await.unwrap();
    let body = question(Dialect::Messages, true);
    let empty = ask(&model, Dialect::Messages, &body).await;
    assert_eq!(events(&empty), ["message_start", "message_delta", "message_stop"]);
    ask_for(&model, Dialect::Messages, &body, PATIENCE).await.unwrap_err();
    ask_for(&model, Dialect::Messages, &body, Duration::from_millis(500)).await.unwrap_err();
    let after = ask(&model, Dialect::Messages, &body).await;
    assert!(after.status == 400 && after.body.contains("no further replies"));
}

#[tokio::test]
async fn a_slow_reply_waits_before_the_first_byte_and_between_events() {
    let slow = Reply::chunks(["a"]).slow(Duration::from_millis(100), Duration::from_millis(50));
    let model = Model::start(Script::replies([slow, Reply::chunks(["a"])])).await.unwrap();
    let mut times = Vec::new();
    for _ in 0..2 {
        let started = Instant::now();
        let response = ask(&model, Dialect::Chat, &question(Dialect::Chat, true)).await;
        assert_eq!(frames(&response).len(), 5);
        times.push(started.elapsed());
    }
    assert!(times[0] >= Duration::from_millis(300), "{times:?}");
    assert!(times[1] < times[0], "{times:?}");
}

#[tokio::test]
async fn a_cut_answer_that_is_not_streamed_ends_in_its_middle() {
    let reply = Reply::text("hello").broken_after(0, Break::Cut);
    let model = Model::start(Script::replies([reply])).await.unwrap();
    let response = ask(&model, Dialect::Chat, &question(Dialect::Chat, false)).await;
    assert!(!response.complete && response.body.starts_with('{') && !response.body.ends_with('}'));
}

#[tokio::test]
async fn a_client_that_does_not_wait_for_the_end_is_noticed() {
    let slow =
        |words: usize| Reply::chunks((0..words).map(|_| "word ")).slow(Duration::ZERO, Duration::from_millis(20));
    let model =
        Model::start(Script::replies([slow(2), slow(1_000), Reply::hang(), Reply::server_error()])).await.unwrap();
    let body = question(Dialect::Chat, true);
    ask(&model, Dialect::Chat, &body).await;
    for _ in 0..2 {
        let asked = ask_for(&model, Dialect::Chat, &body, PATIENCE);
        assert!(tokio::time::timeout(Duration::from_millis(300), asked).await.is_err());
    }
    assert_eq!(ask(&model, Dialect::Chat, &body).await.status, 500);
    wait::until(PATIENCE, || async { model.counts().given_up == 2 }).await;
    assert_eq!(model.given_up().iter().map(|one| one.request).collect::<Vec<_>>(), [2, 3]);
}
