//! Turns: from the message to each of their ends.

use crate::world::{WITHIN, World, calls_once, plain, text};
use crate::{Group, scenarios};
use anyhow::{Context, Result, ensure};
use instar_crashpoint::CLOCK_VARIABLE;
use instar_testkit::model::{Break, Reply};
use instar_testkit::wait;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

pub(crate) static PLAIN: Group = Group {
    name: "turn",
    config: "",
    environment: &[],
    at_once: 4,
    scenarios: scenarios![
        answers_with_and_without_a_tool,
        tells_what_it_takes_up_and_what_came_of_its_calls,
        keeps_what_was_said_so_far,
        is_interrupted_while_the_model_speaks,
        is_interrupted_while_a_tool_runs,
        is_steered_while_the_model_speaks,
        is_steered_while_a_tool_runs,
        queues_a_message_behind_it,
        ends_with_the_error_of_its_provider,
        ends_when_it_has_called_the_model_too_often,
        never_began_and_is_interrupted,
    ],
};

/// Deadlines so short that they pass, on machines whose clocks are ten minutes fast.
pub(crate) static HASTY: Group = Group {
    name: "hasty_turn",
    config: "[worker]\nturn_deadline_ms = 1500\n",
    environment: &[(CLOCK_VARIABLE, "600000")],
    at_once: 4,
    scenarios: scenarios![errs_only_when_its_time_is_over_three_times_in_a_row, a_tool_outlasts_its_time,],
};

/// Time for a second try, and no more.
pub(crate) static PATIENT: Group = Group {
    name: "patient_turn",
    config: "[worker]\nturn_deadline_ms = 8000\n",
    environment: &[],
    at_once: 4,
    scenarios: scenarios![asks_again_when_the_model_says_nothing],
};

/// Processes die here.
pub(crate) static MORTAL: Group = Group {
    name: "mortal_turn",
    config: "[lease]\nttl_ms = 600\n",
    environment: &[],
    at_once: 1,
    scenarios: scenarios![goes_on_when_its_worker_dies, is_given_up_when_it_costs_too_many_workers],
};

/// A watchdog that soon loses patience, on machines whose clocks are ten minutes slow.
pub(crate) static WATCHED: Group = Group {
    name: "watched_turn",
    config: "[scheduler]\nwatchdog_ms = 3000\n[worker]\ncheckpoint_ms = 200\n",
    environment: &[(CLOCK_VARIABLE, "-600000")],
    at_once: 4,
    scenarios: scenarios![is_ended_when_nothing_is_heard_of_it, is_not_late_for_its_machines_clock],
};

/// Nothing else may speak with the model meanwhile: that it answers others would hide what one agent does to it.
pub(crate) static POISONED: Group = Group {
    name: "poisoned_turn",
    config: "",
    environment: &[],
    at_once: 1,
    scenarios: scenarios![whose_answers_cannot_be_read_delays_no_other_agents],
};

/// Who reads one kind of rune and nothing else knows what to do.
async fn tells_what_it_takes_up_and_what_came_of_its_calls(world: World) -> Result<()> {
    world.script(plain());
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"tools": ["echo"]})).await?;
    for (n, words) in ["echo hello".to_owned(), format!("echo {}", "é".repeat(5_000))].iter().enumerate() {
        let sent = world.send(&agent, words).await?;
        let turn = text(&sent, "turn_id")?;
        ensure!(world.ended(&turn).await?["status"] == "completed");
        let call = world.call_is(&turn, "completed_result").await?;
        let long = words.len() > 256;
        let begins = |told: &Value, whole: &str| {
            let said = told["text"].as_str().unwrap_or_default();
            let all = if long { said.len() >= 250 && said.len() <= 256 } else { said == whole };
            whole.starts_with(said) && all && told["cut"].as_bool().unwrap_or(false) == long
        };
        let started = world.runes_of(&session, "turn.started", n + 1).await?;
        let inputs = &started[n]["payload"]["inputs"];
        ensure!(inputs.as_array().is_some_and(|inputs| inputs.len() == 1), "{inputs}");
        ensure!(inputs[0]["message_id"] == sent["message_id"] && inputs[0]["source"] == "direct", "{inputs} {sent}");
        ensure!(begins(&inputs[0], words), "{inputs}");
        let finished = world.runes_of(&session, "turn.tools_finished", n + 1).await?;
        let results = &finished[n]["payload"]["results"];
        ensure!(results.as_array().is_some_and(|results| results.len() == 1), "{results}");
        ensure!(results[0]["call_id"] == call.as_str() && results[0]["tool"] == "echo", "{results}");
        ensure!(results[0]["status"] == "success", "{results}");
        ensure!(results[0]["cut"].as_bool().unwrap_or(false) == long && results.to_string().len() < 500, "{results}");
        ensure!(long || results[0]["text"].as_str().is_some_and(|text| text.contains("hello")), "{results}");
    }
    Ok(())
}

