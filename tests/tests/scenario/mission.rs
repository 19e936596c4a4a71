//! Missions: what an agent proposes, what people say to it, and what goes on by itself.

use crate::world::{World, text};
use crate::{Group, scenarios};
use anyhow::{Context, Result, ensure};
use instar_testkit::model::{Reply, Request};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

pub(crate) static PLAIN: Group = Group {
    name: "mission",
    config: "[[tools]]\nname = \"stumble\"\nkind = \"command\"\ncommand = [\"/bin/false\"]\n\
             parameters = { type = \"object\" }\nside_effects = true\n\
             [[tools]]\nname = \"toll\"\nkind = \"command\"\ncommand = [\"/bin/echo\", \"{}\"]\n\
             parameters = { type = \"object\" }\nside_effects = true\n",
    environment: &[],
    at_once: 4,
    scenarios: scenarios![
        is_planned_by_its_agent_and_decided_by_people,
        is_proposed_by_an_agent_and_revised_as_asked,
        waits_for_the_answer_to_a_question,
        tells_the_agent_what_is_wrong_with_its_steps,
        gives_up_an_agent_that_proposes_nothing,
        is_given_up_and_taken_up_by_its_agent,
        ends_with_its_session,
        goes_on_after_a_pause,
        is_walked_through_by_hand,
        runs_unattended,
        is_stopped_failed_and_retried,
        repeats_no_finished_step_when_it_is_fixed,
        is_answered_however_many_others_wait,
    ],
};

/// Processes die here.
pub(crate) static MORTAL: Group = Group {
    name: "mortal_mission",
    config: "[lease]\nttl_ms = 600\n",
    environment: &[],
    at_once: 1,
    scenarios: scenarios![is_asked_again_after_everything_died],
};

pub(crate) const TOOLS: [&str; 5] = ["propose_mission", "propose_hop_plan", "propose_hop_impl", "ask_person", "echo"];

/// The last thing a person or the house said.
pub(crate) fn asked(request: &Request) -> Option<String> {
    let last = request.messages().last()?;
    (last["role"] == "user").then(|| last["content"].to_string())
}

/// The first asset id behind these words.
pub(crate) fn asset_after(prompt: &str, words: &str) -> String {
    let from = prompt.find(words).map_or(0, |at| at + words.len());
    let rest = &prompt[from..];
    let at = rest.find("ast_").unwrap_or(0);
    rest[at..].chars().take(36).collect()
}

fn plan(prompt: &str, name: &str) -> Reply {
    let output = asset_after(prompt, "- map (");
    Reply::call("propose_hop_plan", json!({"name": name, "output": {"asset_id": output}, "is_final": true}))
}

fn steps(prompt: &str) -> Reply {
    let output = asset_after(prompt, "and makes ");
    let step = json!({
        "tool_id": "echo",
        "parameter_mapping": {"text": {"type": "literal", "value": "rocks"}},
        "result_mapping": {"output": {"type": "asset_field", "state_asset_id": output}},
    });
    Reply::call("propose_hop_impl", json!({"steps": [step]}))
}

/// An agent that answers what a mission asks of it.
pub(crate) fn diligent(request: &Request) -> Reply {
    match asked(request) {
        Some(prompt) if prompt.contains("Propose its steps") => steps(&prompt),
        Some(prompt) if prompt.contains("shorter") => plan(&prompt, "short leg"),
        Some(prompt) if prompt.contains("Propose the next hop") => plan(&prompt, "long leg"),
        _ => Reply::text("Done."),
    }
}

/// A mission that a person proposes to this agent.
pub(crate) async fn proposed(world: &World, session: &str, agent: &str, more: Value) -> Result<String> {
    let mut body = json!({
        "name": world.name, "goal": "a map", "success_criteria": ["every rock is on it"],
        "outputs": [{"name": "map", "type": "string"}], "agent_id": agent,
    });
    body.as_object_mut().context("a body")?.extend(more.as_object().cloned().unwrap_or_default());
    text(&world.act(&format!("/v1/sessions/{session}/missions"), body).await?, "id")
}

/// A session with an agent that has the tools of missions.
pub(crate) async fn crew(world: &World) -> Result<(String, String)> {
    crew_with(world, &[]).await
}

