//! Hops: carried out by plans, steered by hand, failed in every phase; and missions that lose whoever works on them.

use crate::mission::{TOOLS, asked, crew, crew_with, diligent, hop_is, proposed, steps_with};
use crate::plan::{Lines, blocked, done, slowly, task};
use crate::world::{World, text};
use crate::{Group, scenarios};
use anyhow::{Context, Result, ensure};
use instar_testkit::model::{Reply, Request};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) static PLAIN: Group = Group {
    name: "hop",
    config: "[[tools]]\nname = \"stumble\"\nkind = \"command\"\ncommand = [\"/bin/false\"]\n\
             parameters = { type = \"object\" }\nside_effects = true\n\
             [[tools]]\nname = \"dig\"\nkind = \"command\"\ncommand = [\"/bin/sh\", \"-c\", \"sleep 30; echo {}\"]\n\
             parameters = { type = \"object\" }\nside_effects = false\n",
    environment: &[],
    at_once: 3,
    scenarios: scenarios![
        is_steered_by_hand,
        is_edited_paused_and_stopped,
        fails_is_retried_cancelled_and_removed,
        stays_stopped_until_a_person_lets_it_go_on,
        is_given_up_with_its_mission,
        loses_its_input_once_too_often,
        leaves_an_output_open,
        finds_no_tool,
        is_lost_with_the_last_agent,
        goes_on_with_another_agent,
        keeps_its_inputs_when_it_is_started_over,
    ],
};

pub(crate) static BY_PLAN: Group = Group {
    name: "hop_by_plan",
    config: "[worker]\ninterrupt_grace_ms = 500\n",
    environment: &[],
    at_once: 3,
    scenarios: scenarios![
        is_carried_out_by_a_plan,
        takes_only_what_fits_its_type,
        fails_when_its_plan_stops,
        is_stopped_with_its_plan,
        takes_its_plan_along,
        calls_people_when_its_plan_cannot_go_on,
        reads_all_of_its_input,
        is_what_one_task_hands_in,
        calls_people_when_nobody_can_do_its_plan,
    ],
};

async fn mission_is(world: &World, mission: &str, status: &str) -> Result<Value> {
    world.until(&format!("/v1/missions/{mission}"), |mission| mission["status"] == status).await
}

async fn asset_of(world: &World, mission: &str, name: &str) -> Result<String> {
    let all = world.get(&format!("/v1/assets?mission={mission}")).await?;
    let found = all["data"].as_array().into_iter().flatten().find(|asset| asset["name"] == name);
    text(found.with_context(|| format!("no {name}: {all}"))?, "id")
}

/// An approved mission of nobody's, with a chart to work with.
async fn approved(world: &World, session: &str, outputs: Value) -> Result<String> {
    let body = json!({"name": world.name, "goal": "a map", "outputs": outputs,
        "inputs": [{"name": "chart", "type": "string"}]});
    let mission = text(&world.act(&format!("/v1/sessions/{session}/missions"), body).await?, "id")?;
    world.act(&format!("/v1/missions/{mission}/approve"), json!({})).await?;
    let chart = asset_of(world, &mission, "chart").await?;
    world.act(&format!("/v1/assets/{chart}/provide"), json!({"value": "old soundings"})).await?;
    Ok(mission)
}

/// A hop that a person plans.
async fn planned(world: &World, mission: &str, more: Value) -> Result<String> {
    let (chart, map) = (asset_of(world, mission, "chart").await?, asset_of(world, mission, "map").await?);
    let mut new = json!({"name": "leg", "goal": "Sound the bay.", "inputs": [chart], "output": {"asset_id": map}});
    new.as_object_mut().context("a plan")?.extend(more.as_object().cloned().unwrap_or_default());
    text(&world.act(&format!("/v1/missions/{mission}/hops"), new).await?, "id")
}

async fn on(world: &World, hop: &str, action: &str, body: Value) -> Result<Value> {
    world.act(&format!("/v1/hops/{hop}/{action}"), body).await
}

async fn removed(world: &World, hop: &str) -> Result<()> {
    let gone = world.request("DELETE", &format!("/v1/hops/{hop}"), None).await?.is(200);
    ensure!(gone["status"] == "deleted", "{gone}");
    Ok(())
}

fn map() -> Value {
    json!([{"name": "map", "type": "string"}])
}

async fn is_steered_by_hand(world: World) -> Result<()> {
    let session = world.session().await?;
    world.agent(&session, json!({})).await?;
    let mission = approved(&world, &session, map()).await?;
    let hop = planned(&world, &mission, json!({})).await?;
    let edited = on(&world, &hop, "edit-plan", json!({"revision": 1, "goal": "By noon."})).await?;
    ensure!(edited["revision"] == 2 && edited["executor"] == "steps", "{edited}");
    removed(&world, &hop).await?;
    let hop = planned(&world, &mission, json!({})).await?;
    on(&world, &hop, "approve-plan", json!({})).await?;
    let back = on(&world, &hop, "request-changes", json!({"feedback": "slower"})).await?;
    ensure!(back["status"] == "HOP_PLAN_STARTED", "{back}");
    on(&world, &hop, "cancel", json!({})).await?;
    let again = on(&world, &hop, "reset", json!({})).await?;
    ensure!(again["status"] == "HOP_PLAN_PROPOSED", "{again}");
    on(&world, &hop, "cancel", json!({})).await?;
    removed(&world, &hop).await?;
    // What it promises is there before it is made.
    let hop = planned(&world, &mission, json!({"is_final": true})).await?;
    let output = asset_of(&world, &mission, "map").await?;
    let early = format!("/v1/missions/{mission}/complete");
    world.refused(&early, json!({}), "is not READY").await?;
    world.act(&format!("/v1/assets/{output}/provide"), json!({"value": "found in a drawer"})).await?;
    let met = world.act(&early, json!({})).await?;
    ensure!(met["status"] == "COMPLETED", "{met}");
    ensure!(world.get(&format!("/v1/hops/{hop}")).await?["status"] == "CANCELLED");
    Ok(())
}

