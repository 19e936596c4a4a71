use crate::kit::{call, code, run, text};
use instar_core::rune::payload::ResultStatus;
use instar_tools::{Builtin, Invocation, Kind, Origin, Output, Runner, Settings, Sink, Spec, Tool};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

fn builtin(builtin: Builtin, arguments: Value) -> Invocation {
    call(Arc::new(Tool::new(builtin.spec(), Origin::Operator).unwrap()), arguments)
}

fn runner() -> Runner {
    Runner::new(Settings::default()).unwrap()
}

#[tokio::test]
async fn echo_and_now_answer() {
    let echo = run(&runner(), builtin(Builtin::Echo, json!({"text": "{\"a\":1}"}))).await;
    assert_eq!((echo.status, echo.output), (ResultStatus::Success, Output::Text("{\"a\":1}".into())));
    let now = run(&runner(), builtin(Builtin::Now, json!({}))).await;
    let Output::Json(now) = now.output else { panic!("{now:?}") };
    assert!(now["unix_ms"].as_i64().unwrap() > 1_700_000_000_000);
    assert!(now["utc"].as_str().unwrap().ends_with('Z'));
}

#[tokio::test]
async fn a_long_echo_is_cut_like_any_output() {
    let spec = Spec { max_output_bytes: 1000, ..Builtin::Echo.spec() };
    let tool = Arc::new(Tool::new(spec, Origin::Operator).unwrap());
    let outcome = run(&runner(), call(tool, json!({"text": "é".repeat(5000)}))).await;
    assert!(outcome.truncated && text(&outcome).len() <= 1000 && outcome.bytes == 10_000);
}

#[tokio::test]
async fn a_wait_ends_by_itself_by_cancellation_by_timeout_or_by_the_deadline() {
    let runner = runner();
    let slept = run(&runner, builtin(Builtin::Sleep, json!({"ms": 5}))).await;
    assert_eq!(slept.output, Output::Json(json!({"slept_ms": 5})));

    let cancel = CancellationToken::new();
    let (waiting, later) = (builtin(Builtin::Sleep, json!({"ms": 60_000})), cancel.clone());
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(20)).await;
        later.cancel();
    });
    let outcome = runner.run(waiting.clone(), cancel.clone(), Sink::none()).await;
    assert_eq!((outcome.status, code(&outcome)), (ResultStatus::Cancelled, "cancelled"));
    assert!(outcome.duration < Duration::from_secs(2));
    let again = runner.run(waiting.clone(), cancel, Sink::none()).await;
    assert_eq!((again.status, again.began), (ResultStatus::Cancelled, false));

    let soon = Some(Instant::now() + Duration::from_millis(20));
    let outcome = run(&runner, Invocation { deadline: soon, ..waiting.clone() }).await;
    assert_eq!((outcome.status, code(&outcome)), (ResultStatus::Timeout, "timeout"));
    let past = Some(Instant::now());
    let outcome = run(&runner, Invocation { deadline: past, ..waiting }).await;
    assert_eq!((outcome.status, outcome.began), (ResultStatus::Timeout, false));
    let spec = Spec { timeout_ms: 20, ..Builtin::Sleep.spec() };
    let short = call(Arc::new(Tool::new(spec, Origin::Operator).unwrap()), json!({"ms": 60_000}));
    assert_eq!(run(&runner, short).await.status, ResultStatus::Timeout);
}

#[tokio::test]
async fn a_tool_that_is_switched_off_does_not_run_and_the_configuration_names_a_builtin_by_its_name() {
    let spec = Spec { enabled: false, ..Builtin::Echo.spec() };
    let off = call(Arc::new(Tool::new(spec, Origin::Operator).unwrap()), json!({"text": "x"}));
    let outcome = run(&runner(), off).await;
    assert_eq!((outcome.status, code(&outcome)), (ResultStatus::Error, "tool_disabled"));
    let configured = Tool::new(Spec::new("sleep", Kind::Builtin), Origin::Operator).unwrap();
    assert_eq!(configured.definition_hash(), Tool::new(Builtin::Sleep.spec(), Origin::Api).unwrap().definition_hash());
}