/// The same, and it may use these tools as well.
pub(crate) async fn crew_with(world: &World, tools: &[&str]) -> Result<(String, String)> {
    let tools = [&TOOLS[..], tools].concat();
    let root = world.described(json!({"tools": tools}));
    let session = world.act("/v1/sessions", json!({"name": world.name, "root_agent": root})).await?;
    Ok((text(&session, "id")?, text(&session, "root_agent_id")?))
}

/// The mission's current hop, once it is in this state.
pub(crate) async fn hop_is(world: &World, mission: &str, status: &str) -> Result<Value> {
    let found =
        world.until(&format!("/v1/hops?mission={mission}"), |found| found["data"][0]["status"] == status).await?;
    Ok(found["data"][0].clone())
}

async fn is_planned_by_its_agent_and_decided_by_people(world: World) -> Result<()> {
    world.script(diligent);
    let (session, agent) = crew(&world).await?;
    let mission = proposed(&world, &session, &agent, json!({})).await?;
    world.act(&format!("/v1/missions/{mission}/approve"), json!({"revision": 1})).await?;
    let hop = hop_is(&world, &mission, "HOP_PLAN_PROPOSED").await?;
    ensure!(hop["name"] == "long leg" && hop["is_final"] == true, "{hop}");
    let on = |action: &str| format!("/v1/hops/{}/{action}", hop["id"].as_str().unwrap_or_default());
    world.act(&on("reject-plan"), json!({"feedback": "make it shorter"})).await?;
    let again = world.until(&format!("/v1/hops/{}", text(&hop, "id")?), |hop| hop["name"] == "short leg").await?;
    ensure!(again["revision"] == 2 && again["feedback"].is_null(), "{again}");
    world.refused(&on("approve-plan"), json!({"revision": 1}), "revision 2").await?;
    world.act(&on("approve-plan"), json!({"revision": 2})).await?;
    let ready = hop_is(&world, &mission, "HOP_IMPL_PROPOSED").await?;
    world.act(&on("reject-impl"), json!({"feedback": "once more"})).await?;
    let ready = world
        .until(&format!("/v1/hops/{}", text(&ready, "id")?), |hop| {
            hop["status"] == "HOP_IMPL_PROPOSED" && hop["revision"].as_i64() > ready["revision"].as_i64()
        })
        .await?;
    world.act(&on("approve-impl"), json!({"revision": ready["revision"]})).await?;
    world.act(&on("request-changes"), json!({"feedback": "wait"})).await?;
    hop_is(&world, &mission, "HOP_IMPL_PROPOSED").await?;
    shows_what_was_offered(&world, &agent).await?;
    let (code, said) = world.run(&["hop", "show", &text(&hop, "id")?, "-o", "json"]).await?;
    ensure!(code == 0 && said.contains("HOP_IMPL_PROPOSED"), "{code} {said}");
    let (code, said) = world.run(&["mission", "list", "--awaits", "person"]).await?;
    ensure!(code == 0 && said.contains(&mission), "{code} {said}");
    let (code, said) = world.run(&["mission", "approve", &mission]).await?;
    ensure!(code == 4 && said.contains("refuses approve_mission"), "{code} {said}");
    let (code, said) = world.run(&["mission", "cancel", &mission, "--reason", "rain"]).await?;
    ensure!(code == 0 && said.contains("CANCELLED"), "{code} {said}");
    let (code, said) = world.run(&["replay", &session]).await?;
    ensure!(code == 0 && said.contains("mission") && said.contains("0 differences"), "{code} {said}");
    Ok(())
}

/// A tool of missions is offered only when it is wanted, and what is shown later is what was offered then.
async fn shows_what_was_offered(world: &World, agent: &str) -> Result<()> {
    let page = world.get(&format!("/v1/turns?agent={agent}&limit=100")).await?;
    let turns = page["data"].as_array().context("turns")?;
    let mut offers = std::collections::BTreeSet::new();
    for turn in turns.iter().filter(|turn| turn["ended_at"].is_string()) {
        for number in 1..=turn["iterations"].as_u64().context("iterations")? {
            let path = format!("/v1/turns/{}/context?iteration={number}", text(turn, "id")?);
            let context = world.get(&path).await?;
            ensure!(context["exact"] == true, "{context:#}");
            let names = context["tools"].as_array().into_iter().flatten().filter_map(|tool| tool["name"].as_str());
            let names: Vec<&str> = names.filter(|name| *name != "read_asset").collect();
            ensure!(names.len() < TOOLS.len(), "all of them at once: {names:?}");
            offers.insert(names.join(" "));
        }
    }
    ensure!(offers.len() > 1, "always the same: {offers:?}");
    Ok(())
}

