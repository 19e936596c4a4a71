//! Tools of MCP servers, from discovery to result, and servers that are not there, die or change their mind.

use crate::world::{World, calls_once, text};
use crate::{Group, scenarios};
use anyhow::{Context, Result, ensure};
use instar_core::id::AgentId;
use instar_runtime::Hub;
use instar_store::entity::mission;
use instar_testkit::mcp::Witnessed;
use instar_testkit::model::{Reply, Request};
use instar_testkit::wait;
use instar_tests::stage;
use instar_tests::voyage::{Plan, Voyage, plainly};
use serde_json::{Value, json};
use std::path::PathBuf;

/// A server in the folder of the installation, where its witness is.
macro_rules! server {
    ($name:literal, $arguments:literal, $more:literal) => {
        concat!(
            "[[mcp_servers]]\nname = \"",
            $name,
            "\"\ntransport = \"stdio\"\nfolder = \".\"\ncommand = [\"",
            env!("CARGO_BIN_EXE_mcp-server"),
            "\", \"stdio\", \"--witness\", \"witness-",
            $name,
            "\"",
            $arguments,
            "]\n",
            $more
        )
    };
}

pub(crate) static PLAIN: Group = Group {
    name: "mcp",
    config: concat!(
        server!("test", "", "trust_annotations = true\n"),
        server!("modern", ", \"--modern\"", ""),
        server!("moody", "", ""),
        server!("frail", "", ""),
        server!("broken", ", \"--fault\", \"exit\"", ""),
    ),
    environment: &[],
    at_once: 4,
    scenarios: scenarios![
        tools_are_discovered_offered_and_called,
        a_server_that_is_not_there_leaves_its_agents_to_chat,
        an_effect_waits_for_its_approval_and_happens_once,
        a_server_that_dies_in_a_call_leaves_it_unknown,
        a_changed_definition_is_withheld_until_a_person_accepts_it,
        an_interrupt_reaches_the_server,
    ],
};

/// A server that takes its time to start, and some that take too long to answer, each for a scenario of its own: one
/// that lets calls run out of time is started anew.
pub(crate) static SLOW: Group = Group {
    name: "slow_mcp",
    config: concat!(
        server!("late", ", \"--gate\", \"late-may-start\"", ""),
        server!("hung", "", "timeout_ms = 300\n"),
        server!("mute", "", "timeout_ms = 300\n"),
        server!("numb", "", "timeout_ms = 300\noverrides = { slow = { side_effects = false } }\n"),
    ),
    environment: &[("INSTAR__RUNNER__SETTLE_MS", "100")],
    at_once: 3,
    scenarios: scenarios![
        an_agent_is_in_the_making_until_its_tools_are_known,
        a_server_that_hangs_stops_the_agent_that_waits_for_it,
        a_server_that_hangs_once_in_each_turn_stops_the_agent_as_well,
        a_server_that_hangs_stops_the_idle_agent_whose_steps_wait_for_it,
    ],
};

/// Processes die here.
pub(crate) static MORTAL: Group = Group {
    name: "mortal_mcp",
    config: concat!("[lease]\nttl_ms = 600\n", server!("test", "", "")),
    environment: &[],
    at_once: 1,
    scenarios: scenarios![a_runner_that_is_killed_takes_its_servers_along],
};

fn witness(world: &World, server: &str) -> PathBuf {
    world.fleet().folder.path().join(format!("witness-{server}"))
}

async fn tool(world: &World, name: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
    let find = |list: &Value| list["data"].as_array().and_then(|d| d.iter().find(|t| t["name"] == name).cloned());
    let list = world.until("/v1/tools", |list| find(list).is_some_and(|tool| wanted(&tool))).await?;
    find(&list).context("it is gone")
}

async fn result(world: &World, turn: &Value) -> Result<Value> {
    let calls = world.calls(&text(turn, "id")?, |calls| !calls.is_empty()).await?;
    Ok(calls[0].clone())
}

