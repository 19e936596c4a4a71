//! Budgets: what is limited, what becomes of who has used up his, and how it goes on.

use crate::world::{World, text};
use crate::{Group, scenarios};
use anyhow::{Context, Result, ensure};
use instar_testkit::model::{Break, Reply};
use instar_testkit::wait;
use instar_tests::{puppet, spree};
use serde_json::{Value, json};
use std::time::Duration;

pub(crate) static PLAIN: Group = Group {
    name: "budget",
    config: "[worker]\ninterrupt_grace_ms = 500\n",
    environment: &[],
    at_once: 4,
    scenarios: scenarios![
        stops_an_agent_that_is_relaunched_when_it_has_more,
        interrupts_a_turn_that_would_go_on,
        ends_a_child_and_counts_for_its_parent,
        suspends_a_session_until_it_is_replenished,
        suspends_a_session_that_is_paused,
        interrupts_others_where_they_are,
        waits_while_others_have_set_aside_what_is_left,
        of_a_parent_keeps_its_child_waiting,
        counts_by_estimate_what_the_provider_does_not_say,
        counts_calls,
        is_changed_while_it_is_drawn_on,
        counts_money,
        runs_out_of_time,
        ends_a_turn_that_repeats_itself,
        says_what_is_wrong_with_it,
    ],
};

/// Alone: it keeps a whole installation busy.
pub(crate) static CROWD: Group = Group {
    name: "crowded_budget",
    config: "",
    environment: &[],
    at_once: 1,
    scenarios: scenarios![holds_however_many_draw_on_it_at_once],
};

/// Processes die here.
pub(crate) static MORTAL: Group = Group {
    name: "mortal_budget",
    config: "[lease]\nttl_ms = 600\n",
    environment: &[],
    at_once: 1,
    scenarios: scenarios![is_not_leaked_by_a_worker_that_dies],
};

/// What each answer of the model uses.
const TOKENS: i64 = 15;

async fn session(world: &World, budget: Value) -> Result<String> {
    text(&world.act("/v1/sessions", json!({"name": world.name, "budget": budget})).await?, "id")
}

/// An agent of the model that has a price and short answers.
async fn agent(world: &World, session: &str, more: Value) -> Result<String> {
    let mut fields = json!({"model": "priced", "tools": ["echo", "spawn_agent", "wait_for"]});
    if let (Some(fields), Value::Object(more)) = (fields.as_object_mut(), more) {
        fields.extend(more);
    }
    world.agent(session, fields).await
}

async fn budget(world: &World, path: &str) -> Result<Value> {
    Ok(world.get(path).await?["budget"].clone())
}

/// Nothing is set aside any more, and so much is used.
async fn settled(world: &World, path: &str, kind: &str, used: Value) -> Result<()> {
    world
        .until(path, |found| {
            found["budget"]["used"][kind] == used
                && found["budget"]["reserved"][kind].as_str().unwrap_or("0") == "0"
                && found["budget"]["reserved"][kind].as_i64().unwrap_or(0) == 0
        })
        .await?;
    Ok(())
}

async fn kinds(world: &World, session: &str) -> Result<Vec<String>> {
    world.runes(session).await?.iter().map(|rune| text(rune, "kind")).collect()
}

