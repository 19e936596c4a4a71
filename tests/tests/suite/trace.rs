//! What an operator sees of a turn: one trace across processes, without a word of what was said, and
//! the counts of every service.

use anyhow::{Context, Result, ensure};
use instar_testkit::model::{Refusal, Reply, Script};
use instar_testkit::{nats, postgres, wait};
use instar_tests::collector::{Collector, Span};
use instar_tests::fleet::{Fleet, SERVICES, Setup};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

const WITHIN: Duration = Duration::from_secs(30);
/// What must never be in a trace: said by a person, by the model, to a tool, by a tool.
const CONTENT: [&str; 4] = ["canary-prompt", "canary-answer", "canary-argument", "canary-system"];

fn script() -> Script {
    Script::function(|request| match request.tool_results().is_empty() {
        true => Reply::call("charge", json!({"token": "canary-argument"})).usage(11, 7),
        false => Reply::text("canary-answer").usage(23, 5),
    })
}

/// A fleet that tells a collector, and the address of each service's pages for probes.
struct Watched {
    fleet: Fleet,
    collector: Collector,
    pages: BTreeMap<&'static str, String>,
    http: reqwest::Client,
}

impl Watched {
    async fn start() -> Result<Watched> {
        let collector = Collector::start().await?;
        let binary = PathBuf::from(env!("CARGO_BIN_EXE_instar-armed"));
        let own = Setup::new(binary, &postgres::shared().await?, &nats::shared().await?, script());
        let setup = Setup { config: format!("otlp_endpoint = \"{}\"\n", collector.url()), ..own };
        let mut fleet = Fleet::prepare(setup).await?;
        let mut pages = BTreeMap::new();
        for service in SERVICES {
            let listen = format!("127.0.0.1:{}", wait::free_port()?);
            // Spans leave soon, so that the test need not wait for them.
            let told = [("INSTAR__HEALTH__LISTEN", listen.as_str()), ("OTEL_BSP_SCHEDULE_DELAY", "50")];
            let node = fleet.spawn(service, &told).await?;
            fleet.nodes.push(node);
            pages.insert(service, format!("http://{listen}"));
        }
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().build()?;
        Ok(Watched { fleet, collector, pages, http })
    }

    async fn post(&self, path: &str, traceparent: Option<&str>, body: Value) -> Result<Value> {
        let url = format!("http://127.0.0.1:{}{path}", self.fleet.port());
        let mut request = self.http.post(url).bearer_auth(self.fleet.key()).json(&body);
        if let Some(traceparent) = traceparent {
            request = request.header("traceparent", traceparent);
        }
        let answer = request.send().await?;
        ensure!(answer.status().is_success(), "{path}: {} {}", answer.status(), answer.text().await?);
        Ok(answer.json().await?)
    }

    async fn agent(&self, approval_mode: &str) -> Result<String> {
        let root = json!({
            "name": "ada", "model": "default", "tools": ["charge"], "approval_mode": approval_mode,
            "system_prompt": "canary-system",
        });
        let session = self.post("/v1/sessions", None, json!({"root_agent": root})).await?;
        Ok(session["root_agent_id"].as_str().context("an agent")?.to_owned())
    }

    /// Says something under a trace of its own; the trace, the turn.
    async fn say(&self, agent: &str) -> Result<(String, String)> {
        let trace = uuid::Uuid::now_v7().simple().to_string();
        let parent = format!("00-{trace}-b7ad6b7169203331-01");
        let path = format!("/v1/agents/{agent}/messages");
        let sent = self.post(&path, Some(&parent), json!({"content": "canary-prompt"})).await?;
        let turn = sent["turn_id"].as_str().context("a turn")?.to_owned();
        Ok((trace, turn))
    }

    async fn ended(&self, turn: &str) -> Result<instar_client::Turn> {
        wait::until_ok(WITHIN, || async {
            let turn = self.fleet.client.turn(turn).await?;
            ensure!(turn.is_over(), "it is {}", turn.status);
            Ok(turn)
        })
        .await
    }

