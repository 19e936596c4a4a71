//! Bad input through the whole house: each gets its clear error, nothing changes, and the work beside
//! it goes on. What the suites of the API, of the command line, of the tools and of the configuration
//! already try is not repeated here.

use anyhow::{Context, Result, ensure};
use instar_bus::message::{Call, WorkTool, WorkTurn};
use instar_bus::{Pull, Stamp};
use instar_core::id::{AgentId, CallId, SessionId, TurnId};
use instar_runtime::config::Config;
use instar_runtime::flow::Mode;
use instar_runtime::{CLASS, LANE};
use instar_testkit::model::{Reply, Request, Script};
use instar_testkit::{nats, postgres, wait};
use instar_tests::cast::{self, fresh};
use instar_tests::dev::{self, Dev};
use instar_tests::fleet::tool_turn;
use instar_tests::stage::Stage;
use instar_tests::troupe::{Troupe, WITHIN};
use instar_tests::{audit, on_both};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const BINARY: &str = env!("CARGO_BIN_EXE_instar-armed");

/// Makes two tests of one body, one per database.
macro_rules! on_each {
    ($($(#[$attr:meta])* $name:ident($script:expr, $config:expr);)+) => {
        mod dev_on_sqlite {$(
            $(#[$attr])*
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() -> anyhow::Result<()> {
                super::$name(super::Dev::start(super::BINARY, None, $script, $config).await?).await
            }
        )+}
        mod dev_on_postgres {$(
            $(#[$attr])*
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() -> anyhow::Result<()> {
                let url = instar_testkit::postgres::shared().await?;
                super::$name(super::Dev::start(super::BINARY, Some(url), $script, $config).await?).await
            }
        )+}
    };
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn quiet() -> Script {
    Script::function(|_| Reply::text("well"))
}

/// A charge, whatever is said.
fn charges() -> Script {
    Script::function(|request| match request.tool_results().is_empty() {
        true => Reply::call("charge", json!({"token": "t"})),
        false => Reply::text("charged"),
    })
}

async fn every_bad_key_gets_the_same_answer(dev: Dev) -> Result<()> {
    let made = dev.post("/v1/keys", json!({"name": "gone", "role": "admin"})).await?.is(201);
    dev.send(dev.request("DELETE", &format!("/v1/keys/{}", text(&made["id"])))?.bearer_auth(dev.key())).await?.is(200);
    let (revoked, long) = (format!("Bearer {}", text(&made["key"])), format!("Bearer {}", "k".repeat(4_000)));
    let headers = [
        None,
        Some(""),
        Some("Bearer"),
        Some("Bearer "),
        Some("Bearer wrong"),
        Some("Basic ZGV2OmRldg=="),
        // The header of a token that names no algorithm.
        Some("Bearer eyJhbGciOiJub25lIn0.eyJyb2xlIjoiYWRtaW4ifQ."),
        Some("Bearer ' OR 1=1 --"),
        Some(revoked.as_str()),
        Some(long.as_str()),
    ];
    let mut bodies = Vec::new();
    for header in headers {
        let mut request = dev.request("GET", "/v1/sessions")?;
        if let Some(header) = header {
            request = request.header("authorization", header);
        }
        let mut body = dev.send(request).await?.refuses(401, "unauthenticated");
        body["request_id"] = Value::Null;
        bodies.push(body);
    }
    ensure!(bodies.iter().all(|body| *body == bodies[0]), "{bodies:#?}");
    Ok(())
}

async fn a_body_that_is_no_clear_json_changes_nothing(dev: Dev) -> Result<()> {
    let (session, agent) = dev.fleet(&[], "full_access").await?;
    let (path, before) = (format!("/v1/agents/{agent}/messages"), dev.head(&session).await?);
    let cases: [&[u8]; 9] = [
        b"{\"content\": NaN}",
        b"{\"content\": Infinity}",
        b"{\"content\": 1e999}",
        b"{\"content\": \"\\ud800\"}",
        b"{\"content\": \"a\"} trailing",
        b"{\"content\": \"a\",}",
        b"{'content': 'a'}",
        b"\xef\xbb\xbf{\"content\": \"a\"}",
        b"{\"content\": \"\xff\xfe\"}",
    ];
    for body in cases {
        dev.raw(&path, body).await?.refuses(422, "not JSON");
    }
    assert_eq!(dev.head(&session).await?, before);
    Ok(())
}

async fn a_field_given_twice_is_refused(dev: Dev) -> Result<()> {
    let (session, agent) = dev.fleet(&[], "full_access").await?;
    let before = dev.head(&session).await?;
    let path = format!("/v1/agents/{agent}/messages");
    dev.raw(&path, "{\"content\": \"delete nothing\", \"content\": \"delete all\"}").await?.refuses(422, "content");
    dev.raw("/v1/sessions", "{\"config\": {\"a\": 1, \"a\": 2}}").await?.refuses(422, "a");
    assert_eq!(dev.head(&session).await?, before);
    Ok(())
}

/// A database may not take it, and people cannot see it.
async fn a_nul_in_a_text_is_refused_or_kept_but_never_our_fault(dev: Dev) -> Result<()> {
    let (session, agent) = dev.fleet(&[], "full_access").await?;
    let nul = "a\u{0}b";
    let cases = [
        ("/v1/sessions".to_owned(), json!({"name": nul})),
        ("/v1/sessions".to_owned(), json!({"config": {"a": nul}})),
        ("/v1/sessions".to_owned(), json!({"config": {nul: 1}})),
        (format!("/v1/sessions/{session}/agents"), json!({"name": nul, "model": "default"})),
        (format!("/v1/sessions/{session}/agents"), json!({"name": "b", "model": "default", "system_prompt": nul})),
        (format!("/v1/agents/{agent}/messages"), json!({"content": nul})),
    ];
    for (path, body) in cases {
        let before = dev.head(&session).await?;
        let got = dev.post(&path, body.clone()).await.with_context(|| format!("{path} {body}"))?;
        ensure!([201, 202, 422].contains(&got.status), "{path} {body}: {} {}", got.status, got.text);
        if got.status == 422 {
            assert_eq!(dev.head(&session).await?, before);
        }
    }
    Ok(())
}

async fn a_nul_from_the_model_does_not_keep_a_turn_from_its_end(dev: Dev) -> Result<()> {
    let (session, agent) = dev.fleet(&["echo", "charge"], "full_access").await?;
    for (n, what) in ["say", "call", "argument", "echo"].into_iter().enumerate() {
        let ended = dev.turn(&agent, what).await.with_context(|| what.to_owned())?;
        ensure!(ended["status"] == "completed", "{n} {what}: {ended}");
    }
    let verified = dev.run(&["verify", &session]).await?;
    ensure!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
    Ok(())
}

fn says_nul() -> Script {
    Script::function(|request: &Request| {
        let results = !request.tool_results().is_empty();
        match request.user_text().as_str() {
            _ if results => Reply::text("over"),
            "say" => Reply::text("a\u{0}b"),
            "call" => Reply::call("no\u{0}tool", json!({})),
            "argument" => Reply::call("charge", json!({"token": "a\u{0}b"})),
            _ => Reply::call("echo", json!({"text": "a\u{0}b"})),
        }
    })
}

async fn an_id_that_is_none_never_reaches_anything(dev: Dev) -> Result<()> {
    let (session, agent) = dev.fleet(&[], "full_access").await?;
    let before = dev.head(&session).await?;
    let upper = session.to_uppercase();
    let wild = [">", "*", "a.b", "%E2%80%AE", "%ED%A0%80", "%FF", "%0A", "..%2F..", "ses_%2A", "'%20OR%201=1", &upper];
    let long = "9".repeat(10_000);
    for id in wild.into_iter().chain([long.as_str()]) {
        for kind in ["sessions", "agents", "turns", "tool-calls"] {
            let got = dev.get(&format!("/v1/{kind}/{id}")).await?;
            ensure!([404, 414, 431].contains(&got.status), "{kind} {id:.40}: {} {}", got.status, got.text);
        }
        for path in ["sessions/ID/runes", "sessions/ID/events", "agents/ID/messages"] {
            let got = dev.get(&format!("/v1/{}", path.replace("ID", id))).await?;
            ensure!([404, 414, 431].contains(&got.status), "{path} {id:.40}: {} {}", got.status, got.text);
        }
        for path in ["agents/ID/stop", "turns/ID/interrupt", "tool-calls/ID/approve"] {
            let got = dev.post(&format!("/v1/{}", path.replace("ID", id)), json!({})).await?;
            ensure!([404, 414, 431].contains(&got.status), "{path} {id:.40}: {} {}", got.status, got.text);
        }
    }
    // The id of another kind of thing, and a good one with something behind it.
    dev.get(&format!("/v1/agents/{session}")).await?.refuses(404, "agent");
    dev.get(&format!("/v1/sessions/{agent}")).await?.refuses(404, "session");
    dev.get(&format!("/v1/agents/{agent}x")).await?.refuses(404, "agent");
    assert_eq!(dev.head(&session).await?, before);
    Ok(())
}

async fn an_agent_that_cannot_be_meant_is_refused_with_every_reason(dev: Dev) -> Result<()> {
    let (session, _) = dev.fleet(&[], "full_access").await?;
    let (path, before) = (format!("/v1/sessions/{session}/agents"), dev.head(&session).await?);
    let long = |n: usize| "x".repeat(n);
    let with = |field: &str, value: Value| {
        let mut body = json!({"name": "b", "model": "default"});
        body[field] = value;
        body
    };
    let cases = [
        (with("name", json!("")), "name: must not be empty"),
        (with("name", json!(long(201))), "the limit is 200"),
        (with("role", json!(long(201))), "the limit is 200"),
        (with("system_prompt", json!(long(128 * 1024 + 1))), "the limit is 131072"),
        (with("system_prompt", json!(["be", "kind"])), "system_prompt: must be a text"),
        (with("tools", json!("echo")), "tools: must be a list of texts"),
        (with("tools", json!(["echo", 5])), "tools.1: must be a text"),
        (with("tools", json!(vec!["echo"; 501])), "the limit is 500"),
        (with("tools", json!(["*.*.*", ""])), "tools"),
        (with("loop", json!("forever")), "loop: must be one of: reactive, autonomous"),
        (with("approval_mode", json!("yolo")), "approval_mode: must be one of"),
        (with("tool_approvals", json!(["echo"])), "tool_approvals: must be an object"),
        (with("tool_approvals", json!({"echo": "sometimes"})), "tool_approvals.echo: must be"),
        (with("tool_approvals", json!({"no_such": "always"})), "no_such"),
        (with("tool_approvals", json!({"*": "never"})), "name each tool"),
        (with("policy", json!(["/srv"])), "policy: must be an object"),
        (with("policy", json!({"paths": []})), "known are: allowed_paths"),
        (with("policy", json!({"allowed_paths": ["a/../b"]})), "policy.allowed_paths.0: must be written without"),
        (with("policy", json!({"network_allowlist": ["https://a.b"]})), "policy.network_allowlist.0: must be a host"),
        (with("budget", json!(5)), "budget: must be an object"),
        (with("budget", json!({"max_tokens": -5})), "above zero"),
        (with("budget", json!({"max_tokens": true})), "above zero"),
        (with("parent_id", json!("agt_x")), "no such field"),
    ];
    for (body, words) in cases {
        dev.post(&path, body).await?.refuses(422, words);
    }
    let all = json!({"name": "", "model": 5, "tools": 7, "loop": "x", "approval_mode": "y", "budget": [], "zzz": 1});
    let refused = dev.post(&path, all).await?.refuses(422, "zzz");
    assert_eq!(refused["errors"].as_array().map(Vec::len), Some(7), "{refused}");
    dev.raw(&path, "{\"name\": \"b\", \"model\": \"default\", \"budget\": {\"max_tokens\": 1e400}}")
        .await?
        .refuses(422, "not JSON");
    assert_eq!(dev.head(&session).await?, before);
    assert_eq!(
        dev.get(&format!("/v1/agents?session={session}")).await?.is(200)["data"].as_array().map(Vec::len),
        Some(1)
    );
    Ok(())
}

async fn a_limit_that_is_a_word_is_no_limit(dev: Dev) -> Result<()> {
    let (session, _) = dev.fleet(&[], "full_access").await?;
    let before = dev.head(&session).await?;
    let agent = json!({"name": "b", "model": "default", "budget": {"max_tokens": "plenty"}});
    dev.post(&format!("/v1/sessions/{session}/agents"), agent).await?.refuses(422, "max_tokens");
    assert_eq!(dev.head(&session).await?, before);
    Ok(())
}

async fn a_tool_named_twice_is_refused_and_one_that_a_pattern_means_too_is_given_once(dev: Dev) -> Result<()> {
    let (session, _) = dev.fleet(&[], "full_access").await?;
    let (path, before) = (format!("/v1/sessions/{session}/agents"), dev.head(&session).await?);
    let agent = |tools: Value| json!({"name": "b", "model": "default", "tools": tools});
    dev.post(&path, agent(json!(["echo", "echo"]))).await?.refuses(422, "named twice");
    assert_eq!(dev.head(&session).await?, before);
    let agent = dev.post(&path, agent(json!(["echo", "*"]))).await?.is(201);
    assert_eq!(dev.turn(text(&agent["id"]), "hi").await?["status"], "completed");
    let request = dev.model.requests().pop().context("a request")?;
    let mut offered = request.tools();
    let all = offered.len();
    offered.sort_unstable();
    offered.dedup();
    assert_eq!(offered.len(), all, "a provider refuses a tool that is there twice: {offered:?}");
    Ok(())
}

async fn an_agent_that_has_ended_takes_nothing(dev: Dev) -> Result<()> {
    let (session, agent) = dev.fleet(&[], "full_access").await?;
    dev.post(&format!("/v1/agents/{agent}/terminate"), json!({})).await?.is(200);
    let before = dev.head(&session).await?;
    for mode in ["queue", "steer", "interrupt"] {
        let body = json!({"content": "hi", "mode": mode});
        let refused = dev.post(&format!("/v1/agents/{agent}/messages"), body).await?.refuses(409, "agent_terminal");
        ensure!(refused["from"].is_string() && refused["machine"].is_string(), "{refused}");
        ensure!(refused["code"] == "agent_terminal" && refused["state"] == "terminated", "{refused}");
        ensure!(refused["since"].is_string(), "{refused}");
    }
    dev.post(&format!("/v1/agents/{agent}/start"), json!({})).await?.refuses(409, "ended");
    dev.post(&format!("/v1/agents/{agent}/hold"), json!({})).await?.refuses(409, "hold");
    assert_eq!(dev.head(&session).await?, before);
    Ok(())
}

/// The id of the call that waits for a person in this turn.
async fn waiting_call(dev: &Dev, agent: &str) -> Result<(String, String)> {
    let sent = dev.post(&format!("/v1/agents/{agent}/messages"), json!({"content": "go"})).await?.is(202);
    let turn = text(&sent["turn_id"]).to_owned();
    let call = wait::until_ok(WITHIN, || async {
        let row = dev.get(&format!("/v1/turns/{turn}")).await?.is(200);
        ensure!(row["waiting_for"]["kind"] == "approval", "{row}");
        Ok(text(&row["waiting_for"]["call_ids"][0]).to_owned())
    })
    .await?;
    Ok((turn, call))
}

async fn a_decision_that_comes_too_late_changes_nothing(dev: Dev) -> Result<()> {
    let late = |path: String| [format!("{path}/approve"), format!("{path}/deny"), format!("{path}/cancel")];
    // Ended by an interrupt, by a denial, by a cancel, by its result.
    for how in ["interrupt", "deny", "cancel", "approve"] {
        let (session, agent) = dev.fleet(&["charge"], "auto").await?;
        let (turn, call) = waiting_call(&dev, &agent).await?;
        let path = format!("/v1/tool-calls/{call}");
        match how {
            "interrupt" => dev.post(&format!("/v1/turns/{turn}/interrupt"), json!({})).await?.is(200),
            "deny" => dev.post(&format!("{path}/deny"), json!({"reason": "no"})).await?.is(200),
            _ => dev.post(&format!("{path}/{how}"), json!({})).await?.is(200),
        };
        dev.ended(&turn).await?;
        let (before, shown) = (dev.head(&session).await?, dev.get(&path).await?.is(200));
        for path in late(path.clone()) {
            let body = if path.ends_with("deny") { json!({"reason": "late"}) } else { json!({}) };
            let cancels = path.ends_with("cancel");
            let refused = dev.post(&path, body).await?.refuses(409, "tool_call");
            assert_eq!(refused["from"], shown["status"], "{how}");
            let expected = match how {
                "deny" | "approve" if !cancels => "already_decided",
                _ => "refused",
            };
            assert_eq!(refused["code"], expected, "{how}: {refused}");
            if expected == "already_decided" {
                assert_eq!(refused["decision"], if how == "deny" { "denied" } else { "approved" });
                ensure!(refused["decided_by"].is_string() && refused["decided_at"].is_string(), "{refused}");
            }
        }
        dev.post(&format!("{path}/resolve"), json!({"outcome": "success"})).await?.refuses(409, "resolve");
        assert_eq!((dev.head(&session).await?, dev.get(&path).await?.is(200)), (before, shown), "{how}");
    }
    assert_eq!(dev.tool.requests(), 1, "only what was approved ran");
    dev.post("/v1/tool-calls/call_0123456789abcdef0123456789abcdef/approve", json!({})).await?.refuses(404, "call");
    Ok(())
}

async fn an_approval_after_its_time_is_refused(dev: Dev) -> Result<()> {
    let (session, agent) = dev.fleet(&["charge"], "auto").await?;
    let (turn, call) = waiting_call(&dev, &agent).await?;
    assert_eq!(dev.ended(&turn).await?["status"], "completed");
    let before = dev.head(&session).await?;
    let refused = dev.post(&format!("/v1/tool-calls/{call}/approve"), json!({})).await?.refuses(409, "approved");
    assert_eq!((&refused["from"], &refused["code"]), (&json!("timeout_result"), &json!("approval_expired")));
    ensure!(refused["expired_at"].is_string(), "{refused}");
    assert_eq!((dev.head(&session).await?, dev.tool.requests()), (before, 0));
    Ok(())
}

/// Calls that must not run, each with what the model is told.
fn bad_calls() -> Vec<(&'static str, Reply, &'static str)> {
    let call = |arguments: Value| Reply::call("charge", arguments);
    let many: Vec<u8> = vec![0; 1_000_000];
    vec![
        ("no object", Reply::call_raw("charge", "[1, 2]"), "object"),
        ("no json", Reply::call_raw("charge", "{\"token\": "), "JSON"),
        ("missing", call(json!({})), "token"),
        ("extra", call(json!({"token": "t", "to": "me"})), "to"),
        ("wrong type", call(json!({"token": 5})), "token"),
        ("beyond 2^53 as text", call(json!({"token": "t", "cents": "9007199254740993"})), "cents"),
        ("a fraction", call(json!({"token": "t", "cents": 0.5})), "cents"),
        ("a million", call(json!({"token": "t", "list": many})), "limit"),
        ("too large", call(json!({"token": "x".repeat(2_000_000)})), "limit"),
        ("valid and too large", call(json!({"token": "x".repeat(600_000)})), "limit"),
        ("a name without end", Reply::call(&"x".repeat(600_000), json!({})), "charge"),
        ("not its own", Reply::call("refund", json!({"token": "t"})), "refund"),
        ("of nobody", Reply::call("chargé", json!({"token": "t"})), "charg"),
        ("an empty name", Reply::call("", json!({})), "charge"),
    ]
}

fn calls_badly() -> Script {
    Script::function(|request: &Request| {
        if !request.tool_results().is_empty() {
            return Reply::text("I see.");
        }
        let said = request.user_text();
        let found = bad_calls().into_iter().find(|(what, ..)| *what == said);
        found.map_or_else(|| Reply::text("what?"), |(_, reply, _)| reply)
    })
}

async fn a_call_that_the_model_gets_wrong_is_told_and_never_runs(dev: Dev) -> Result<()> {
    for (what, _, words) in bad_calls() {
        // An agent each: what one call said is not in the next one's history.
        let (session, agent) = dev.fleet(&["charge"], "full_access").await?;
        let ended = dev.turn(&agent, what).await.with_context(|| what.to_owned())?;
        assert_eq!(ended["status"], "completed", "{what}: {ended}");
        let calls = dev.calls(&ended).await?;
        assert_eq!(
            (calls.len(), text(&calls[0]["status"])),
            (1, "error_result"),
            "{what}: {:.300}",
            calls[0].to_string()
        );
        let told = dev.model.requests().last().context("a request")?.tool_results();
        ensure!(told.len() == 1 && told[0].content.contains(words), "{what}: {told:?}");
        ensure!(told[0].content.len() < 4_000, "{what}: the model is not told its own megabytes again");
        ensure!(dev.head(&session).await? > 0);
    }
    assert_eq!(dev.tool.requests(), 0, "nothing ran");
    Ok(())
}

async fn an_answer_with_more_calls_than_a_commit_holds_is_an_error_and_none_is_made(dev: Dev) -> Result<()> {
    let (session, agent) = dev.fleet(&["echo"], "full_access").await?;
    let ended = dev.turn(&agent, "many").await?;
    assert_eq!(ended["status"], "error", "{ended}");
    ensure!(text(&ended["error"]["message"]).contains("limit"), "{ended}");
    ensure!(dev.calls(&ended).await?.is_empty(), "none of them is made");
    // The agent is none the worse for it.
    assert_eq!(dev.turn(&agent, "one").await?["status"], "completed");
    let verified = dev.run(&["verify", &session]).await?;
    ensure!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
    Ok(())
}

fn calls_often() -> Script {
    Script::function(|request: &Request| match request.user_text().as_str() {
        "many" if request.tool_results().is_empty() => {
            let call = |n: usize| Reply::call("echo", json!({"text": n.to_string()}));
            (1..1_500).fold(call(0), |reply, n| reply.and(call(n)))
        }
        _ => Reply::text("well"),
    })
}

/// As much as the tool's definition allows it to say.
async fn an_output_beyond_what_a_rune_holds_still_has_its_result(dev: Dev) -> Result<()> {
    let (session, agent) = dev.fleet(&["big"], "full_access").await?;
    let ended = dev.turn(&agent, "go").await?;
    assert_eq!(ended["status"], "completed", "{ended}");
    let call = dev.calls(&ended).await?.remove(0);
    ensure!(call["ended_at"].is_string(), "{call:.300}");
    ensure!(dev.head(&session).await? > 0);
    Ok(())
}

fn asks_for_much() -> Script {
    Script::function(|request| match request.tool_results().is_empty() {
        true => Reply::call("big", json!({})),
        false => Reply::text("much"),
    })
}

async fn an_integer_beyond_what_a_double_holds_is_refused_and_never_runs(dev: Dev) -> Result<()> {
    let (_, agent) = dev.fleet(&["charge"], "full_access").await?;
    let ended = dev.turn(&agent, "big").await?;
    let call = dev.calls(&ended).await?.remove(0);
    assert_eq!(call["status"], "error_result", "{call}");
    assert_eq!(dev.tool.requests(), 0);
    Ok(())
}

fn charges_much() -> Script {
    Script::function(|request| match request.tool_results().is_empty() {
        true => Reply::call_raw("charge", "{\"token\": \"t\", \"cents\": 9007199254740993}"),
        false => Reply::text("charged"),
    })
}

async fn a_question_that_cannot_be_meant_is_refused(dev: Dev) -> Result<()> {
    let (session, agent) = dev.fleet(&[], "full_access").await?;
    let turn = dev.turn(&agent, "hi").await?;
    let (turn, before) = (text(&turn["id"]).to_owned(), dev.head(&session).await?);
    for seconds in ["-1", "x", "", "NaN", "inf", "1e9"] {
        dev.get(&format!("/v1/turns/{turn}?wait={seconds}")).await?.refuses(422, "wait");
    }
    for query in ["limit=0", "limit=1000", "limit=x", "after=x", "after=9223372036854775808", "since=5"] {
        dev.get(&format!("/v1/sessions/{session}/runes?{query}")).await?.refuses(422, "");
    }
    for query in ["status=asleep", "agent=trn_x", "cursor=%00", "cursor=ZZ"] {
        dev.get(&format!("/v1/turns?{query}")).await?.refuses(422, "");
    }
    dev.post(&format!("/v1/turns/{turn}/steer"), json!({"content": "left"})).await?.refuses(409, "steer");
    dev.post(&format!("/v1/turns/{turn}/steer"), json!({"content": ""})).await?.refuses(422, "content");
    dev.post(&format!("/v1/turns/{turn}/interrupt"), json!({})).await?.refuses(409, "interrupt");
    dev.post(&format!("/v1/turns/{turn}/interrupt"), json!({"reason": 5})).await?.refuses(422, "reason");
    assert_eq!(dev.head(&session).await?, before);
    Ok(())
}

async fn a_tool_definition_that_cannot_be_meant_is_refused(dev: Dev) -> Result<()> {
    let before = dev.get("/v1/tools").await?.is(200)["data"].as_array().map(Vec::len);
    let http = |extra: Value| {
        let mut body = json!({"name": "t", "kind": "http", "url": "https://example.com/t"});
        body.as_object_mut().into_iter().for_each(|b| b.extend(extra.as_object().cloned().unwrap_or_default()));
        body
    };
    let cases = [
        (http(json!({"name": ""})), "name"),
        (http(json!({"name": "a b"})), "name"),
        (http(json!({"name": "x".repeat(300)})), "name"),
        (http(json!({"name": "a\u{202e}b"})), "name"),
        (http(json!({"kind": "carrier pigeon"})), "kind"),
        (http(json!({"url": "not a url"})), "url"),
        (http(json!({"url": "file:///etc/passwd"})), "url"),
        (http(json!({"url": "https://user:pass@example.com/"})), "url"),
        (http(json!({"method": "FLY"})), "method"),
        (http(json!({"parameters": 5})), "parameters"),
        (http(json!({"parameters": {"type": "no such type"}})), "parameters"),
        (http(json!({"timeout_ms": 0})), "timeout_ms"),
        (http(json!({"timeout_ms": 1e15 as u64})), "timeout_ms"),
        (http(json!({"max_output_bytes": -1})), "max_output_bytes"),
        (json!({"name": "t", "kind": "command", "command": ["sh", "-c", "id"]}), "command"),
        (json!({"name": "echo", "kind": "http", "url": "https://example.com/t"}), "echo"),
    ];
    for (body, words) in cases {
        let got = dev.post("/v1/tools", body.clone()).await?;
        ensure!(got.status == 422 || got.status == 409, "{body}: {} {}", got.status, got.text);
        let status = got.status;
        got.refuses(status, words);
    }
    assert_eq!(dev.get("/v1/tools").await?.is(200)["data"].as_array().map(Vec::len), before);
    Ok(())
}

async fn the_command_line_says_what_is_wrong_and_ends_with_its_code(dev: Dev) -> Result<()> {
    let (session, agent) = dev.fleet(&[], "full_access").await?;
    let before = dev.head(&session).await?;
    let unknown = "call_0123456789abcdef0123456789abcdef";
    let cases: &[(&[&str], i32, &str)] = &[
        (&["session", "get", "nonsense"], 3, "nonsense"),
        (&["session", "get", "../../etc"], 3, "session"),
        (&["session", "create", "--config", "5"], 1, "config"),
        (&["session", "create", "--budget", "{\"max_tokens\": 0}"], 1, "max_tokens"),
        (&["session", "create", "--budget", "{"], 2, "not JSON"),
        (&["session", "list", "--status", "asleep"], 1, "status"),
        (&["session", "resume", &session], 4, "resume"),
        (&["agent", "create", &session, "--name", "b", "--model", "gpt-99"], 1, "gpt-99"),
        (&["agent", "create", &session, "--name", "b", "--tool", "nope"], 1, "nope"),
        (&["agent", "stop", "agt_0"], 3, "agent"),
        (&["send", &agent, ""], 1, "content"),
        (&["send", "agt_0", "hi"], 3, "agent"),
        (&["turn", "get", &session], 3, "turn"),
        (&["approve", unknown], 3, "call"),
        (&["deny", unknown, "--reason", "no"], 3, "call"),
        (&["tool", "call", "resolve", unknown, "--outcome", "maybe"], 2, "maybe"),
        (&["events", "ses_0"], 3, "session"),
        (&["events", &session, "--after", "-1"], 2, "-1"),
        (&["export", "ses_0", "out.jsonl"], 3, "session"),
        (&["verify", "no-such-file"], 3, "no-such-file"),
    ];
    for (arguments, code, words) in cases {
        let ended = dev.run(arguments).await?;
        let stderr = String::from_utf8_lossy(&ended.stderr);
        ensure!(ended.status.code() == Some(*code), "{arguments:?}: {} {stderr}", ended.status);
        ensure!(stderr.contains(words), "{arguments:?}: {words:?} is not in {stderr}");
        ensure!(!stderr.contains("panicked") && ended.stdout.is_empty(), "{arguments:?}: {stderr}");
    }
    ensure!(!dev.folder.path().join("out.jsonl").exists(), "an export that failed leaves no file");
    assert_eq!(dev.head(&session).await?, before);
    Ok(())
}

on_each! {
    every_bad_key_gets_the_same_answer(super::quiet(), "");
    a_body_that_is_no_clear_json_changes_nothing(super::quiet(), "");
    a_field_given_twice_is_refused(super::quiet(), "");
    a_nul_in_a_text_is_refused_or_kept_but_never_our_fault(super::quiet(), "");
    a_nul_from_the_model_does_not_keep_a_turn_from_its_end(super::says_nul(), "");
    an_id_that_is_none_never_reaches_anything(super::quiet(), "");
    an_agent_that_cannot_be_meant_is_refused_with_every_reason(super::quiet(), "");
    a_limit_that_is_a_word_is_no_limit(super::quiet(), "");
    a_tool_named_twice_is_refused_and_one_that_a_pattern_means_too_is_given_once(super::quiet(), "");
    an_agent_that_has_ended_takes_nothing(super::quiet(), "");
    a_decision_that_comes_too_late_changes_nothing(super::charges(), "");
    an_approval_after_its_time_is_refused(super::charges(), "[worker]\napproval_timeout_ms = 500");
    a_call_that_the_model_gets_wrong_is_told_and_never_runs(super::calls_badly(), "");
    an_answer_with_more_calls_than_a_commit_holds_is_an_error_and_none_is_made(super::calls_often(), "");
    an_output_beyond_what_a_rune_holds_still_has_its_result(super::asks_for_much(), "");
    an_integer_beyond_what_a_double_holds_is_refused_and_never_runs(super::charges_much(), "");
    a_question_that_cannot_be_meant_is_refused(super::quiet(), "");
    a_tool_definition_that_cannot_be_meant_is_refused(super::quiet(), "");
    the_command_line_says_what_is_wrong_and_ends_with_its_code(super::quiet(), "");
}

async fn a_bad_message_on_a_queue_is_put_aside_and_work_goes_on(stage: Stage) -> Result<()> {
    let troupe = Troupe::start(&stage, tool_turn(), Config::default()).await?;
    let (hub, store) = (&troupe.context.hub, troupe.context.hub.store());
    let bus = hub.bus();
    let mut dead = bus.dead_letters("test", Pull::default()).await?;
    let session = cast::session(store).await?;
    let agent = cast::agent_like(store, session, json!({"tools": ["echo"]})).await?;
    let (turns, tools) = (bus.space().work_turn(LANE)?, bus.space().work_tool(CLASS)?);
    let before = audit::runes(store, session).await?.len();

    let good = WorkTurn {
        session_id: session.to_string(),
        agent_id: agent.to_string(),
        turn_id: fresh::<TurnId>().to_string(),
        reason: "queued".into(),
        ..WorkTurn::default()
    };
    let call = WorkTool {
        session_id: session.to_string(),
        turn_id: fresh::<TurnId>().to_string(),
        call_id: fresh::<CallId>().to_string(),
        class: CLASS.into(),
        ..WorkTool::default()
    };
    // Of things that are not there: heard, looked at, forgotten.
    bus.publish(&turns, &good, Stamp::new("unknown-turn")).await?;
    bus.publish(&turns, &WorkTurn { epoch: -7, ..good.clone() }, Stamp::new("old-epoch")).await?;
    bus.publish(&tools, &call, Stamp::new("unknown-call")).await?;
    bus.publish(&tools, &WorkTool { turn_id: "nonsense".into(), ..call.clone() }, Stamp::new("no-turn")).await?;
    // That cannot be understood: kept for an operator, with the reason.
    bus.publish(&turns, &WorkTurn { turn_id: "../..".into(), ..good.clone() }, Stamp::new("bad-turn")).await?;
    bus.publish(&tools, &WorkTool { call_id: session.to_string(), ..call }, Stamp::new("bad-call")).await?;
    bus.publish_raw(turns.as_str(), vec![0xff, 0x00, 0x13].into(), "garbage").await?;
    let mut reasons = Vec::new();
    for _ in 0..3 {
        let letter = tokio::time::timeout(WITHIN, dead.next()).await.context("a dead letter")?;
        reasons.push(letter.value().reason.clone());
        letter.ack().await?;
    }
    reasons.sort();
    ensure!(
        reasons.iter().any(|r| r.contains("turn_id")) && reasons.iter().any(|r| r.contains("call_id")),
        "{reasons:?}"
    );
    assert_eq!(audit::runes(store, session).await?.len(), before, "nothing was written");
    let turn = troupe.send(agent, "echo on", Mode::Queue).await?.context("a turn")?;
    assert_eq!(troupe.ended(turn).await?.status, "completed");
    troupe.audit(session).await
}

async fn a_hint_with_an_agent_that_is_none_is_put_aside(stage: Stage) -> Result<()> {
    let troupe = Troupe::start(&stage, tool_turn(), Config::default()).await?;
    let bus = troupe.context.hub.bus();
    let mut dead = bus.dead_letters("test", Pull::default()).await?;
    let bad = WorkTurn {
        session_id: fresh::<SessionId>().to_string(),
        agent_id: "nonsense".into(),
        turn_id: fresh::<TurnId>().to_string(),
        reason: "queued".into(),
        ..WorkTurn::default()
    };
    bus.publish(&bus.space().work_turn(LANE)?, &bad, Stamp::new("bad-agent")).await?;
    let letter = tokio::time::timeout(Duration::from_secs(8), dead.next()).await;
    let letter = letter.context("it comes again and again instead")?;
    ensure!(letter.value().reason.contains("agent_id"), "{}", letter.value().reason);
    Ok(())
}

async fn a_hint_about_the_work_of_another_session_does_not_reach_it(stage: Stage) -> Result<()> {
    let troupe = Troupe::start(&stage, tool_turn(), Config::default()).await?;
    let (store, bus) = (troupe.context.hub.store(), troupe.context.hub.bus());
    let (session, other) = (cast::session(store).await?, cast::session(store).await?);
    let agent = cast::agent_like(store, session, json!({"tools": ["charge"], "approval_mode": "auto"})).await?;
    let stranger: AgentId = cast::agent_like(store, other, json!({})).await?;
    let turn = troupe.send(agent, "charge it", Mode::Queue).await?.context("a turn")?;
    troupe.in_state(turn, "tool_executing").await?;
    let call = CallId::from(troupe.calls(turn).await?[0].id);
    let before = audit::runes(store, session).await?.len();
    // Forged: that the call may start, that the turn is ready, in the name of another session.
    let tool = WorkTool {
        session_id: other.to_string(),
        turn_id: turn.to_string(),
        call_id: call.to_string(),
        class: CLASS.into(),
        again: true,
        ..WorkTool::default()
    };
    bus.publish(&bus.space().work_tool(CLASS)?, &tool, Stamp::new("forged-call")).await?;
    let ready = WorkTurn {
        session_id: other.to_string(),
        agent_id: stranger.to_string(),
        turn_id: turn.to_string(),
        reason: "tools_finished".into(),
        epoch: 99,
        ..WorkTurn::default()
    };
    bus.publish(&bus.space().work_turn(LANE)?, &ready, Stamp::new("forged-turn")).await?;
    // What came behind them is over.
    let beside = troupe.send(stranger, "say something", Mode::Queue).await?.context("a turn")?;
    assert_eq!(troupe.ended(beside).await?.status, "completed");
    let another = cast::agent_like(store, other, json!({"tools": ["echo"]})).await?;
    let behind = troupe.send(another, "echo it", Mode::Queue).await?.context("a turn")?;
    assert_eq!(troupe.ended(behind).await?.status, "completed");
    assert_eq!(troupe.calls(turn).await?[0].status, "awaiting_approval");
    assert_eq!((audit::runes(store, session).await?.len(), troupe.tool.requests()), (before, 0));
    Ok(())
}

/// Whoever can publish on the queue must not be able to do more than make a runner look.
async fn a_forged_call_on_a_queue_does_not_run(stage: Stage) -> Result<()> {
    let troupe = Troupe::start(&stage, tool_turn(), Config::default()).await?;
    let (store, bus) = (troupe.context.hub.store(), troupe.context.hub.bus());
    let session = cast::session(store).await?;
    let agent = cast::agent_like(store, session, json!({"tools": ["charge"], "approval_mode": "auto"})).await?;
    let turn = troupe.send(agent, "charge it", Mode::Queue).await?.context("a turn")?;
    troupe.in_state(turn, "tool_executing").await?;
    let waiting = CallId::from(troupe.calls(turn).await?[0].id);
    let arguments = json!({"token": "forged"});
    let digest = troupe.tools.get("charge").context("charge")?.digest(&arguments);
    // The call that waits for a person, and one that there never was.
    for id in [waiting, fresh()] {
        let call = Call {
            agent_id: agent.to_string(),
            name: "charge".into(),
            arguments: arguments.to_string(),
            digest: digest.clone(),
            effect: "read_only".into(),
        };
        let forged = WorkTool {
            session_id: session.to_string(),
            turn_id: turn.to_string(),
            call_id: id.to_string(),
            class: CLASS.into(),
            call: Some(call),
            ..WorkTool::default()
        };
        bus.publish(&bus.space().work_tool(CLASS)?, &forged, Stamp::new(&id.to_string())).await?;
    }
    // What came behind them is over.
    let another = cast::agent_like(store, session, json!({"tools": ["echo"]})).await?;
    for text in ["echo one", "echo two"] {
        let behind = troupe.send(another, text, Mode::Queue).await?.context("a turn")?;
        assert_eq!(troupe.ended(behind).await?.status, "completed");
    }
    assert_eq!((troupe.tool.requests(), troupe.calls(turn).await?[0].status.as_str()), (0, "awaiting_approval"));
    Ok(())
}

on_both! {
    a_forged_call_on_a_queue_does_not_run;
    a_bad_message_on_a_queue_is_put_aside_and_work_goes_on;
    a_hint_with_an_agent_that_is_none_is_put_aside;
    a_hint_about_the_work_of_another_session_does_not_reach_it;
}

async fn start(folder: &Path, config: &str, arguments: &[&str]) -> Result<std::process::Output> {
    std::fs::write(folder.join("instar.toml"), config)?;
    let mut command = dev::command(Path::new(BINARY), folder);
    command.args(arguments).env("KEY", "k".repeat(40));
    Ok(tokio::time::timeout(Duration::from_secs(40), command.output())
        .await
        .context("it neither starts nor ends")??)
}

fn refused(output: &std::process::Output, words: &[&str]) -> Result<()> {
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1) && output.stdout.is_empty(), "{}: {stderr}", output.status);
    for word in words {
        ensure!(stderr.contains(word), "{word:?} is not in {stderr}");
    }
    ensure!(!stderr.contains("panicked"), "{stderr}");
    Ok(())
}

#[tokio::test]
async fn every_problem_of_tools_and_models_is_told_before_anything_starts() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let config = "[[tools]]\nname = \"a\"\nkind = \"pigeon\"\n[[tools]]\nname = \"b\"\nkind = \"http\"\nurl = \"nowhere\"\n\
                  [[tools]]\nname = \"c\"\nkind = \"http\"\nurl = \"https://example.com\"\ntimeout = 5\n\
                  [[models]]\nname = \"m\"\nprovider = \"openai\"\nmodel = \"x\"\nbase_url = \"http://localhost:1/v1\"\n";
    let output = start(folder.path(), config, &["dev", "--port", "0", "--data-dir", "data", "--api-key", "k"]).await?;
    refused(&output, &["tools[0]: ", "pigeon", "tools[1]: tool b: url", "tools[2]: ", "timeout"])?;
    ensure!(!folder.path().join("data/instar.db").exists(), "nothing was made");
    Ok(())
}

#[tokio::test]
async fn a_service_does_not_start_where_it_could_not_work() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let broker = nats::shared().await?;
    let config = |database: &str, broker: &str| {
        format!(
            "[database]\nurl = \"{database}\"\n[nats]\nurl = \"{broker}\"\nprefix = \"b{}\"\nconnect_timeout_ms = 1000\n\
             [auth]\nbootstrap_key_env = \"KEY\"\n[api]\nlisten = \"127.0.0.1:{}\"\n[[models]]\nname = \"m\"\n\
             provider = \"openai\"\nmodel = \"x\"\nbase_url = \"http://localhost:1/v1\"\n",
            uuid::Uuid::now_v7().simple(),
            wait::free_port().unwrap_or(1),
        )
    };
    let nobody = "postgres://postgres@127.0.0.1:1/nothing";
    for service in ["api", "scheduler", "agent-worker", "tool-runner"] {
        let output = start(folder.path(), &config(nobody, &broker), &["serve", service]).await?;
        refused(&output, &["instar: "]).with_context(|| format!("{service} without a database"))?;
    }
    Ok(())
}

/// The database that it should bring up to date first.
#[tokio::test]
async fn a_service_does_not_start_on_a_schema_that_is_behind() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (database, broker) = (postgres::shared().await?, nats::shared().await?);
    let config = format!(
        "[database]\nurl = \"{database}\"\n[nats]\nurl = \"{broker}\"\nprefix = \"b{}\"\n[auth]\nbootstrap_key_env = \"KEY\"\n",
        uuid::Uuid::now_v7().simple(),
    );
    for service in ["scheduler", "tool-runner", "agent-worker", "api"] {
        let output = start(folder.path(), &config, &["serve", service]).await;
        let output = output.with_context(|| format!("{service} on an empty database"))?;
        refused(&output, &["migrate"]).with_context(|| format!("{service} on an empty database"))?;
    }
    Ok(())
}
