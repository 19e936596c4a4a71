//! Sessions: held, released, suspended, closed, and what stays of them.

use crate::world::{World, calls_once, plain, text};
use crate::{Group, scenarios};
use anyhow::{Context, Result, ensure};
use instar_runtime::Hub;
use instar_store::entity::mission;
use instar_testkit::model::{Refusal, Reply};
use instar_tests::stage;
use instar_tests::voyage::{Plan, Voyage, plainly};
use serde_json::{Value, json};
use std::time::Duration;

pub(crate) static PLAIN: Group = Group {
    name: "session",
    config: "",
    environment: &[],
    at_once: 4,
    scenarios: scenarios![
        holds_input_while_it_is_paused,
        lets_running_turns_end_when_it_is_paused,
        interrupts_running_turns_when_asked_to,
        is_closed_from_whatever_state,
        ends_with_its_last_rune_and_a_hash_over_all,
    ],
};

/// An approval may take two seconds; two errors of drives are too many.
pub(crate) static STRICT: Group = Group {
    name: "strict_session",
    config: "[worker]\napproval_timeout_ms = 2000\n[scheduler]\nerror_threshold = 2\n",
    environment: &[],
    at_once: 4,
    scenarios: scenarios![
        stops_the_clocks_of_approvals_while_it_is_paused,
        is_suspended_by_errors_and_reset,
        is_closed_while_it_is_suspended,
    ],
};

/// What outlives a close has half a second to end by itself.
pub(crate) static PRESSED: Group = Group {
    name: "pressed_session",
    config: "[scheduler]\nclose_grace_ms = 500\n\
             [[tools]]\nname = \"dig\"\nkind = \"command\"\ncommand = [\"/bin/sh\", \"-c\", \"sleep 30; echo {}\"]\n\
             parameters = { type = \"object\" }\nside_effects = false\n",
    environment: &[],
    at_once: 1,
    scenarios: scenarios![is_closed_by_force_over_a_step_that_is_detached],
};

async fn state_of(world: &World, session: &str) -> Result<String> {
    text(&world.get(&format!("/v1/sessions/{session}")).await?, "status")
}

pub(crate) async fn closed(world: &World, session: &str) -> Result<Value> {
    world.act(&format!("/v1/sessions/{session}/close"), json!({})).await?;
    world.until(&format!("/v1/sessions/{session}"), |found| found["final_hash"].is_string()).await
}

async fn holds_input_while_it_is_paused(world: World) -> Result<()> {
    world.script(plain());
    let session = world.session().await?;
    let (one, two) = (world.agent(&session, json!({})).await?, world.agent(&session, json!({})).await?);
    let path = format!("/v1/sessions/{session}");
    world.act(&format!("{path}/pause"), json!({})).await?;
    world.refused(&format!("{path}/pause"), json!({}), "paused").await?;
    let (first, other) = (world.begin(&one, "first").await?, world.begin(&two, "other").await?);
    ensure!(world.send(&one, "second").await?["turn_id"].is_null(), "it waits behind the first");
    // Longer than any sweep waits before it tells of a turn that could go on.
    tokio::time::sleep(Duration::from_secs(4)).await;
    for turn in [&first, &other] {
        let found = world.get(&format!("/v1/turns/{turn}")).await?;
        ensure!(found["status"] == "queued", "{found}");
        ensure!(found["waiting_for"] == json!({"kind": "session", "status": "paused", "act": "resume"}), "{found}");
    }
    world.act(&format!("{path}/resume"), json!({})).await?;
    world.refused(&format!("{path}/resume"), json!({}), "active").await?;
    for turn in [&first, &other] {
        ensure!(world.ended(turn).await?["status"] == "completed");
    }
    // The message that came second is answered after the first, be it by the same turn.
    let taken =
        |found: &Value| found["data"].as_array().is_some_and(|data| data.iter().any(|m| m["turn_id"].is_string()));
    world.until(&format!("/v1/agents/{one}/messages?query=second"), taken).await?;
    Ok(())
}

/// An answer that takes its time, word by word.
fn slow() -> Reply {
    Reply::chunks(["one ", "two ", "three ", "four ", "five "]).slow(Duration::ZERO, Duration::from_millis(400))
}

async fn lets_running_turns_end_when_it_is_paused(world: World) -> Result<()> {
    world.script(|_| slow());
    let session = world.session().await?;
    let agent = world.agent(&session, json!({})).await?;
    let turn = world.begin(&agent, "talk").await?;
    world.turn_is(&turn, "streaming").await?;
    world.act(&format!("/v1/sessions/{session}/pause"), json!({"in_flight": "complete"})).await?;
    world.refused(&format!("/v1/turns/{turn}/steer"), json!({"content": "elsewhere"}), "paused").await?;
    ensure!(world.ended(&turn).await?["status"] == "completed");
    ensure!(state_of(&world, &session).await? == "paused");
    Ok(())
}