async fn is_proposed_by_an_agent_and_revised_as_asked(world: World) -> Result<()> {
    world.script(|request| match asked(request) {
        Some(prompt) if prompt.contains("wants it changed: call it chart") => {
            let at = prompt.find("mis_").unwrap_or(0);
            let id: String = prompt[at..].chars().take(36).collect();
            Reply::call(
                "propose_mission",
                json!({"mission_id": id, "name": "chart", "goal": "a chart",
                "success_criteria": ["it is one"], "outputs": [{"name": "chart"}]}),
            )
        }
        Some(prompt) if prompt.contains("think of something") => Reply::call(
            "propose_mission",
            json!({"name": "map",
            "goal": "a map", "success_criteria": ["it is one"], "outputs": [{"name": "map"}]}),
        ),
        _ => Reply::text("Done."),
    });
    let (session, agent) = crew(&world).await?;
    ensure!(world.turn(&agent, "think of something").await?["status"] == "completed");
    let found = world.get(&format!("/v1/missions?session={session}")).await?;
    let mission = text(&found["data"][0], "id")?;
    ensure!(found["data"][0]["author"] == json!(agent) && found["data"][0]["agent_id"] == json!(agent), "{found}");
    let feedback = json!({"feedback": "call it chart"});
    world.act(&format!("/v1/missions/{mission}/request-changes"), feedback).await?;
    let revised = world.until(&format!("/v1/missions/{mission}"), |mission| mission["revision"] == 2).await?;
    ensure!(revised["name"] == "chart" && revised["feedback"].is_null() && revised["awaits"] == "person", "{revised}");
    world.refused(&format!("/v1/missions/{mission}/approve"), json!({"revision": 1}), "revision 2").await?;
    world.act(&format!("/v1/missions/{mission}/reject"), json!({"reason": "no"})).await?;
    Ok(())
}

async fn waits_for_the_answer_to_a_question(world: World) -> Result<()> {
    world.script(|request| match asked(request) {
        Some(prompt) if prompt.contains("the northern one") => plan_by_name(request),
        Some(prompt) if prompt.contains("Propose the next hop") => {
            Reply::call("ask_person", json!({"question": "Which coast?"}))
        }
        _ => Reply::text("Done."),
    });
    let (session, agent) = crew(&world).await?;
    let mission = proposed(&world, &session, &agent, json!({"gates": {"mission": "auto"}})).await?;
    let asks = world.until(&format!("/v1/missions/{mission}"), |mission| mission["question"].is_object()).await?;
    ensure!(asks["question"]["text"] == "Which coast?" && asks["awaits"] == "person", "{asks}");
    let (code, said) = world.run(&["mission", "answer", &mission, "the northern one"]).await?;
    ensure!(code == 0, "{code} {said}");
    hop_is(&world, &mission, "HOP_PLAN_PROPOSED").await?;
    let after = world.get(&format!("/v1/missions/{mission}")).await?;
    ensure!(after["question"].is_null(), "{after}");
    Ok(())
}

/// The asset is named in an earlier message of the conversation.
fn plan_by_name(request: &Request) -> Reply {
    let all = request.messages().iter().map(|message| message["content"].to_string()).collect::<Vec<_>>().join("\n");
    plan(&all, "north")
}

async fn tells_the_agent_what_is_wrong_with_its_steps(world: World) -> Result<()> {
    world.script(|request| {
        let last = request.messages().last().cloned().unwrap_or_default();
        match asked(request) {
            Some(prompt) if prompt.contains("Propose its steps") => {
                Reply::call("propose_hop_impl", json!({"steps": [{"tool_id": "no_such_tool"}]}))
            }
            Some(_) => diligent(request),
            None if last["content"].to_string().contains("do not fit together") => {
                let all = request.messages().iter().map(|m| m["content"].to_string()).collect::<Vec<_>>().join("\n");
                steps(&all)
            }
            None => Reply::text("Done."),
        }
    });
    let (session, agent) = crew(&world).await?;
    let gates = json!({"gates": {"mission": "auto", "plan": "auto"}});
    let mission = proposed(&world, &session, &agent, gates).await?;
    hop_is(&world, &mission, "HOP_IMPL_PROPOSED").await?;
    let invalid = world.runes_of(&session, "hop.impl_invalid", 1).await?;
    ensure!(invalid[0]["payload"]["errors"][0].to_string().contains("no_such_tool"), "{invalid:?}");
    Ok(())
}