async fn tools_are_discovered_offered_and_called(world: World) -> Result<()> {
    world.script(|request: &Request| match request.tool_results().is_empty() {
        true if !request.tools().contains(&"modern__now") => Reply::text("I was not offered it."),
        true => Reply::call("modern__now", json!({})),
        false => Reply::text(format!("It is {}", request.tool_results()[0].content)),
    });
    let known = tool(&world, "test.now", |tool| tool["available"] == true).await?;
    assert_eq!((&known["kind"], &known["server"], &known["origin"]), (&json!("mcp"), &json!("test"), &json!("server")));
    assert_eq!((&known["side_effects"], &known["reason"]), (&json!(false), &Value::Null));
    let untrusted = tool(&world, "modern.now", |tool| tool["available"] == true).await?;
    assert_eq!(untrusted["side_effects"], true);
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"tools": ["modern.*"]})).await?;
    let turn = world.turn(&agent, "What time is it?").await?;
    assert!(turn["output"].as_str().is_some_and(|said| said.contains("noon")), "{turn}");
    let call = result(&world, &turn).await?;
    assert_eq!((&call["name"], &call["result"]["output"]), (&json!("modern.now"), &json!({"time": "noon"})));
    let (code, said) = world.run(&["tool", "servers"]).await?;
    ensure!(code == 0 && said.contains("2026-07-28") && said.contains("2025-11-25"), "{said}");
    let (code, said) = world.run(&["tool", "list"]).await?;
    ensure!(code == 0 && said.contains("modern.now"), "{said}");
    Ok(())
}

async fn a_server_that_is_not_there_leaves_its_agents_to_chat(world: World) -> Result<()> {
    world.script(|request: &Request| match request.tool_results().is_empty() {
        true => Reply::call("broken__anything", json!({})),
        false => Reply::text("Then not."),
    });
    let failing = world
        .until("/v1/mcp-servers", |list| {
            let rows = list["data"].as_array().cloned().unwrap_or_default();
            rows.iter().any(|row| row["name"] == "broken" && row["status"] == "failing")
        })
        .await?;
    ensure!(failing.to_string().contains("the configuration file is missing"), "{failing}");
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"tools": ["broken.*", "broken.anything", "echo"]})).await?;
    let turn = world.turn(&agent, "Use it.").await?;
    assert_eq!((&turn["status"], &turn["output"]), (&json!("completed"), &json!("Then not.")), "{turn}");
    let call = result(&world, &turn).await?;
    assert_eq!(call["result_status"], "error", "{call}");
    Ok(())
}

async fn an_effect_waits_for_its_approval_and_happens_once(world: World) -> Result<()> {
    world.script(calls_once("test__charge", json!({"token": "x"})));
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"tools": ["test.*"], "approval_mode": "auto"})).await?;
    let turn = world.begin(&agent, "Charge it.").await?;
    let call = world.call_is(&turn, "awaiting_approval").await?;
    assert_eq!(Witnessed::count(witness(&world, "test"), "charge"), 0);
    world.act(&format!("/v1/tool-calls/{call}/approve"), json!({})).await?;
    assert_eq!(world.ended(&turn).await?["status"], "completed");
    let done = Witnessed::read(witness(&world, "test"));
    assert_eq!(done.iter().filter(|line| line.what == "charge").count(), 1);
    assert!(done.iter().any(|line| line.key.as_deref() == Some(&call)), "{done:?}");
    Ok(())
}

async fn a_server_that_dies_in_a_call_leaves_it_unknown(world: World) -> Result<()> {
    world.script(|request: &Request| {
        let (text, results) = (request.user_text(), request.tool_results());
        match results.len() {
            0 if text.contains("die") => Reply::call("frail__die", json!({"token": "x"})),
            0 => Reply::call("frail__now", json!({})),
            _ => Reply::text("Done."),
        }
    });
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"tools": ["frail.*"]})).await?;
    let turn = world.turn(&agent, "Let it die.").await?;
    let call = result(&world, &turn).await?;
    assert_eq!(call["result_status"], "unknown", "{call}");
    let why = call["result"]["error"].as_str().unwrap_or_default();
    assert!(why.contains("the server ended before it answered"), "{call}");
    assert_eq!(Witnessed::count(witness(&world, "frail"), "die"), 1);
    tool(&world, "frail.now", |tool| tool["available"] == true).await?;
    let other = world.agent(&session, json!({"name": "bob", "tools": ["frail.*"]})).await?;
    let turn = world.turn(&other, "What time is it?").await?;
    assert_eq!(result(&world, &turn).await?["result_status"], "success", "{turn}");
    Ok(())
}