async fn interrupts_running_turns_when_asked_to(world: World) -> Result<()> {
    world.script(|request| match (request.user_text(), request.tool_results().is_empty()) {
        (text, true) if text.starts_with("tool") => Reply::call("charge", json!({"token": "paused"})),
        _ => Reply::hang(),
    });
    let session = world.session().await?;
    let talker = world.agent(&session, json!({})).await?;
    let asker = world.agent(&session, json!({"tools": ["charge"], "approval_mode": "auto"})).await?;
    let (talk, ask) = (world.begin(&talker, "talk").await?, world.begin(&asker, "tool").await?);
    world.turn_is(&talk, "streaming").await?;
    world.call_is(&ask, "awaiting_approval").await?;
    world.act(&format!("/v1/sessions/{session}/pause"), json!({"in_flight": "interrupt"})).await?;
    for turn in [&talk, &ask] {
        ensure!(world.ended(turn).await?["status"] == "interrupted");
    }
    world.call_is(&ask, "cancelled_result").await?;
    let told = world.runes_of(&session, "turn.interrupted", 2).await?;
    ensure!(told.iter().all(|rune| rune["payload"]["reason"] == "paused"), "{told:?}");
    // Both take up work again when the session does.
    world.script(plain());
    world.act(&format!("/v1/sessions/{session}/resume"), json!({})).await?;
    ensure!(world.turn(&talker, "hello").await?["status"] == "completed");
    Ok(())
}

async fn is_closed_from_whatever_state(world: World) -> Result<()> {
    world.script(|_| Reply::hang());
    let created = world.session().await?;
    closed(&world, &created).await?;
    let paused = world.session().await?;
    let agent = world.agent(&paused, json!({})).await?;
    world.act(&format!("/v1/sessions/{paused}/pause"), json!({})).await?;
    let queued = world.begin(&agent, "never").await?;
    closed(&world, &paused).await?;
    ensure!(world.ended(&queued).await?["status"] == "interrupted");
    let active = world.session().await?;
    let agent = world.agent(&active, json!({})).await?;
    let turn = world.begin(&agent, "talk").await?;
    world.turn_is(&turn, "streaming").await?;
    closed(&world, &active).await?;
    ensure!(world.ended(&turn).await?["status"] == "interrupted");
    ensure!(world.get(&format!("/v1/agents/{agent}")).await?["lifecycle"] == "terminated");
    Ok(())
}

async fn ends_with_its_last_rune_and_a_hash_over_all(world: World) -> Result<()> {
    world.script(plain());
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"tools": ["echo"]})).await?;
    ensure!(world.turn(&agent, "echo hello").await?["status"] == "completed");
    let row = closed(&world, &session).await?;
    ensure!(row["status"] == "closed", "{row}");
    let path = format!("/v1/sessions/{session}");
    world.refused(&format!("{path}/close"), json!({}), "closed").await?;
    world.refused(&format!("{path}/pause"), json!({}), "closed").await?;
    world.refused(&format!("{path}/agents"), world.described(json!({})), "no more agents").await?;
    world.refused(&format!("/v1/agents/{agent}/messages"), json!({"content": "late"}), "").await?;
    let late = world.request("PATCH", &format!("/v1/agents/{agent}"), Some(json!({"system_prompt": "x"}))).await?;
    ensure!(late.status == 409, "{}", late.text);
    let runes = world.runes(&session).await?;
    let last = runes.last().context("a rune")?;
    ensure!(last["kind"] == "session.closed" && last["seq"] == row["head_seq"], "{last}");
    let stats = &last["payload"]["final_stats"];
    ensure!(stats["turns"] == json!({"completed": 1}) && stats["tool_calls"] == json!({"success": 1}), "{last}");
    ensure!(stats["agents"] == json!({"terminated": 1}) && stats["usage"]["output_tokens"] == 10, "{last}");
    let seals = world.get(&format!("{path}/seals")).await?;
    let seal = seals["data"].as_array().and_then(|seals| seals.last()).cloned().context("a seal")?;
    ensure!(seal["seq"] == row["head_seq"] && seal["hash"] == row["final_hash"], "{seals} {row}");
    Ok(())
}

/// When a rune was written, in milliseconds.
fn at(runes: &[Value], kind: &str) -> Result<i64> {
    let rune = runes.iter().find(|rune| rune["kind"] == kind).with_context(|| format!("no {kind}"))?;
    Ok(text(rune, "at")?.parse::<chrono::DateTime<chrono::Utc>>()?.timestamp_millis())
}