async fn gives_up_an_agent_that_proposes_nothing(world: World) -> Result<()> {
    world.script(|_| Reply::text("I would rather not."));
    let (session, agent) = crew(&world).await?;
    let mission = proposed(&world, &session, &agent, json!({"gates": {"mission": "auto"}})).await?;
    let hop = hop_is(&world, &mission, "FAILED").await?;
    ensure!(hop["phase"] == "plan" && hop["failure_class"] == "recoverable", "{hop}");
    let shown = world.get(&format!("/v1/missions/{mission}")).await?;
    ensure!(shown["status"] == "IN_PROGRESS" && shown["attention"]["reason"] == "hop_failed", "{shown}");
    ensure!(shown["awaits"] == "person", "{shown}");
    let id = text(&hop, "id")?;
    world.refused(&format!("/v1/hops/{id}/fix"), json!({}), "replan_hop").await?;
    world.refused(&format!("/v1/hops/{id}/retry"), json!({}), "never executed").await?;
    world.script(diligent);
    world.act(&format!("/v1/hops/{id}/replan"), json!({})).await?;
    hop_is(&world, &mission, "HOP_PLAN_PROPOSED").await?;
    Ok(())
}

/// An agent says that it cannot, in either phase, and takes up again what failed before its steps were chosen.
async fn is_given_up_and_taken_up_by_its_agent(world: World) -> Result<()> {
    /// What was asked, and the tools that were offered with it.
    type Offered = Vec<(String, Vec<String>)>;
    let offered: Arc<Mutex<Offered>> = Arc::default();
    let seen = offered.clone();
    world.script(move |request| {
        let names = request.tools().into_iter().map(str::to_owned).collect();
        seen.lock().unwrap().push((request.user_text(), names));
        let at_once =
            request.messages().last().is_some_and(|last| last["content"].to_string().contains("people decide"));
        match asked(request) {
            Some(prompt) if prompt.contains("There is one now") => {
                Reply::call("replan_hop", json!({"reason": "a lead line was found"}))
            }
            Some(prompt) if prompt.contains("Propose its steps") => {
                Reply::call("fail_hop", json!({"reason": "no tool draws"}))
            }
            Some(prompt) if prompt.contains("because: a lead line was found") && !prompt.contains("A person wants") => {
                plan(&prompt, "with a line")
            }
            Some(prompt) if prompt.contains("Propose the next hop") => {
                Reply::call("fail_hop", json!({"reason": "there is no lead line"}))
            }
            // Whoever gives up cannot take up in the same breath.
            None if at_once => Reply::call("replan_hop", json!({"reason": "on second thoughts"})),
            _ => Reply::text("Done."),
        }
    });
    let (session, agent) = crew_with(&world, &["fail_hop", "replan_hop"]).await?;
    let mission = proposed(&world, &session, &agent, json!({"gates": {"mission": "auto", "plan": "auto"}})).await?;
    let failed = hop_is(&world, &mission, "FAILED").await?;
    ensure!(failed["phase"] == "plan" && failed["failure_class"] == "recoverable", "{failed}");
    ensure!(failed["error"].to_string().contains("there is no lead line"), "{failed}");
    let waits = world.get(&format!("/v1/missions/{mission}")).await?;
    ensure!(waits["attention"]["reason"] == "hop_failed" && waits["awaits"] == "person", "{waits}");
    let told = world.runes_of(&session, "hop.failed", 1).await?;
    ensure!(told[0]["actor"]["id"] == agent.as_str() && told[0]["payload"]["phase"] == "plan", "{told:?}");
    let circles = |call: &Value| call["name"] == "replan_hop" && call["result"].to_string().contains("this very turn");
    let refused = |calls: &Value| calls["data"].as_array().is_some_and(|calls| calls.iter().any(circles));
    world.until(&format!("/v1/tool-calls?session={session}"), refused).await?;
    // It hears that something is different, and plans anew; then it cannot find the steps.
    world.until(&format!("/v1/agents/{agent}"), |agent| agent["lifecycle"] == "idle").await?;
    world.act(&format!("/v1/agents/{agent}/messages"), json!({"content": "There is one now."})).await?;
    let again = world.until(&format!("/v1/hops/{}", text(&failed, "id")?), |hop| hop["phase"] == "impl").await?;
    ensure!(again["status"] == "FAILED" && again["name"] == "with a line", "{again}");
    ensure!(again["error"].to_string().contains("no tool draws"), "{again}");
    let taken = world.runes_of(&session, "hop.retried", 1).await?;
    ensure!(taken[0]["actor"]["id"] == agent.as_str(), "{taken:?}");
    // Each was offered only where it could be used.
    let offered = offered.lock().unwrap();
    for (prompt, names) in offered.iter() {
        let has = |name: &str| names.iter().any(|tool| tool == name);
        ensure!(!(has("fail_hop") && has("replan_hop")), "{prompt}: {names:?}");
    }
    let first = |words: &str| offered.iter().find(|(prompt, _)| prompt.contains(words)).map(|(_, names)| names);
    let has = |names: Option<&Vec<String>>, name: &str| names.is_some_and(|names| names.iter().any(|n| n == name));
    ensure!(has(first("Propose the next hop"), "fail_hop") && has(first("There is one now"), "replan_hop"));
    Ok(())
}