/// D21, and D9 when its budget was raised.
async fn stops_an_agent_that_is_relaunched_when_it_has_more(world: World) -> Result<()> {
    world.script(|_| Reply::text("Done."));
    let session = world.session().await?;
    let agent = agent(&world, &session, json!({"budget": {"max_tokens": 20}})).await?;
    let path = format!("/v1/agents/{agent}");
    let first = world.turn(&agent, "one").await?;
    ensure!(first["status"] == "completed", "{first}");
    settled(&world, &path, "tokens", json!(TOKENS)).await?;
    let shown = world.get(&path).await?;
    ensure!(shown["budget"]["remaining"]["tokens"] == 20 - TOKENS && shown["budget"]["max_tokens"] == 20, "{shown}");
    ensure!(shown["usage"] == json!({"input_tokens": 10, "output_tokens": 5, "tool_calls": 0, "turns": 1}), "{shown}");
    // Something is left: the next call is let in, and uses it up.
    ensure!(world.turn(&agent, "two").await?["status"] == "completed");
    let stopped = world.until(&path, |agent| agent["drive"] == "stopped").await?;
    ensure!(stopped["budget"]["remaining"]["tokens"] == 0, "{stopped}");
    let waits = &stopped["waiting_for"];
    ensure!(waits["kind"] == "budget" && waits["scope"] == "agent" && waits["limit"] == "max_tokens", "{waits}");
    let told = world.runes_of(&session, "agent.budget_exhausted", 1).await?;
    ensure!(told[0]["payload"] == json!({"kind": "tokens", "used": 2 * TOKENS, "limit": 20}), "{}", told[0]);
    world.refused(&format!("{path}/messages"), json!({"content": "three"}), "stopped").await?;
    let raised = world.request("PATCH", &path, Some(json!({"budget": {"max_tokens": 1_000}}))).await?.is(200);
    ensure!(raised["budget"]["max_tokens"] == 1_000, "{raised}");
    world.act(&format!("{path}/start"), json!({})).await?;
    ensure!(world.turn(&agent, "three").await?["status"] == "completed");
    settled(&world, &path, "tokens", json!(3 * TOKENS)).await
}

/// L15 and T20: found after an answer that asks for more.
async fn interrupts_a_turn_that_would_go_on(world: World) -> Result<()> {
    world.script(puppet::reply);
    let session = world.session().await?;
    let agent = agent(&world, &session, json!({"budget": {"max_tokens": 10}})).await?;
    let turn = world.turn(&agent, "call echo {\"text\": \"x\"} ;; never said").await?;
    ensure!(turn["status"] == "interrupted", "{turn}");
    world.until(&format!("/v1/agents/{agent}"), |agent| agent["drive"] == "stopped").await?;
    let told = world.runes_of(&session, "turn.interrupted", 1).await?;
    ensure!(told[0]["payload"]["reason"] == "budget", "{}", told[0]);
    let calls = world.calls(&text(&turn, "id")?, |calls| calls.len() == 1 && calls[0]["result"].is_object()).await?;
    ensure!(calls[0]["status"] == "cancelled_result", "{}", calls[0]);
    let kinds = kinds(&world, &session).await?;
    let at = |kind: &str| kinds.iter().position(|k| k == kind).context(kind.to_owned());
    ensure!(at("agent.budget_exhausted")? < at("turn.interrupted")?, "{kinds:?}");
    ensure!(at("turn.interrupted")? < at("agent.drive_stopped")?, "{kinds:?}");
    Ok(())
}

/// L11; what a child uses its parent uses too.
async fn ends_a_child_and_counts_for_its_parent(world: World) -> Result<()> {
    world.script(puppet::reply);
    let session = session(&world, json!({"max_tokens": 100_000})).await?;
    let parent = agent(&world, &session, json!({"budget": {"max_tokens": 50_000}})).await?;
    let child = json!({"name": "scout", "task": "said", "system_prompt": format!("[{}]", world.name), "budget": {"max_tokens": 5}});
    let turn = world.turn(&parent, &format!("call spawn_agent {child} ;; well")).await?;
    ensure!(turn["status"] == "completed", "{turn}");
    let children = world.get(&format!("/v1/agents/{parent}")).await?["children"].clone();
    let child = children[0].as_str().context("a child")?.to_owned();
    let ended = world.until(&format!("/v1/agents/{child}"), |child| child["lifecycle"] == "terminated").await?;
    ensure!(ended["budget"]["on_budget"] == "terminate" && ended["budget"]["used"]["tokens"] == TOKENS, "{ended}");
    // Two answers of its own, one of the child.
    settled(&world, &format!("/v1/agents/{parent}"), "tokens", json!(3 * TOKENS)).await?;
    settled(&world, &format!("/v1/sessions/{session}"), "tokens", json!(3 * TOKENS)).await?;
    let usage =
        world.until(&format!("/v1/sessions/{session}"), |found| found["usage"]["turns"] == 2).await?["usage"].clone();
    ensure!(usage == json!({"input_tokens": 30, "output_tokens": 15, "tool_calls": 1, "turns": 2}), "{usage}");
    Ok(())
}

