//! HTTP tools against the witness: what happened there, and what was said about it here.

use crate::kit::{Server, call, code, moved, ok, run, text, tool};
use instar_core::rune::payload::ResultStatus;
use instar_core::secret::Secret;
use instar_testkit::tool::Idempotency;
use instar_testkit::{Ledger, Tool as Witness};
use instar_tools::{Invocation, Kind, Method, Output, Runner, Secrets, Settings, Sink, Spec};
use serde_json::json;
use std::time::Duration;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

struct Bench {
    witness: Witness,
    runner: Runner,
    _folder: TempDir,
}

async fn bench() -> Bench {
    let folder = TempDir::new().unwrap();
    let ledger = Ledger::open(folder.path().join("ledger")).unwrap();
    let witness = Witness::start(ledger, Idempotency::None).await.unwrap();
    Bench { witness, runner: Runner::new(Settings::default()).unwrap(), _folder: folder }
}

fn http(url: String) -> Spec {
    Spec { url: Some(url), parameters: json!({"type": "object"}), ..Spec::new("effect", Kind::Http) }
}

#[tokio::test]
async fn an_effect_happens_once_under_the_key_of_the_call() {
    let bench = bench().await;
    let one = call(tool(http(bench.witness.effect_url("pay"))), json!({"cents": 5}));
    let one = Invocation { attempt: 3, ..one };
    let outcome = run(&bench.runner, one.clone()).await;
    assert_eq!(outcome.status, ResultStatus::Success, "{outcome:?}");
    assert_eq!(outcome.output, Output::Json(json!({"effect": 1, "name": "pay"})));
    let effects = bench.witness.ledger().effects();
    assert_eq!(effects.len(), 1);
    assert_eq!(effects[0].key.as_deref(), Some(one.call_id.to_string().as_str()));
    assert_eq!(effects[0].attempt.as_deref(), Some("3"));
}

#[tokio::test]
async fn only_what_surely_was_not_sent_is_an_error_for_a_tool_that_must_not_act_twice() {
    use ResultStatus::*;
    let bench = bench().await;
    // query, idempotent, side effects, status, effects that really happened
    let cases = [
        ("?fail=500", false, true, Error, 0),
        ("?fail=400", false, true, Error, 0),
        ("?fail=502", false, true, Unknown, 0),
        ("?fail=504&when=after", false, true, Unknown, 1),
        ("?fail=502", true, true, Error, 0),
        ("?drop", false, true, Unknown, 1),
        ("?drop&when=before", false, true, Unknown, 0),
        ("?drop", true, true, Error, 1),
        ("?drop", false, false, Error, 1),
        ("?hang", false, true, Timeout, 0),
        ("?hang&when=after", false, true, Timeout, 1),
    ];
    for (place, (query, idempotent, side_effects, expected, effects)) in cases.into_iter().enumerate() {
        let name = format!("case{place}");
        let url = format!("{}{query}", bench.witness.effect_url(&name));
        let timeout_ms = if expected == Timeout { 300 } else { 20_000 };
        let spec = Spec { idempotent, side_effects, timeout_ms, ..http(url) };
        let outcome = run(&bench.runner, call(tool(spec), json!({}))).await;
        assert_eq!(outcome.status, expected, "{query} {outcome:?}");
        assert!(outcome.began && outcome.error.is_some());
        assert_eq!(bench.witness.ledger().count_of(&name), effects, "{query}");
    }
}

