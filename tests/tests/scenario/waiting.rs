//! Whatever waits says what for.

use crate::world::{World, calls_once, plain, text};
use crate::{Group, scenarios};
use anyhow::{Context, Result, ensure};
use instar_testkit::model::Reply;
use serde_json::{Value, json};
use std::time::Duration;

pub(crate) static PLAIN: Group = Group {
    name: "waiting",
    config: "[scheduler]\nnudge_pause_ms = 3600000\n",
    environment: &[],
    at_once: 4,
    scenarios: scenarios![
        for_a_word_or_a_start,
        for_its_session,
        for_a_person,
        for_its_provider,
        for_its_pause,
        for_agents_it_made,
        behind_another_turn,
    ],
};

/// What an agent waits for, once it is of this kind.
async fn agent_waits(world: &World, agent: &str, kind: &str) -> Result<Value> {
    let found = world.until(&format!("/v1/agents/{agent}"), |agent| agent["waiting_for"]["kind"] == kind).await?;
    Ok(found["waiting_for"].clone())
}

async fn turn_waits(world: &World, turn: &str, kind: &str) -> Result<Value> {
    let found = world.until(&format!("/v1/turns/{turn}"), |turn| turn["waiting_for"]["kind"] == kind).await?;
    Ok(found["waiting_for"].clone())
}

async fn for_a_word_or_a_start(world: World) -> Result<()> {
    world.script(plain());
    let session = world.session().await?;
    let agent = world.agent(&session, json!({})).await?;
    agent_waits(&world, &agent, "message").await?;
    world.turn(&agent, "hello").await?;
    agent_waits(&world, &agent, "message").await?;
    world.act(&format!("/v1/agents/{agent}/stop"), json!({})).await?;
    ensure!(agent_waits(&world, &agent, "start").await?["drive"] == "stopped");
    world.act(&format!("/v1/agents/{agent}/terminate"), json!({})).await?;
    let ended = world.get(&format!("/v1/agents/{agent}")).await?;
    ensure!(ended["waiting_for"].is_null(), "{ended}");
    Ok(())
}

async fn for_its_session(world: World) -> Result<()> {
    world.script(plain());
    let session = world.session().await?;
    let agent = world.agent(&session, json!({})).await?;
    world.act(&format!("/v1/sessions/{session}/pause"), json!({})).await?;
    agent_waits(&world, &agent, "session").await?;
    let turn = world.begin(&agent, "later").await?;
    ensure!(turn_waits(&world, &turn, "session").await?["act"] == "resume");
    ensure!(agent_waits(&world, &agent, "session").await?["turn_id"] == turn.as_str());
    Ok(())
}

async fn for_a_person(world: World) -> Result<()> {
    world.script(calls_once("charge", json!({"token": "waiting"})));
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"tools": ["charge"], "approval_mode": "auto"})).await?;
    let turn = world.begin(&agent, "go").await?;
    let waits = turn_waits(&world, &turn, "approval").await?;
    ensure!(waits["role"] == "approver" && waits["until"].is_string(), "{waits}");
    ensure!(agent_waits(&world, &agent, "approval").await?["call_ids"] == waits["call_ids"]);
    Ok(())
}

async fn for_its_provider(world: World) -> Result<()> {
    world.script(|_| Reply::rate_limited(Some(Duration::from_secs(600))));
    let session = world.session().await?;
    let agent = world.agent(&session, json!({})).await?;
    let turn = world.begin(&agent, "go").await?;
    ensure!(turn_waits(&world, &turn, "provider").await?["until"].is_string());
    agent_waits(&world, &agent, "provider").await?;
    Ok(())
}

async fn for_its_pause(world: World) -> Result<()> {
    world.script(plain());
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"loop": "autonomous"})).await?;
    world.turn(&agent, "begin").await?;
    ensure!(agent_waits(&world, &agent, "timer").await?["until"].is_string());
    Ok(())
}

async fn for_agents_it_made(world: World) -> Result<()> {
    world.script(|request| {
        let seen = request.messages().iter().filter(|message| message["role"] == "tool").count();
        match (request.user_text().as_str(), seen) {
            ("go", 0) => Reply::call(
                "spawn_agent",
                json!({"name": "bea", "task": "rest", "system_prompt": "[for_agents_it_made]"}),
            ),
            ("go", 1) => Reply::call("wait_for", json!({"agents": ["bea"]})),
            ("go", _) => Reply::text("All are done."),
            _ => Reply::hang(),
        }
    });
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"tools": ["spawn_agent", "wait_for"]})).await?;
    let turn = world.begin(&agent, "go").await?;
    let waits = turn_waits(&world, &turn, "agents").await?;
    let child = waits["agent_ids"][0].as_str().context("a child")?.to_owned();
    let child = world.get(&format!("/v1/agents/{child}")).await?;
    ensure!(child["name"] == "bea", "{child}");
    world.act(&format!("/v1/agents/{}/terminate", text(&child, "id")?), json!({"force": true})).await?;
    ensure!(world.ended(&turn).await?["output"] == "All are done.");
    Ok(())
}

async fn behind_another_turn(world: World) -> Result<()> {
    world.script(calls_once("charge", json!({"token": "behind"})));
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"tools": ["charge"], "approval_mode": "auto"})).await?;
    let turn = world.begin(&agent, "go").await?;
    turn_waits(&world, &turn, "approval").await?;
    let sent = world.send(&agent, "and this").await?;
    ensure!(sent["turn_id"].is_null(), "it waits behind the turn that waits: {sent}");
    ensure!(agent_waits(&world, &agent, "approval").await?["turn_id"] == turn.as_str());
    Ok(())
}