/// S7, T20 and S12.
async fn suspends_a_session_until_it_is_replenished(world: World) -> Result<()> {
    world.script(puppet::reply);
    let session = session(&world, json!({"max_tokens": 20})).await?;
    let path = format!("/v1/sessions/{session}");
    let (one, two) =
        (agent(&world, &session, json!({})).await?, agent(&world, &session, json!({"name": "bob"})).await?);
    ensure!(world.turn(&one, "hello").await?["status"] == "completed");
    let cut = world.turn(&two, "call echo {\"text\": \"x\"} ;; never said").await?;
    ensure!(cut["status"] == "interrupted", "{cut}");
    let found = world.until(&path, |session| session["status"] == "suspended").await?;
    ensure!(found["budget"]["used"]["tokens"] == 2 * TOKENS && found["budget"]["remaining"]["tokens"] == 0, "{found}");
    let told = world.runes_of(&session, "session.suspended", 1).await?;
    let info = &told[0]["payload"]["budget_info"];
    ensure!(
        told[0]["payload"]["reason"] == "budget" && info["limit"] == "max_tokens" && info["max"] == 20,
        "{}",
        told[0]
    );
    let waits = world.get(&format!("/v1/agents/{one}")).await?["waiting_for"].clone();
    ensure!(waits["kind"] == "budget" && waits["scope"] == "session" && waits["act"] == "replenish", "{waits}");
    world.refused(&format!("/v1/agents/{one}/messages"), json!({"content": "more"}), "replenish").await?;
    let short = world.post(&format!("{path}/replenish"), json!({"budget": {"max_tokens": 25}})).await?;
    short.refuses(422, "/budget/max_tokens");
    let after = world.act(&format!("{path}/replenish"), json!({"budget": {"max_tokens": 200}})).await?;
    ensure!(after["status"] == "active", "{after}");
    ensure!(world.turn(&two, "call echo {\"text\": \"x\"} ;; said").await?["output"] == "said");
    settled(&world, &path, "tokens", json!(4 * TOKENS)).await
}

/// S18: a turn that was let run on uses up the limit.
async fn suspends_a_session_that_is_paused(world: World) -> Result<()> {
    world.script(puppet::reply);
    let session = session(&world, json!({"max_tokens": 10})).await?;
    let agent = agent(&world, &session, json!({})).await?;
    let turn = world.begin(&agent, "slow 1500 done").await?;
    world.turn_is(&turn, "streaming").await?;
    world.act(&format!("/v1/sessions/{session}/pause"), json!({})).await?;
    ensure!(world.ended(&turn).await?["status"] == "completed");
    world.until(&format!("/v1/sessions/{session}"), |session| session["status"] == "suspended").await?;
    Ok(())
}

