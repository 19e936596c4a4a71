use std::time::Instant;

use serde_json::json;

use super::*;
use crate::message::{ToolChoice, ToolSpec};
use crate::response::{Response, collect};

fn model(script: &str) -> Scripted {
    let about = About {
        name: "offline".to_owned(),
        provider: "scripted",
        model: "scripted".to_owned(),
        context_window: None,
        max_tokens: None,
        price: None,
        server_address: None,
        server_port: None,
    };
    Scripted::new(about, Script::parse(script).unwrap(), Retry { first: Duration::from_millis(5), ..Retry::default() })
}

fn tool(name: &str, parameters: serde_json::Value) -> ToolSpec {
    ToolSpec { name: name.to_owned(), description: String::new(), parameters }
}

fn request(text: &str, tools: Vec<ToolSpec>) -> Request {
    Request { messages: vec![Message::user(text)], tools, ..Request::default() }
}

async fn ask(model: &Scripted, request: &Request) -> Result<Response, ModelError> {
    collect(model.stream(request.clone()).await?).await
}

#[tokio::test]
async fn without_a_script_it_calls_echo_and_reports_the_result() {
    let model = model("");
    let text = json!({ "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"] });
    let mut request = request("hello there", vec![tool("charge", json!({ "type": "object" })), tool("echo", text)]);
    let first = ask(&model, &request).await.unwrap();
    assert_eq!(first.finish, Finish::ToolCalls);
    assert_eq!(first.tool_calls[0].name, "echo");
    assert_eq!(first.tool_calls[0].arguments.json(), Some(r#"{"text":"hello there"}"#));
    let id = first.tool_calls[0].id.clone();
    request.messages.extend([first.into_message(), Message::result(id, "hello back")]);
    let second = ask(&model, &request).await.unwrap();
    assert_eq!((second.text.as_str(), second.finish), ("The tool said: hello back", Finish::Stop));
    assert!(second.usage.unwrap().input_tokens > 0);
    // A new word of the user starts again.
    request.messages.push(Message::user("again"));
    assert_eq!(ask(&model, &request).await.unwrap().tool_calls.len(), 1);
}

#[tokio::test]
async fn without_a_suitable_tool_it_just_answers() {
    let model = model("");
    assert_eq!(ask(&model, &request("hi", vec![])).await.unwrap().text, "You said: hi");
    let odd = tool("odd", json!({ "required": ["x"], "properties": { "x": { "oneOf": [] } } }));
    assert_eq!(ask(&model, &request("hi", vec![odd])).await.unwrap().text, "You said: hi");
    let mut none = request("hi", vec![tool("echo", json!({}))]);
    none.tool_choice = ToolChoice::None;
    assert_eq!(ask(&model, &none).await.unwrap().text, "You said: hi");
}

#[tokio::test]
async fn arguments_are_guessed_from_the_schema() {
    let schema = json!({
        "properties": {
            "cents": { "type": "integer", "maximum": 500 }, "to": { "type": ["null", "string"], "maxLength": 3 },
            "mode": { "enum": ["fast", "slow"] }, "sure": { "type": "boolean" }, "unneeded": { "type": "string" },
        },
        "required": ["cents", "to", "mode", "sure"],
    });
    let answer = ask(&model(""), &request("pay 700 now", vec![tool("charge", schema)])).await.unwrap();
    let expected = json!({ "cents": 500, "to": "pay", "mode": "fast", "sure": true });
    assert_eq!(answer.tool_calls[0].arguments.value(), Some(expected));
}

const SCRIPT: &str = r#"
    [[scene]]
    when = "Refund"
    [[scene.reply]]
    text = "Let me see. "
    reasoning = "hm"
    calls = [{ name = "charge", arguments = { note = "{user}" } }, { name = "x", arguments_text = "oops" }]
    [[scene.reply]]
    text = "Done: {result}"

    [[scene]]
    [[scene.reply]]
    text = "{user} {result}!"
    delay_ms = 30
    between_ms = 10
"#;

#[tokio::test]
async fn a_scene_plays_its_replies_as_the_conversation_goes_on() {
    let model = model(SCRIPT);
    let mut refund = request("a refund {result}", vec![]);
    for _ in 0..2 {
        let first = ask(&model, &refund).await.unwrap();
        assert_eq!((first.text.as_str(), first.reasoning.as_str()), ("Let me see. ", "hm"));
        assert_eq!(first.tool_calls[0].arguments.json(), Some(r#"{"note":"a refund {result}"}"#));
        assert!(first.tool_calls[1].arguments.problem().is_some());
    }
    let first = ask(&model, &refund).await.unwrap();
    let ids: Vec<String> = first.tool_calls.iter().map(|call| call.id.clone()).collect();
    refund.messages.push(first.into_message());
    refund.messages.extend(ids.iter().map(|id| Message::result(id, "ok")));
    let second = ask(&model, &refund).await.unwrap();
    assert_eq!(second.text, "Done: ok ok");
    refund.messages.push(second.into_message());
    let error = ask(&model, &refund).await.unwrap_err();
    assert_eq!(error.code.as_deref(), Some("script_over"));
}

#[tokio::test]
async fn delays_are_kept() {
    let started = Instant::now();
    let answer = ask(&model(SCRIPT), &request("other", vec![])).await.unwrap();
    assert_eq!(answer.text, "other !");
    assert!(started.elapsed() >= Duration::from_millis(60), "{:?}", started.elapsed());
}

#[tokio::test]
async fn faults_are_retried_or_returned_as_their_class_says() {
    let overloaded = model("[[fault]]\non_call = 1\nkind = \"overloaded\"");
    assert_eq!(ask(&overloaded, &request("hi", vec![])).await.unwrap().text, "You said: hi");
    assert_eq!(overloaded.calls.load(Ordering::Relaxed), 2);

    let quota = model(r#"{"fault": [{"every": 2, "kind": "quota_exhausted"}]}"#);
    ask(&quota, &request("hi", vec![])).await.unwrap();
    let error = ask(&quota, &request("hi", vec![])).await.unwrap_err();
    assert_eq!((error.class, error.retry_in), (Class::QuotaExhausted, None));

    let limited = model("[[fault]]\non_call = 1\nkind = \"rate_limited\"\nretry_after_ms = 60000");
    let error = ask(&limited, &request("hi", vec![])).await.unwrap_err();
    assert_eq!((error.class, error.retry_in.is_some()), (Class::RateLimited, true));
}

#[tokio::test]
async fn a_fault_can_strike_in_the_middle_or_never_end() {
    let cut = model("[[fault]]\non_call = 1\nkind = \"cut\"\nafter_events = 2");
    let mut stream = cut.stream(request("hi", vec![])).await.unwrap();
    assert!(matches!(stream.next().await, Some(Ok(Event::Started { .. }))));
    assert!(matches!(stream.next().await, Some(Ok(Event::TextDelta { .. }))));
    let error = stream.next().await.unwrap().unwrap_err();
    assert!(error.retryable() && error.retry_in.is_some());
    assert!(stream.next().await.is_none());

    let late = model("[[fault]]\non_call = 1\nkind = \"cut\"\nafter_events = 99");
    assert!(ask(&late, &request("hi", vec![])).await.is_err());

    let hang = model("[[fault]]\non_call = 1\nkind = \"hang\"");
    let asked = request("hi", vec![]);
    assert!(tokio::time::timeout(Duration::from_millis(50), ask(&hang, &asked)).await.is_err());
    ask(&hang, &asked).await.unwrap();
}

#[test]
fn a_script_that_makes_no_sense_is_refused_with_a_reason() {
    let rows = [
        ("[[scene]]\nreply = []", "at least one reply"),
        ("[[fault]]\nkind = \"cut\"", "either on_call or every"),
        ("[[fault]]\nkind = \"cut\"\nevery = 0", "above 0"),
        ("scenes = 1", "unknown field"),
        ("{\"scene\": 1}", "invalid type"),
    ];
    for (text, reason) in rows {
        let error = Script::parse(text).unwrap_err();
        assert!(error.contains(reason), "{error}");
    }
}
