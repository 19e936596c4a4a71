//! Agents that make agents, speak to each other, wait for each other and end together.

use crate::world::{World, text};
use crate::{Group, scenarios};
use anyhow::{Context, Result, ensure};
use instar_testkit::model::Reply;
use instar_tests::puppet;
use serde_json::{Value, json};

pub(crate) static PLAIN: Group = Group {
    name: "agent",
    config: "[worker]\ninterrupt_grace_ms = 500\n",
    environment: &[],
    at_once: 4,
    scenarios: scenarios![
        makes_another_and_waits_for_it,
        speaks_to_another,
        cannot_be_brought_up,
        ends_with_its_parent,
        ends_by_force,
        ends_with_its_session,
        remembers,
        is_deleted_with_what_it_does,
        is_loaded_from_the_definition_of_another,
        says_what_it_does,
    ],
};

/// One place for a child at a time.
pub(crate) static CROWDED: Group = Group {
    name: "crowded_agent",
    config: "[worker]\ninterrupt_grace_ms = 500\n[agents]\nchildren_at_work_max = 1\nchildren_max = 3\n",
    environment: &[],
    at_once: 2,
    scenarios: scenarios![waits_for_a_place_and_may_end_there],
};

/// Processes die here.
pub(crate) static MORTAL: Group = Group {
    name: "mortal_agent",
    config: "[lease]\nttl_ms = 600\n",
    environment: &[],
    at_once: 1,
    scenarios: scenarios![waits_though_everything_is_killed],
};

const TOOLS: [&str; 6] = ["echo", "spawn_agent", "send_message", "wait_for", "terminate_agent", "search_messages"];

/// An agent that does what it is told, and its session.
async fn puppet(world: &World) -> Result<(String, String)> {
    world.script(puppet::reply);
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"tools": TOOLS})).await?;
    Ok((session, agent))
}

/// Waits until it does this, as it says itself and in the list.
async fn does(world: &World, session: &str, agent: &str, activity: &str) -> Result<()> {
    world.until(&format!("/v1/agents/{agent}"), |agent| agent["activity"] == activity).await?;
    world.until(&format!("/v1/agents?session={session}"), |all| all["data"][0]["activity"] == activity).await?;
    Ok(())
}

async fn says_what_it_does(world: World) -> Result<()> {
    world.script(|request| match request.user_text().as_str() {
        "speak" => Reply::hang(),
        _ if request.tool_results().is_empty() => Reply::call("slow_charge", json!({"token": "what it does"})),
        _ => Reply::text("Done."),
    });
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"tools": ["slow_charge"], "approval_mode": "auto"})).await?;
    does(&world, &session, &agent, "resting").await?;
    let turn = world.begin(&agent, "speak").await?;
    does(&world, &session, &agent, "llm").await?;
    world.act(&format!("/v1/turns/{turn}/interrupt"), json!({})).await?;
    world.ended(&turn).await?;
    does(&world, &session, &agent, "resting").await?;
    let turn = world.begin(&agent, "charge").await?;
    let call = world.call_is(&turn, "awaiting_approval").await?;
    does(&world, &session, &agent, "waiting").await?;
    world.act(&format!("/v1/tool-calls/{call}/approve"), json!({})).await?;
    does(&world, &session, &agent, "tool").await?;
    world.ended(&turn).await?;
    does(&world, &session, &agent, "resting").await?;
    let (code, told) = world.run(&["agent", "list", "--session", &session]).await?;
    ensure!(code == 0 && told.contains("ACTIVITY") && told.contains("resting"), "{told}");
    // One that is to begin as soon as its session goes on.
    world.act(&format!("/v1/sessions/{session}/pause"), json!({})).await?;
    world.send(&agent, "speak").await?;
    does(&world, &session, &agent, "waiting").await
}

/// A step that makes a child which follows the same script.
fn spawn(world: &World, name: &str, task: &str) -> String {
    let prompt = format!("[{}]", world.name);
    let role = "orchestrator";
    format!("call spawn_agent {}", json!({"name": name, "role": role, "task": task, "system_prompt": prompt}))
}

fn wait_for(names: &[&str]) -> String {
    format!("call wait_for {}", json!({"agents": names}))
}