/// T20 of turns that did not find it out themselves: what is being said is cut off, and no call is made.
async fn interrupts_others_where_they_are(world: World) -> Result<()> {
    world.script(|request| match request.user_text().as_str() {
        "slowly" => Reply::text("kept").slow(Duration::from_millis(2_500), Duration::ZERO),
        "slowly call" => Reply::call("echo", json!({"text": "x"})).slow(Duration::from_millis(2_500), Duration::ZERO),
        _ => Reply::call("echo", json!({"text": "a"})).and(Reply::call("echo", json!({"text": "b"}))),
    });
    let session = session(&world, json!({"max_tool_calls": 1})).await?;
    let mut turns = Vec::new();
    for (name, said) in [("a", "slowly"), ("b", "slowly call")] {
        let agent = agent(&world, &session, json!({"name": name})).await?;
        let turn = world.begin(&agent, said).await?;
        world.turn_is(&turn, "streaming").await?;
        turns.push(turn);
    }
    let third = agent(&world, &session, json!({"name": "c"})).await?;
    ensure!(world.turn(&third, "two calls").await?["status"] == "interrupted");
    world.until(&format!("/v1/sessions/{session}"), |session| session["status"] == "suspended").await?;
    let (kept, cut) = (world.ended(&turns[0]).await?, world.ended(&turns[1]).await?);
    ensure!(kept["status"] == "interrupted" && kept["output"].is_null(), "nothing was said yet: {kept}");
    ensure!(cut["status"] == "interrupted" && cut["usage"]["output_tokens"] == 0, "{cut}");
    let told = world.runes_of(&session, "turn.interrupted", 3).await?;
    ensure!(told.iter().all(|rune| rune["payload"]["reason"] == "budget"), "{told:?}");
    Ok(())
}

async fn waits_while_others_have_set_aside_what_is_left(world: World) -> Result<()> {
    world.script(puppet::reply);
    let session = session(&world, json!({"max_tokens": 40})).await?;
    let (one, two) =
        (agent(&world, &session, json!({})).await?, agent(&world, &session, json!({"name": "bob"})).await?);
    let first = world.begin(&one, "slow 2500 first").await?;
    world.turn_is(&first, "streaming").await?;
    let second = world.begin(&two, "second").await?;
    let waits = world.until(&format!("/v1/turns/{second}"), |turn| turn["waiting_for"]["kind"] == "budget").await?;
    let waits = &waits["waiting_for"];
    ensure!(waits["scope"] == "session" && waits["id"] == session.as_str() && waits["act"].is_null(), "{waits}");
    ensure!(world.ended(&first).await?["status"] == "completed");
    ensure!(world.ended(&second).await?["status"] == "completed");
    settled(&world, &format!("/v1/sessions/{session}"), "tokens", json!(2 * TOKENS)).await
}

/// What a child may spend its parent must have.
async fn of_a_parent_keeps_its_child_waiting(world: World) -> Result<()> {
    world.script(puppet::reply);
    let session = world.session().await?;
    let parent = agent(&world, &session, json!({"budget": {"max_tokens": 40}})).await?;
    let child = json!({"name": "scout", "task": "slow 1500 said", "system_prompt": format!("[{}]", world.name)});
    let turn = world.turn(&parent, &format!("call spawn_agent {child} ;; well")).await?;
    ensure!(turn["status"] == "completed", "{turn}");
    let path = format!("/v1/agents/{parent}");
    let stopped = world.until(&path, |agent| agent["drive"] == "stopped").await?;
    ensure!(stopped["budget"]["used"]["tokens"] == 3 * TOKENS, "{stopped}");
    let child = stopped["children"][0].as_str().context("a child")?.to_owned();
    let turn = world.begin(&child, "more").await?;
    let waits = world.until(&format!("/v1/turns/{turn}"), |turn| turn["waiting_for"]["kind"] == "budget").await?;
    ensure!(waits["waiting_for"]["scope"] == "agent" && waits["waiting_for"]["id"] == parent.as_str(), "{waits}");
    world.request("PATCH", &path, Some(json!({"budget": {"max_tokens": 1_000}}))).await?.is(200);
    ensure!(world.ended(&turn).await?["status"] == "completed");
    Ok(())
}