async fn ends_with_its_session(world: World) -> Result<()> {
    world.script(diligent);
    let (session, agent) = crew(&world).await?;
    let mission = proposed(&world, &session, &agent, json!({})).await?;
    let kept = proposed(&world, &session, &agent, json!({"detached": true})).await?;
    world.act(&format!("/v1/sessions/{session}/close"), json!({})).await?;
    let ended = world.until(&format!("/v1/missions/{mission}"), |mission| mission["status"] == "CANCELLED").await?;
    ensure!(ended["awaits"] == "nobody", "{ended}");
    let cancelled = world.runes_of(&session, "mission.cancelled", 1).await?;
    ensure!(cancelled[0]["payload"]["reason"] == "session_closed", "{cancelled:?}");
    // What the close leaves alone ends before the log does: nobody could do anything about it afterwards.
    let ended = world.until(&format!("/v1/missions/{kept}"), |mission| mission["status"] == "CANCELLED").await?;
    ensure!(ended["awaits"] == "nobody", "{ended}");
    world.until(&format!("/v1/sessions/{session}"), |session| session["status"] == "closed").await?;
    world.refused(&format!("/v1/missions/{kept}/approve"), json!({}), "CANCELLED").await?;
    Ok(())
}

async fn goes_on_after_a_pause(world: World) -> Result<()> {
    world.script(diligent);
    let (session, agent) = crew(&world).await?;
    let mission = proposed(&world, &session, &agent, json!({})).await?;
    world.act(&format!("/v1/sessions/{session}/pause"), json!({})).await?;
    world.act(&format!("/v1/missions/{mission}/approve"), json!({})).await?;
    ensure!(world.get(&format!("/v1/hops?mission={mission}")).await?["data"] == json!([]), "nobody is asked now");
    world.act(&format!("/v1/sessions/{session}/resume"), json!({})).await?;
    hop_is(&world, &mission, "HOP_PLAN_PROPOSED").await?;
    Ok(())
}

async fn is_asked_again_after_everything_died(world: World) -> Result<()> {
    world.script(diligent);
    let (session, agent) = crew(&world).await?;
    let mission = proposed(&world, &session, &agent, json!({})).await?;
    world.act(&format!("/v1/missions/{mission}/approve"), json!({})).await?;
    for service in ["agent-worker", "tool-runner", "scheduler", "api"] {
        world.kill(service).await?;
    }
    let hop = hop_is(&world, &mission, "HOP_PLAN_PROPOSED").await?;
    world.act(&format!("/v1/hops/{}/approve-plan", text(&hop, "id")?), json!({})).await?;
    world.kill("tool-runner").await?;
    hop_is(&world, &mission, "HOP_IMPL_PROPOSED").await?;
    Ok(())
}

