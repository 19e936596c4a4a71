//! Tool calls: approved, denied, cancelled, refused, lost; each has one result.

use crate::world::{WITHIN, World, calls_once, text};
use crate::{Group, scenarios};
use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use instar_testkit::model::Reply;
use serde_json::{Value, json};

pub(crate) static PLAIN: Group = Group {
    name: "call",
    config: "[[tools]]\nname = \"talk\"\nkind = \"command\"\nparameters = { type = \"object\" }\n\
             command = [\"/bin/sh\", \"-c\", \"for n in 1 2 3; do echo step $n >&2; echo page $n; sleep 1; done; echo {}\"]\n",
    environment: &[],
    at_once: 4,
    scenarios: scenarios![
        is_approved_by_policy_and_by_a_person,
        is_denied_by_a_person,
        is_denied_by_policy,
        is_judged_by_what_its_agent_says_of_the_tool,
        is_cancelled_before_and_while_it_runs,
        is_refused_when_it_is_no_call,
        may_not_leave_its_sandbox,
        is_not_asked_about_outside_its_policy,
        fails_and_the_model_is_told,
        says_how_far_it_is,
        may_be_of_a_tool_that_was_registered_by_a_request,
    ],
};

/// Clocks so short that they run out.
pub(crate) static HASTY: Group = Group {
    name: "hasty_call",
    config: "[worker]\napproval_timeout_ms = 400\n\
             [[tools]]\nname = \"sleep\"\nkind = \"builtin\"\ntimeout_ms = 300\n",
    environment: &[],
    at_once: 4,
    scenarios: scenarios![nobody_decides_in_time, takes_longer_than_it_may],
};

/// Processes die here.
pub(crate) static MORTAL: Group = Group {
    name: "mortal_call",
    config: "[lease]\nttl_ms = 600\n",
    environment: &[],
    at_once: 1,
    scenarios: scenarios![
        is_run_again_if_that_does_no_harm,
        is_unknown_and_resolved_by_a_person,
        is_unknown_and_asked_for_again,
        is_given_up_when_it_costs_too_many_runners,
    ],
};

/// The runner is slow to say what came of an effect.
pub(crate) static LATE: Group = Group {
    name: "late_call",
    config: "",
    environment: &[("INSTAR_CRASH_AT", "runner.effect.after:wait")],
    at_once: 1,
    scenarios: scenarios![has_its_result_when_another_comes],
};

async fn is_approved_by_policy_and_by_a_person(world: World) -> Result<()> {
    world.script(calls_once("charge", json!({"token": "approved"})));
    let session = world.session().await?;
    let free = world.agent(&session, json!({"tools": ["charge"]})).await?;
    let first = world.turn(&free, "go").await?;
    ensure!(first["status"] == "completed");
    let asked = world.agent(&session, json!({"tools": ["charge"], "approval_mode": "auto"})).await?;
    let turn = world.begin(&asked, "go").await?;
    let call = world.call_is(&turn, "awaiting_approval").await?;
    let waiting = world.get(&format!("/v1/turns/{turn}")).await?;
    ensure!(waiting["waiting_for"].to_string().contains("approval"), "{waiting}");
    world.act(&format!("/v1/tool-calls/{call}/approve"), json!({})).await?;
    ensure!(world.ended(&turn).await?["status"] == "completed");
    let shown = world.get(&format!("/v1/tool-calls/{call}")).await?;
    ensure!(shown["status"] == "completed_result", "{shown}");
    let free = world.call_is(&text(&first, "id")?, "completed_result").await?;
    let effects = world.fleet().tool.ledger().effects();
    let times = |call: &String| effects.iter().filter(|effect| effect.key.as_ref() == Some(call)).count();
    ensure!((times(&free), times(&call)) == (1, 1), "{effects:?}");
    Ok(())
}

/// Every process has the tool. That it points inside is found by whoever runs it, and by nobody before.
async fn may_be_of_a_tool_that_was_registered_by_a_request(world: World) -> Result<()> {
    world.script(calls_once("errand", json!({})));
    let session = world.session().await?;
    let tool = json!({"name": "errand", "kind": "http", "url": "http://127.0.0.1:9/errand", "side_effects": false});
    let (path, agent) = (format!("/v1/sessions/{session}/agents"), world.described(json!({"tools": ["errand"]})));
    world.post(&path, agent.clone()).await?.refuses(422, "no tool");
    ensure!(world.post("/v1/tools", tool).await?.status == 201);
    let errand = world.agent(&session, json!({"tools": ["errand"]})).await?;
    let turn = world.begin(&errand, "go").await?;
    ensure!(world.ended(&turn).await?["status"] == "completed");
    let calls = world.calls(&turn, |calls| calls.len() == 1).await?;
    ensure!(calls[0]["result"].to_string().contains("egress_blocked"), "{calls:?}");
    ensure!(world.request("DELETE", "/v1/tools/errand", None).await?.status == 200);
    world.post(&path, agent).await?.refuses(422, "no tool");
    Ok(())
}