async fn a_changed_definition_is_withheld_until_a_person_accepts_it(world: World) -> Result<()> {
    world.script(|request: &Request| {
        let (text, results) = (request.user_text(), request.tool_results());
        match results.len() {
            0 if text.contains("change") => Reply::call("moody__change", json!({"to": "Says the time, and more"})),
            0 if text.contains("add") => Reply::call("moody__add", json!({})),
            0 => Reply::call("moody__now", json!({})),
            _ => Reply::text("Done."),
        }
    });
    let session = world.session().await?;
    let ask = async |name: &str, words: &str| -> Result<Value> {
        let agent = world.agent(&session, json!({"name": name, "tools": ["moody.*"]})).await?;
        let turn = world.turn(&agent, words).await?;
        assert_eq!(turn["status"], "completed", "{turn}");
        result(&world, &turn).await
    };
    tool(&world, "moody.now", |tool| tool["available"] == true).await?;
    assert_eq!(ask("a", "What time is it?").await?["result_status"], "success");
    ask("b", "Now change.").await?;
    let withheld = tool(&world, "moody.now", |tool| tool["available"] == false).await?;
    ensure!(withheld["reason"].as_str().is_some_and(|why| why.contains("instar tool accept moody.now")), "{withheld}");
    assert_eq!(withheld["description"], "Says the time");
    assert_eq!(withheld["offered"]["description"], "Says the time, and more");
    let call = ask("c", "What time is it?").await?;
    assert_eq!(call["result_status"], "error", "{call}");
    // By the worker, or by the runner if the worker had not heard of it.
    let refusals = ["cannot be called now", "is not the accepted one"];
    let why = call["result"]["error"].as_str().unwrap_or_default();
    ensure!(refusals.iter().any(|refusal| why.contains(refusal)), "{call}");
    // A tool that was not there at first is not given to anybody by itself either.
    ask("d", "And add one.").await?;
    tool(&world, "moody.added", |tool| tool["available"] == false).await?;

    let hash = text(&withheld, "offered_hash")?;
    let other = json!({"hash": "0".repeat(64)});
    world.refused("/v1/tools/moody.now/accept", other, "another definition by now").await?;
    world.act("/v1/tools/moody.now/accept", json!({"hash": hash})).await?;
    // Workers and runners hear of it within moments.
    wait::until_ok(crate::world::WITHIN, || async {
        let call = ask("e", "What time is it?").await?;
        ensure!(call["result_status"] == "success", "{call}");
        Ok(())
    })
    .await?;
    let (code, said) = world.run(&["tool", "accept", "moody.*"]).await?;
    ensure!(code == 0 && said.contains("moody.added"), "{said}");
    tool(&world, "moody.added", |tool| tool["available"] == true).await?;
    Ok(())
}

async fn an_interrupt_reaches_the_server(world: World) -> Result<()> {
    world.script(calls_once("test__slow", json!({"ms": 60_000})));
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"tools": ["test.slow"]})).await?;
    let turn = world.begin(&agent, "Take your time.").await?;
    world.runes_of(&session, "tool.progress", 1).await.context("no progress was kept")?;
    world.act(&format!("/v1/turns/{turn}/interrupt"), json!({})).await?;
    world.ended(&turn).await?;
    wait::until_ok(crate::world::WITHIN, || async {
        ensure!(Witnessed::count(witness(&world, "test"), "stopped") == 1, "it goes on");
        Ok(())
    })
    .await
}

async fn an_agent_is_in_the_making_until_its_tools_are_known(world: World) -> Result<()> {
    world.script(calls_once("late__now", json!({})));
    let root = world.described(json!({"tools": ["late.*"]}));
    let spoken_to = world.act("/v1/sessions", json!({"root_agent": root.clone()})).await?;
    let silent = world.act("/v1/sessions", json!({"root_agent": root})).await?;
    ensure!(spoken_to["status"] == "created" && silent["status"] == "created", "{spoken_to} {silent}");
    let (session, agent) = (text(&spoken_to, "id")?, text(&spoken_to["root_agent"], "id")?);
    let shown = world.get(&format!("/v1/agents/{agent}")).await?;
    ensure!(shown["lifecycle"] == "spawning" && shown["waiting_for"] == json!({"kind": "tools"}), "{shown}");

    let turn = world.begin(&agent, "What time is it?").await?;
    let active = world.get(&format!("/v1/sessions/{session}")).await?;
    ensure!(active["status"] == "active", "{active}");
    let waits = world.get(&format!("/v1/turns/{turn}")).await?;
    ensure!(waits["status"] == "queued" && waits["waiting_for"]["kind"] == "tools", "{waits}");

    std::fs::write(world.fleet().folder.path().join("late-may-start"), "")?;
    let ended = world.ended(&turn).await?;
    ensure!(ended["status"] == "completed", "{ended}");
    ensure!(result(&world, &ended).await?["result_status"] == "success");
    let path = format!("/v1/sessions/{}", text(&silent, "id")?);
    world.until(&path, |session| session["status"] == "active").await?;
    Ok(())
}