/// What the command line answers.
async fn told(world: &World, arguments: &[&str]) -> Result<Value> {
    let (code, said) = world.run(&[arguments, &["-o", "json"]].concat()).await?;
    ensure!(code == 0, "{arguments:?}: {code} {said}");
    let found: Value = serde_json::from_str(&said).with_context(|| said.clone())?;
    Ok(found.as_array().and_then(|list| list.first().cloned()).unwrap_or(found))
}

/// Steps of one tool, which makes what the hop promises.
pub(crate) fn steps_with(prompt: &str, tool: &str) -> Reply {
    let output = asset_after(prompt, "and makes ");
    let parameters = match tool {
        "echo" => json!({"text": {"type": "literal", "value": "rocks"}}),
        _ => json!({}),
    };
    let step = json!({"tool_id": tool, "parameter_mapping": parameters,
        "result_mapping": {"output": {"type": "asset_field", "state_asset_id": output}}});
    Reply::call("propose_hop_impl", json!({"steps": [step]}))
}

/// Two hops, of which the first makes something new, and the second reads that and the chart; the first steps of the
/// first stumble.
fn navigator() -> impl Fn(&Request) -> Reply + Send + Sync {
    let stumbled = std::sync::atomic::AtomicBool::new(false);
    move |request| match asked(request) {
        Some(prompt) if prompt.contains("Propose its steps") && prompt.contains("Hop 2:") => {
            let of = |words: &str| json!({"type": "asset_field", "state_asset_id": asset_after(&prompt, words)});
            let looks = json!({"tool_id": "echo", "parameter_mapping": {"text": of("- chart (")}});
            let draws = json!({"tool_id": "echo", "parameter_mapping": {"text": of("- draft (")},
                "result_mapping": {"output": of("and makes ")}});
            Reply::call("propose_hop_impl", json!({"steps": [looks, draws]}))
        }
        Some(prompt) if prompt.contains("Propose its steps") => {
            let tool = if stumbled.swap(true, std::sync::atomic::Ordering::SeqCst) { "echo" } else { "stumble" };
            steps_with(&prompt, tool)
        }
        Some(prompt) if prompt.contains("Propose the next hop") && prompt.contains("Hop 1:") => {
            let name = if prompt.contains("shorter") { "short leg" } else { "long leg" };
            let output = json!({"asset": {"name": "draft", "type": "string"}});
            Reply::call("propose_hop_plan", json!({"name": name, "output": output, "is_final": false}))
        }
        Some(prompt) if prompt.contains("Propose the next hop") && prompt.contains("- draft (") => {
            let of = |words: &str| asset_after(&prompt, words);
            Reply::call(
                "propose_hop_plan",
                json!({"name": "last leg", "inputs": [of("- chart ("), of("- draft (")],
                    "output": {"asset_id": of("- map (")}, "is_final": true}),
            )
        }
        Some(prompt) if prompt.contains("Propose the next hop") => plan(&prompt, "last leg"),
        _ => Reply::text("Done."),
    }
}

