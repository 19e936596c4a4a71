//! How missions are run: in whose hands they are, which tools their steps may use, gates that remind, and people who
//! decide at the same moment.

use crate::mission::{TOOLS, asked, crew, diligent, hop_is, proposed, steps_with};
use crate::world::{World, text};
use crate::{Group, scenarios};
use anyhow::{Result, ensure};
use instar_testkit::model::{Refusal, Reply};
use serde_json::{Value, json};

pub(crate) static PLAIN: Group = Group {
    name: "terms",
    config: "[[tools]]\nname = \"stumble\"\nkind = \"command\"\ncommand = [\"/bin/false\"]\n\
             parameters = { type = \"object\" }\nside_effects = true\n\
             [[tools]]\nname = \"shelved\"\nkind = \"command\"\ncommand = [\"/bin/true\"]\n\
             parameters = { type = \"object\" }\nenabled = false\n",
    environment: &[],
    at_once: 3,
    scenarios: scenarios![
        call_people_for_an_agent_that_is_stopped,
        call_people_for_an_agent_that_is_errored,
        are_changed_while_a_mission_is_under_way,
        remind_people_of_a_gate_that_stays_closed,
        keep_steps_to_the_tools_of_their_agent,
        find_a_listed_tool_switched_off,
        let_one_of_two_people_decide,
    ],
};

async fn attention(world: &World, mission: &str, reason: Value) -> Result<Value> {
    world.until(&format!("/v1/missions/{mission}"), |mission| mission["attention"]["reason"] == reason).await
}

/// The reasons for which people were called, in order.
async fn reasons(world: &World, session: &str) -> Result<Vec<String>> {
    let runes = world.runes(session).await?;
    let told = runes.iter().filter(|rune| rune["kind"] == "mission.attention");
    Ok(told.filter_map(|rune| rune["payload"]["reason"].as_str().map(str::to_owned)).collect())
}

async fn call_people_for_an_agent_that_is_stopped(world: World) -> Result<()> {
    world.script(diligent);
    let (session, agent) = crew(&world).await?;
    let mission = proposed(&world, &session, &agent, json!({})).await?;
    world.act(&format!("/v1/agents/{agent}/hold"), json!({})).await?;
    world.act(&format!("/v1/missions/{mission}/approve"), json!({})).await?;
    let called = attention(&world, &mission, json!("agent_stopped")).await?;
    let why = called["attention"]["detail"].to_string();
    ensure!(why.contains("is stopped") && why.contains(&format!("instar agent start {agent}")), "{called}");
    ensure!(called["awaits"] == "agent" && called["attention"]["agent_id"] == json!(agent), "{called}");
    world.act(&format!("/v1/agents/{agent}/start"), json!({})).await?;
    hop_is(&world, &mission, "HOP_PLAN_PROPOSED").await?;
    let after = world.get(&format!("/v1/missions/{mission}")).await?;
    ensure!(after["attention"].is_null(), "{after}");
    ensure!(reasons(&world, &session).await? == ["agent_stopped", "agent_started"]);
    // It is stopped while nothing moves: a sweep finds it, and tells it once more.
    let hop = text(&after, "current_hop")?;
    world.act(&format!("/v1/agents/{agent}/stop"), json!({})).await?;
    world.act(&format!("/v1/hops/{hop}/approve-plan"), json!({})).await?;
    attention(&world, &mission, json!("agent_stopped")).await?;
    let (code, said) = world.run(&["replay", &session]).await?;
    ensure!(code == 0 && said.contains("0 differences"), "{code} {said}");
    Ok(())
}

async fn call_people_for_an_agent_that_is_errored(world: World) -> Result<()> {
    world.script(|_| Reply::refused(Refusal::Unauthorized));
    let (session, agent) = crew(&world).await?;
    let mission = proposed(&world, &session, &agent, json!({"gates": {"mission": "auto"}})).await?;
    let called = attention(&world, &mission, json!("agent_stopped")).await?;
    ensure!(called["attention"]["state"] == "errored", "{called}");
    ensure!(reasons(&world, &session).await? == ["agent_stopped"]);
    world.script(diligent);
    world.act(&format!("/v1/agents/{agent}/start"), json!({})).await?;
    hop_is(&world, &mission, "HOP_PLAN_PROPOSED").await?;
    Ok(())
}