/// Steps of a slow tool, changed by a person before they run.
async fn is_edited_paused_and_stopped(world: World) -> Result<()> {
    world.script(|request| match asked(request) {
        Some(prompt) if prompt.contains("Propose its steps") => steps_with(&prompt, "dig"),
        _ => diligent(request),
    });
    let (session, agent) = crew_with(&world, &["dig"]).await?;
    let gates = json!({"gates": {"mission": "auto", "plan": "auto"}});
    let mission = proposed(&world, &session, &agent, gates).await?;
    let hop = hop_is(&world, &mission, "HOP_IMPL_PROPOSED").await?;
    let (id, revision) = (text(&hop, "id")?, &hop["revision"]);
    let step = world.get(&format!("/v1/hops/{id}/steps")).await?["data"][0]["id"].clone();
    let path = format!("/v1/hops/{id}/edit-impl");
    let edit = |more: Value| {
        let mut one = json!({"id": step, "name": "dig deeper"});
        one.as_object_mut().into_iter().for_each(|one| one.extend(more.as_object().cloned().unwrap_or_default()));
        json!({"revision": revision, "steps": [one]})
    };
    world.post(&path, edit(json!({"resource_configs": {"spade": 1}}))).await?.refuses(422, "parameter_mapping");
    world.post(&path, edit(json!({"attempts_max": 0}))).await?.refuses(422, "1 to 100");
    on(&world, &id, "edit-impl", edit(json!({"attempts_max": 7}))).await?;
    let steps = world.get(&format!("/v1/hops/{id}/steps")).await?;
    ensure!(steps["data"][0]["attempts_max"] == 7, "{steps}");
    on(&world, &id, "approve-impl", json!({})).await?;
    on(&world, &id, "execute", json!({})).await?;
    world.until(&format!("/v1/hops/{id}/steps"), |steps| steps["data"][0]["status"] == "EXECUTING").await?;
    world.act(&format!("/v1/sessions/{session}/pause"), json!({})).await?;
    let paused = world.runes_of(&session, "session.paused", 1).await?;
    ensure!(paused[0].to_string().contains("H37"), "{paused:?}");
    world.act(&format!("/v1/sessions/{session}/resume"), json!({})).await?;
    let stopped = on(&world, &id, "stop", json!({})).await?;
    ensure!(stopped["status"] == "CANCELLED", "{stopped}");
    let steps = world.get(&format!("/v1/hops/{id}/steps")).await?;
    ensure!(steps["data"][0]["status"] == "CANCELLED" && steps["data"][0]["name"] == "dig deeper", "{steps}");
    Ok(())
}

fn stumbling(request: &Request) -> Reply {
    match asked(request) {
        Some(prompt) if prompt.contains("Propose its steps") => steps_with(&prompt, "stumble"),
        _ => diligent(request),
    }
}

async fn fails_is_retried_cancelled_and_removed(world: World) -> Result<()> {
    world.script(stumbling);
    let (session, agent) = crew_with(&world, &["stumble"]).await?;
    let terms = json!({"gates": {"mission": "auto", "plan": "auto", "impl": "auto", "execute": "auto"}});
    let mission = proposed(&world, &session, &agent, terms).await?;
    let hop = text(&hop_is(&world, &mission, "FAILED").await?, "id")?;
    on(&world, &hop, "retry", json!({})).await?;
    let path = format!("/v1/hops/{hop}");
    world.until(&path, |hop| hop["status"] == "FAILED" && hop["attempts"] == 2).await?;
    // By hand, once what it promises is there.
    world.refused(&format!("{path}/complete"), json!({"reason": "seen"}), "is not READY").await?;
    on(&world, &hop, "cancel", json!({})).await?;
    is_stopped(&world, &mission, &hop).await?;
    let resumed = format!("/v1/missions/{mission}/resume");
    world.act(&resumed, json!({"reason": "once more"})).await?;
    let next = |found: &Value| found["data"][0]["sequence"] == 2 && found["data"][0]["status"] == "FAILED";
    let second = text(&world.until(&format!("/v1/hops?mission={mission}"), next).await?["data"][0], "id")?;
    removed(&world, &second).await?;
    let next = |found: &Value| found["data"][0]["sequence"] == 3 && found["data"][0]["status"] == "FAILED";
    let third = text(&world.until(&format!("/v1/hops?mission={mission}"), next).await?["data"][0], "id")?;
    let output = asset_of(&world, &mission, "map").await?;
    world.act(&format!("/v1/assets/{output}/fix"), json!({})).await?;
    world.act(&format!("/v1/assets/{output}/provide"), json!({"value": "drawn by hand"})).await?;
    let done = on(&world, &third, "complete", json!({"reason": "drawn by hand"})).await?;
    ensure!(done["status"] == "COMPLETED", "{done}");
    mission_is(&world, &mission, "COMPLETED").await?;
    for word in ["verify", "replay"] {
        let (code, said) = world.run(&[word, &session]).await?;
        ensure!(code == 0, "{word}: {code} {said}");
        ensure!(word == "verify" || said.contains("tool_step") && said.contains("asset"), "{said}");
    }
    Ok(())
}

/// Nothing goes on by itself, whatever the gates say.
async fn is_stopped(world: &World, mission: &str, hop: &str) -> Result<Value> {
    let shown = world.get(&format!("/v1/missions/{mission}")).await?;
    let attention = &shown["attention"];
    ensure!(attention["reason"] == "stopped_by_person" && attention["hop_id"] == json!(hop), "{shown}");
    ensure!(shown["status"] == "IN_PROGRESS" && shown["awaits"] == "person", "{shown}");
    ensure!(shown["current_hop"].is_null(), "{shown}");
    Ok(shown)
}