/// Answers without a count, that are cut off, that break off and are made again.
async fn counts_by_estimate_what_the_provider_does_not_say(world: World) -> Result<()> {
    let words = "one two three four five six seven eight ".repeat(50);
    let long = words.clone();
    let failed = std::sync::atomic::AtomicBool::new(false);
    world.script(move |request| match request.user_text().as_str() {
        "silent" => Reply::text("Done and dusted.").usage(0, 0),
        "slow" => Reply::text(&long).slow(Duration::ZERO, Duration::from_millis(20)),
        "broken" if !failed.swap(true, std::sync::atomic::Ordering::SeqCst) => {
            Reply::text("this is not").broken_after(3, Break::Cut)
        }
        _ => Reply::text("Done."),
    });
    let session = world.session().await?;
    let new = json!({"budget": {"max_tokens": 1_000_000}, "tools": []});
    let agent = agent(&world, &session, new).await?;
    let path = format!("/v1/agents/{agent}");
    let used = async || -> Result<i64> {
        let settled = |agent: &Value| agent["budget"]["reserved"]["tokens"] == 0;
        world.until(&path, settled).await?["budget"]["used"]["tokens"].as_i64().context("used")
    };
    let of = |turn: &Value| -> Result<(i64, i64)> {
        let n = |field: &str| turn["usage"][field].as_i64().with_context(|| turn.to_string());
        Ok((n("input_tokens")?, n("output_tokens")?))
    };
    let silent = world.turn(&agent, "silent").await?;
    let (input, output) = of(&silent)?;
    // Four bytes are a token; the prompt names this scenario.
    ensure!(output == 4 && input > 15 && used().await? == input + output, "{silent}");
    let before = used().await?;
    let turn = world.begin(&agent, "slow").await?;
    world.runes_of(&session, "turn.assistant_delta", 1).await?;
    world.act(&format!("/v1/turns/{turn}/interrupt"), json!({})).await?;
    let cut = world.ended(&turn).await?;
    let (input, output) = of(&cut)?;
    let heard = cut["output"].as_str().map_or(0, str::len);
    ensure!(cut["status"] == "interrupted" && heard > 0 && heard < words.len(), "{cut}");
    ensure!(input > 15 && output >= i64::try_from(heard / 4)?, "{cut}");
    ensure!(used().await? == before + input + output, "{cut}");
    let before = used().await?;
    let again = world.turn(&agent, "broken").await?;
    let (input, output) = of(&again)?;
    ensure!(again["status"] == "completed" && input + output > TOKENS + 15, "both calls count: {again}");
    ensure!(used().await? == before + input + output, "{again}");
    Ok(())
}

/// Raised, taken away and set anew while the session and its agents go on.
async fn is_changed_while_it_is_drawn_on(world: World) -> Result<()> {
    world.script(puppet::reply);
    let session = session(&world, json!({"max_tokens": 20})).await?;
    let path = format!("/v1/sessions/{session}");
    let agent = agent(&world, &session, json!({"budget": {"max_tokens": 10_000, "max_tool_calls": 1}})).await?;
    let agent_path = format!("/v1/agents/{agent}");
    ensure!(world.turn(&agent, "one").await?["status"] == "completed");
    let low = world.request("PATCH", &path, Some(json!({"budget": {"max_tokens": 15}}))).await?;
    low.refuses(422, "above what is used");
    let raised = world.request("PATCH", &path, Some(json!({"budget": {"max_tokens": 1_000}, "name": "ours"}))).await?;
    let raised = raised.is(200);
    ensure!(raised["budget"]["max_tokens"] == 1_000 && raised["name"] == "ours", "{raised}");
    ensure!(world.turn(&agent, "two").await?["status"] == "completed");
    ensure!(world.get(&path).await?["status"] == "active");
    // Without a limit: also for a turn that has set something aside of it.
    let slow = world.begin(&agent, "slow 1000 three").await?;
    world.turn_is(&slow, "streaming").await?;
    let (code, said) = world.run(&["session", "budget", &session, "max_tokens=none", "-o", "json"]).await?;
    ensure!(code == 0 && !said.contains("1000"), "{said}");
    let lifted = json!({"budget": {"max_tool_calls": null}});
    let shown = world.request("PATCH", &agent_path, Some(lifted)).await?.is(200);
    ensure!(shown["budget"]["max_tool_calls"].is_null() && shown["budget"]["max_tokens"] == 10_000, "{shown}");
    ensure!(world.ended(&slow).await?["status"] == "completed");
    let calls = "calls [[\"echo\", {\"text\": \"a\"}], [\"echo\", {\"text\": \"b\"}]] ;; fine";
    ensure!(world.turn(&agent, calls).await?["output"] == "fine");
    let shown = world.get(&path).await?;
    ensure!(shown["budget"]["remaining"].as_object().is_none_or(|left| left.is_empty()), "{shown}");
    // What was used under a limit stays used when there is one again.
    let tight = world.request("PATCH", &path, Some(json!({"budget": {"max_tokens": 30}}))).await?;
    tight.refuses(422, "must be above what is used already: 45");
    Ok(())
}