async fn is_denied_by_a_person(world: World) -> Result<()> {
    world.script(calls_once("charge", json!({"token": "denied"})));
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"tools": ["charge"], "approval_mode": "auto"})).await?;
    let turn = world.begin(&agent, "go").await?;
    let call = world.call_is(&turn, "awaiting_approval").await?;
    world.act(&format!("/v1/tool-calls/{call}/deny"), json!({"reason": "too dear"})).await?;
    ensure!(world.ended(&turn).await?["status"] == "completed");
    world.call_is(&turn, "denied").await?;
    world.refused(&format!("/v1/tool-calls/{call}/approve"), json!({}), "denied").await?;
    Ok(())
}

async fn is_judged_by_what_its_agent_says_of_the_tool(world: World) -> Result<()> {
    world.script(calls_once("charge", json!({"token": "named"})));
    let session = world.session().await?;
    let free = json!({"tools": ["charge"], "approval_mode": "auto", "tool_approvals": {"charge": "never"}});
    let free = world.agent(&session, free).await?;
    ensure!(world.turn(&free, "go").await?["status"] == "completed", "never asks, whatever the mode says");
    let asks = json!({"tools": ["charge"], "approval_mode": "full_access", "tool_approvals": {"charge": "always"}});
    let asks = world.agent(&session, asks).await?;
    let shown = world.get(&format!("/v1/agents/{asks}")).await?;
    ensure!(shown["tool_approvals"] == json!({"charge": "always"}), "{shown}");
    let turn = world.begin(&asks, "go").await?;
    let call = world.call_is(&turn, "awaiting_approval").await?;
    world.act(&format!("/v1/tool-calls/{call}/approve"), json!({})).await?;
    ensure!(world.ended(&turn).await?["status"] == "completed");
    // A never opens nothing that read_only forbids.
    let shut = json!({"tools": ["charge"], "approval_mode": "read_only", "tool_approvals": {"charge": "never"}});
    let shut = world.agent(&session, shut).await?;
    let turn = world.begin(&shut, "go").await?;
    ensure!(world.ended(&turn).await?["status"] == "completed");
    world.call_is(&turn, "denied").await?;
    Ok(())
}

async fn is_denied_by_policy(world: World) -> Result<()> {
    world.script(calls_once("charge", json!({"token": "never"})));
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"tools": ["charge"], "approval_mode": "read_only"})).await?;
    let turn = world.begin(&agent, "go").await?;
    ensure!(world.ended(&turn).await?["status"] == "completed");
    world.call_is(&turn, "denied").await?;
    Ok(())
}

async fn is_cancelled_before_and_while_it_runs(world: World) -> Result<()> {
    world.script(calls_once("slow_charge", json!({"token": "cancelled"})));
    let session = world.session().await?;
    let asked = world.agent(&session, json!({"tools": ["slow_charge"], "approval_mode": "auto"})).await?;
    let turn = world.begin(&asked, "go").await?;
    let call = world.call_is(&turn, "awaiting_approval").await?;
    world.act(&format!("/v1/tool-calls/{call}/cancel"), json!({})).await?;
    ensure!(world.ended(&turn).await?["status"] == "completed");
    world.call_is(&turn, "cancelled_result").await?;

    let free = world.agent(&session, json!({"tools": ["slow_charge"]})).await?;
    let turn = world.begin(&free, "go").await?;
    let call = world.call_is(&turn, "executing").await?;
    let started = |found: &Value| found["attempts"] == 1;
    world.until(&format!("/v1/tool-calls/{call}"), started).await?;
    world.act(&format!("/v1/tool-calls/{call}/cancel"), json!({})).await?;
    ensure!(world.ended(&turn).await?["status"] == "completed");
    Ok(())
}

async fn is_refused_when_it_is_no_call(world: World) -> Result<()> {
    world.script(|request| match request.tool_results().is_empty() {
        true => Reply::call("charge", json!({"wrong": 1})).and(Reply::call("no_such_tool", json!({}))),
        false => Reply::text("I see."),
    });
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"tools": ["charge"]})).await?;
    let turn = world.begin(&agent, "go").await?;
    ensure!(world.ended(&turn).await?["status"] == "completed");
    let calls = world.calls(&turn, |calls| calls.len() == 2).await?;
    ensure!(calls.iter().all(|call| call["status"] == "error_result"), "{calls:?}");
    Ok(())
}