async fn stops_the_clocks_of_approvals_while_it_is_paused(world: World) -> Result<()> {
    world.script(calls_once("charge", json!({"token": "frozen"})));
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"tools": ["charge"], "approval_mode": "auto"})).await?;
    let turn = world.begin(&agent, "go").await?;
    let call = world.call_is(&turn, "awaiting_approval").await?;
    let shown = async || text(&world.get(&format!("/v1/tool-calls/{call}")).await?, "expires_at");
    let first = shown().await?;
    world.act(&format!("/v1/sessions/{session}/pause"), json!({})).await?;
    // Past the time at which the clock would have run out.
    tokio::time::sleep(Duration::from_millis(3_500)).await;
    world.call_is(&turn, "awaiting_approval").await?;
    ensure!(shown().await? > first, "the time to decide has not moved");
    world.act(&format!("/v1/sessions/{session}/resume"), json!({})).await?;
    world.call_is(&turn, "timeout_result").await?;
    ensure!(world.ended(&turn).await?["status"] == "completed");
    let runes = world.runes(&session).await?;
    let held = at(&runes, "session.resumed")? - at(&runes, "session.paused")?;
    let ran = at(&runes, "tool.result")? - at(&runes, "tool.approval_requested")? - held;
    ensure!((1_990..20_000).contains(&ran), "the clock ran for {ran} ms, the session was held for {held} ms");
    let result = runes.iter().find(|rune| rune["kind"] == "tool.result").context("a result")?;
    ensure!(result["payload"]["status"] == "timeout" && result["payload"]["phase"] == "approval", "{result}");
    Ok(())
}

/// A session with this many agents whose drives have failed; the agents.
async fn failing(world: &World, session: &str, agents: usize) -> Result<Vec<String>> {
    world.script(|_| Reply::refused(Refusal::Unauthorized));
    let mut failed = Vec::new();
    for _ in 0..agents {
        let agent = world.agent(session, json!({})).await?;
        ensure!(world.turn(&agent, "go").await?["status"] == "error");
        ensure!(world.get(&format!("/v1/agents/{agent}")).await?["drive"] == "errored");
        failed.push(agent);
    }
    Ok(failed)
}

async fn is_suspended_by_errors_and_reset(world: World) -> Result<()> {
    let session = world.session().await?;
    let path = format!("/v1/sessions/{session}");
    // Two that are at work when it happens: one is interrupted at its next boundary.
    let failed = failing(&world, &session, 1).await?;
    ensure!(state_of(&world, &session).await? == "active", "one error is not too many");
    let second = failing(&world, &session, 1).await?;
    world.until(&path, |found| found["status"] == "suspended").await?;
    let told = world.runes_of(&session, "session.suspended", 1).await?;
    ensure!(told[0]["payload"]["reason"] == "error_threshold", "{told:?}");
    world.refused(&format!("{path}/resume"), json!({}), "suspended").await?;
    world.refused(&format!("/v1/agents/{}/messages", failed[0]), json!({"content": "hello"}), "").await?;
    world.act(&format!("{path}/reset"), json!({})).await?;
    let told = world.runes_of(&session, "session.unsuspended", 1).await?;
    ensure!(told[0]["payload"]["reason"] == "reset", "{told:?}");
    for agent in [&failed[0], &second[0]] {
        ensure!(world.get(&format!("/v1/agents/{agent}")).await?["drive"] == "errored", "it was not relaunched");
    }
    // The window is empty: one more error is one, not three.
    failing(&world, &session, 1).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    ensure!(state_of(&world, &session).await? == "active");
    world.script(plain());
    world.act(&format!("/v1/agents/{}/start", failed[0]), json!({})).await?;
    ensure!(world.turn(&failed[0], "hello").await?["status"] == "completed");
    failing(&world, &session, 1).await?;
    world.until(&path, |found| found["status"] == "suspended").await?;
    Ok(())
}

async fn is_closed_while_it_is_suspended(world: World) -> Result<()> {
    let session = world.session().await?;
    failing(&world, &session, 2).await?;
    world.until(&format!("/v1/sessions/{session}"), |found| found["status"] == "suspended").await?;
    closed(&world, &session).await?;
    Ok(())
}

async fn is_closed_by_force_over_a_step_that_is_detached(world: World) -> Result<()> {
    let session = world.session().await?;
    world.agent(&session, json!({})).await?;
    let hub = Hub::new(world.store().await?, stage::deaf()?);
    let plan: [Plan; 1] = [("dig", json!({}), json!({"output": "output"}))];
    let detached = |mission: &mut mission::Model| mission.detached = true;
    let voyage = Voyage::within(&hub, session.parse()?, detached, plainly, &plan).await?;
    voyage.provide(voyage.input, json!("x")).await?;
    voyage.execute().await?;
    voyage.call_is(0, |call| call.owner.is_some()).await?;
    let closing = world.act(&format!("/v1/sessions/{session}/close"), json!({})).await?;
    ensure!(closing["status"] == "closing", "{closing}");
    ensure!(voyage.calls(0).await?[0].ended_at.is_none(), "the close itself leaves it alone");
    world.until(&format!("/v1/sessions/{session}"), |found| found["final_hash"].is_string()).await?;
    let last = world.runes(&session).await?.pop().context("a rune")?;
    ensure!(last["kind"] == "session.closed" && last["payload"]["forced"] == true, "{last}");
    ensure!(voyage.calls(0).await?.iter().all(|call| call.status == "cancelled_result"));
    let mission = voyage.hub.store().mission(voyage.mission).await?.context("mission")?;
    ensure!(mission.status == "CANCELLED" && mission.awaits == "nobody", "{}", mission.status);
    Ok(())
}