async fn are_changed_while_a_mission_is_under_way(world: World) -> Result<()> {
    world.script(diligent);
    let (session, agent) = crew(&world).await?;
    let second = world.agent(&session, json!({"name": "second", "tools": TOOLS})).await?;
    let deaf = world.agent(&session, json!({"name": "deaf", "tools": ["echo"]})).await?;
    let mission = proposed(&world, &session, &agent, json!({})).await?;
    let path = format!("/v1/missions/{mission}");
    let patch = |body: Value| world.request("PATCH", &path, Some(body));
    patch(json!({})).await?.refuses(422, "nothing to change");
    patch(json!({"agent_id": deaf})).await?.refuses(422, "propose_hop_plan");
    patch(json!({"gates": {"plan": "timed"}})).await?.refuses(422, "gate_timeout_ms");
    patch(json!({"gates": {"plan": "never"}})).await?.refuses(422, "must be one of");
    patch(json!({"hop_attempts_max": 0})).await?.refuses(422, "hop_attempts_max");
    patch(json!({"name": "other"})).await?.refuses(422, "name");
    ensure!(world.get(&path).await?["revision"] == 1, "what is refused changes nothing");

    world.act(&format!("/v1/agents/{agent}/hold"), json!({})).await?;
    world.act(&format!("{path}/approve"), json!({})).await?;
    attention(&world, &mission, json!("agent_stopped")).await?;
    let set = ["mission", "set", &mission, "--agent", &second, "--gate", "plan=auto", "--on-hop-failure", "fail"];
    let (code, said) = world.run(&[&set[..], &["--revision", "1", "-o", "json"]].concat()).await?;
    ensure!(code == 0, "{code} {said}");
    hop_is(&world, &mission, "HOP_IMPL_PROPOSED").await?;
    let after = world.get(&path).await?;
    ensure!(after["agent_id"] == json!(second) && after["attention"].is_null(), "{after}");
    ensure!(after["revision"] == 2 && after["on_hop_failure"] == "fail", "{after}");
    ensure!(after["gates"]["plan"] == "auto" && after["gates"]["impl"] == "manual", "{after}");
    let stale = patch(json!({"revision": 1, "agent_id": agent})).await?.refuses(409, "revision 2");
    ensure!(stale["revision"] == 2, "{stale}");
    let told = world.runes_of(&session, "mission.terms_changed", 1).await?;
    ensure!(told[0]["payload"]["changes"]["agent_id"] == json!(second), "{told:?}");
    // A gate that opens by itself from now on opens at once.
    let opened = patch(json!({"gates": {"impl": "auto", "execute": "auto"}})).await?.is(200);
    ensure!(opened["revision"] == 3, "{opened}");
    world.until(&path, |mission| mission["status"] == "COMPLETED").await?;
    patch(json!({"hop_attempts_max": 5})).await?.refuses(409, "reset it");
    let (code, said) = world.run(&["replay", &session]).await?;
    ensure!(code == 0 && said.contains("0 differences"), "{code} {said}");
    Ok(())
}

async fn remind_people_of_a_gate_that_stays_closed(world: World) -> Result<()> {
    world.script(diligent);
    let (session, agent) = crew(&world).await?;
    let gates = json!({"mission": "auto", "plan": "timed"});
    let body = json!({"name": "n", "goal": "g", "outputs": [{"name": "map"}], "gates": gates});
    let new = format!("/v1/sessions/{session}/missions");
    world.post(&new, body).await?.refuses(422, "gate plan is timed");
    let mission = proposed(&world, &session, &agent, json!({"gates": gates, "gate_timeout_ms": 400})).await?;
    let reminded = attention(&world, &mission, json!("gate_timeout")).await?;
    ensure!(reminded["attention"]["gate"] == "plan" && reminded["gate_due_at"].is_null(), "{reminded}");
    let hop = hop_is(&world, &mission, "HOP_PLAN_PROPOSED").await?;
    ensure!(reminded["attention"]["hop_id"] == hop["id"] && reminded["awaits"] == "person", "{reminded}");
    ensure!(reasons(&world, &session).await? == ["gate_timeout"]);
    world.act(&format!("/v1/hops/{}/approve-plan", text(&hop, "id")?), json!({})).await?;
    let after = world.get(&format!("/v1/missions/{mission}")).await?;
    ensure!(after["attention"].is_null(), "{after}");
    // What sessions say for all missions of their agents is held to the same.
    let config = json!({"missions": {"gates": {"impl": "timed"}}});
    world.post("/v1/sessions", json!({"name": "s", "config": config})).await?.refuses(422, "config.missions");
    Ok(())
}