async fn a_server_that_hangs_stops_the_agent_that_waits_for_it(world: World) -> Result<()> {
    world.script(|request: &Request| match request.user_text().contains("wait") {
        true => Reply::call("hung__slow", json!({"ms": 60_000})),
        false => Reply::text("Here I am."),
    });
    tool(&world, "hung.slow", |tool| tool["available"] == true).await?;
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"tools": ["hung.*"]})).await?;
    let turn = world.turn(&agent, "Just wait.").await?;
    ensure!(turn["status"] == "error" && turn["error"]["error_type"] == "mcp_server_hangs", "{turn}");
    let calls = world.calls(&text(&turn, "id")?, |calls| calls.len() == 3).await?;
    ensure!(calls.iter().all(|call| call["result_status"] == "timeout"), "{calls:?}");
    let shown = world.get(&format!("/v1/agents/{agent}")).await?;
    ensure!(shown["drive"] == "errored" && shown["lifecycle"] == "idle", "{shown}");
    ensure!(shown["last_error"].as_str().is_some_and(|why| why.contains("hung")), "{shown}");
    world.act(&format!("/v1/agents/{agent}/start"), json!({})).await?;
    ensure!(world.turn(&agent, "Are you there?").await?["output"] == "Here I am.");
    Ok(())
}

async fn a_server_that_hangs_once_in_each_turn_stops_the_agent_as_well(world: World) -> Result<()> {
    world.script(|request: &Request| match request.messages().last() {
        Some(last) if last["role"] == "tool" => Reply::text("It does not answer."),
        _ => Reply::call("mute__slow", json!({"ms": 60_000})),
    });
    tool(&world, "mute.slow", |tool| tool["available"] == true).await?;
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"tools": ["mute.*"]})).await?;
    for words in ["Ask it.", "Ask it again."] {
        let turn = world.turn(&agent, words).await?;
        ensure!(turn["status"] == "completed", "{turn}");
    }
    let turn = world.turn(&agent, "Once more.").await?;
    ensure!(turn["status"] == "error" && turn["error"]["error_type"] == "mcp_server_hangs", "{turn}");
    // Whoever starts it has looked: what was before is not held against it.
    world.act(&format!("/v1/agents/{agent}/start"), json!({})).await?;
    let turn = world.turn(&agent, "And now?").await?;
    ensure!(turn["status"] == "completed", "{turn}");
    Ok(())
}

async fn a_server_that_hangs_stops_the_idle_agent_whose_steps_wait_for_it(world: World) -> Result<()> {
    tool(&world, "numb.slow", |tool| tool["available"] == true).await?;
    let session = world.session().await?;
    let agent = world.agent(&session, json!({})).await?;
    let (id, hub): (AgentId, _) = (agent.parse()?, Hub::new(world.store().await?, stage::deaf()?));
    let plan: [Plan; 1] = [("numb.slow", json!({"ms": 60_000}), json!({"output": "output"}))];
    let terms = |mission: &mut mission::Model| mission.agent_id = Some(id.uuid());
    let voyage = Voyage::within(&hub, session.parse()?, terms, plainly, &plan).await?;
    voyage.provide(voyage.input, json!("x")).await?;
    voyage.execute().await?;
    let path = format!("/v1/agents/{agent}");
    let shown = world.until(&path, |agent| agent["drive"] == "errored").await?;
    ensure!(shown["last_error"].as_str().is_some_and(|why| why.contains("numb")), "{shown}");
    let runes = world.runes_of(&session, "agent.drive_errored", 1).await?;
    ensure!(runes[0]["payload"]["last_error"] == shown["last_error"], "{runes:?}");
    Ok(())
}

/// Servers that run in the folder of the installation.
fn running(world: &World) -> usize {
    let folder = world.fleet().folder.path().canonicalize().unwrap_or_default();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let here = entries
        .map(|entry| entry.path())
        .filter(|path| std::fs::read_link(path.join("cwd")).is_ok_and(|cwd| cwd == folder));
    here.filter(|path| std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == "mcp-server")).count()
}

async fn a_runner_that_is_killed_takes_its_servers_along(world: World) -> Result<()> {
    world.script(calls_once("test__slow", json!({"ms": 600_000})));
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"tools": ["test.*"]})).await?;
    let turn = world.begin(&agent, "Take your time.").await?;
    wait::until_ok(crate::world::WITHIN, || async {
        ensure!(Witnessed::count(witness(&world, "test"), "slow") == 1, "not yet");
        Ok(())
    })
    .await?;
    assert_eq!(running(&world), 1);
    world.kill("tool-runner").await?;
    let ended = world.ended(&turn).await?;
    assert_eq!(ended["status"], "completed", "{ended}");
    let call = result(&world, &ended).await?;
    assert_eq!(call["result_status"], "unknown", "{call}");
    assert_eq!(Witnessed::count(witness(&world, "test"), "slow"), 1, "it was not run again");
    wait::until_ok(crate::world::WITHIN, || async {
        ensure!(running(&world) == 1, "{} run", running(&world));
        Ok(())
    })
    .await
}