/// M17 and M20: no gate, no sweep and no tool of its agent begins another one.
async fn stays_stopped_until_a_person_lets_it_go_on(world: World) -> Result<()> {
    let (begun, offered) = (AtomicBool::new(false), Arc::new(AtomicBool::new(false)));
    let saw = offered.clone();
    world.script(move |request| {
        let last = request.messages().iter().rev().nth(1).map(Value::to_string).unwrap_or_default();
        match asked(request) {
            Some(prompt) if prompt.contains("Propose its steps") => steps_with(&prompt, "dig"),
            Some(_) if !begun.swap(true, Ordering::SeqCst) => Reply::call("stumble", json!({})),
            None if last.contains("stumble") => {
                saw.store(request.tools().contains(&"propose_hop_plan"), Ordering::SeqCst);
                Reply::call("propose_hop_plan", json!({"name": "mine", "output": {"asset": {"name": "log"}}}))
            }
            _ => diligent(request),
        }
    });
    let tools = [&TOOLS[..], &["dig", "stumble"]].concat();
    let root = world.described(json!({"tools": tools, "tool_approvals": {"stumble": "always"}}));
    let made = world.act("/v1/sessions", json!({"name": world.name, "root_agent": root})).await?;
    let (session, agent) = (text(&made, "id")?, text(&made, "root_agent_id")?);
    let gates = json!({"mission": "auto", "plan": "auto", "impl": "auto", "execute": "auto", "retry": "auto"});
    let mission = proposed(&world, &session, &agent, json!({"gates": gates})).await?;
    let (path, resume) = (format!("/v1/missions/{mission}"), format!("/v1/missions/{mission}/resume"));

    // While its agent works on the plan, in a turn that waits for a person.
    let hop = text(&hop_is(&world, &mission, "HOP_PLAN_STARTED").await?, "id")?;
    let waiting = format!("/v1/tool-calls?session={session}&status=awaiting_approval");
    let call = world.until(&waiting, |calls| calls["data"][0]["id"].is_string()).await?["data"][0].clone();
    on(&world, &hop, "cancel", json!({"reason": "enough"})).await?;
    is_stopped(&world, &mission, &hop).await?;
    let other = world.request("PATCH", &path, Some(json!({"gates": {"retry": "manual"}}))).await?.is(200);
    ensure!(other["awaits"] == "person", "{other}");
    world.act(&format!("/v1/tool-calls/{}/deny", text(&call, "id")?), json!({"reason": "not now"})).await?;
    let turn = text(&call, "turn_id")?;
    world.ended(&turn).await?;
    let calls = world.calls(&turn, |calls| calls.len() == 2).await?;
    ensure!(calls[1]["name"] == "propose_hop_plan" && calls[1]["status"] == "error_result", "{calls:?}");
    ensure!(!offered.load(Ordering::SeqCst), "it was offered what it may not do");
    is_stopped(&world, &mission, &hop).await?;
    let hops = world.get(&format!("/v1/hops?mission={mission}")).await?;
    ensure!(hops["data"].as_array().is_some_and(|hops| hops.len() == 1), "{hops}");

    // By a word of its own, and never by another.
    let (code, said) = world.run(&["mission", "resume", &mission, "--reason", "the rain is over"]).await?;
    ensure!(code == 0, "{said}");
    let second = text(&hop_is(&world, &mission, "EXECUTING").await?, "id")?;
    ensure!(second != hop && world.get(&path).await?["attention"].is_null(), "{hops}");
    world.refused(&resume, json!({}), "no hop of it was stopped by a person").await?;
    let told = world.runes_of(&session, "mission.resumed", 1).await?;
    ensure!(told[0]["payload"]["hop_id"] == json!(hop) && told[0].to_string().contains("the rain is over"), "{told:?}");

    // While it is executed; a person's own command on it goes before what was stopped.
    on(&world, &second, "stop", json!({})).await?;
    is_stopped(&world, &mission, &second).await?;
    on(&world, &second, "reset", json!({})).await?;
    let again = hop_is(&world, &mission, "EXECUTING").await?;
    ensure!(again["id"] == json!(second) && world.get(&path).await?["attention"].is_null(), "{again}");
    on(&world, &second, "stop", json!({})).await?;
    is_stopped(&world, &mission, &second).await?;
    let ended = world.act(&format!("{path}/cancel"), json!({})).await?;
    ensure!(ended["status"] == "CANCELLED" && ended["attention"].is_null(), "{ended}");
    world.refused(&resume, json!({}), "CANCELLED").await?;
    let told = world.runes_of(&session, "mission.attention", 3).await?;
    ensure!(told.iter().all(|rune| rune["payload"]["reason"] == "stopped_by_person"), "{told:?}");
    for word in ["verify", "replay"] {
        let (code, said) = world.run(&[word, &session]).await?;
        ensure!(code == 0, "{word}: {code} {said}");
    }
    Ok(())
}

