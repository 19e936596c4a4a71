//! Both dialects over real HTTP against a scripted server that answers, refuses and breaks as told.

use std::time::{Duration, Instant};

use futures::StreamExt;
use instar_model::{
    Arguments, Class, Event, EventStream, Finish, Flaw, Kind, Message, ModelConfig, ModelError, Models, Request,
    Response, ToolSpec, collect,
};
use instar_testkit::model::{Break, Dialect, Refusal, Reply, Script};
use instar_testkit::{Model, Proxy};
use serde_json::json;

const DIALECTS: [Dialect; 2] = [Dialect::Chat, Dialect::Messages];

fn config(dialect: Dialect, url: &str) -> ModelConfig {
    let (kind, base) = match dialect {
        Dialect::Chat => (Kind::OpenAi, format!("{url}/v1")),
        Dialect::Messages => (Kind::Anthropic, url.to_owned()),
    };
    let mut config = ModelConfig::new("m", kind);
    config.base_url = Some(base);
    config.model = Some("big-one".to_owned());
    config.api_key_env = Some("KEY".to_owned());
    config.limits.retry_first_ms = 5;
    config
}

fn models(config: ModelConfig) -> Models {
    Models::with_environment(&[config], &|name| (name == "KEY").then(|| "sk-secret".to_owned())).unwrap()
}

fn question() -> Request {
    let parameters = json!({ "type": "object", "properties": { "text": { "type": "string" } } });
    let tool =
        |name: &str| ToolSpec { name: name.to_owned(), description: "d".to_owned(), parameters: parameters.clone() };
    Request {
        model: "m".to_owned(),
        system: Some("be brief".to_owned()),
        messages: vec![Message::user("hello there")],
        tools: vec![tool("echo"), tool("clock.now")],
        max_tokens: Some(100),
        ..Request::default()
    }
}

/// What the server was asked and what came of it.
async fn ask(dialect: Dialect, replies: impl IntoIterator<Item = Reply>) -> (Result<Response, ModelError>, Model) {
    let server = Model::start(Script::replies(replies)).await.unwrap();
    let mut config = config(dialect, server.url());
    config.limits.idle_timeout_ms = 200;
    config.limits.first_event_timeout_ms = 200;
    let outcome = models(config).complete(question()).await;
    (outcome, server)
}