#[tokio::test]
async fn what_fails_before_sending_is_an_error_that_may_be_tried_again() {
    let runner = Runner::new(Settings::default()).unwrap();
    let port = instar_testkit::wait::free_port().unwrap();
    for url in [format!("http://127.0.0.1:{port}/"), "http://no-such-host.invalid/".to_owned()] {
        let outcome = run(&runner, call(tool(http(url)), json!({}))).await;
        assert_eq!((outcome.status, code(&outcome)), (ResultStatus::Error, "connect_failed"), "{outcome:?}");
        assert!(!outcome.began && outcome.error.unwrap().retryable);
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_no_answer() {
    let server = Server::start("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf").await;
    let runner = Runner::new(Settings::default()).unwrap();
    let outcome = run(&runner, call(tool(http(server.url("/"))), json!({}))).await;
    assert_eq!((outcome.status, code(&outcome)), (ResultStatus::Unknown, "connection_lost"));
    let reads = Spec { side_effects: false, ..http(server.url("/")) };
    let outcome = run(&runner, call(tool(reads), json!({}))).await;
    assert_eq!((outcome.status, code(&outcome)), (ResultStatus::Error, "connection_lost"));
}

#[tokio::test]
async fn a_cancelled_call_says_that_it_may_have_acted() {
    let bench = bench().await;
    let cancel = CancellationToken::new();
    let one = call(tool(http(format!("{}?hang&when=after", bench.witness.effect_url("x")))), json!({}));
    let watch = async {
        let done = || async { bench.witness.ledger().count() == 1 };
        instar_testkit::wait::until(Duration::from_secs(10), done).await;
        cancel.cancel();
    };
    let (outcome, ()) = tokio::join!(bench.runner.run(one, cancel.clone(), Sink::none()), watch);
    assert_eq!((outcome.status, outcome.began), (ResultStatus::Cancelled, true));
    assert!(outcome.error.unwrap().message.contains("may have taken effect"));
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let target = Server::start(ok("never")).await;
    let server = Server::start(moved(&target.url("/"))).await;
    let runner = Runner::new(Settings::default()).unwrap();
    let outcome = run(&runner, call(tool(http(server.url("/"))), json!({}))).await;
    assert_eq!((outcome.status, code(&outcome)), (ResultStatus::Error, "http_status"));
    assert!(outcome.error.unwrap().message.contains("redirects are not followed"));
    assert_eq!(target.count(), 0);
}

#[tokio::test]
async fn headers_trace_and_query_arrive_and_a_secret_does_not_come_back() {
    let server = Server::with(|request| ok(&json!({"you": request}).to_string())).await;
    let secrets = Secrets::new(|name| (name == "billing").then(|| Secret::new("canary-7f3a"))?);
    let runner = Runner::new(Settings { secrets, ..Settings::default() }).unwrap();
    let headers = [("authorization".to_owned(), "Bearer secret://billing".to_owned())].into();
    let spec = Spec { headers, method: Some(Method::Get), ..http(server.url("/q?a=1")) };
    let one = call(tool(spec.clone()), json!({"name": "x y", "n": 5}));
    let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let outcome = run(&runner, Invocation { traceparent: Some(traceparent.into()), ..one }).await;
    let seen = server.requests.lock().unwrap()[0].to_ascii_lowercase();
    assert!(seen.starts_with("get /q?a=1&n=5&name=x+y "), "{seen}");
    assert!(seen.contains("authorization: bearer canary-7f3a") && seen.contains(traceparent), "{seen}");
    assert!(seen.contains("instar-attempt: 1"));
    assert!(!format!("{outcome:?}").contains("canary-7f3a"), "{outcome:?}");
    assert!(text(&outcome).contains("[redacted]"));

    let without = Runner::new(Settings::default()).unwrap();
    let outcome = run(&without, call(tool(spec), json!({}))).await;
    assert_eq!((outcome.status, code(&outcome), outcome.began), (ResultStatus::Error, "secret_missing", false));
    assert_eq!(server.count(), 1);
}

#[tokio::test]
async fn a_long_answer_keeps_head_and_tail() {
    let server = Server::start(ok(&format!("begin{}end", "é".repeat(200_000)))).await;
    let runner = Runner::new(Settings::default()).unwrap();
    let outcome = run(&runner, call(tool(http(server.url("/"))), json!({}))).await;
    let text = text(&outcome);
    assert!(outcome.truncated && outcome.bytes == 400_008 && outcome.digest.is_some());
    assert!(text.len() <= 100_000 && text.starts_with("begin") && text.ends_with("end") && !text.contains('\u{fffd}'));
}