async fn may_not_leave_its_sandbox(world: World) -> Result<()> {
    world.script(calls_once("http_fetch", json!({"url": "http://169.254.169.254/latest/meta-data"})));
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"tools": ["http_fetch"]})).await?;
    let turn = world.begin(&agent, "go").await?;
    ensure!(world.ended(&turn).await?["status"] == "completed");
    let calls = world.calls(&turn, |calls| calls.len() == 1).await?;
    ensure!(calls[0]["result_status"] == "sandbox_violation", "{calls:?}");
    Ok(())
}

async fn is_not_asked_about_outside_its_policy(world: World) -> Result<()> {
    world.script(calls_once("http_fetch", json!({"url": "https://elsewhere.test/"})));
    let session = world.session().await?;
    let policy = json!({"network_allowlist": ["*.example.com"], "denied_paths": ["/etc"]});
    let asks = json!({"tools": ["http_fetch"], "tool_approvals": {"http_fetch": "always"}, "policy": policy});
    let agent = world.agent(&session, asks).await?;
    ensure!(world.get(&format!("/v1/agents/{agent}")).await?["policy"] == policy);
    let turn = world.begin(&agent, "go").await?;
    ensure!(world.ended(&turn).await?["status"] == "completed", "nobody had to say anything");
    let calls = world.calls(&turn, |calls| calls.len() == 1).await?;
    let why = calls[0]["result"]["error"].as_str().unwrap_or_default();
    ensure!(calls[0]["status"] == "error_result" && calls[0]["result_status"] == "sandbox_violation", "{calls:?}");
    ensure!(why.contains("elsewhere.test") && why.contains("*.example.com") && calls[0]["attempts"] == 0, "{calls:?}");
    let kinds = world.runes(&session).await?;
    ensure!(kinds.iter().all(|rune| rune["kind"] != "tool.approval_requested"), "somebody was asked");
    Ok(())
}

async fn fails_and_the_model_is_told(world: World) -> Result<()> {
    world.script(calls_once("fail_charge", json!({"token": "failed"})));
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"tools": ["fail_charge"]})).await?;
    let turn = world.begin(&agent, "go").await?;
    ensure!(world.ended(&turn).await?["status"] == "completed");
    let calls = world.calls(&turn, |calls| calls.len() == 1).await?;
    ensure!(calls[0]["result_status"] == "error", "{calls:?}");
    Ok(())
}

async fn nobody_decides_in_time(world: World) -> Result<()> {
    world.script(calls_once("charge", json!({"token": "undecided"})));
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"tools": ["charge"], "approval_mode": "auto"})).await?;
    let turn = world.begin(&agent, "go").await?;
    ensure!(world.ended(&turn).await?["status"] == "completed");
    world.call_is(&turn, "timeout_result").await?;
    Ok(())
}

async fn takes_longer_than_it_may(world: World) -> Result<()> {
    world.script(calls_once("sleep", json!({"ms": 60_000})));
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"tools": ["sleep"]})).await?;
    let turn = world.begin(&agent, "go").await?;
    ensure!(world.ended(&turn).await?["status"] == "completed");
    world.call_is(&turn, "timeout_result").await?;
    Ok(())
}

async fn is_run_again_if_that_does_no_harm(world: World) -> Result<()> {
    world.script(calls_once("slow_put", json!({"token": "again"})));
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"tools": ["slow_put"]})).await?;
    let turn = world.begin(&agent, "go").await?;
    world.runes_of(&session, "tool.started", 1).await?;
    world.kill("tool-runner").await?;
    ensure!(world.ended(&turn).await?["status"] == "completed");
    world.call_is(&turn, "completed_result").await?;
    world.runes_of(&session, "tool.reclaimed", 1).await?;
    Ok(())
}

async fn is_unknown_and_resolved_by_a_person(world: World) -> Result<()> {
    world.script(calls_once("slow_charge", json!({"token": "unknown"})));
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"tools": ["slow_charge"]})).await?;
    let turn = world.begin(&agent, "go").await?;
    world.runes_of(&session, "tool.started", 1).await?;
    world.kill("tool-runner").await?;
    ensure!(world.ended(&turn).await?["status"] == "completed");
    let calls = world.calls(&turn, |calls| calls.len() == 1).await?;
    ensure!(calls[0]["result_status"] == "unknown", "{calls:?}");
    let call = text(&calls[0], "id").context("the call")?;
    let path = format!("/v1/turns/{turn}/context");
    let before = world.get(&path).await?;
    ensure!(before["exact"] == true && before.to_string().contains("unknown"), "{before:#}");
    world
        .act(&format!("/v1/tool-calls/{call}/resolve"), json!({"outcome": "success", "output": "it was done"}))
        .await?;
    world.runes_of(&session, "tool.resolved", 1).await?;
    // What its model was told then stays what it was told then.
    ensure!(world.get(&path).await? == before);
    // From now on it is told what it was, also by a worker that knew the agent by heart.
    world.script(|_| Reply::text("I see."));
    let next = text(&world.turn(&agent, "well?").await?, "id").context("the next turn")?;
    let told = world.get(&format!("/v1/turns/{next}/context")).await?;
    ensure!(told["exact"] == true && told.to_string().contains("it was done"), "{told:#}");
    Ok(())
}