async fn counts_calls(world: World) -> Result<()> {
    world.script(puppet::reply);
    let session = world.session().await?;
    let agent = agent(&world, &session, json!({"budget": {"max_tool_calls": 2}})).await?;
    let path = format!("/v1/agents/{agent}");
    // As many as there are may be made, and their results be answered.
    let fits =
        world.turn(&agent, "calls [[\"echo\", {\"text\": \"a\"}], [\"echo\", {\"text\": \"b\"}]] ;; fine").await?;
    ensure!(fits["status"] == "completed" && fits["usage"]["tool_calls"] == 2, "{fits}");
    let beyond = world.turn(&agent, "call echo {\"text\": \"c\"} ;; never said").await?;
    ensure!(beyond["status"] == "interrupted", "{beyond}");
    let stopped = world.until(&path, |agent| agent["drive"] == "stopped").await?;
    ensure!(stopped["budget"]["used"]["tool_calls"] == 2, "{stopped}");
    let calls = world.get(&format!("/v1/tool-calls?turn={}", text(&beyond, "id")?)).await?;
    ensure!(calls["data"] == json!([]), "none of them was made: {calls}");
    Ok(())
}

/// Ten tokens in and five out come to 0.02.
async fn counts_money(world: World) -> Result<()> {
    world.script(|_| Reply::text("Done."));
    let session = session(&world, json!({"max_cost": "0.03"})).await?;
    let path = format!("/v1/sessions/{session}");
    let unpriced = world.described(json!({"model": "default"}));
    world.post(&format!("{path}/agents"), unpriced).await?.refuses(422, "no price");
    let agent = agent(&world, &session, json!({})).await?;
    ensure!(world.turn(&agent, "one").await?["status"] == "completed");
    settled(&world, &path, "cost", json!("0.02")).await?;
    ensure!(budget(&world, &path).await?["remaining"]["cost"] == "0.01");
    ensure!(world.turn(&agent, "two").await?["status"] == "completed");
    world.until(&path, |session| session["status"] == "suspended").await?;
    let (code, said) = world
        .run(&["session", "replenish", &session, "--budget", "max_cost=1.50,max_tokens=1000", "-o", "json"])
        .await?;
    ensure!(code == 0 && said.contains("1.50"), "{said}");
    ensure!(world.turn(&agent, "three").await?["status"] == "completed");
    settled(&world, &path, "cost", json!("0.06")).await?;
    ensure!(budget(&world, &path).await?["used"]["tokens"] == TOKENS, "counted from when it was limited");
    Ok(())
}

/// By a timer, whether or not there is a turn.
async fn runs_out_of_time(world: World) -> Result<()> {
    world.script(puppet::reply);
    let session = world.session().await?;
    let idle = agent(&world, &session, json!({"budget": {"max_wall_time_ms": 1_500}})).await?;
    let busy = agent(&world, &session, json!({"name": "bob", "budget": {"max_wall_time_ms": 1_500}})).await?;
    ensure!(world.turn(&idle, "quick").await?["status"] == "completed");
    let turn = world.begin(&busy, "slow 30000 never said").await?;
    for agent in [&idle, &busy] {
        let path = format!("/v1/agents/{agent}");
        let stopped = world.until(&path, |agent| agent["drive"] == "stopped").await?;
        ensure!(stopped["budget"]["remaining"]["wall_time"] == 0, "{stopped}");
    }
    ensure!(world.ended(&turn).await?["status"] == "interrupted");
    let path = format!("/v1/agents/{idle}");
    world.request("PATCH", &path, Some(json!({"budget": {"max_wall_time_ms": 600_000}}))).await?.is(200);
    world.act(&format!("{path}/start"), json!({})).await?;
    ensure!(world.turn(&idle, "again").await?["status"] == "completed");
    Ok(())
}