/// M9, and M10: its attempts are used up when nobody finds other steps either. M13 ends it.
async fn is_given_up_with_its_mission(world: World) -> Result<()> {
    world.script(stumbling);
    let (session, agent) = crew_with(&world, &["stumble"]).await?;
    let terms = json!({"gates": {"mission": "auto", "plan": "auto", "impl": "auto", "execute": "auto"},
        "on_hop_failure": "fail", "hop_attempts_max": 1});
    let mission = proposed(&world, &session, &agent, terms).await?;
    mission_is(&world, &mission, "FAILED").await?;
    let hop = text(&hop_is(&world, &mission, "FAILED").await?, "id")?;
    world.script(|_| Reply::text("I would rather not."));
    on(&world, &hop, "fix", json!({})).await?;
    let path = format!("/v1/hops/{hop}");
    let failed = world.until(&path, |hop| hop["status"] == "FAILED" && hop["phase"] == "impl").await?;
    ensure!(failed["error"].to_string().contains("proposed nothing"), "{failed}");
    mission_is(&world, &mission, "FAILED").await?;
    world.script(diligent);
    world.act(&format!("/v1/missions/{mission}/retry"), json!({})).await?;
    mission_is(&world, &mission, "COMPLETED").await?;
    world.script(stumbling);
    let again = json!({"gates": {"mission": "auto", "plan": "auto", "impl": "auto", "execute": "auto"},
        "on_hop_failure": "fail", "hop_attempts_max": 1});
    let mission = proposed(&world, &session, &agent, again).await?;
    mission_is(&world, &mission, "FAILED").await?;
    let ended = world.act(&format!("/v1/missions/{mission}/cancel"), json!({})).await?;
    ensure!(ended["status"] == "CANCELLED", "{ended}");
    Ok(())
}

/// H18 as long as it is repaired, then H36.
async fn loses_its_input_once_too_often(world: World) -> Result<()> {
    world.script(|request| match asked(request) {
        Some(prompt) if prompt.contains("Propose its steps") => {
            let map = |words: &str| {
                let id = crate::mission::asset_after(&prompt, words);
                json!({"type": "asset_field", "state_asset_id": id})
            };
            let step = json!({"tool_id": "echo", "parameter_mapping": {"text": map("It reads ")},
                "result_mapping": {"output": map("and makes ")}});
            Reply::call("propose_hop_impl", json!({"steps": [step]}))
        }
        Some(prompt) if prompt.contains("Propose the next hop") => {
            let id = |words: &str| crate::mission::asset_after(&prompt, words);
            let plan = json!({"name": "leg", "inputs": [id("- chart (")], "output": {"asset_id": id("- map (")},
                "is_final": true});
            Reply::call("propose_hop_plan", plan)
        }
        _ => Reply::text("Done."),
    });
    let (session, agent) = crew(&world).await?;
    let terms = json!({"gates": {"mission": "auto", "plan": "auto"},
        "inputs": [{"name": "chart", "type": "string", "ttl_ms": 700}]});
    let mission = proposed(&world, &session, &agent, terms).await?;
    let hop = text(&hop_is(&world, &mission, "HOP_IMPL_PROPOSED").await?, "id")?;
    let (chart, path) = (asset_of(&world, &mission, "chart").await?, format!("/v1/hops/{hop}"));
    for round in 0..3 {
        world.until(&path, |hop| hop["status"] == "HOP_IMPL_PROPOSED").await.with_context(|| format!("{round}"))?;
        if round > 0 {
            world.act(&format!("/v1/assets/{chart}/refresh"), json!({})).await?;
        }
        world.act(&format!("/v1/assets/{chart}/provide"), json!({"value": "soundings"})).await?;
        world.until(&format!("/v1/assets/{chart}"), |asset| asset["status"] == "EXPIRED").await?;
    }
    let failed = world.until(&path, |hop| hop["status"] == "FAILED").await?;
    ensure!(failed["phase"] == "impl", "{failed}");
    let lost = world.runes_of(&session, "hop.impl_invalid", 2).await?;
    ensure!(lost.len() == 2, "{lost:?}");
    let gone = world.request("DELETE", &format!("/v1/assets/{chart}"), None).await?;
    gone.refuses(409, "refers to it");
    Ok(())
}

/// What was to be made anew waits for its value again, whether or not its hop has let go of it already.
async fn reopened(world: &World, asset: &str) -> Result<()> {
    let path = format!("/v1/assets/{asset}");
    world.post(&format!("{path}/cancel"), json!({})).await?;
    world.until(&path, |asset| asset["status"] == "READY_FOR_PROCESSING").await?;
    Ok(())
}

/// A last hop that would leave an output open is not taken. What goes after it was taken is missed until it is there,
/// and an agent that leads nowhere is not asked without end.
async fn leaves_an_output_open(world: World) -> Result<()> {
    world.script(|request| {
        let last = request.messages().last().cloned().unwrap_or_default();
        match asked(request) {
            None if last["content"].to_string().contains("would still lack log") => {
                let all = request.messages().iter().map(|m| m["content"].to_string()).collect::<Vec<_>>().join("\n");
                let output = crate::mission::asset_after(&all, "- map (");
                let plan = json!({"name": "leg", "output": {"asset_id": output}, "is_final": false});
                Reply::call("propose_hop_plan", plan)
            }
            _ => diligent(request),
        }
    });
    let (session, agent) = crew(&world).await?;
    let terms = json!({"gates": {"mission": "auto", "impl": "auto"},
        "outputs": [{"name": "map", "type": "string"}, {"name": "log", "type": "string"}]});
    let mission = proposed(&world, &session, &agent, terms).await?;
    let (path, log) = (format!("/v1/missions/{mission}"), asset_of(&world, &mission, "log").await?);
    let on_log = |action: &str| format!("/v1/assets/{log}/{action}");
    for round in 1..=3 {
        let of_round =
            |found: &Value| found["data"][0]["sequence"] == round && found["data"][0]["status"] == "HOP_PLAN_PROPOSED";
        let hop = world.until(&format!("/v1/hops?mission={mission}"), of_round).await?["data"][0].clone();
        ensure!(hop["is_final"] == false, "{hop}");
        let last = json!({"revision": hop["revision"], "is_final": true});
        let id = text(&hop, "id")?;
        world.post(&format!("/v1/hops/{id}/edit-plan"), last.clone()).await?.refuses(422, "still lack log");
        if round > 1 {
            let missed = world.get(&path).await?;
            ensure!(missed["attention"]["reason"] == "outputs_missing", "nobody would see it: {missed}");
            ensure!(missed["attention"]["times"] == round - 1, "{missed}");
        }
        world.act(&on_log("provide"), json!({"value": "nothing happened"})).await?;
        on(&world, &id, "edit-plan", last).await?;
        on(&world, &id, "approve-plan", json!({})).await?;
        world.until(&format!("/v1/hops/{id}"), |hop| hop["status"] == "HOP_IMPL_READY").await?;
        world.act(&on_log("reprocess"), json!({})).await?;
        on(&world, &id, "execute", json!({})).await?;
        world.until(&format!("/v1/hops/{id}"), |hop| hop["status"] == "COMPLETED").await?;
        reopened(&world, &log).await?;
    }
    let waits = world.get(&path).await?;
    ensure!(waits["awaits"] == "person" && waits["current_hop"].is_null(), "{waits}");
    ensure!(waits["attention"]["times"] == 3 && waits["attention"]["detail"].to_string().contains("log"), "{waits}");
    world.act(&on_log("provide"), json!({"value": "nothing happened"})).await?;
    world.act(&format!("{path}/complete"), json!({})).await?;
    mission_is(&world, &mission, "COMPLETED").await?;
    Ok(())
}