async fn answers_with_and_without_a_tool(world: World) -> Result<()> {
    world.script(plain());
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"tools": ["echo"]})).await?;
    let turn = world.turn(&agent, "echo hello").await?;
    ensure!(turn["status"] == "completed" && turn["iterations"] == 2, "{turn}");
    let turn = world.turn(&agent, "say something").await?;
    ensure!(turn["status"] == "completed" && turn["output"] == "Done.", "{turn}");
    // Turns that come and go leave their session as it is; the primary runes are the turn's.
    ensure!(world.get(&format!("/v1/sessions/{session}")).await?["status"] == "active");
    Ok(())
}

/// An answer that takes its time, word by word.
fn slow_answer() -> Reply {
    let words = ["one ", "two ", "three ", "four ", "five ", "six ", "seven ", "eight ", "nine ", "ten "];
    Reply::chunks(words).slow(Duration::ZERO, Duration::from_millis(400))
}

/// A slow answer to what begins with `slow`, a quick one to anything else.
fn slowly(world: &World) {
    world.script(|request| match request.user_text().starts_with("slow") {
        true => slow_answer(),
        false => Reply::text("Quick."),
    });
}

async fn keeps_what_was_said_so_far(world: World) -> Result<()> {
    slowly(&world);
    let session = world.session().await?;
    let agent = world.agent(&session, json!({})).await?;
    let turn = world.begin(&agent, "slow").await?;
    let said = world.runes_of(&session, "turn.assistant_delta", 1).await?;
    ensure!(said[0]["payload"]["content"].as_str().is_some_and(|text| text.starts_with("one")), "{said:?}");
    let turn = world.ended(&turn).await?;
    ensure!(turn["output"].as_str().is_some_and(|text| text.ends_with("ten ")), "{turn}");
    Ok(())
}

async fn is_interrupted_while_the_model_speaks(world: World) -> Result<()> {
    slowly(&world);
    let session = world.session().await?;
    let agent = world.agent(&session, json!({})).await?;
    let turn = world.begin(&agent, "slow").await?;
    world.runes_of(&session, "turn.assistant_delta", 1).await?;
    world.act(&format!("/v1/turns/{turn}/interrupt"), json!({"reason": "enough"})).await?;
    let turn = world.ended(&turn).await?;
    ensure!(turn["status"] == "interrupted", "{turn}");
    ensure!(turn["output"].as_str().is_some_and(|text| text.starts_with("one")), "what was said is kept: {turn}");
    Ok(())
}

async fn is_interrupted_while_a_tool_runs(world: World) -> Result<()> {
    world.script(calls_once("slow_charge", json!({"token": "interrupted"})));
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"tools": ["slow_charge"]})).await?;
    let turn = world.begin(&agent, "go").await?;
    world.runes_of(&session, "tool.started", 1).await?;
    world.act(&format!("/v1/turns/{turn}/interrupt"), json!({})).await?;
    let ended = world.ended(&turn).await?;
    ensure!(ended["status"] == "interrupted", "{ended}");
    let calls = world.calls(&turn, |calls| calls.iter().all(|call| !call["result"].is_null())).await?;
    ensure!(calls.len() == 1 && calls[0]["status"] != "executing", "{calls:?}");
    Ok(())
}

async fn is_steered_while_the_model_speaks(world: World) -> Result<()> {
    slowly(&world);
    let session = world.session().await?;
    let agent = world.agent(&session, json!({})).await?;
    let turn = world.begin(&agent, "slow").await?;
    world.runes_of(&session, "turn.assistant_delta", 1).await?;
    world.act(&format!("/v1/turns/{turn}/steer"), json!({"content": "do this instead"})).await?;
    let ended = world.ended(&turn).await?;
    ensure!(ended["status"] == "interrupted", "{ended}");
    next_answers(&world, &agent, "do this instead").await
}

/// The agent's newest turn answers this message.
pub(crate) async fn next_answers(world: &World, agent: &str, content: &str) -> Result<()> {
    let newest = |found: &Value| found["data"][0].clone();
    let path = format!("/v1/turns?agent={agent}&limit=1");
    let answers = |turn: Value| turn["ended_at"].is_string() && turn["input"][0]["content"] == content;
    let turn = newest(&world.until(&path, |found| answers(newest(found))).await?);
    ensure!(turn["status"] == "completed", "{turn}");
    Ok(())
}