async fn keep_steps_to_the_tools_of_their_agent(world: World) -> Result<()> {
    world.script(|request| {
        let all = || request.messages().iter().map(|m| m["content"].to_string()).collect::<Vec<_>>().join("\n");
        match asked(request) {
            Some(prompt) if prompt.contains("Propose its steps") => steps_with(&prompt, "stumble"),
            Some(_) => diligent(request),
            None if request.messages().last().is_some_and(|m| m["content"].to_string().contains("you may not use")) => {
                steps_with(&all(), "echo")
            }
            None => Reply::text("Done."),
        }
    });
    let (session, agent) = crew(&world).await?;
    let gates = json!({"gates": {"mission": "auto", "plan": "auto", "impl": "auto", "execute": "auto"}});
    let mission = proposed(&world, &session, &agent, gates).await?;
    world.until(&format!("/v1/missions/{mission}"), |mission| mission["status"] == "COMPLETED").await?;
    let invalid = world.runes_of(&session, "hop.impl_invalid", 1).await?;
    let why = invalid[0]["payload"]["errors"][0].to_string();
    ensure!(why.contains("may not use stumble") && why.contains("may run: echo"), "{why}");
    let runes = world.runes(&session).await?;
    let ran = runes.iter().filter(|rune| rune["kind"] == "tool.call" && rune["payload"]["tool_name"] == "stumble");
    ensure!(ran.count() == 0, "a step ran what its agent may not");
    Ok(())
}

async fn find_a_listed_tool_switched_off(world: World) -> Result<()> {
    world.script(diligent);
    let native = TOOLS.iter().filter(|tool| **tool != "echo").copied();
    let root = world.described(json!({"tools": native.chain(["shelved"]).collect::<Vec<_>>()}));
    let session = world.act("/v1/sessions", json!({"name": world.name, "root_agent": root})).await?;
    let (session, agent) = (text(&session, "id")?, text(&session, "root_agent_id")?);
    let gates = json!({"gates": {"mission": "auto", "plan": "auto"}});
    let mission = proposed(&world, &session, &agent, gates).await?;
    let hop = hop_is(&world, &mission, "FAILED").await?;
    ensure!(hop["phase"] == "resolve" && hop["error"].to_string().contains("no usable tool"), "{hop}");
    let tools = json!({"tools": TOOLS});
    world.request("PATCH", &format!("/v1/agents/{agent}"), Some(tools)).await?.is(200);
    world.act(&format!("/v1/hops/{}/fix", text(&hop, "id")?), json!({})).await?;
    hop_is(&world, &mission, "HOP_IMPL_PROPOSED").await?;
    Ok(())
}

/// Both at once, the second a nose ahead where it shall be: one is taken, the other learns which revision there is.
/// Says whether the first was taken.
async fn race(
    world: &World,
    (one, two): ((&str, Value), (&str, Value)),
    second_ahead: bool,
    revision: impl Fn(bool) -> i64,
) -> Result<bool> {
    let (first, second) = (world.post(one.0, one.1), world.post(two.0, two.1));
    let (first, second) = match second_ahead {
        false => tokio::join!(first, second),
        true => {
            let (second, first) = tokio::join!(second, first);
            (first, second)
        }
    };
    let (first, second) = (first?, second?);
    let won = first.status == 200;
    ensure!(won != (second.status == 200), "{} {} {} {}", first.status, first.text, second.status, second.text);
    let lost = if won { second } else { first };
    ensure!(lost.status == 409 && lost.body["revision"] == revision(won), "{} {}", lost.status, lost.text);
    Ok(won)
}

async fn let_one_of_two_people_decide(world: World) -> Result<()> {
    world.script(diligent);
    let (session, agent) = crew(&world).await?;
    for round in 0..4 {
        let ahead = round % 2 == 1;
        let mission = proposed(&world, &session, &agent, json!({})).await?;
        let (approve, revise) = (format!("/v1/missions/{mission}/approve"), format!("/v1/missions/{mission}/revise"));
        let edit = (&*revise, json!({"revision": 1, "goal": "north"}));
        let decide = (&*approve, json!({"revision": 1}));
        if !race(&world, (decide, edit), ahead, |approved| if approved { 1 } else { 2 }).await? {
            let (one, two) = (json!({"revision": 2}), json!({"revision": 2}));
            race(&world, ((&approve, one), (&approve, two)), ahead, |_| 2).await?;
        }
        let hop = hop_is(&world, &mission, "HOP_PLAN_PROPOSED").await?;
        let (id, seen) = (text(&hop, "id")?, hop["revision"].as_i64().unwrap_or_default());
        let (approve, edit) = (format!("/v1/hops/{id}/approve-plan"), format!("/v1/hops/{id}/edit-plan"));
        let decide = (&*approve, json!({"revision": seen}));
        let change = (&*edit, json!({"revision": seen, "goal": "by noon"}));
        let approved = race(&world, (decide, change), ahead, |approved| if approved { seen } else { seen + 1 }).await?;
        let shown = world.get(&format!("/v1/hops/{id}")).await?;
        ensure!(approved == shown["goal"].is_null(), "round {round}: {shown}");
        world.act(&format!("/v1/missions/{mission}/cancel"), json!({})).await?;
    }
    Ok(())
}