    /// The spans of a trace once `enough` of them are there.
    async fn spans(&self, trace: &str, enough: impl Fn(&[Span]) -> bool) -> Result<Vec<Span>> {
        wait::until_ok(WITHIN, || async {
            let spans = self.collector.of_trace(trace);
            ensure!(enough(&spans), "only {:#?}", spans.iter().map(brief).collect::<Vec<_>>());
            Ok(spans)
        })
        .await
    }

    async fn metrics(&self, base: &str) -> Result<String> {
        let answer = self.http.get(format!("{base}/metrics")).send().await?;
        ensure!(answer.status() == 200, "{base}: {}", answer.status());
        let kind = answer.headers().get("content-type").context("a content type")?.to_str()?.to_owned();
        ensure!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
        Ok(answer.text().await?)
    }
}

fn brief(span: &Span) -> String {
    format!("{} {} {:?}", span.service, span.name, span.get("gen_ai.operation.name"))
}

fn doing<'a>(spans: &'a [Span], operation: &str) -> Vec<&'a Span> {
    spans.iter().filter(|span| span.get("gen_ai.operation.name") == Some(operation)).collect()
}

fn is_silent(spans: &[Span]) -> Result<()> {
    for span in spans {
        for text in span.texts() {
            ensure!(!CONTENT.iter().any(|word| text.contains(word)), "{text:?} in {}", brief(span));
        }
    }
    Ok(())
}