async fn is_unknown_and_asked_for_again(world: World) -> Result<()> {
    world.script(calls_once("slow_charge", json!({"token": "again"})));
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"tools": ["slow_charge"]})).await?;
    let turn = world.begin(&agent, "go").await?;
    world.runes_of(&session, "tool.started", 1).await?;
    world.kill("tool-runner").await?;
    ensure!(world.ended(&turn).await?["status"] == "completed");
    let calls = world.calls(&turn, |calls| calls.len() == 1).await?;
    let call = text(&calls[0], "id").context("the call")?;
    let path = format!("/v1/tool-calls/{call}");
    let resolved = world.act(&format!("{path}/resolve"), json!({"outcome": "retry"})).await?;
    let resolution = &resolved["result"]["resolution"];
    ensure!(resolution["outcome"] == "retry" && resolved["result_status"] == "unknown", "{resolved}");
    let next = text(resolution, "turn_id").context("the turn that was asked to make it again")?;
    ensure!(world.ended(&next).await?["status"] == "completed");
    let again = world.calls(&next, |calls| calls.len() == 1).await?;
    ensure!(again[0]["result_status"] == "success" && again[0]["name"] == "slow_charge", "{again:?}");
    world.refused(&format!("{path}/resolve"), json!({"outcome": "retry"}), "resolve").await?;
    Ok(())
}

async fn is_given_up_when_it_costs_too_many_runners(world: World) -> Result<()> {
    world.script(calls_once("slow_put", json!({"token": "poison"})));
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"tools": ["slow_put"]})).await?;
    let turn = world.begin(&agent, "go").await?;
    for attempt in 1..=3 {
        world.runes_of(&session, "tool.started", attempt).await?;
        world.kill("tool-runner").await?;
    }
    let turn = world.ended(&turn).await?;
    ensure!(turn["status"] == "error" && turn["error"]["error_type"] == "tool_crash", "{turn}");
    Ok(())
}

async fn says_how_far_it_is(world: World) -> Result<()> {
    world.script(calls_once("talk", json!({})));
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"tools": ["talk"]})).await?;
    let mut events = world.fleet().client.events(&session, 0);
    let turn = world.begin(&agent, "go").await?;
    // At once, to whoever listens ...
    let mut heard = std::collections::BTreeSet::new();
    while heard.len() < 2 {
        let event = tokio::time::timeout(WITHIN, events.next()).await.context("no progress is heard")?;
        if let instar_client::Event::Progress(said) = event.context("the stream ended")?? {
            ensure!(said.turn_id == turn && said.text.len() < 100, "{said:?}");
            heard.extend(said.stream);
        }
    }
    ensure!(heard.iter().eq(["stderr", "stdout"]), "{heard:?}");
    ensure!(world.ended(&turn).await?["status"] == "completed");
    // ... and in the log, by output.
    let said = world.runes_of(&session, "tool.progress", 2).await?;
    for (stream, words) in [("stdout", "page 1"), ("stderr", "step 1")] {
        let first = said.iter().find(|rune| rune["payload"]["stream"] == stream);
        let chunk = first.and_then(|rune| rune["payload"]["chunk"].as_str());
        ensure!(chunk.is_some_and(|chunk| chunk.contains(words) && !chunk.contains("{}")), "{said:?}");
        ensure!(chunk.is_some_and(|chunk| chunk.contains("page") != chunk.contains("step")), "{said:?}");
    }
    Ok(())
}

async fn has_its_result_when_another_comes(world: World) -> Result<()> {
    world.script(calls_once("charge", json!({"token": "late"})));
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"tools": ["charge"]})).await?;
    let turn = world.begin(&agent, "go").await?;
    world.runes_of(&session, "tool.started", 1).await?;
    instar_testkit::wait::until(WITHIN, || async { !world.fleet().tool.ledger().effects().is_empty() }).await;
    let call = world.call_is(&turn, "executing").await?;
    world.act(&format!("/v1/tool-calls/{call}/cancel"), json!({})).await?;
    ensure!(world.ended(&turn).await?["status"] == "completed");
    world.runes_of(&session, "system.invariant_violation", 1).await?;
    world.call_is(&turn, "cancelled_result").await?;
    Ok(())
}