async fn children(world: &World, agent: &str) -> Result<Vec<String>> {
    let found = world.get(&format!("/v1/agents/{agent}")).await?;
    let children = found["children"].as_array().context("children")?;
    Ok(children.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

/// The result of the last call of a turn.
async fn result(world: &World, turn: &Value) -> Result<Value> {
    let id = text(turn, "id")?;
    let calls = world.calls(&id, |calls| !calls.is_empty() && calls.iter().all(|c| c["result"].is_object())).await?;
    Ok(calls.last().context("a call")?["result"].clone())
}

async fn ended(world: &World, agent: &str, lifecycle: &str) -> Result<Value> {
    world.until(&format!("/v1/agents/{agent}"), |agent| agent["lifecycle"] == lifecycle).await
}

async fn makes_another_and_waits_for_it(world: World) -> Result<()> {
    let (_, agent) = puppet(&world).await?;
    let text = format!("{} ;; {}", spawn(&world, "scout", "the answer is 42"), wait_for(&["scout"]));
    let turn = world.turn(&agent, &text).await?;
    let result = result(&world, &turn).await?;
    ensure!(result["output"]["agents"][0]["output"] == "the answer is 42", "{result}");
    let child = children(&world, &agent).await?.pop().context("a child")?;
    let child = world.get(&format!("/v1/agents/{child}")).await?;
    ensure!(child["parent_id"] == agent.as_str() && child["role"] == "orchestrator", "{child}");
    ensure!(child["budget"]["max_tokens"] == 100_000 && child["budget"]["on_budget"] == "terminate", "{child}");
    Ok(())
}

/// D25 wakes the one that is idle, D26 queues behind the turn of the one that is not.
async fn speaks_to_another(world: World) -> Result<()> {
    let (session, agent) = puppet(&world).await?;
    let report = format!("call send_message {}", json!({"to": "parent", "content": "found it"}));
    let say = format!("call send_message {}", json!({"to": "scout", "content": "go on"}));
    world.turn(&agent, &format!("{} ;; {} ;; {say}", spawn(&world, "scout", &report), wait_for(&["scout"]))).await?;
    // Its task, its report, and the word to go on.
    world.runes_of(&session, "agent.message", 3).await?;
    world
        .until(&format!("/v1/turns?agent={agent}"), |turns| {
            turns["data"].as_array().is_some_and(|turns| turns.iter().any(|turn| turn["output"] == "found it"))
        })
        .await?;
    Ok(())
}

async fn cannot_be_brought_up(world: World) -> Result<()> {
    let (_, agent) = puppet(&world).await?;
    let arguments = json!({"name": "ghost", "model": "nowhere", "task": "haunt"});
    let turn = world.turn(&agent, &format!("call spawn_agent {arguments}")).await?;
    let result = result(&world, &turn).await?;
    ensure!(result["error"].as_str().is_some_and(|why| why.contains("there is no model")), "{result}");
    let child = children(&world, &agent).await?.pop().context("a child")?;
    let child = ended(&world, &child, "failed").await?;
    ensure!(child["drive"] == "errored" && child["badge"] == "failed", "{child}");
    Ok(())
}

/// The parent is in a turn, one child as well, one is idle.
async fn family(world: &World) -> Result<(String, String, Vec<String>)> {
    let (session, agent) = puppet(world).await?;
    let text = format!("{} ;; {}", spawn(world, "idle", "ready"), wait_for(&["idle"]));
    world.turn(&agent, &format!("{text} ;; {}", spawn(world, "busy", "slow 50000 never"))).await?;
    let children = children(world, &agent).await?;
    world.until(&format!("/v1/agents/{}", children[1]), |agent| agent["lifecycle"] == "running_turn").await?;
    Ok((session, agent, children))
}

async fn ends_with_its_parent(world: World) -> Result<()> {
    let (session, agent, children) = family(&world).await?;
    let turn = world.begin(&agent, "slow 50000 never").await?;
    world.turn_is(&turn, "streaming").await?;
    world.act(&format!("/v1/agents/{agent}/terminate"), json!({})).await?;
    for one in children.iter().chain([&agent]) {
        ended(&world, one, "terminated").await?;
    }
    let told = world.runes_of(&session, "agent.terminated", 3).await?;
    let orphans = told.iter().filter(|rune| rune["payload"]["reason"] == "parent_closed").count();
    ensure!(orphans == 2, "{told:?}");
    world.refused(&format!("/v1/agents/{}/messages", children[0]), json!({"content": "x"}), "").await?;
    Ok(())
}

async fn ends_by_force(world: World) -> Result<()> {
    let (session, agent, children) = family(&world).await?;
    let turn = world.begin(&agent, &wait_for(&["busy"])).await?;
    world.turn_is(&turn, "tool_executing").await?;
    world.act(&format!("/v1/agents/{agent}/terminate"), json!({"force": true})).await?;
    for one in children.iter().chain([&agent]) {
        ended(&world, one, "terminated").await?;
    }
    let runes = world.runes(&session).await?;
    let at = |kind: &str| {
        runes.iter().rposition(|rune| rune["kind"] == kind && rune["agent_id"] == agent.as_str()).context("a rune")
    };
    ensure!(at("tool.result")? < at("turn.interrupted")? && at("turn.interrupted")? < at("agent.terminated")?, "order");
    Ok(())
}

async fn ends_with_its_session(world: World) -> Result<()> {
    let (session, agent, children) = family(&world).await?;
    world.act(&format!("/v1/sessions/{session}/close"), json!({})).await?;
    for one in children.iter().chain([&agent]) {
        ended(&world, one, "terminated").await?;
    }
    world.until(&format!("/v1/sessions/{session}"), |session| session["status"] == "closed").await?;
    Ok(())
}

async fn remembers(world: World) -> Result<()> {
    let (_, agent) = puppet(&world).await?;
    world.turn(&agent, "The Lighthouse is red").await?;
    let turn =
        world.turn(&agent, &format!("call search_messages {}", json!({"query": "lightHOUSE", "limit": 1}))).await?;
    let result = result(&world, &turn).await?;
    ensure!(result["output"]["matches"].as_array().is_some_and(|found| found.len() == 1), "{result}");
    Ok(())
}

/// L12: what is still in the making can end, by a person and with its parent.
async fn waits_for_a_place_and_may_end_there(world: World) -> Result<()> {
    let (_, agent) = puppet(&world).await?;
    let names = ["a", "b", "c"].map(|name| spawn(&world, name, "slow 50000 never")).join(" ;; ");
    world.turn(&agent, &names).await?;
    let children = children(&world, &agent).await?;
    for one in &children[1..] {
        ended(&world, one, "spawning").await?;
    }
    let turn = world.turn(&agent, &spawn(&world, "d", "t")).await?;
    let refused = result(&world, &turn).await?;
    ensure!(refused["error"].as_str().is_some_and(|why| why.contains("the most you may have")), "{refused}");
    world.act(&format!("/v1/agents/{}/terminate", children[1]), json!({})).await?;
    ended(&world, &children[1], "terminated").await?;
    world.act(&format!("/v1/agents/{}/terminate", children[0]), json!({"force": true})).await?;
    world.until(&format!("/v1/agents/{}", children[2]), |agent| agent["lifecycle"] == "running_turn").await?;
    world.act(&format!("/v1/agents/{agent}/terminate"), json!({})).await?;
    ended(&world, &children[2], "terminated").await?;
    Ok(())
}

async fn waits_though_everything_is_killed(world: World) -> Result<()> {
    let (_, agent) = puppet(&world).await?;
    let text = format!("{} ;; {}", spawn(&world, "scout", "slow 6000 late but there"), wait_for(&["scout"]));
    let turn = world.begin(&agent, &text).await?;
    world.calls(&turn, |calls| calls.iter().any(|call| call["name"] == "wait_for")).await?;
    for service in ["tool-runner", "scheduler", "agent-worker"] {
        world.kill(service).await?;
    }
    let turn = world.ended(&turn).await?;
    let result = result(&world, &turn).await?;
    ensure!(result["output"]["agents"][0]["output"] == "late but there", "{result}");
    ensure!(children(&world, &agent).await?.len() == 1);
    Ok(())
}

async fn is_deleted_with_what_it_does(world: World) -> Result<()> {
    let (session, agent) = puppet(&world).await?;
    let work = format!("{} ;; {}", spawn(&world, "child", "slow 60000 never"), wait_for(&["child"]));
    let turn = world.begin(&agent, &work).await?;
    // Newest first.
    let waits = |calls: &[Value]| calls.len() == 2 && calls[0]["status"] == "executing";
    world.calls(&turn, waits).await?;
    let child = children(&world, &agent).await?.remove(0);

    let path = format!("/v1/agents/{agent}");
    let gone = world.request("DELETE", &path, None).await?.is(200);
    ensure!(gone["drive"] == "deleted" && gone["lifecycle"] == "terminated", "{gone}");
    ensure!(world.ended(&turn).await?["status"] == "interrupted");
    let calls = world.calls(&turn, |calls| calls.iter().all(|call| call["result_status"].is_string())).await?;
    ensure!(calls[1]["result_status"] == "cancelled", "{calls:?}");
    world.until(&format!("/v1/agents/{child}"), |child| child["lifecycle"] == "terminated").await?;
    let listed = world.get(&format!("/v1/agents?session={session}")).await?;
    ensure!(listed["data"].as_array().is_some_and(|all| all.len() == 1 && all[0]["id"] == child), "{listed}");
    let deleted = world.get(&format!("/v1/agents?session={session}&drive=deleted")).await?;
    ensure!(deleted["data"].as_array().is_some_and(|all| all.len() == 1 && all[0]["id"] == agent), "{deleted}");
    ensure!(world.get(&path).await?["badge"] == "deleted");
    world.request("DELETE", &path, None).await?.refuses(409, "deleted");
    world.refused(&format!("{path}/messages"), json!({"content": "still there?"}), "deleted").await?;
    world.refused(&format!("{path}/start"), json!({}), "ended").await?;

    let (code, said) = world.run(&["agent", "delete", &child]).await?;
    ensure!(code == 0 && said.contains("deleted"), "{said}");
    ensure!(children(&world, &agent).await?.is_empty());
    let other = world.agent(&session, json!({})).await?;
    crate::session::closed(&world, &session).await?;
    world.request("DELETE", &format!("/v1/agents/{other}"), None).await?.refuses(409, "its session is closed");
    Ok(())
}

async fn is_loaded_from_the_definition_of_another(world: World) -> Result<()> {
    let (session, agent) = puppet(&world).await?;
    let definition = world.get(&format!("/v1/agents/{agent}/definition")).await?;
    ensure!(definition["name"] == "ada" && definition["auto_start"] == false, "{definition}");
    ensure!(definition["tools"] == json!(TOOLS) && definition["id"].is_null(), "{definition}");
    let path = format!("/v1/sessions/{session}/agents/import");
    let mut starts = definition.clone();
    (starts["name"], starts["auto_start"]) = (json!("eager"), json!(true));
    let import = json!({"agents": [definition, starts], "origin": "a backup"});
    let loaded = world.act(&path, import).await?;
    let (idle, eager) = (&loaded["agents"][0], &loaded["agents"][1]);
    ensure!(idle["drive"] == "idle" && idle["lifecycle"] == "idle", "{idle}");
    ensure!(eager["drive"] == "running" && eager["name"] == "eager", "{eager}");
    let again = world.get(&format!("/v1/agents/{}/definition", text(eager, "id")?)).await?;
    ensure!(again == starts, "{again}");
    let told = world.runes_of(&session, "agent.loaded", 2).await?;
    ensure!(told[0]["payload"] == json!({"name": "ada", "origin": "a backup"}), "{told:?}");
    ensure!(world.turn(&text(idle, "id")?, "say Here.").await?["status"] == "completed");

    // All of them or none.
    let before = world.runes(&session).await?.len();
    let mixed = json!({"agents": [{"name": "good", "model": "default"}, {"name": "bad", "model": "none"}]});
    world.post(&path, mixed).await?.refuses(422, "agents.1.model");
    ensure!(world.runes(&session).await?.len() == before);

    let (code, said) = world.run(&["agent", "export", &text(eager, "id")?]).await?;
    ensure!(code == 0, "{said}");
    std::fs::write(world.fleet().folder.path().join("eager.json"), said)?;
    let (code, said) = world.run(&["agent", "import", &session, "eager.json"]).await?;
    ensure!(code == 0 && said.contains("eager"), "{said}");
    let told = world.runes_of(&session, "agent.loaded", 3).await?;
    ensure!(told[2]["payload"]["origin"] == "eager.json", "{told:?}");
    Ok(())
}