async fn is_walked_through_by_hand(world: World) -> Result<()> {
    world.script(navigator());
    let (session, agent) = crew_with(&world, &["stumble"]).await?;
    let chart = r#"{"name": "chart", "type": "string", "ttl_ms": 8000}"#;
    let map = r#"{"name": "map", "type": "string"}"#;
    let new = ["mission", "create", &session, "--name", "walk", "--goal", "a map", "--output-asset", map];
    let mission = told(&world, &[&new[..], &["--input-asset", chart, "--agent", &agent]].concat()).await?;
    let mission = text(&mission, "id")?;
    told(&world, &["mission", "approve", &mission, "--revision", "1"]).await?;
    let hop = text(&hop_is(&world, &mission, "HOP_PLAN_PROPOSED").await?, "id")?;
    told(&world, &["hop", "reject", &hop, "make it shorter"]).await?;
    world.until(&format!("/v1/hops/{hop}"), |hop| hop["name"] == "short leg").await?;
    let edited = told(&world, &["hop", "edit", &hop, "--revision", "2", r#"{"goal": "by noon"}"#]).await?;
    ensure!(edited["revision"] == 3, "{edited}");
    told(&world, &["hop", "approve", &hop, "--revision", "3"]).await?;
    hop_is(&world, &mission, "HOP_IMPL_PROPOSED").await?;
    told(&world, &["hop", "approve", &hop, "--run"]).await?;
    let failed = hop_is(&world, &mission, "FAILED").await?;
    ensure!(failed["phase"] == "execute", "{failed}");
    let waits = told(&world, &["mission", "show", &mission]).await?;
    ensure!(waits["attention"]["reason"] == "hop_failed" && waits["status"] == "IN_PROGRESS", "{waits}");
    told(&world, &["hop", "fix", &hop, "--reason", "another tool"]).await?;
    hop_is(&world, &mission, "HOP_IMPL_PROPOSED").await?;
    told(&world, &["hop", "approve", &hop, "--run"]).await?;

    let second = world
        .until(&format!("/v1/hops?mission={mission}"), |found| {
            found["data"][0]["sequence"] == 2 && found["data"][0]["status"] == "HOP_PLAN_PROPOSED"
        })
        .await?;
    let second = text(&second["data"][0], "id")?;
    told(&world, &["hop", "approve", &second]).await?;
    let steps = hop_is(&world, &mission, "HOP_IMPL_PROPOSED").await?;
    // What a person gives is good for a while only: steps that read what is too old go back to whoever proposed them.
    let assets = told(&world, &["asset", "list", "--mission", &mission, "--role", "input"]).await?;
    let chart = text(&assets, "id")?;
    told(&world, &["asset", "provide", &chart, "--value", "\"old soundings\""]).await?;
    world.until(&format!("/v1/assets/{chart}"), |asset| asset["status"] == "EXPIRED").await?;
    let lost = world.runes_of(&session, "hop.impl_invalid", 1).await?;
    ensure!(lost[0].to_string().contains("H18"), "{lost:?}");
    world
        .until(&format!("/v1/hops/{second}"), |hop| {
            hop["status"] == "HOP_IMPL_PROPOSED" && hop["revision"].as_i64() > steps["revision"].as_i64()
        })
        .await?;
    told(&world, &["hop", "approve", &second]).await?;
    let (code, said) = world.run(&["hop", "execute", &second]).await?;
    ensure!(code == 4 && said.contains("is not READY"), "{code} {said}");
    told(&world, &["asset", "refresh", &chart]).await?;
    told(&world, &["asset", "provide", &chart, "--value", "\"new soundings\""]).await?;
    told(&world, &["hop", "execute", &second]).await?;
    let done = world.until(&format!("/v1/missions/{mission}"), |mission| mission["status"] == "COMPLETED").await?;
    ensure!(done["current_hop"] == json!(second) && done["awaits"] == "nobody", "{done}");
    let outputs = world.get(&format!("/v1/assets?mission={mission}&role=output")).await?;
    ensure!(outputs["data"][0]["status"] == "READY", "{outputs}");
    // The map comes of the draft that the first hop made, beside the chart as it was given anew.
    let from = told(&world, &["asset", "lineage", &text(&outputs["data"][0], "id")?]).await?;
    let versions = from["versions"].as_array().context("versions")?;
    let hops: Vec<&Value> = versions.iter().map(|version| &version["hop_id"]).collect();
    ensure!(hops == [&json!(second), &json!(hop)], "{from}");
    let last = told(&world, &["hop", "show", &second]).await?;
    ensure!(last["input_versions"][&chart] == 2, "{last}");
    told(&world, &["hop", "archive", &second]).await?;
    for word in ["verify", "replay"] {
        let (code, said) = world.run(&[word, &session]).await?;
        ensure!(code == 0, "{word}: {code} {said}");
    }
    Ok(())
}

async fn runs_unattended(world: World) -> Result<()> {
    world.script(diligent);
    let (session, agent) = crew(&world).await?;
    let gates = json!({"gates": {"mission": "auto", "plan": "auto", "impl": "auto", "execute": "auto"}});
    let mission = proposed(&world, &session, &agent, gates).await?;
    world.until(&format!("/v1/missions/{mission}"), |mission| mission["status"] == "COMPLETED").await?;
    let approvals = world.runes_of(&session, "hop.impl_approved", 1).await?;
    ensure!(approvals[0]["payload"]["approver"] == "policy", "{approvals:?}");
    Ok(())
}

/// Two steps, of which the second stumbles: the agent is told that the first one is done, and whose words are whose.
async fn repeats_no_finished_step_when_it_is_fixed(world: World) -> Result<()> {
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let prompts = heard.clone();
    world.script(move |request| match asked(request) {
        Some(prompt) if prompt.contains("Propose its steps") => {
            let done = prompt.contains("are done and stay") && prompt.contains("(tool toll)");
            let fixed = prompt.contains("What went wrong");
            prompts.lock().unwrap().push(prompt.clone());
            let output = json!({"type": "asset_field", "state_asset_id": asset_after(&prompt, "and makes ")});
            let last = match fixed {
                true => json!({"tool_id": "echo", "parameter_mapping": {"text": {"type": "literal", "value": "rocks"}},
                    "result_mapping": {"output": output}}),
                false => json!({"name": "draw", "tool_id": "stumble", "result_mapping": {"output": output}}),
            };
            let first = json!({"name": "pay", "tool_id": "toll"});
            let steps = if done { json!([last]) } else { json!([first, last]) };
            Reply::call("propose_hop_impl", json!({"steps": steps}))
        }
        _ => diligent(request),
    });
    let (session, agent) = crew_with(&world, &["toll", "stumble"]).await?;
    let gates = json!({"gates": {"mission": "auto", "plan": "auto", "impl": "auto", "execute": "auto"}});
    let mission = proposed(&world, &session, &agent, gates).await?;
    let hop = text(&hop_is(&world, &mission, "FAILED").await?, "id")?;
    world.act(&format!("/v1/hops/{hop}/fix"), json!({})).await?;
    world.until(&format!("/v1/missions/{mission}"), |mission| mission["status"] == "COMPLETED").await?;
    let steps = world.get(&format!("/v1/hops/{hop}/steps")).await?;
    let steps = steps["data"].as_array().cloned().unwrap_or_default();
    let paid = steps.iter().filter(|step| step["tool_id"] == "toll" && step["attempts"] != 0).count();
    ensure!(paid == 1, "paid {paid} times: {steps:?}");
    let heard = heard.lock().unwrap();
    let last = heard.last().context("a prompt")?;
    ensure!(last.contains("draw (tool stumble), READY_TO_CONFIGURE"), "{last}");
    ensure!(!last.contains("A person wants") && !last.contains("fix_hop"), "nobody said anything: {last}");
    Ok(())
}

/// More of them than are looked at wait for people.
async fn is_answered_however_many_others_wait(world: World) -> Result<()> {
    world.script(diligent);
    let (session, agent) = crew(&world).await?;
    for _ in 0..20 {
        proposed(&world, &session, &agent, json!({})).await?;
    }
    let mission = proposed(&world, &session, &agent, json!({"gates": {"mission": "auto"}})).await?;
    hop_is(&world, &mission, "HOP_PLAN_PROPOSED").await?;
    Ok(())
}

async fn is_stopped_failed_and_retried(world: World) -> Result<()> {
    world.script(|request| match asked(request) {
        Some(prompt) if prompt.contains("Propose its steps") => steps_with(&prompt, "stumble"),
        _ => diligent(request),
    });
    let (session, agent) = crew_with(&world, &["stumble"]).await?;
    let terms = json!({"gates": {"mission": "auto", "plan": "auto", "impl": "auto"}, "on_hop_failure": "fail",
        "hop_attempts_max": 1});
    let mission = proposed(&world, &session, &agent, terms).await?;
    let hop = text(&hop_is(&world, &mission, "HOP_IMPL_READY").await?, "id")?;
    let on = |action: &str| format!("/v1/hops/{hop}/{action}");
    world.act(&on("execute"), json!({})).await?;
    let failed = world.until(&format!("/v1/missions/{mission}"), |mission| mission["status"] == "FAILED").await?;
    ensure!(failed["failure"]["hop_id"] == json!(hop), "{failed}");
    world.refused(&on("retry"), json!({}), "attempts are used up").await?;
    world.script(diligent);
    world.act(&on("fix"), json!({"reason": "once more"})).await?;
    let back = world.get(&format!("/v1/missions/{mission}")).await?;
    ensure!(back["status"] == "IN_PROGRESS" && back["failure"].is_null(), "{back}");
    hop_is(&world, &mission, "HOP_IMPL_READY").await?;
    world.act(&format!("/v1/missions/{mission}/cancel"), json!({})).await?;
    world.act(&format!("/v1/missions/{mission}/reset"), json!({})).await?;
    Ok(())
}