#[tokio::test]
async fn text_comes_piece_by_piece_with_usage_and_an_end() {
    for dialect in DIALECTS {
        let reply = Reply::chunks(["Hel", "lo \u{1f600}"]).usage(12, 3).cached(4);
        let server = Model::start(Script::replies([reply])).await.unwrap();
        let stream = models(config(dialect, server.url())).stream(question()).await.unwrap();
        let events: Vec<Event> = stream.map(Result::unwrap).collect().await;
        let texts: Vec<&str> = events
            .iter()
            .filter_map(|event| match event {
                Event::TextDelta { text } => Some(text.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(texts, ["Hel", "lo \u{1f600}"]);
        assert!(matches!(&events[0], Event::Started { model, .. } if model == "big-one"));
        assert_eq!(events.last(), Some(&Event::Done { finish: Finish::Stop }));
        let usage = events.iter().rev().find_map(|event| match event {
            Event::Usage(usage) => Some(*usage),
            _ => None,
        });
        let usage = usage.unwrap();
        assert_eq!((usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens), (12, 4, 3));
    }
}

#[tokio::test]
async fn the_request_is_the_providers_own() {
    for dialect in DIALECTS {
        let (_, server) = ask(dialect, [Reply::text("hi")]).await;
        let request = &server.requests()[0];
        assert_eq!(request.tools(), ["echo", "clock__now"]);
        assert!(request.is_streaming() && request.model() == "big-one");
        assert_eq!(request.body["max_tokens"], 100);
        match dialect {
            Dialect::Chat => {
                assert_eq!(request.header("authorization"), Some("Bearer sk-secret"));
                assert_eq!(request.messages()[0], json!({ "role": "system", "content": "be brief" }));
            }
            Dialect::Messages => {
                assert_eq!(request.header("x-api-key"), Some("sk-secret"));
                assert_eq!(request.header("anthropic-version"), Some("2023-06-01"));
                assert_eq!(request.body["system"], "be brief");
            }
        }
    }
}

#[tokio::test]
async fn a_turn_with_tools_goes_there_and_back() {
    for dialect in DIALECTS {
        let call = || {
            Reply::text("Well. ")
                .and(Reply::call("clock__now", json!({})))
                .and(Reply::call("echo", json!({ "text": "x" })))
        };
        let server = Model::start(Script::replies([call(), Reply::text("done")])).await.unwrap();
        let models = models(config(dialect, server.url()));
        let mut request = question();
        let first = models.complete(request.clone()).await.unwrap();
        assert_eq!((first.text.as_str(), &first.finish), ("Well. ", &Finish::ToolCalls));
        let names: Vec<&str> = first.tool_calls.iter().map(|call| call.name.as_str()).collect();
        assert_eq!(names, ["clock.now", "echo"], "names come back as the tools are called here");
        assert_eq!(first.tool_calls[1].arguments.json(), Some(r#"{"text":"x"}"#));
        let ids: Vec<String> = first.tool_calls.iter().map(|call| call.id.clone()).collect();
        request.messages.push(first.into_message());
        request.messages.push(Message::failure(&ids[1], "broken"));
        request.messages.push(Message::result(&ids[0], "noon"));
        assert_eq!(models.complete(request).await.unwrap().text, "done");
        assert_eq!(server.counts().invalid, 0);
        let results = server.requests()[1].tool_results();
        assert_eq!((results[0].call_id.as_str(), results[0].content.as_str()), (ids[0].as_str(), "noon"));
        assert!(results[1].content.contains("broken"));
    }
}

#[tokio::test]
async fn a_history_broken_by_a_crash_is_accepted() {
    for dialect in DIALECTS {
        let replies = [Reply::call("echo", json!({})).and(Reply::call("echo", json!({}))), Reply::text("fine")];
        let server = Model::start(Script::replies(replies)).await.unwrap();
        let models = models(config(dialect, server.url()));
        let mut request = question();
        let first = models.complete(request.clone()).await.unwrap();
        let second = first.tool_calls[1].id.clone();
        request.messages.push(first.into_message());
        // One result lost, the other twice, one from nowhere, and the user did not wait.
        let mess = [
            Message::user("still there?"),
            Message::result(&second, "1"),
            Message::result(&second, "2"),
            Message::result("x", "?"),
        ];
        request.messages.extend(mess);
        assert_eq!(models.complete(request).await.unwrap().text, "fine");
        let results = server.requests()[1].tool_results();
        assert!(results[0].content.contains("interrupted"), "{results:?}");
        assert_eq!((results[1].content.as_str(), results.len()), ("1", 2));
    }
}

#[tokio::test]
async fn arguments_that_are_not_json_are_a_call_that_can_be_explained() {
    for dialect in DIALECTS {
        let (outcome, _) = ask(dialect, [Reply::call_raw("echo", "{\"text\": oops}")]).await;
        let call = &outcome.unwrap().tool_calls[0];
        assert_eq!(call.arguments, Arguments::Invalid { text: "{\"text\": oops}".to_owned(), reason: Flaw::NotJson });
        let (outcome, _) = ask(dialect, [Reply::call_raw("echo", "")]).await;
        assert_eq!(outcome.unwrap().tool_calls[0].arguments.json(), Some("{}"));
        let cut = Reply::call_raw("echo", "{\"text\":\"unfin").finish(instar_testkit::model::Finish::Length);
        let response = ask(dialect, [cut]).await.0.unwrap();
        assert!(matches!(response.tool_calls[0].arguments, Arguments::Invalid { reason: Flaw::Truncated, .. }));
        assert_eq!(response.finish, Finish::Length);
    }
}

#[tokio::test]
async fn an_empty_answer_is_an_answer() {
    for dialect in DIALECTS {
        let response = ask(dialect, [Reply::empty()]).await.0.unwrap();
        assert_eq!((response.text.as_str(), response.finish), ("", Finish::Stop));
    }
}

#[tokio::test]
async fn each_refusal_has_its_class_and_its_number_of_tries() {
    let soon = Some(Duration::from_millis(20));
    let rows = [
        (Refusal::RateLimited { retry_after: soon }, Class::RateLimited, 3),
        (Refusal::RateLimited { retry_after: None }, Class::RateLimited, 3),
        (Refusal::RateLimited { retry_after: Some(Duration::from_secs(7)) }, Class::RateLimited, 1),
        (Refusal::SlowDown, Class::SlowDown, 3),
        (Refusal::SpendLimit, Class::QuotaExhausted, 1),
        (Refusal::ServerError, Class::Transient, 3),
        (Refusal::Overloaded, Class::Overloaded, 3),
        (Refusal::ContextOverflow, Class::ContextOverflow, 1),
        (Refusal::Unauthorized, Class::Permanent, 1),
        (Refusal::Invalid("no such thing".to_owned()), Class::Permanent, 1),
    ];
    for dialect in DIALECTS {
        for (refusal, class, tries) in rows.clone() {
            let (outcome, server) = ask(dialect, std::iter::repeat_n(Reply::refused(refusal.clone()), 9)).await;
            let error = outcome.unwrap_err();
            assert_eq!((error.class, server.counts().requests), (class, tries), "{refusal:?} {error}");
            assert_eq!(error.retry_in.is_some(), error.retryable(), "{error}");
            assert!(error.request_id.is_some() && error.status.is_some());
        }
    }
}

#[tokio::test]
async fn a_short_wait_is_slept_and_a_long_one_handed_to_the_caller() {
    for dialect in DIALECTS {
        let started = Instant::now();
        let (outcome, _) =
            ask(dialect, [Reply::rate_limited(Some(Duration::from_millis(150))), Reply::text("ok")]).await;
        assert_eq!(outcome.unwrap().text, "ok");
        assert!(started.elapsed() >= Duration::from_millis(150));

        let started = Instant::now();
        let (outcome, _) = ask(dialect, [Reply::rate_limited(Some(Duration::from_secs(30)))]).await;
        let error = outcome.unwrap_err();
        assert!(started.elapsed() < Duration::from_secs(5));
        assert_eq!(error.wait(), Some(Duration::from_secs(30)));
        assert_eq!(error.retry_in, Some(Duration::from_secs(30)));
    }
}

#[tokio::test]
async fn what_fails_before_anything_was_seen_is_retried_unseen() {
    for dialect in DIALECTS {
        // The first events say nothing yet: the role, or the start of the message.
        let early = |how| Reply::chunks(["a"]).broken_after(1, how);
        let breaks = [Break::Cut, Break::Error, Break::Malformed, Break::Hang];
        let failures = breaks.map(early).into_iter().chain([Reply::cut(), Reply::hang(), Reply::overloaded()]);
        for failure in failures {
            let shown = format!("{dialect:?} {failure:?}");
            let (outcome, server) = ask(dialect, [failure, Reply::text("ok")]).await;
            assert_eq!(outcome.unwrap_or_else(|error| panic!("{shown}: {error}")).text, "ok");
            assert_eq!(server.counts().requests, 2);
        }
    }
}

async fn first_text(stream: &mut EventStream) -> String {
    loop {
        if let Event::TextDelta { text } = stream.next().await.unwrap().unwrap() {
            return text;
        }
    }
}

#[tokio::test]
async fn what_fails_after_something_was_seen_is_an_error_and_never_retried() {
    for dialect in DIALECTS {
        let after = if dialect == Dialect::Chat { 2 } else { 4 };
        for (how, class, code) in [
            (Break::Cut, Class::Transient, "connection_lost"),
            (Break::Error, Class::Overloaded, "overloaded"),
            (Break::Malformed, Class::Transient, "malformed_event"),
            (Break::Hang, Class::Transient, "timeout"),
        ] {
            // A moment between events, so that the break comes after the text was read.
            let pause = Duration::from_millis(20);
            let reply = Reply::chunks(["a", "b", "c"]).broken_after(after, how).slow(Duration::ZERO, pause);
            let server = Model::start(Script::replies([reply, Reply::text("again")])).await.unwrap();
            let mut config = config(dialect, server.url());
            config.limits.idle_timeout_ms = 200;
            let mut stream = models(config).stream(question()).await.unwrap();
            assert_eq!(first_text(&mut stream).await, "a");
            let error = stream.next().await.unwrap().unwrap_err();
            assert_eq!(error.class, class, "{dialect:?} {how:?} {error}");
            assert!(error.code.as_deref().is_some_and(|found| found.contains(code)), "{dialect:?} {how:?} {error}");
            assert!(error.retryable() && error.retry_in.is_some() && error.request_id.is_some());
            assert!(stream.next().await.is_none());
            assert_eq!(server.counts().requests, 1);
        }
    }
}

#[tokio::test]
async fn no_part_of_an_answer_passes_for_the_whole() {
    for dialect in DIALECTS {
        let reply = || Reply::text("one two ").and(Reply::call("echo", json!({ "text": "x" })));
        // Events of the whole answer before the one that proves it: `[DONE]`, `message_stop`.
        let provisional = if dialect == Dialect::Chat { 8 } else { 12 };
        for (after, how) in (0..=provisional).flat_map(|after| [(after, Break::Cut), (after, Break::Error)]) {
            let server = Model::start(Script::function(move |_| reply().broken_after(after, how))).await.unwrap();
            let mut config = config(dialect, server.url());
            config.limits.retries_max = 0;
            let outcome = models(config).complete(question()).await;
            assert!(outcome.is_err(), "{dialect:?} {after} {how:?}");
        }
        let server = Model::start(Script::replies([reply()])).await.unwrap();
        models(config(dialect, server.url())).complete(question()).await.unwrap();
    }
}

#[tokio::test]
async fn a_reason_to_finish_is_no_proof_that_an_answer_is_whole() {
    // Role, text and reason have come; the count of tokens and the last mark have not, or only the mark has not.
    for frames in [3, 4] {
        let (outcome, _) = ask(Dialect::Chat, [Reply::chunks(["a"]).broken_after(frames, Break::Cut)]).await;
        assert_eq!(outcome.unwrap_err().class, Class::Transient, "after {frames}");
    }
}

#[tokio::test]
async fn connections_are_used_again() {
    for dialect in DIALECTS {
        let server = Model::start(Script::function(|_| Reply::text("hello you there"))).await.unwrap();
        let proxy = Proxy::start(server.url().strip_prefix("http://").unwrap()).await.unwrap();
        let models = models(config(dialect, &format!("http://{}", proxy.address())));
        for _ in 0..20 {
            models.complete(question()).await.unwrap();
        }
        // One, and another if a call begins before the end of the body before it was read.
        assert!(proxy.connections() <= 3, "{dialect:?} {}", proxy.connections());
    }
}

#[tokio::test]
async fn a_reset_connection_is_retried_and_a_refused_one_explained() {
    for dialect in DIALECTS {
        let server = Model::start(Script::function(|_| Reply::text("hello"))).await.unwrap();
        let proxy = Proxy::start(server.url().strip_prefix("http://").unwrap()).await.unwrap();
        let models = models(config(dialect, &format!("http://{}", proxy.address())));
        models.complete(question()).await.unwrap();
        proxy.cut();
        models.complete(question()).await.unwrap();
        proxy.cut();
        proxy.refuse();
        let error = models.complete(question()).await.unwrap_err();
        assert_eq!((error.class, error.code.as_deref()), (Class::Transient, Some("connection")));
        assert!(error.retry_in.is_some());
        assert!(!error.to_string().contains(&proxy.address().to_string()), "{error}");
    }
}

#[tokio::test]
async fn an_answer_over_the_limit_is_refused() {
    for dialect in DIALECTS {
        let server = Model::start(Script::replies([Reply::text("word ".repeat(2000))])).await.unwrap();
        let mut config = config(dialect, server.url());
        config.limits.response_bytes_max = 20_000;
        let error = models(config).complete(question()).await.unwrap_err();
        assert_eq!((error.class, error.code.as_deref()), (Class::Permanent, Some("response_too_large")));
    }
}

#[tokio::test]
async fn many_calls_at_once_do_not_wait_for_each_other() {
    let slow = |_: &_| Reply::chunks(["a"]).slow(Duration::from_millis(200), Duration::ZERO);
    let server = Model::start(Script::function(slow)).await.unwrap();
    let models = models(config(Dialect::Chat, server.url()));
    let started = Instant::now();
    let calls = (0..100).map(|_| async { collect(models.stream(question()).await.unwrap()).await.unwrap() });
    futures::future::join_all(calls).await;
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    assert!(server.counts().together_max > 50);
}
