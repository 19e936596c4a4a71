//! Broadcasts: who gets one, who does not and why, and what is made of it afterwards.

use crate::context::requests;
use crate::world::{WITHIN, World, text};
use crate::{Group, scenarios};
use anyhow::{Context, Result, ensure};
use instar_testkit::model::{Refusal, Reply, Request};
use instar_testkit::wait;
use serde_json::{Value, json};
use std::time::Duration;

pub(crate) static PLAIN: Group = Group {
    name: "broadcast",
    config: "[scheduler]\nerror_threshold = 0\nnudge_pause_ms = 100\n",
    environment: &[],
    at_once: 4,
    scenarios: scenarios![
        reaches_each_once_and_skips_who_cannot_take_it,
        is_refused_if_nobody_can_take_it,
        is_heard_once_by_agents_made_later_and_stops_no_counting,
        goes_before_the_first_prompt_of_who_is_made_later,
        is_filled_into_instructions_the_newest_that_has_not_expired,
        sets_the_nudges_back_once_each_time,
    ],
};

fn listed(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

async fn say(world: &World, session: &str, body: Value) -> Result<Value> {
    world.act(&format!("/v1/sessions/{session}/broadcasts"), body).await
}

/// What an agent was told by broadcasts.
async fn heard(world: &World, agent: &str) -> Result<Vec<Value>> {
    let page = world.get(&format!("/v1/agents/{agent}/messages?limit=100")).await?;
    let mut said = page["data"].as_array().cloned().unwrap_or_default();
    said.retain(|message| message["source"] == "broadcast");
    Ok(said)
}

/// D4 and D13 by a broadcast, D14 and D15.
async fn reaches_each_once_and_skips_who_cannot_take_it(world: World) -> Result<()> {
    world.script(|request| match request.user_text().as_str() {
        "fail" => Reply::refused(Refusal::Unauthorized),
        "slowly" => Reply::text("Done.").slow(Duration::from_millis(1_500), Duration::ZERO),
        _ => Reply::text("Done."),
    });
    let session = world.session().await?;
    let mut agents = Vec::new();
    for name in ["idle", "running", "busy", "stopped", "errored", "ended"] {
        agents.push(world.agent(&session, json!({"name": name})).await?);
    }
    let [idle, running, busy, stopped, errored, ended] = agents.as_slice() else { unreachable!() };
    world.turn(running, "hello").await?;
    world.act(&format!("/v1/agents/{stopped}/hold"), json!({})).await?;
    ensure!(world.turn(errored, "fail").await?["status"] == "error");
    world.act(&format!("/v1/agents/{ended}/terminate"), json!({})).await?;
    let turn = world.begin(busy, "slowly").await?;
    world.turn_is(&turn, "streaming").await?;
    let sent = say(&world, &session, json!({"content": "to the gate"})).await?;
    ensure!(listed(&sent["delivered"]) == [idle, running, busy], "{sent}");
    let skipped: Vec<(&str, &str)> = sent["skipped"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|one| Some((one["agent"].as_str()?, one["reason"].as_str()?)))
        .collect();
    for (agent, why) in [(stopped, "stopped"), (errored, "errored"), (ended, "ended")] {
        ensure!(skipped.iter().any(|(id, said)| id == agent && said.contains(why)), "{why}: {sent}");
        ensure!(heard(&world, agent).await?.is_empty(), "{agent} was told");
    }
    ensure!(skipped.len() == 3, "{sent}");
    // Whoever took it answers it, once.
    for agent in [idle, running, busy] {
        let answered = |page: &Value| {
            let turns = page["data"].as_array().into_iter().flatten();
            let of_it = |turn: &&Value| turn["input"].to_string().contains("to the gate");
            turns.filter(of_it).filter(|turn| turn["status"] == "completed").count() == 1
        };
        world.until(&format!("/v1/turns?agent={agent}"), answered).await?;
        let heard = heard(&world, agent).await?;
        ensure!(heard.len() == 1 && heard[0]["content"] == "to the gate", "{heard:?}");
        ensure!(world.get(&format!("/v1/agents/{agent}")).await?["drive"] == "running");
    }
    let runes = world.runes(&session).await?;
    let told = |rune: &&Value| rune["payload"]["broadcast_id"] == sent["broadcast_id"];
    ensure!(runes.iter().filter(told).count() == 3, "one rune per recipient");
    let woken = |rune: &&Value| rune["kind"] == "agent.drive_started" && rune["payload"]["reason"] == "broadcast";
    let woken: Vec<&str> = runes.iter().filter(woken).filter_map(|rune| rune["agent_id"].as_str()).collect();
    ensure!(woken == [idle.as_str()], "{woken:?}");
    Ok(())
}

async fn is_refused_if_nobody_can_take_it(world: World) -> Result<()> {
    let session = world.session().await?;
    let path = format!("/v1/sessions/{session}/broadcasts");
    world.refused(&path, json!({"content": "anybody?"}), "no agent of the session").await?;
    let agent = world.agent(&session, json!({})).await?;
    world.act(&format!("/v1/agents/{agent}/hold"), json!({})).await?;
    let before = world.runes(&session).await?.len();
    world.refused(&path, json!({"content": "anybody?"}), "relaunch").await?;
    ensure!(world.runes(&session).await?.len() == before && world.get(&path).await?["data"] == json!([]));
    Ok(())
}

/// Requests of the agent of this name, by its instructions.
fn asked(world: &World, name: &str) -> Vec<Request> {
    let mut asked = requests(world);
    asked.retain(|request| request.body["messages"][0]["content"].to_string().contains(name));
    asked
}

async fn nudged(world: &World, agent: &str, count: usize) -> Result<Value> {
    let nudges = |page: &Value| {
        let turns = page["data"].as_array().into_iter().flatten();
        turns.filter(|turn| turn["cause"] == "nudge" && turn["status"] == "completed").count()
    };
    world.until(&format!("/v1/turns?agent={agent}&limit=100"), |page| nudges(page) >= count).await
}

async fn rests(world: &World, agent: &str) -> Result<()> {
    let shown = world.until(&format!("/v1/agents/{agent}"), |agent| agent["drive"] == "idle").await?;
    ensure!(shown["nudge_count"] == 3 && shown["needs_attention"] == true, "{shown}");
    Ok(())
}

async fn is_heard_once_by_agents_made_later_and_stops_no_counting(world: World) -> Result<()> {
    world.script(|_| Reply::text("On my way."));
    let session = world.session().await?;
    world.agent(&session, json!({})).await?;
    say(&world, &session, json!({"content": "to the gate"})).await?;
    say(&world, &session, json!({"content": "in passing", "standing": false})).await?;
    let prompt = format!("[{}] latecomer: {{{{LATEST_BROADCAST}}}}", world.name);
    let later = world.agent(&session, json!({"name": "late", "loop": "autonomous", "system_prompt": prompt})).await?;
    world.act(&format!("/v1/agents/{later}/start"), json!({})).await?;
    rests(&world, &later).await?;
    let heard = heard(&world, &later).await?;
    ensure!(heard.len() == 1 && heard[0]["content"] == "to the gate", "{heard:?}");
    let asked = asked(&world, "latecomer");
    ensure!(asked.len() == 3, "{} turns of its own", asked.len());
    for (n, request) in asked.iter().enumerate() {
        let own = if n == 0 { "to the gate" } else { "Carry on" };
        ensure!(request.user_text().contains(own), "{:?}", request.messages());
        let said = request.body["messages"].to_string();
        ensure!(said.matches("to the gate").count() == 1, "it is there once: {said}");
        let slot = request.body["messages"][0]["content"].to_string();
        ensure!(slot.contains("latecomer: in passing"), "the newest fills the slot: {slot}");
    }
    let page = world.get(&format!("/v1/turns?agent={later}")).await?;
    for turn in page["data"].as_array().into_iter().flatten() {
        let context = world.get(&format!("/v1/turns/{}/context", text(turn, "id")?)).await?;
        ensure!(context["exact"] == true, "{turn:#} {context:#}");
    }
    Ok(())
}

async fn goes_before_the_first_prompt_of_who_is_made_later(world: World) -> Result<()> {
    world.script(|_| Reply::text("On my way."));
    let session = world.session().await?;
    world.agent(&session, json!({})).await?;
    say(&world, &session, json!({"content": "to the gate"})).await?;
    let prompt = format!("[{}] latecomer", world.name);
    let later = world.agent(&session, json!({"name": "late", "system_prompt": prompt})).await?;
    for (words, before) in [("hello", vec!["to the gate"]), ("again", vec!["to the gate", "hello"])] {
        let turn = text(&world.turn(&later, words).await?, "id")?;
        let context = world.get(&format!("/v1/turns/{turn}/context")).await?;
        ensure!(context["exact"] == true, "{context:#}");
        let said = context["messages"].to_string();
        let places: Vec<_> = before.into_iter().chain([words]).map(|words| said.find(words)).collect();
        ensure!(places.iter().all(Option::is_some) && places.is_sorted(), "{context:#}");
    }
    ensure!(heard(&world, &later).await?.len() == 1, "it was sent it once");
    Ok(())
}

async fn is_filled_into_instructions_the_newest_that_has_not_expired(world: World) -> Result<()> {
    world.script(|_| Reply::text("Done."));
    let session = world.session().await?;
    let prompt = format!("[{}] The word is: {{{{LATEST_BROADCAST}}}}.", world.name);
    let agent = world.agent(&session, json!({"system_prompt": prompt})).await?;
    let system = async |words: &str| -> Result<String> {
        let turn = text(&world.turn(&agent, words).await?, "id")?;
        let context = world.get(&format!("/v1/turns/{turn}/context")).await?;
        ensure!(context["exact"] == true, "{context:#}");
        let sent = requests(&world).pop().context("a request")?;
        ensure!(sent.body["messages"][0]["content"] == context["system"], "{context:#}");
        text(&context, "system")
    };
    let word = |said: &str| format!("[{}] The word is: {said}.", world.name);
    ensure!(system("before").await? == word("(there is no broadcast)"));
    for (said, standing) in [("first", true), ("second", true), ("in passing", false)] {
        let sent = say(&world, &session, json!({"content": said, "standing": standing})).await?;
        ensure!(listed(&sent["delivered"]) == [&agent], "{sent}");
    }
    let done =
        |page: &Value| page["data"].as_array().is_some_and(|turns| turns.iter().all(|t| t["ended_at"].is_string()));
    world.until(&format!("/v1/turns?agent={agent}"), done).await?;
    // One that came as a turn ended may still wait, and is taken up by this one.
    ensure!(system("after").await? == word("in passing"));
    let soon = chrono::Utc::now() + chrono::Duration::seconds(1);
    say(&world, &session, json!({"content": "hurry", "expires_at": soon})).await?;
    wait::until_ok(WITHIN, || async {
        let filled = system("and now?").await?;
        ensure!(chrono::Utc::now() > soon && filled == word("in passing"), "{filled}");
        Ok(())
    })
    .await?;
    let page = world.get(&format!("/v1/turns?agent={agent}")).await?;
    for turn in page["data"].as_array().into_iter().flatten() {
        let context = world.get(&format!("/v1/turns/{}/context", text(turn, "id")?)).await?;
        ensure!(context["exact"] == true, "{turn:#} {context:#}");
    }
    let page = world.get(&format!("/v1/sessions/{session}/broadcasts")).await?;
    let said: Vec<&str> =
        page["data"].as_array().into_iter().flatten().filter_map(|one| one["content"].as_str()).collect();
    ensure!(said == ["hurry", "in passing", "second", "first"], "newest first: {said:?}");
    Ok(())
}

/// Whatever it goes on with: a broadcast that stands is no task for ever.
async fn sets_the_nudges_back_once_each_time(world: World) -> Result<()> {
    world.script(|_| Reply::text("A step further."));
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"loop": "autonomous"})).await?;
    for (n, words) in ["to the gate", "to the tower"].into_iter().enumerate() {
        say(&world, &session, json!({"content": words})).await?;
        nudged(&world, &agent, 3 * (n + 1)).await?;
        rests(&world, &agent).await?;
    }
    let order = world.send(&agent, "to the bridge").await?;
    nudged(&world, &agent, 9).await?;
    rests(&world, &agent).await?;
    let page = world.get(&format!("/v1/turns?agent={agent}&limit=100")).await?;
    let turns = page["data"].as_array().context("turns")?;
    ensure!(turns.len() == 12 && turns[0]["cause"] == "nudge", "{page}");
    let context = world.get(&format!("/v1/turns/{}/context", text(&turns[0], "id")?)).await?;
    ensure!(context["exact"] == true && context["prompt_epoch"] == order["message_id"], "{context:#}");
    let said = requests(&world).pop().context("a request")?;
    ensure!(said.user_text().contains("Carry on"), "{:?}", said.messages());
    let all = said.body["messages"].to_string();
    for words in ["to the gate", "to the tower", "to the bridge"] {
        ensure!(all.matches(words).count() == 1, "{words}: {all}");
    }
    Ok(())
}