/// Whether both have as many lines of this metric as its Prometheus form wants, and no label is an id.
fn has(metrics: &str, name: &str) -> bool {
    metrics.lines().any(|line| line.starts_with(name) && !line.contains("trn_") && !line.contains("agt_"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_is_one_trace_across_processes_and_says_nothing_of_its_content() -> Result<()> {
    let watched = Watched::start().await?;
    let agent = watched.agent("full_access").await?;
    let (trace, turn) = watched.say(&agent).await?;
    assert_eq!(watched.ended(&turn).await?.status, "completed");
    let all = |spans: &[Span]| {
        doing(spans, "invoke_agent").len() == 2
            && !doing(spans, "chat").is_empty()
            && !doing(spans, "execute_tool").is_empty()
            && spans.iter().any(|span| span.service == "instar-api")
    };
    let spans = watched.spans(&trace, all).await?;
    let services: std::collections::BTreeSet<_> = spans.iter().map(|span| span.service.as_str()).collect();
    assert_eq!(services.into_iter().collect::<Vec<_>>(), ["instar-agent-worker", "instar-api", "instar-tool-runner"]);

    let request = spans.iter().find(|span| span.service == "instar-api").context("the request")?;
    assert_eq!((request.name.as_str(), request.parent.as_str()), ("POST /v1/agents/{id}/messages", "b7ad6b7169203331"));
    assert_eq!(request.get("http.response.status_code"), Some("202"));

    let session = watched.fleet.client.turn(&turn).await?.session_id;
    for segment in doing(&spans, "invoke_agent") {
        assert_eq!(segment.name, "invoke_agent ada");
        assert_eq!(segment.service, "instar-agent-worker");
        assert_eq!(segment.parent, request.id, "{segment:?}");
        assert_eq!(segment.get("gen_ai.conversation.id"), Some(session.as_str()));
        assert_eq!(segment.get("gen_ai.agent.id"), Some(agent.as_str()));
        assert_eq!(segment.get("gen_ai.agent.name"), Some("ada"));
        assert_eq!(segment.get("instar.turn.id"), Some(turn.as_str()));
        assert_eq!(segment.get("gen_ai.provider.name"), Some("openai"));
    }
    let mut segments = doing(&spans, "invoke_agent");
    segments.sort_by_key(|segment| segment.start_ns);
    let used =
        |at: usize| (segments[at].get("gen_ai.usage.input_tokens"), segments[at].get("gen_ai.usage.output_tokens"));
    assert_eq!((used(0), used(1)), ((Some("11"), Some("7")), (Some("23"), Some("5"))));
    ensure!(segments[0].links.is_empty(), "{:?}", segments[0].links);
    let [(of, before, about)] = segments[1].links.as_slice() else { anyhow::bail!("{:?}", segments[1].links) };
    assert_eq!((of, before), (&trace, &segments[0].id), "what goes on points to what was before");
    assert_eq!(about.get("instar.link.kind").map(String::as_str), Some("resumes"));
    for chat in doing(&spans, "chat") {
        assert_eq!((chat.name.as_str(), chat.service.as_str()), ("chat mock", "instar-agent-worker"));
        assert_eq!(
            (chat.get("gen_ai.request.model"), chat.get("gen_ai.provider.name")),
            (Some("mock"), Some("openai"))
        );
        ensure!(doing(&spans, "invoke_agent").iter().any(|segment| segment.id == chat.parent), "{chat:?}");
    }
    let tools = doing(&spans, "execute_tool");
    assert_eq!(tools.len(), 1);
    assert_eq!((tools[0].name.as_str(), tools[0].service.as_str()), ("execute_tool charge", "instar-tool-runner"));
    assert_eq!(tools[0].get("gen_ai.tool.name"), Some("charge"));
    assert_eq!(tools[0].get("gen_ai.conversation.id"), Some(session.as_str()));
    ensure!(tools[0].get("gen_ai.tool.call.id").is_some_and(|id| id.starts_with("call_")));
    ensure!(
        spans.iter().all(|span| span.parent == request.parent || spans.iter().any(|other| other.id == span.parent))
    );
    is_silent(&watched.collector.spans())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_provider_call_has_its_span_with_what_it_used() -> Result<()> {
    let watched = Watched::start().await?;
    let agent = watched.agent("full_access").await?;
    let (trace, turn) = watched.say(&agent).await?;
    assert_eq!(watched.ended(&turn).await?.status, "completed");
    let calls = watched.fleet.model.requests().len();
    assert_eq!(calls, 2);
    // The turn's last segment is told of after everything in it.
    let spans = watched.spans(&trace, |spans| doing(spans, "invoke_agent").len() == 2).await?;
    let chats = doing(&spans, "chat");
    assert_eq!(chats.len(), calls, "{:#?}", spans.iter().map(brief).collect::<Vec<_>>());
    for (chat, (input, output)) in chats.iter().zip([("11", "7"), ("23", "5")]) {
        assert_eq!(chat.get("gen_ai.usage.input_tokens"), Some(input), "{chat:?}");
        assert_eq!(chat.get("gen_ai.usage.output_tokens"), Some(output));
        ensure!(chat.get("gen_ai.response.finish_reasons").is_some(), "{chat:?}");
    }
    // The size of what was sent, and of what became it: instructions, a prompt, and then a call with its result.
    for (at, (chat, messages)) in chats.iter().zip([2, 4]).enumerate() {
        let stages: Value = serde_json::from_str(chat.get("instar.context.stages").context("stages")?)?;
        for stage in ["composed", "compacted", "sent"] {
            let told = &stages[stage];
            assert_eq!((&told["messages"], &told["tool_calls"]), (&json!(messages), &json!(at)), "{stage}: {stages}");
            assert_eq!((&told["roles"]["system"], &told["roles"]["user"]), (&json!(1), &json!(1)), "{stages}");
            assert_eq!((&told["roles"]["tool"], &told["sources"]["direct"]), (&json!(at), &json!(1)), "{stages}");
        }
        let number = |name: &str| chat.get(name).and_then(|n| n.parse::<u64>().ok());
        assert_eq!(number("instar.context.messages"), stages["sent"]["messages"].as_u64(), "{chat:?}");
        assert_eq!(number("instar.context.content_bytes"), stages["sent"]["content_bytes"].as_u64(), "{chat:?}");
        assert_eq!(number("instar.context.left_out"), Some(0), "{chat:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_span_is_open_while_a_person_is_waited_for_and_the_trace_goes_on_after() -> Result<()> {
    let watched = Watched::start().await?;
    let agent = watched.agent("auto").await?;
    let (trace, turn) = watched.say(&agent).await?;
    let call = wait::until_ok(WITHIN, || async {
        let turn = watched.fleet.client.turn(&turn).await?;
        let waits = turn.waiting_for.clone();
        ensure!(waits["kind"] == "approval", "it waits for {waits}");
        Ok(waits["call_ids"][0].as_str().context("a call")?.to_owned())
    })
    .await?;
    // A span is told of when it is over: the first segment, while the call still waits.
    let before = watched.spans(&trace, |spans| doing(spans, "invoke_agent").len() == 1).await?;
    ensure!(doing(&before, "execute_tool").is_empty());
    let waiting = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_nanos() as u64;
    assert_eq!(watched.fleet.client.turn(&turn).await?.status, "tool_executing");
    watched.post(&format!("/v1/tool-calls/{call}/approve"), None, json!({})).await?;
    assert_eq!(watched.ended(&turn).await?.status, "completed");
    let done = |spans: &[Span]| doing(spans, "invoke_agent").len() == 2 && doing(spans, "execute_tool").len() == 1;
    let spans = watched.spans(&trace, done).await?;
    for span in &spans {
        ensure!(span.end_ns < waiting || span.start_ns > waiting, "{} was open across the wait", brief(span));
    }
    let all = watched.collector.spans();
    let approval = all.iter().find(|span| span.name == "POST /v1/tool-calls/{id}/approve").context("the approval")?;
    assert_ne!(approval.trace, trace, "it is a trace of its own");
    let [(of, span, about)] = doing(&spans, "execute_tool")[0].links.as_slice() else { anyhow::bail!("no link") };
    assert_eq!((of, span), (&approval.trace, &approval.id));
    assert_eq!(about.get("instar.link.kind").map(String::as_str), Some("caused_by"));
    let after: Vec<_> = spans.iter().filter(|span| span.start_ns > waiting).map(|span| &span.service).collect();
    ensure!(after.iter().any(|service| *service == "instar-tool-runner"), "{after:?}");
    ensure!(after.iter().any(|service| *service == "instar-agent-worker"), "{after:?}");
    is_silent(&watched.collector.spans())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_of_the_provider_that_repeats_what_was_said_is_not_in_the_trace() -> Result<()> {
    let watched = Watched::start().await?;
    watched.fleet.model.set_script(Script::function(|request| {
        Reply::refused(Refusal::Invalid(format!("this cannot be answered: {}", request.user_text())))
    }));
    let agent = watched.agent("full_access").await?;
    let (trace, turn) = watched.say(&agent).await?;
    assert_eq!(watched.ended(&turn).await?.status, "error");
    let spans = watched.spans(&trace, |spans| doing(spans, "invoke_agent").len() == 1).await?;
    assert_eq!(doing(&spans, "invoke_agent")[0].get("error.type"), Some("permanent"));
    is_silent(&watched.collector.spans())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_that_rings_for_a_turn_is_in_its_trace() -> Result<()> {
    let watched = Watched::start().await?;
    let wait = Some(Duration::from_secs(3));
    watched.fleet.model.set_script(Script::replies([Reply::rate_limited(wait)]).then(|_| Reply::text("at last")));
    let agent = watched.agent("full_access").await?;
    let (trace, turn) = watched.say(&agent).await?;
    assert_eq!(watched.ended(&turn).await?.status, "completed");
    let rang = |spans: &[Span]| {
        let mut scheduler = spans.iter().filter(|span| span.service == "instar-scheduler");
        doing(spans, "invoke_agent").len() == 2 && scheduler.any(|span| span.name == "timer wait_over")
    };
    let spans = watched.spans(&trace, rang).await?;
    let of = |span: &Span| span.get("instar.turn.id") == Some(turn.as_str());
    ensure!(spans.iter().filter(|span| span.service == "instar-scheduler").all(of), "{spans:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_service_tells_its_metrics_and_a_turn_shows_in_them() -> Result<()> {
    let watched = Watched::start().await?;
    for (service, base) in &watched.pages {
        for page in ["livez", "readyz"] {
            let answer = watched.http.get(format!("{base}/{page}")).send().await?;
            assert_eq!(answer.status(), 200, "{service} {page}");
        }
        watched.metrics(base).await?;
    }
    let agent = watched.agent("full_access").await?;
    let (_, turn) = watched.say(&agent).await?;
    assert_eq!(watched.ended(&turn).await?.status, "completed");
    let worker = watched.metrics(&watched.pages["agent-worker"]).await?;
    for name in [
        "instar_turns_total{status=\"completed\"} 1",
        "instar_turn_duration_seconds_bucket{status=\"completed\"",
        "instar_turn_schedule_to_start_duration_seconds_bucket",
        "instar_turn_active 0",
        "gen_ai_client_operation_duration_seconds_bucket{gen_ai_operation_name=\"chat\"",
        "gen_ai_client_operation_time_to_first_chunk_seconds_bucket",
        "gen_ai_client_token_usage_bucket",
        "instar_commit_duration_seconds_bucket",
        "instar_transitions_total{machine=\"turn\"}",
        "instar_worker_slot_limit 256",
    ] {
        ensure!(has(&worker, name), "{name} is not in {worker}");
    }
    let runner = watched.metrics(&watched.pages["tool-runner"]).await?;
    ensure!(has(&runner, "instar_tool_calls_total{status=\"success\"} 1"), "{runner}");
    ensure!(has(&runner, "gen_ai_execute_tool_duration_seconds_bucket{gen_ai_tool_name=\"charge\""), "{runner}");
    ensure!(has(&runner, "instar_worker_slot_limit 64") && has(&runner, "instar_tool_call_active 0"), "{runner}");
    let own = format!("http://127.0.0.1:{}", watched.fleet.port());
    for base in [&own, &watched.pages["api"]] {
        let api = watched.metrics(base).await?;
        let name = "instar_http_requests_total{route=\"/v1/agents/{id}/messages\",method=\"POST\",status=\"202\"} 1";
        ensure!(has(&api, name), "{api}");
        ensure!(has(&api, "instar_http_request_duration_seconds_bucket{route="), "{api}");
    }
    let asks = watched.agent("auto").await?;
    watched.say(&asks).await?;
    wait::until_ok(WITHIN, || async {
        let scheduler = watched.metrics(&watched.pages["scheduler"]).await?;
        for name in [
            "instar_approval_pending 1",
            "instar_turn_queued 0",
            "instar_publish_pending",
            "instar_publish_lag_seconds",
        ] {
            ensure!(has(&scheduler, name), "{name} is not in {scheduler}");
        }
        Ok(())
    })
    .await?;
    for base in watched.pages.values() {
        let metrics = watched.metrics(base).await?;
        for word in ["trn_", "agt_", "ses_", "\"call_", "canary"] {
            ensure!(!metrics.contains(word), "a label holds an id or content ({word}): {metrics}");
        }
    }
    Ok(())
}

/// Where a service says that its pages for probes are.
fn pages(log: &str) -> Option<&str> {
    let line = log.lines().find(|line| line.contains("serves /livez"))?;
    line.split("address=").nth(1)?.split_whitespace().next()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_that_share_a_configuration_have_their_pages_side_by_side() -> Result<()> {
    let binary = PathBuf::from(env!("CARGO_BIN_EXE_instar-armed"));
    let setup = Setup::new(binary, &postgres::shared().await?, &nats::shared().await?, script());
    let mut fleet = Fleet::prepare(setup).await?;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder().no_proxy().build()?;
    let mut seen = std::collections::BTreeSet::new();
    // Two of a kind as well.
    for service in ["scheduler", "scheduler", "agent-worker", "tool-runner"] {
        let node = fleet.spawn(service, &[]).await?;
        let log = std::fs::read_to_string(&node.log)?;
        let place = pages(&log).with_context(|| log.clone())?.to_owned();
        fleet.nodes.push(node);
        for page in ["livez", "metrics"] {
            let answer = http.get(format!("http://{place}/{page}")).send().await?;
            assert_eq!(answer.status(), 200, "{service} {page}");
        }
        ensure!(seen.insert(place.clone()), "{place} is taken already");
    }
    Ok(())
}