async fn is_steered_while_a_tool_runs(world: World) -> Result<()> {
    world.script(|request| match request.user_text().as_str() {
        "go" => Reply::call("slow_put", json!({"token": "steered"})),
        _ => Reply::text("As you wish."),
    });
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"tools": ["slow_put"]})).await?;
    let turn = world.begin(&agent, "go").await?;
    world.turn_is(&turn, "tool_executing").await?;
    world.act(&format!("/v1/turns/{turn}/steer"), json!({"content": "something else"})).await?;
    let ended = world.ended(&turn).await?;
    ensure!(ended["status"] == "interrupted", "{ended}");
    let calls = world.calls(&turn, |calls| calls.len() == 1).await?;
    ensure!(calls[0]["status"] == "completed_result", "its tool finished: {calls:?}");
    next_answers(&world, &agent, "something else").await
}

async fn queues_a_message_behind_it(world: World) -> Result<()> {
    slowly(&world);
    let session = world.session().await?;
    let agent = world.agent(&session, json!({})).await?;
    let turn = world.begin(&agent, "slow").await?;
    world.turn_is(&turn, "streaming").await?;
    let sent = world.send(&agent, "and then").await?;
    ensure!(sent["turn_id"].is_null(), "{sent}");
    ensure!(world.get(&format!("/v1/turns/{turn}")).await?["status"] == "streaming", "it goes on as it was");
    ensure!(world.ended(&turn).await?["status"] == "completed");
    next_answers(&world, &agent, "and then").await
}

async fn ends_with_the_error_of_its_provider(world: World) -> Result<()> {
    world.script(|_| Reply::spend_limit());
    let session = world.session().await?;
    let agent = world.agent(&session, json!({})).await?;
    let turn = world.turn(&agent, "go").await?;
    ensure!(turn["status"] == "error" && turn["error"]["error_type"] == "quota_exhausted", "{turn}");
    let agent = world.get(&format!("/v1/agents/{agent}")).await?;
    ensure!(agent["drive"] == "errored" && agent["lifecycle"] == "idle", "{agent}");
    Ok(())
}

async fn ends_when_it_has_called_the_model_too_often(world: World) -> Result<()> {
    world.script(|request| Reply::call("echo", json!({"text": format!("{}", request.messages().len())})));
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"tools": ["echo"]})).await?;
    let turn = world.turn(&agent, "go").await?;
    ensure!(turn["status"] == "completed" && turn["iterations"] == 10, "{turn}");
    Ok(())
}

async fn never_began_and_is_interrupted(world: World) -> Result<()> {
    world.script(plain());
    let session = world.session().await?;
    let agent = world.agent(&session, json!({})).await?;
    world.act(&format!("/v1/sessions/{session}/pause"), json!({})).await?;
    let turn = world.begin(&agent, "wait").await?;
    world.act(&format!("/v1/turns/{turn}/interrupt"), json!({})).await?;
    ensure!(world.ended(&turn).await?["status"] == "interrupted");
    Ok(())
}

async fn errs_only_when_its_time_is_over_three_times_in_a_row(world: World) -> Result<()> {
    slowly(&world);
    let session = world.session().await?;
    let agent = world.agent(&session, json!({})).await?;
    let path = format!("/v1/agents/{agent}");
    for (message, drive) in
        [("slow", "running"), ("quick", "running"), ("slow", "running"), ("slow", "running"), ("slow", "errored")]
    {
        let turn = world.turn(&agent, message).await?;
        match message {
            "slow" => ensure!(turn["status"] == "error" && turn["error"]["error_type"] == "timeout", "{turn}"),
            _ => ensure!(turn["status"] == "completed", "{turn}"),
        }
        let found = world.get(&path).await?;
        ensure!(found["lifecycle"] == "idle" && found["drive"] == drive, "{found}");
    }
    // Whoever starts it again has the same patience with it.
    world.act(&format!("{path}/start"), json!({})).await?;
    world.turn(&agent, "slow").await?;
    let found = world.get(&path).await?;
    ensure!(found["drive"] == "running" && found["last_error"].is_null(), "{found}");
    Ok(())
}

async fn asks_again_when_the_model_says_nothing(world: World) -> Result<()> {
    let asked = AtomicBool::new(false);
    world.script(move |_| match asked.swap(true, Ordering::Relaxed) {
        false => Reply::hang(),
        true => Reply::text("Here I am."),
    });
    let session = world.session().await?;
    let agent = world.agent(&session, json!({})).await?;
    let turn = world.turn(&agent, "are you there?").await?;
    ensure!(turn["status"] == "completed" && turn["output"] == "Here I am.", "{turn}");
    Ok(())
}