async fn finds_no_tool(world: World) -> Result<()> {
    world.script(diligent);
    let root = world.described(json!({"tools": TOOLS.iter().filter(|tool| **tool != "echo").collect::<Vec<_>>()}));
    let session = world.act("/v1/sessions", json!({"name": world.name, "root_agent": root})).await?;
    let (session, agent) = (text(&session, "id")?, text(&session, "root_agent_id")?);
    let gates = json!({"gates": {"mission": "auto", "plan": "auto"}});
    let mission = proposed(&world, &session, &agent, gates).await?;
    let hop = hop_is(&world, &mission, "FAILED").await?;
    ensure!(hop["phase"] == "resolve" && hop["failure_class"] == "recoverable", "{hop}");
    ensure!(hop["error"].to_string().contains("no usable tool"), "{hop}");
    let waits = world.get(&format!("/v1/missions/{mission}")).await?;
    ensure!(waits["status"] == "IN_PROGRESS" && waits["attention"]["reason"] == "hop_failed", "{waits}");
    // Looked for once more, in vain; then planned anew, for agents that share the work.
    let id = text(&hop, "id")?;
    on(&world, &id, "fix", json!({})).await?;
    world.runes_of(&session, "hop.failed", 2).await?;
    hop_is(&world, &mission, "FAILED").await?;
    world.script(|request| match asked(request) {
        Some(prompt) if prompt.contains("Propose the next hop") => {
            let output = crate::mission::asset_after(&prompt, "- map (");
            let plan = json!({"name": "leg", "output": {"asset_id": output}, "is_final": true, "executor": "plan"});
            Reply::call("propose_hop_plan", plan)
        }
        _ => Reply::text("Done."),
    });
    on(&world, &id, "replan", json!({})).await?;
    let ready = hop_is(&world, &mission, "HOP_IMPL_READY").await?;
    ensure!(ready["executor"] == "plan", "{ready}");
    Ok(())
}

async fn is_lost_with_the_last_agent(world: World) -> Result<()> {
    world.script(|_| slowly());
    let (session, agent) = crew(&world).await?;
    let mission = proposed(&world, &session, &agent, json!({"gates": {"mission": "auto"}})).await?;
    let hop = text(&hop_is(&world, &mission, "HOP_PLAN_STARTED").await?, "id")?;
    world.act(&format!("/v1/agents/{agent}/terminate"), json!({"force": true})).await?;
    let failed = mission_is(&world, &mission, "FAILED").await?;
    ensure!(failed["failure"]["reason"].as_str().is_some_and(|why| why.contains("nobody is left")), "{failed}");
    let lost = world.get(&format!("/v1/hops/{hop}")).await?;
    ensure!(lost["status"] == "FAILED" && lost["phase"] == "plan", "{lost}");
    // Somebody new starts it over.
    world.script(diligent);
    let next = world.agent(&session, json!({"tools": TOOLS})).await?;
    let reset = format!("/v1/missions/{mission}/reset");
    let again = world.act(&reset, json!({"agent_id": next})).await?;
    ensure!(again["agent_id"] == json!(next) && again["reset_of"] == json!(mission), "{again}");
    hop_is(&world, &text(&again, "id")?, "HOP_PLAN_PROPOSED").await?;
    Ok(())
}

async fn goes_on_with_another_agent(world: World) -> Result<()> {
    let slow = AtomicBool::new(true);
    world.script(move |request| match slow.swap(false, Ordering::SeqCst) {
        true => slowly(),
        false => diligent(request),
    });
    let (session, root) = crew(&world).await?;
    let agent = world.agent(&session, json!({"name": "second", "tools": TOOLS})).await?;
    let mission = proposed(&world, &session, &agent, json!({"gates": {"mission": "auto"}})).await?;
    hop_is(&world, &mission, "HOP_PLAN_STARTED").await?;
    world.until(&format!("/v1/agents/{agent}"), |agent| agent["lifecycle"] == "running_turn").await?;
    world.act(&format!("/v1/agents/{agent}/terminate"), json!({"force": true})).await?;
    hop_is(&world, &mission, "HOP_PLAN_PROPOSED").await?;
    let shown = world.get(&format!("/v1/missions/{mission}")).await?;
    ensure!(shown["agent_id"] == json!(root), "{shown}");
    Ok(())
}