async fn ends_a_turn_that_repeats_itself(world: World) -> Result<()> {
    world.script(|_| Reply::call("echo", json!({"text": "again"})));
    let session = world.session().await?;
    let agent = agent(&world, &session, json!({})).await?;
    let turn = world.turn(&agent, "go").await?;
    ensure!(turn["status"] == "error" && turn["error"]["error_type"] == "runaway", "{turn}");
    let calls = world.calls(&text(&turn, "id")?, |calls| calls.len() >= 8).await?;
    let refused = calls.iter().filter(|call| call["result"].to_string().contains("in a row")).count();
    ensure!(calls.len() == 8 && refused == 3, "{refused} of {} were refused", calls.len());
    // It may be asked something else.
    world.script(|_| Reply::text("Done."));
    ensure!(world.turn(&agent, "well?").await?["status"] == "completed");
    Ok(())
}

async fn says_what_is_wrong_with_it(world: World) -> Result<()> {
    let bad = json!({"max_tokens": -1, "max_tool_calls": 2.5, "max_cost": 1.5, "max_minutes": 3, "on_budget": "panic"});
    let got = world.post("/v1/sessions", json!({"budget": bad})).await?;
    let told = got.refuses(422, "/budget/max_minutes");
    ensure!(told["errors"].as_array().is_some_and(|errors| errors.len() == 5), "{told}");
    let session = world.session().await?;
    let unpriced = world.described(json!({"model": "default", "budget": {"max_cost": "1"}}));
    world.post(&format!("/v1/sessions/{session}/agents"), unpriced).await?.refuses(422, "/budget/max_cost");
    Ok(())
}

/// A thousand by `cargo xtask bench budget`.
async fn holds_however_many_draw_on_it_at_once(world: World) -> Result<()> {
    world.script(spree::greedy);
    let seen = spree::run(world.fleet(), &world.store().await?, 300).await?;
    println!("{seen:?}");
    Ok(())
}

/// What it had set aside is used by whoever goes on with its turn, and given back at the end.
async fn is_not_leaked_by_a_worker_that_dies(world: World) -> Result<()> {
    world.script(puppet::reply);
    let session = session(&world, json!({"max_tokens": 1_000, "max_cost": "10"})).await?;
    let path = format!("/v1/sessions/{session}");
    let agent = agent(&world, &session, json!({"budget": {"max_tokens": 500}})).await?;
    let turn = world.begin(&agent, "slow 2000 said").await?;
    world.turn_is(&turn, "streaming").await?;
    let aside = world.until(&path, |session| session["budget"]["reserved"]["tokens"].as_i64() > Some(0)).await?;
    world.kill("agent-worker").await?;
    // The call that died with its worker is taken to have used what it sent; the longest answer is 50 tokens.
    let lost = aside["budget"]["reserved"]["tokens"].as_i64().context("reserved")? - 50;
    let again = world.get(&path).await?;
    ensure!(again["budget"]["reserved"] == aside["budget"]["reserved"], "neither lost nor doubled: {again}");
    let turn = world.ended(&turn).await?;
    ensure!(turn["status"] == "completed" && turn["attempts"] == 2, "{turn}");
    settled(&world, &path, "tokens", json!(TOKENS + lost)).await?;
    settled(&world, &format!("/v1/agents/{agent}"), "tokens", json!(TOKENS + lost)).await?;
    wait::until_ok(Duration::from_secs(20), || async {
        let store = world.store().await?;
        let live = store.idle_turns(chrono::Utc::now(), Default::default(), 10).await?;
        ensure!(live.is_empty(), "{} turns wait", live.len());
        Ok(())
    })
    .await
}