/// It takes longer than two looks of the scheduler are apart.
async fn is_not_late_for_its_machines_clock(world: World) -> Result<()> {
    world.script(|_| Reply::chunks(["so "; 16]).slow(Duration::ZERO, Duration::from_millis(400)));
    let session = world.session().await?;
    let agent = world.agent(&session, json!({})).await?;
    let turn = world.turn(&agent, "go").await?;
    ensure!(turn["status"] == "completed", "{turn}");
    let store = world.store().await?;
    let began: chrono::DateTime<chrono::Utc> = turn["created_at"].as_str().context("created_at")?.parse()?;
    let ago = store.now().await? - began;
    ensure!(world.is_embedded() || ago < chrono::Duration::minutes(5), "it began {ago} ago");
    Ok(())
}

async fn a_tool_outlasts_its_time(world: World) -> Result<()> {
    world.script(calls_once("sleep", json!({"ms": 600_000})));
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"tools": ["sleep"]})).await?;
    let turn = world.turn(&agent, "go").await?;
    ensure!(turn["status"] == "error" && turn["error"]["error_type"] == "timeout", "{turn}");
    Ok(())
}

async fn goes_on_when_its_worker_dies(world: World) -> Result<()> {
    slowly(&world);
    let session = world.session().await?;
    let agent = world.agent(&session, json!({})).await?;
    let turn = world.begin(&agent, "slow").await?;
    world.runes_of(&session, "turn.assistant_delta", 1).await?;
    world.kill("agent-worker").await?;
    let ended = world.ended(&turn).await?;
    ensure!(ended["status"] == "completed" && ended["attempts"] == 2, "{ended}");
    Ok(())
}

async fn is_given_up_when_it_costs_too_many_workers(world: World) -> Result<()> {
    world.script(|_| Reply::hang());
    let session = world.session().await?;
    let mut agents = Vec::new();
    for then in ["", "terminate", "stop"] {
        let agent = world.agent(&session, json!({})).await?;
        agents.push((then, world.begin(&agent, "go").await?, agent));
    }
    for attempt in 1..=5 {
        for (_, turn, _) in &agents {
            let path = format!("/v1/turns/{turn}");
            world.until(&path, |turn| turn["status"] == "streaming" && turn["attempts"] == attempt).await?;
        }
        if attempt == 5 && world.is_distributed() {
            // Asked of a turn whose worker never hears it.
            world.freeze("agent-worker").await?;
            for (then, _, agent) in agents.iter().filter(|(then, ..)| !then.is_empty()) {
                world.act(&format!("/v1/agents/{agent}/{then}"), json!({})).await?;
            }
        }
        world.kill("agent-worker").await?;
    }
    for (then, turn, agent) in agents {
        let ended = world.ended(&turn).await?;
        ensure!(ended["status"] == "error" && ended["error"]["error_type"] == "worker_lost", "{then}: {ended}");
        let shown = world.get(&format!("/v1/agents/{agent}")).await?;
        let wanted = match then {
            "terminate" if world.is_distributed() => ("terminated", "errored"),
            "stop" if world.is_distributed() => ("idle", "stopped"),
            _ => ("idle", "errored"),
        };
        ensure!((text(&shown, "lifecycle")?.as_str(), text(&shown, "drive")?.as_str()) == wanted, "{then}: {shown}");
    }
    Ok(())
}

async fn is_ended_when_nothing_is_heard_of_it(world: World) -> Result<()> {
    world.script(|_| Reply::hang());
    let session = world.session().await?;
    let agent = world.agent(&session, json!({})).await?;
    let turn = world.turn(&agent, "go").await?;
    ensure!(turn["status"] == "error" && turn["error"]["error_type"] == "stuck", "{turn}");
    Ok(())
}

/// More failures in a row than open a circuit, all of one agent's conversation.
async fn whose_answers_cannot_be_read_delays_no_other_agents(world: World) -> Result<()> {
    let (sick, well) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (asked, healed) = (sick.clone(), well.clone());
    world.script(move |request| match request.user_text().as_str() {
        "poison" if !healed.load(Ordering::SeqCst) => {
            asked.fetch_add(1, Ordering::SeqCst);
            Reply::text("never read").broken_after(0, Break::Malformed)
        }
        _ => Reply::text("Done."),
    });
    let session = world.session().await?;
    let poisoned = world.begin(&world.agent(&session, json!({})).await?, "poison").await?;
    wait::until_ok(WITHIN, || async {
        let failed = sick.load(Ordering::SeqCst);
        ensure!(failed > 5, "asked {failed} times");
        Ok(())
    })
    .await?;
    let others = [world.agent(&session, json!({})).await?, world.agent(&session, json!({})).await?];
    for other in &others {
        let turn = world.begin(other, "hello").await?;
        // A circuit that is open refuses calls for half a minute.
        let ended = tokio::time::timeout(Duration::from_secs(20), world.ended(&turn)).await;
        ensure!(ended.context("kept waiting")??["status"] == "completed");
    }
    well.store(true, Ordering::SeqCst);
    ensure!(world.ended(&poisoned).await?["output"] == "Done.");
    Ok(())
}