async fn keeps_its_inputs_when_it_is_started_over(world: World) -> Result<()> {
    let session = world.session().await?;
    world.agent(&session, json!({})).await?;
    let mission = approved(&world, &session, map()).await?;
    planned(&world, &mission, json!({})).await?;
    world.act(&format!("/v1/missions/{mission}/cancel"), json!({})).await?;
    let again = text(&world.act(&format!("/v1/missions/{mission}/reset"), json!({})).await?, "id")?;
    let chart = asset_of(&world, &again, "chart").await?;
    let shown = world.get(&format!("/v1/assets/{chart}")).await?;
    ensure!(shown["status"] == "READY" && shown["version"] == 1, "{shown}");
    let got = world.request("GET", &format!("/v1/assets/{chart}/content"), None).await?;
    ensure!(got.text == "old soundings", "{}", got.text);
    let output = world.get(&format!("/v1/assets/{}", asset_of(&world, &again, "map").await?)).await?;
    ensure!(output["status"] == "AWAITING_APPROVAL" && output["version"] == 0, "{output}");
    ensure!(world.get(&format!("/v1/hops?mission={again}")).await?["data"] == json!([]));
    // It is worked on like any other.
    world.act(&format!("/v1/missions/{again}/approve"), json!({})).await?;
    let old = asset_of(&world, &mission, "chart").await?;
    let made = world.get(&format!("/v1/assets/{chart}/lineage")).await?;
    ensure!(made.to_string().contains(&old), "{made}");
    Ok(())
}

/// A session whose plans have agents that follow this scenario, and an approved mission in it.
async fn stage(world: &World, outputs: Value) -> Result<(String, String)> {
    let own = format!("[{}]", world.name);
    let config = json!({"plans": {"instructions": {"orchestrator": own, "worker": own, "critic": own}}});
    let session = world.act("/v1/sessions", json!({"name": world.name, "config": config})).await?;
    let session = text(&session, "id")?;
    world.agent(&session, json!({"name": "root", "tools": ["echo"]})).await?;
    let mission = approved(world, &session, outputs).await?;
    Ok((session, mission))
}

/// A hop that a plan carries out, executing, and that plan.
async fn executing(world: &World, session: &str, mission: &str) -> Result<(String, String)> {
    let hop = planned(world, mission, json!({"executor": "plan", "is_final": true})).await?;
    on(world, &hop, "approve-plan", json!({})).await?;
    world.until(&format!("/v1/hops/{hop}"), |hop| hop["status"] == "HOP_IMPL_READY").await?;
    on(world, &hop, "execute", json!({})).await?;
    let plan = plan_of(world, session, &hop).await?;
    Ok((hop, plan))
}

/// The newest plan that carries out a hop.
async fn plan_of(world: &World, session: &str, hop: &str) -> Result<String> {
    let plans = world.get(&format!("/v1/plans?session={session}")).await?;
    let found = plans["data"].as_array().into_iter().flatten().find(|plan| plan["hop_id"] == hop);
    text(found.with_context(|| format!("no plan of {hop}: {plans}"))?, "id")
}

async fn plan_is(world: &World, plan: &str, status: &str) -> Result<Value> {
    world.until(&format!("/v1/plans/{plan}"), |plan| plan["status"] == status).await
}

async fn is_carried_out_by_a_plan(world: World) -> Result<()> {
    let lines = Lines::default().plan(json!([task("a", &[]), task("b", &["a"])]));
    let prompts = lines.task("a", [done("depths")]).task("b", [done("a map of the bay")]).pass().follow(&world);
    let (session, mission) = stage(&world, map()).await?;
    let hop = planned(&world, &mission, json!({"executor": "plan", "is_final": true})).await?;
    on(&world, &hop, "approve-plan", json!({})).await?;
    let path = format!("/v1/hops/{hop}");
    let ready = world.until(&path, |hop| hop["status"] == "HOP_IMPL_READY").await?;
    ensure!(ready["executor"] == "plan", "{ready}");
    world.refused(&format!("{path}/request-changes"), json!({}), "a plan carries it out").await?;
    on(&world, &hop, "execute", json!({})).await?;
    let done = mission_is(&world, &mission, "COMPLETED").await?;
    ensure!(done["current_hop"] == json!(hop), "{done}");
    let plan = world.get(&format!("/v1/plans/{}", plan_of(&world, &session, &hop).await?)).await?;
    ensure!(plan["status"] == "goal_met" && plan["autonomy"] == "auto", "{plan}");
    let told = &prompts.of("plan")[0];
    ensure!(told.contains("Sound the bay.") && told.contains("old soundings") && told.contains("map"), "{told}");
    let shown = world.get(&path).await?;
    ensure!(shown["status"] == "COMPLETED" && shown["result"]["plan_id"] == plan["id"], "{shown}");
    let output = asset_of(&world, &mission, "map").await?;
    let got = world.request("GET", &format!("/v1/assets/{output}/content"), None).await?;
    ensure!(got.text == "a map of the bay", "{}", got.text);
    let from = world.get(&format!("/v1/assets/{output}/lineage")).await?;
    ensure!(from.to_string().contains("chart"), "{from}");
    // Whom it made for itself is gone, whoever was there is not.
    let rests = |agents: &Value| {
        let all = agents["data"].as_array().map(Vec::as_slice).unwrap_or_default();
        all.iter().all(|agent| (agent["lifecycle"] == "terminated") == (agent["name"] != "root")) && all.len() > 2
    };
    world.until(&format!("/v1/agents?session={session}"), rests).await?;
    for word in ["verify", "replay"] {
        let (code, said) = world.run(&[word, &session]).await?;
        ensure!(code == 0, "{word}: {code} {said}");
    }
    Ok(())
}

/// The first time nothing that came of it is a number, the second time it is.
async fn takes_only_what_fits_its_type(world: World) -> Result<()> {
    let lines = Lines::default().plan(json!([task("a", &[])])).task("a", [done("deep"), done("42")]).pass();
    lines.follow(&world);
    let (session, mission) = stage(&world, json!([{"name": "map", "type": "number"}])).await?;
    let (hop, plan) = executing(&world, &session, &mission).await?;
    plan_is(&world, &plan, "goal_met").await?;
    let failed = world.get(&format!("/v1/hops/{hop}")).await?;
    ensure!(failed["status"] == "FAILED" && failed["failure_class"] == "recoverable", "{failed}");
    ensure!(failed["error"].to_string().contains("nothing that came of it can be map"), "{failed}");
    let output = asset_of(&world, &mission, "map").await?;
    ensure!(world.get(&format!("/v1/assets/{output}")).await?["status"] == "ERROR");
    let waits = world.get(&format!("/v1/missions/{mission}")).await?;
    ensure!(waits["attention"]["reason"] == "hop_failed" && waits["awaits"] == "person", "{waits}");
    on(&world, &hop, "retry", json!({})).await?;
    on(&world, &hop, "execute", json!({})).await?;
    ensure!(plan_of(&world, &session, &hop).await? != plan, "it is carried out anew");
    mission_is(&world, &mission, "COMPLETED").await?;
    let got = world.request("GET", &format!("/v1/assets/{output}/content"), None).await?;
    ensure!(got.text == "42", "{}", got.text);
    Ok(())
}

/// Nobody cancelled it: the plan came to nothing, and so did the hop.
async fn fails_when_its_plan_stops(world: World) -> Result<()> {
    Lines::default().follow(&world);
    world.script(|_| Reply::text("I would rather not."));
    let (session, mission) = stage(&world, map()).await?;
    let (hop, plan) = executing(&world, &session, &mission).await?;
    plan_is(&world, &plan, "stopped").await?;
    let failed = world.get(&format!("/v1/hops/{hop}")).await?;
    ensure!(failed["status"] == "FAILED" && failed["phase"] == "execute", "{failed}");
    ensure!(failed["error"].to_string().contains("no plan"), "{failed}");
    let waits = world.get(&format!("/v1/missions/{mission}")).await?;
    ensure!(waits["status"] == "IN_PROGRESS" && waits["attention"]["reason"] == "hop_failed", "{waits}");
    Ok(())
}

async fn is_stopped_with_its_plan(world: World) -> Result<()> {
    Lines::default().plan(json!([task("a", &[])])).task("a", [slowly()]).follow(&world);
    let (session, mission) = stage(&world, map()).await?;
    let (hop, plan) = executing(&world, &session, &mission).await?;
    plan_is(&world, &plan, "executing").await?;
    world.act(&format!("/v1/plans/{plan}/cancel"), json!({"reason": "enough"})).await?;
    let stopped = world.get(&format!("/v1/hops/{hop}")).await?;
    ensure!(stopped["status"] == "CANCELLED", "{stopped}");
    let goes_on = world.get(&format!("/v1/missions/{mission}")).await?;
    is_stopped(&world, &mission, &hop).await?;
    ensure!(goes_on["attention"]["detail"].to_string().contains("mission resume"), "{goes_on}");
    let output = asset_of(&world, &mission, "map").await?;
    ensure!(world.get(&format!("/v1/assets/{output}")).await?["status"] == "READY_FOR_PROCESSING");
    Ok(())
}

/// The other way round: a hop that is stopped, and a mission that is cancelled, end the plan.
async fn takes_its_plan_along(world: World) -> Result<()> {
    Lines::default().plan(json!([task("a", &[])])).task("a", [slowly()]).follow(&world);
    let (session, mission) = stage(&world, map()).await?;
    let (hop, plan) = executing(&world, &session, &mission).await?;
    plan_is(&world, &plan, "executing").await?;
    on(&world, &hop, "stop", json!({"reason": "rain"})).await?;
    let stopped = world.get(&format!("/v1/plans/{plan}")).await?;
    ensure!(stopped["status"] == "stopped", "{stopped}");
    is_stopped(&world, &mission, &hop).await?;
    let (hop, plan) = executing(&world, &session, &mission).await?;
    let ended = world.act(&format!("/v1/missions/{mission}/cancel"), json!({})).await?;
    ensure!(ended["status"] == "CANCELLED", "{ended}");
    ensure!(world.get(&format!("/v1/plans/{plan}")).await?["status"] == "stopped");
    ensure!(world.get(&format!("/v1/hops/{hop}")).await?["status"] == "CANCELLED");
    Ok(())
}

async fn calls_people_when_its_plan_cannot_go_on(world: World) -> Result<()> {
    let lines = Lines::default().plan(json!([task("a", &[])])).task("a", [blocked("the key"), done("a map")]);
    lines.pass().follow(&world);
    let (session, mission) = stage(&world, map()).await?;
    let (hop, plan) = executing(&world, &session, &mission).await?;
    plan_is(&world, &plan, "blocked").await?;
    let waits = world.get(&format!("/v1/missions/{mission}")).await?;
    let attention = &waits["attention"];
    ensure!(attention["reason"] == "plan_blocked" && attention["plan_id"] == json!(plan), "{waits}");
    ensure!(attention["hop_id"] == json!(hop) && attention["detail"] == "the key", "{waits}");
    let told = world.runes_of(&session, "mission.attention", 1).await?;
    ensure!(told[0]["payload"]["reason"] == "plan_blocked", "{told:?}");
    world.act(&format!("/v1/plans/{plan}/unblock"), json!({"note": "under the mat"})).await?;
    let met = mission_is(&world, &mission, "COMPLETED").await?;
    ensure!(met["attention"].is_null(), "{met}");
    Ok(())
}

/// A page, and the rest; nothing of another mission, and no credential.
async fn reads_all_of_its_input(world: World) -> Result<()> {
    let long = "3 fathoms over the bar\n".repeat(6_000);
    let half = long.len() / 2;
    let read = |asset: &str, offset: usize| Reply::call("read_asset", json!({"asset": asset, "offset": offset}));
    let (session, mission) = stage(&world, map()).await?;
    let other = approved(&world, &session, map()).await?;
    let stray = asset_of(&world, &other, "chart").await?;
    let replies = [read("chart", 0), read("chart", half), read(&stray, 0), read("key", 0), done("a map of the bay")];
    let lines = Lines::default().plan(json!([task("a", &[])])).task("a", replies).pass();
    let prompts = lines.follow(&world);
    let chart = asset_of(&world, &mission, "chart").await?;
    world.act(&format!("/v1/assets/{chart}/reprocess"), json!({})).await?;
    reopened(&world, &chart).await?;
    world.act(&format!("/v1/assets/{chart}/provide"), json!({"value": long})).await?;
    let key = json!({"name": "key", "type": "credential", "value": "hunter2"});
    world.act(&format!("/v1/missions/{mission}/assets"), key).await?;
    executing(&world, &session, &mission).await?;
    mission_is(&world, &mission, "COMPLETED").await?;
    ensure!(prompts.of("plan")[0].contains("read_asset"), "{:?}", prompts.of("plan"));
    let calls = world.get(&format!("/v1/tool-calls?session={session}&limit=100")).await?;
    let mut calls = calls["data"].as_array().cloned().unwrap_or_default();
    calls.retain(|call| call["name"] == "read_asset");
    calls.reverse();
    ensure!(calls.len() == 4, "{calls:?}");
    let page = &calls[0]["result"]["output"];
    let (content, next) = (page["content"].as_str().context("content")?, page["next_offset"].as_u64());
    ensure!(long.starts_with(content) && next == Some(content.len() as u64), "{next:?}: {}", content.len());
    let rest = &calls[1]["result"]["output"];
    ensure!(rest["content"].as_str().is_some_and(|text| long[half..].starts_with(text)), "{rest}");
    ensure!(calls[2]["result"].to_string().contains("is no asset of your mission"), "{}", calls[2]);
    ensure!(calls[3]["result"].to_string().contains("a credential"), "{}", calls[3]);
    ensure!(!calls[3].to_string().contains("hunter2"), "{}", calls[3]);
    Ok(())
}

/// A draft with two last tasks is not taken, and what a critic adds is put together by one more.
async fn is_what_one_task_hands_in(world: World) -> Result<()> {
    let two = json!([task("a", &[]), task("b", &[])]);
    let lines = Lines::default().plan(two).plan(json!([task("a", &[]), task("b", &["a"])]));
    let lines = lines.task("a", [done("depths")]).task("b", [done("half a map")]).task("end-1", [done("a whole map")]);
    let found = |title: &str| json!({"severity": "error", "category": "correctness", "title": title});
    let lines = lines.verdict(json!([found("no north"), found("no scale")]), false).pass();
    lines.follow(&world);
    let (session, mission) = stage(&world, map()).await?;
    let (_, plan) = executing(&world, &session, &mission).await?;
    let met = mission_is(&world, &mission, "COMPLETED").await?;
    ensure!(met["status"] == "COMPLETED", "{met}");
    let output = asset_of(&world, &mission, "map").await?;
    let got = world.request("GET", &format!("/v1/assets/{output}/content"), None).await?;
    ensure!(got.text == "a whole map", "{}", got.text);
    let plan = world.get(&format!("/v1/plans/{plan}")).await?;
    let tasks = plan["tasks"].as_array().cloned().unwrap_or_default();
    let last = tasks.iter().find(|task| task["key"] == "end-1").context("a last task")?;
    ensure!(last["deps"].as_array().is_some_and(|deps| deps.len() == 3), "b and two that mend it: {last}");
    let calls = world.get(&format!("/v1/tool-calls?session={session}&limit=100")).await?;
    ensure!(calls.to_string().contains("a, b are all last"), "{calls}");
    Ok(())
}

/// Nobody is there for its tasks, and nobody may be made: people see it, at the plan and at the mission.
async fn calls_people_when_nobody_can_do_its_plan(world: World) -> Result<()> {
    Lines::default().plan(json!([task("a", &[])])).task("a", [done("a map")]).pass().follow(&world);
    let own = format!("[{}]", world.name);
    let config = json!({"plans": {"workers_max": 0,
        "instructions": {"orchestrator": own, "worker": own, "critic": own}}});
    let session = world.act("/v1/sessions", json!({"name": world.name, "config": config})).await?;
    let session = text(&session, "id")?;
    world.agent(&session, json!({"name": "root", "role": "orchestrator", "tools": ["echo"]})).await?;
    let mission = approved(&world, &session, map()).await?;
    let (hop, plan) = executing(&world, &session, &mission).await?;
    let path = format!("/v1/plans/{plan}");
    let waits = world.until(&path, |plan| plan["waiting_for"].is_string()).await?;
    ensure!(waits["status"] == "executing" && waits["waiting_for"].to_string().contains("worker"), "{waits}");
    let shown = world.get(&format!("/v1/missions/{mission}")).await?;
    let attention = &shown["attention"];
    ensure!(attention["reason"] == "plan_waits" && attention["hop_id"] == json!(hop), "{shown}");
    let told = world.runes_of(&session, "mission.attention", 1).await?;
    ensure!(told[0]["payload"]["reason"] == "plan_waits", "{told:?}");
    world.agent(&session, json!({"name": "hand", "role": "worker"})).await?;
    world.agent(&session, json!({"name": "judge", "role": "critic"})).await?;
    let met = mission_is(&world, &mission, "COMPLETED").await?;
    ensure!(met["attention"].is_null(), "{met}");
    ensure!(world.get(&path).await?["waiting_for"].is_null());
    Ok(())
}
