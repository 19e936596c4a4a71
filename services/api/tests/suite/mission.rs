//! Missions and hops as people meet them: proposals, revisions, decisions, and what is refused.

use crate::kit::{Got, House, key, on_both, text};
use anyhow::{Context as _, Result};
use instar_api::Role;
use instar_core::id::{HopId, MissionId};
use instar_core::machine::{By, hop as hop_machine};
use instar_core::rune::Actor;
use instar_runtime::mission::{self, StepForm};
use instar_runtime::{Act, Missions};
use serde_json::{Value, json};

fn proposal() -> Value {
    json!({
        "name": "map", "goal": "a map of the coast", "success_criteria": ["every rock is on it"],
        "inputs": [{"name": "soundings", "type": "object"}], "outputs": [{"name": "map", "type": "markdown"}],
    })
}

async fn proposed(house: &House, more: Value) -> Result<(String, Value)> {
    let (session, _) = house.fleet().await?;
    // Its agent makes the session active.
    let mut body = proposal();
    body.as_object_mut().context("a body")?.extend(more.as_object().cloned().unwrap_or_default());
    let mission = house.post(&format!("/v1/sessions/{session}/missions"), body).await?.is(201);
    Ok((session, mission))
}

fn plan(name: &str) -> Value {
    json!({"name": name, "output": {"asset": {"name": format!("what {name} makes")}}})
}

/// A hop whose plan a person has written.
async fn planned(house: &House, mission: &str, name: &str) -> Result<Value> {
    Ok(house.post(&format!("/v1/missions/{mission}/hops"), plan(name)).await?.is(201))
}

/// An agent proposes one step that makes what the hop promises.
async fn implemented(house: &House, hop: &str) -> Result<()> {
    let (hub, id) = (&house.context.hub, hop.parse::<HopId>()?);
    let row = hub.store().hop(id).await?.context("a hop")?;
    let output = row.outputs[0].clone();
    let step: StepForm = serde_json::from_value(json!({
        "tool_id": "echo", "parameter_mapping": {"text": {"type": "literal", "value": "x"}},
        "result_mapping": {"output": {"type": "asset_field", "state_asset_id": output}},
    }))?;
    let next = hub.store().next_step_number(id).await?;
    let rows = Missions::of(hub.store().mission_rows(row.mission_id.into(), None).await?);
    let (act, _) = mission::hop_impl(&rows, &row, &[step], next, Actor::new(By::Agent, "agt_test"));
    act.carry_out(hub).await?;
    Ok(())
}

async fn a_proposal_is_revised_and_approved_as_it_was_seen(house: House) -> Result<()> {
    let (session, mission) = proposed(&house, json!({})).await?;
    let id = text(&mission["id"]);
    let path = |action: &str| format!("/v1/missions/{id}/{action}");
    assert_eq!((&mission["status"], &mission["status_v1"]), (&json!("AWAITING_APPROVAL"), &json!("PROPOSED")));
    assert_eq!(
        (&mission["awaits"], &mission["revision"], &mission["current_hop"]),
        (&json!("person"), &json!(1), &Value::Null)
    );

    let no = house.as_role(Role::Operator, "POST", &path("approve"), Some(json!({}))).await?;
    no.refuses(403, "approver");
    let edit = json!({"revision": 1, "goal": "a map of the bay", "outputs": [{"name": "map", "type": "file"}, {"name": "key"}]});
    let revised = house.post(&path("revise"), edit.clone()).await?.is(200);
    assert_eq!((&revised["revision"], &revised["goal"]), (&json!(2), &json!("a map of the bay")));
    let stale = house.post(&path("revise"), edit).await?.refuses(409, "revision 2");
    assert_eq!((&stale["code"], &stale["revision"]), (&json!("stale_revision"), &json!(2)));
    let stale = house.post(&path("approve"), json!({"revision": 1})).await?.refuses(409, "look at it again");
    assert_eq!(stale["revision"], 2);
    let assets = house.store().assets_of(id.parse::<MissionId>()?).await?;
    let named: Vec<(&str, &str, i64)> = assets.iter().map(|a| (a.name.as_str(), a.kind.as_str(), a.revision)).collect();
    assert_eq!(named, [("soundings", "object", 1), ("map", "file", 2), ("key", "string", 1)]);

    let approved = house.keyed(&path("approve"), "once", &json!({"revision": 2})).await?.is(200);
    assert_eq!((&approved["status"], &approved["status_v1"]), (&json!("IN_PROGRESS"), &json!("READY_FOR_NEXT_HOP")));
    let again = house.keyed(&path("approve"), "once", &json!({"revision": 2})).await?.is(200);
    assert_eq!(again, approved, "the same key gives the first answer");
    let refused = house.post(&path("approve"), json!({})).await?.refuses(409, "IN_PROGRESS refuses approve_mission");
    assert_eq!((&refused["machine"], &refused["from"]), (&json!("mission"), &json!("IN_PROGRESS")));
    assert!(refused["allowed"].as_array().unwrap().contains(&json!("cancel_mission")), "{refused}");
    house.post(&path("complete"), json!({})).await?.refuses(409, "is not READY");
    house.sound(&session).await
}

async fn a_bad_proposal_says_every_fault_and_changes_nothing(house: House) -> Result<()> {
    let (session, agent) = house.fleet().await?;
    let path = format!("/v1/sessions/{session}/missions");
    let bad = json!({"name": " ", "goal": "g", "outputs": [], "gates": {"plan": "never"}, "colour": "red"});
    let no = house.post(&path, bad).await?.refuses(422, "outputs");
    let at: Vec<String> = no["errors"].as_array().unwrap().iter().map(|e| text(&e["pointer"])).collect();
    assert!(at.contains(&"/colour".into()) && at.contains(&"/gates/plan".into()), "{at:?}");
    let mut body = proposal();
    body["outputs"] = json!([]);
    body["hop_attempts_max"] = json!(0);
    let no = house.post(&path, body).await?.refuses(422, "at least one output");
    assert!(no.to_string().contains("hop_attempts_max"), "{no}");
    let mut body = proposal();
    body["agent_id"] = json!(agent);
    house.post(&path, body).await?.refuses(422, "propose_hop_plan");
    assert_eq!(house.get("/v1/missions").await?.is(200)["data"], json!([]));
    house.get("/v1/missions/mis_1").await?.refuses(404, "no mission");
    house.get("/v1/missions?awaits=rain").await?.refuses(422, "must be one of");
    let other = house.send(house.request("GET", "/v1/missions", "other-admin")).await?.is(200);
    assert_eq!(other["data"], json!([]));
    house.sound(&session).await
}

async fn a_hop_goes_through_both_gates_and_back(house: House) -> Result<()> {
    let (session, mission) = proposed(&house, json!({})).await?;
    let id = text(&mission["id"]);
    house.post(&format!("/v1/missions/{id}/hops"), plan("early")).await?.refuses(409, "must be IN_PROGRESS");
    house.post(&format!("/v1/missions/{id}/approve"), json!({})).await?.is(200);
    let hop = planned(&house, &id, "sound").await?;
    let on = |action: &str| format!("/v1/hops/{}/{action}", text(&hop["id"]));
    assert_eq!(
        (&hop["status"], &hop["status_v1"], &hop["sequence"]),
        (&json!("HOP_PLAN_PROPOSED"), &json!("PROPOSED"), &json!(1))
    );
    house.post(&format!("/v1/missions/{id}/hops"), plan("second")).await?.refuses(409, "current one");
    let stray = json!({"revision": 1, "inputs": ["ast_00000000000070008000000000000009"]});
    house.post(&on("edit-plan"), stray).await?.refuses(422, "no asset of this mission; it has: soundings");
    let last = json!({"revision": 1, "is_final": true});
    house.post(&on("edit-plan"), last).await?.refuses(422, "the mission would still lack map");
    let edited = house.post(&on("edit-plan"), json!({"revision": 1, "name": "sound twice"})).await?.is(200);
    assert_eq!((&edited["revision"], &edited["name"]), (&json!(2), &json!("sound twice")));
    house.post(&on("approve-plan"), json!({"revision": 1})).await?.refuses(409, "revision 2");
    assert_eq!(house.post(&on("approve-plan"), json!({"revision": 2})).await?.is(200)["status"], "HOP_PLAN_READY");
    let shown = house.get(&format!("/v1/missions/{id}")).await?.is(200);
    assert_eq!((&shown["status_v1"], &shown["current_hop"]), (&json!("BUILDING_HOP"), &hop["id"]));
    house.post(&on("reject-impl"), json!({})).await?.refuses(422, "feedback");
    house.post(&on("execute"), json!({})).await?.refuses(409, "refuses execute_hop");

    implemented(&house, &text(&hop["id"])).await?;
    let back = house.post(&on("reject-impl"), json!({"feedback": "use the lead line"})).await?.is(200);
    assert_eq!((&back["status"], &back["feedback"]), (&json!("HOP_IMPL_STARTED"), &json!("use the lead line")));
    let taken = house.post(&on("request-changes"), json!({"feedback": "another way"})).await?.is(200);
    assert_eq!((&taken["status"], &taken["plan_accepted_once"]), (&json!("HOP_PLAN_STARTED"), &json!(true)));
    let cancelled = house.post(&on("cancel"), json!({"reason": "rain"})).await?.is(200);
    assert_eq!((&cancelled["status"], &cancelled["status_v1"]), (&json!("CANCELLED"), &json!("CANCELLED")));
    assert_eq!(house.get(&format!("/v1/missions/{id}")).await?.is(200)["current_hop"], Value::Null);
    assert_eq!(house.post(&on("reset"), json!({})).await?.is(200)["status"], "HOP_PLAN_PROPOSED");
    let gone = house.as_role(Role::Operator, "DELETE", &format!("/v1/hops/{}", text(&hop["id"])), None).await?.is(200);
    assert_eq!(gone["status"], "deleted");
    assert_eq!(house.get(&format!("/v1/hops?mission={id}")).await?.is(200)["data"], json!([]));
    assert_eq!(planned(&house, &id, "next").await?["sequence"], 2, "a number is given once");
    house.sound(&session).await
}

async fn older_words_are_understood_and_land_as_one(house: House) -> Result<()> {
    let (session, mission) = proposed(&house, json!({})).await?;
    let id = text(&mission["id"]);
    let say = |command: &str| (format!("/v1/missions/{id}/command"), json!({"command": command}));
    let (path, body) = say("accept_hop_proposal");
    house.post(&path, body).await?.refuses(409, "no hop");
    let (path, body) = say("accept_mission");
    assert_eq!(house.post(&path, body).await?.is(200)["status"], "IN_PROGRESS");
    let hop = text(&planned(&house, &id, "sound").await?["id"]);
    let (path, body) = say("accept_hop_proposal");
    assert_eq!(house.post(&path, body).await?.is(200)["status_v1"], "BUILDING_HOP");
    implemented(&house, &hop).await?;
    let shown = house.get(&format!("/v1/hops/{hop}")).await?.is(200);
    assert_eq!((&shown["status"], &shown["status_v1"]), (&json!("HOP_IMPL_PROPOSED"), &json!("READY_TO_EXECUTE")));
    let (path, body) = say("trigger_execution");
    let running = house.post(&path, body).await?.is(200);
    assert_eq!((&running["status_v1"], &running["awaits"]), (&json!("EXECUTING_HOP"), &json!("steps")));
    let (path, body) = say("cancel_execution");
    assert_eq!(house.post(&path, body).await?.is(200)["status"], "CANCELLED", "the older words end the mission by it");
    let (path, body) = say("dance");
    house.post(&path, body).await?.refuses(422, "must be one of");
    house.sound(&session).await
}

async fn gates_open_by_policy_where_the_mission_says_so(house: House) -> Result<()> {
    let gates =
        json!({"gates": {"mission": "auto", "plan": "auto", "impl": "timed", "execute": "auto"}, "gate_timeout_ms": 1});
    let (session, mission) = proposed(&house, gates).await?;
    let id = text(&mission["id"]);
    assert_eq!(mission["status"], "IN_PROGRESS", "approved by policy");
    let hop = planned(&house, &id, "sound").await?;
    assert_eq!(hop["status"], "HOP_PLAN_READY");
    let hop = text(&hop["id"]);
    implemented(&house, &hop).await?;
    let waits = house.get(&format!("/v1/missions/{id}")).await?.is(200);
    assert!(waits["gate_due_at"].is_string() && waits["awaits"] == "person", "{waits}");
    let mission_id: MissionId = id.parse()?;
    // Late enough for one millisecond, by any clock.
    while house.store().overdue_gates(house.store().now().await?, 10).await?.is_empty() {
        tokio::task::yield_now().await;
    }
    house.context.hub.remind(mission_id, Actor::system("test")).await?;
    let reminded = house.get(&format!("/v1/missions/{id}")).await?.is(200);
    assert_eq!(
        (&reminded["attention"]["reason"], &reminded["attention"]["gate"]),
        (&json!("gate_timeout"), &json!("impl"))
    );
    assert_eq!(house.get(&format!("/v1/hops/{hop}")).await?.is(200)["status"], "HOP_IMPL_PROPOSED", "it stays closed");
    let ran = house.post(&format!("/v1/hops/{hop}/approve-impl"), json!({})).await?.is(200);
    assert_eq!(ran["status"], "EXECUTING", "the last gate opens by itself");
    let runes = house.get(&format!("/v1/sessions/{session}/runes?limit=200")).await?.is(200);
    let approvers: Vec<&Value> = runes["data"].as_array().unwrap().iter().map(|r| &r["payload"]["approver"]).collect();
    assert_eq!(approvers.iter().filter(|a| **a == "policy").count(), 2, "{approvers:?}");
    house.sound(&session).await
}

async fn what_has_ended_is_started_over_as_a_new_instance(house: House) -> Result<()> {
    let (session, mission) = proposed(&house, json!({})).await?;
    let id = text(&mission["id"]);
    house.post(&format!("/v1/missions/{id}/reset"), json!({})).await?.refuses(409, "refuses reset_mission");
    let gone = house.post(&format!("/v1/missions/{id}/reject"), json!({"reason": "too dear"})).await?.is(200);
    assert_eq!((&gone["status"], &gone["awaits"]), (&json!("CANCELLED"), &json!("nobody")));
    let new = house.post(&format!("/v1/missions/{id}/reset"), json!({})).await?.is(201);
    assert_eq!((&new["reset_of"], &new["status"]), (&json!(id), &json!("AWAITING_APPROVAL")));
    assert_eq!(house.get(&format!("/v1/missions/{id}")).await?.is(200)["reset_to"], new["id"]);
    house.sound(&session).await
}

async fn of_two_people_at_once_one_wins_and_the_other_learns_the_revision(house: House) -> Result<()> {
    let (session, mission) = proposed(&house, json!({})).await?;
    let path = format!("/v1/missions/{}", text(&mission["id"]));
    for round in 1..=5 {
        let edit = |goal: &str| {
            let body = json!({"revision": round, "goal": goal});
            house.send(house.request("POST", &format!("{path}/revise"), &key(Role::Operator)).json(&body))
        };
        let (one, two) = tokio::join!(edit("north"), edit("south"));
        let (one, two) = (one?, two?);
        let (won, lost) = if one.status == 200 { (one, two) } else { (two, one) };
        let won = won.is(200);
        let lost = lost.refuses(409, "look at it again");
        assert_eq!((&won["revision"], &lost["revision"]), (&json!(round + 1), &json!(round + 1)));
    }
    house.sound(&session).await
}

async fn steps_whose_tool_is_gone_are_neither_approved_nor_executed(house: House) -> Result<()> {
    let (session, mission) = proposed(&house, json!({})).await?;
    let id = text(&mission["id"]);
    house.post(&format!("/v1/missions/{id}/approve"), json!({})).await?.is(200);
    let hop = text(&planned(&house, &id, "sound").await?["id"]);
    let on = |action: &str| format!("/v1/hops/{hop}/{action}");
    house.post(&on("approve-plan"), json!({})).await?.is(200);
    implemented(&house, &hop).await?;
    let echo = house.tools.unregister("echo").context("a tool")?;
    let shown = house.get(&format!("/v1/hops/{hop}")).await?.is(200);
    let wrong = shown["revision"].as_i64().unwrap_or_default() + 1;
    house.post(&on("approve-impl"), json!({"revision": wrong})).await?.refuses(409, "look at it again");
    let no = house.post(&on("approve-impl"), json!({})).await?.refuses(409, "cannot be run any more");
    assert_eq!((&no["code"], &no["hop_status"]), (&json!("validation_failed"), &json!("HOP_IMPL_STARTED")));
    assert!(no["errors"][0].to_string().contains("echo"), "{no}");
    house.tools.register(echo.spec().clone(), echo.origin())?;
    implemented(&house, &hop).await?;
    house.post(&on("approve-impl"), json!({})).await?.is(200);
    house.tools.unregister("echo");
    house.post(&on("execute"), json!({})).await?.refuses(409, "cannot be run any more");
    let shown = house.get(&format!("/v1/missions/{id}")).await?.is(200);
    assert_eq!(shown["status"], "IN_PROGRESS", "the mission goes on");
    house.tools.register(echo.spec().clone(), echo.origin())?;
    implemented(&house, &hop).await?;
    house.post(&on("approve-impl"), json!({})).await?.is(200);
    house.post(&on("execute"), json!({})).await?.is(200);
    let runes = house.get(&format!("/v1/sessions/{session}/runes?limit=200")).await?.is(200);
    let calls = runes["data"].as_array().unwrap().iter().filter(|rune| rune["kind"] == "tool.call");
    assert_eq!(calls.count(), 1, "one call for the one step that runs");
    house.sound(&session).await
}

/// A session with a mission that is in progress and a hop of it whose plan waits for a decision.
async fn hopeful(house: &House) -> Result<(String, String, String)> {
    let (session, mission) = proposed(house, json!({})).await?;
    let id = text(&mission["id"]);
    house.post(&format!("/v1/missions/{id}/approve"), json!({})).await?.is(200);
    let hop = text(&planned(house, &id, "sound").await?["id"]);
    Ok((session, id, hop))
}

async fn every_older_word_is_understood_of_missions_and_of_hops(house: House) -> Result<()> {
    // The word, what comes before it, and what its answer says then: of the mission, of the hop.
    type Case = (&'static str, &'static [&'static str], Option<&'static str>, Option<&'static str>);
    let cases: [Case; 14] = [
        ("accept_mission", &[], None, None),
        ("accept_hop_proposal", &[], Some("IN_PROGRESS"), Some("HOP_PLAN_READY")),
        ("approve_design", &["approve-plan", "implement"], Some("IN_PROGRESS"), Some("HOP_IMPL_READY")),
        ("approve_design_and_run", &["approve-plan", "implement"], Some("IN_PROGRESS"), Some("EXECUTING")),
        ("reject_design", &["approve-plan", "implement"], Some("IN_PROGRESS"), Some("HOP_IMPL_STARTED")),
        ("trigger_execution", &["approve-plan", "implement", "approve-impl"], Some("IN_PROGRESS"), Some("EXECUTING")),
        ("request_changes", &["approve-plan"], Some("IN_PROGRESS"), Some("HOP_PLAN_STARTED")),
        ("fix_issues", &["approve-plan", "fail"], Some("IN_PROGRESS"), Some("HOP_PLAN_READY")),
        ("cancel_mission", &[], Some("CANCELLED"), Some("CANCELLED")),
        ("cancel_execution", &[], Some("CANCELLED"), Some("CANCELLED")),
        ("cancel_hop", &[], Some("IN_PROGRESS"), Some("CANCELLED")),
        ("reset_mission", &["end"], Some("AWAITING_APPROVAL"), Some("CANCELLED")),
        // A mission has no current hop that could be brought back.
        ("reset_hop", &["cancel"], None, Some("HOP_PLAN_PROPOSED")),
        ("delete_hop", &[], Some("IN_PROGRESS"), Some("deleted")),
    ];
    for (word, before, of_mission, of_hop) in cases {
        for (route, expected) in [("missions", of_mission), ("hops", of_hop)] {
            let (session, mission, hop) = hopeful(&house).await?;
            for step in before {
                match *step {
                    "implement" => implemented(&house, &hop).await?,
                    "fail" => {
                        let hub = &house.context.hub;
                        let row = hub.store().hop(hop.parse()?).await?.context("a hop")?;
                        let (session, system) = (row.session_id.into(), Actor::system("test"));
                        let fail = Act::new(
                            session,
                            HopId::from(row.id),
                            &hop_machine::TABLE,
                            "tool_resolution_failed",
                            system,
                        );
                        fail.carry_out(hub).await?;
                    }
                    "end" => drop(house.post(&format!("/v1/missions/{mission}/cancel"), json!({})).await?.is(200)),
                    action => drop(house.post(&format!("/v1/hops/{hop}/{action}"), json!({})).await?.is(200)),
                }
            }
            let id = if route == "missions" { &mission } else { &hop };
            let got = house.post(&format!("/v1/{route}/{id}/command"), json!({"command": word})).await?;
            match expected {
                None => drop(got.refuses(409, "detail")),
                Some(status) => {
                    assert!(got.status == 200 || got.status == 201, "{word} of {route}: {}", got.text);
                    assert_eq!(got.body["status"], status, "{word} of {route}");
                }
            }
            if word == "reset_mission" {
                let old = house.get(&format!("/v1/missions/{mission}")).await?.is(200);
                let new = house.get(&format!("/v1/missions/{}", text(&old["reset_to"]))).await?.is(200);
                assert_eq!((&new["reset_of"], &new["status"]), (&json!(mission), &json!("AWAITING_APPROVAL")));
            }
            house.sound(&session).await?;
        }
    }
    // Only before there is a hop.
    let (session, mission) = proposed(&house, json!({})).await?;
    let path = format!("/v1/missions/{}/command", text(&mission["id"]));
    assert_eq!(house.post(&path, json!({"command": "accept_mission"})).await?.is(200)["status"], "IN_PROGRESS");
    house.sound(&session).await
}

/// The asset of this name.
async fn named(house: &House, mission: &str, name: &str) -> Result<String> {
    let list = house.get(&format!("/v1/assets?mission={mission}")).await?.is(200);
    let found = list["data"].as_array().into_iter().flatten().find(|asset| asset["name"] == name);
    Ok(text(&found.context("an asset")?["id"]))
}

async fn patch(house: &House, asset: &str, body: Value) -> Result<Got> {
    let request = house.request("PATCH", &format!("/v1/assets/{asset}"), &key(Role::Operator));
    house.send(request.json(&body)).await
}

async fn a_proposal_is_another_one_when_its_parts_change(house: House) -> Result<()> {
    let (session, mission) = proposed(&house, json!({})).await?;
    let path = format!("/v1/missions/{}", text(&mission["id"]));
    let (id, approve) = (text(&mission["id"]), format!("{path}/approve"));
    let map = named(&house, &id, "map").await?;
    patch(&house, &map, json!({"revision": 1, "type": "pdf"})).await?.is(200);
    let stale = house.post(&approve, json!({"revision": 1})).await?.refuses(409, "look at it again");
    assert_eq!(stale["revision"], 2);
    let legend = house.post(&format!("{path}/assets"), json!({"name": "legend", "role": "output"})).await?.is(201);
    house.post(&approve, json!({"revision": 2})).await?.refuses(409, "look at it again");
    house.post(&format!("/v1/assets/{}/reject", text(&legend["id"])), json!({})).await?.is(200);
    let stale = house.post(&approve, json!({"revision": 3})).await?.refuses(409, "look at it again");
    assert_eq!(stale["revision"], 4);
    house.post(&approve, json!({"revision": 4})).await?.is(200);

    let hop = text(&planned(&house, &id, "sound").await?["id"]);
    let on = |action: &str| format!("/v1/hops/{hop}/{action}");
    let seen = |shown: Value| shown["revision"].as_i64().unwrap_or_default();
    let before = seen(house.get(&format!("/v1/hops/{hop}")).await?.is(200));
    let made = named(&house, &id, "what sound makes").await?;
    patch(&house, &made, json!({"revision": 1, "description": "another thing"})).await?.is(200);
    let stale = house.post(&on("approve-plan"), json!({"revision": before})).await?.refuses(409, "look at it again");
    assert_eq!(stale["revision"], before + 1);
    house.post(&on("approve-plan"), json!({"revision": before + 1})).await?.is(200);
    implemented(&house, &hop).await?;
    let before = seen(house.get(&format!("/v1/hops/{hop}")).await?.is(200));
    let steps = house.get(&on("steps")).await?.is(200);
    house.post(&format!("/v1/steps/{}/cancel", text(&steps["data"][0]["id"])), json!({})).await?.is(200);
    let stale = house.post(&on("approve-impl"), json!({"revision": before})).await?.refuses(409, "look at it again");
    assert_eq!(stale["revision"], before + 1);
    house.sound(&session).await
}

async fn whoever_decides_while_a_part_changes_decides_on_what_he_saw(house: House) -> Result<()> {
    for _ in 1..=5 {
        let (session, mission) = proposed(&house, json!({})).await?;
        let id = text(&mission["id"]);
        let map = named(&house, &id, "map").await?;
        let approve = house.request("POST", &format!("/v1/missions/{id}/approve"), &key(Role::Admin));
        let (approved, edited) = tokio::join!(
            house.send(approve.json(&json!({"revision": 1}))),
            patch(&house, &map, json!({"revision": 1, "type": "pdf"})),
        );
        let (approved, edited) = (approved?, edited?);
        if edited.status == 200 {
            assert_eq!(approved.refuses(409, "look at it again")["revision"], 2);
        } else {
            edited.refuses(409, "edit_asset");
            assert_eq!(approved.is(200)["revision"], 1);
        }
        house.sound(&session).await?;
    }
    Ok(())
}

async fn what_is_promised_does_not_go_by_itself(house: House) -> Result<()> {
    let (session, mission) = proposed(&house, json!({})).await?;
    let id = text(&mission["id"]);
    let map = named(&house, &id, "map").await?;
    let on = |asset: &str, action: &str| format!("/v1/assets/{asset}/{action}");
    house.post(&on(&map, "reject"), json!({})).await?.refuses(409, "revise the mission, or reject it as a whole");
    let gone = house.as_role(Role::Admin, "DELETE", &format!("/v1/assets/{map}"), None).await?;
    gone.refuses(409, "the only output");
    let legend =
        house.post(&format!("/v1/missions/{id}/assets"), json!({"name": "legend", "role": "output"})).await?.is(201);
    house.post(&on(&text(&legend["id"]), "reject"), json!({})).await?.is(200);
    house.post(&format!("/v1/missions/{id}/approve"), json!({})).await?.is(200);
    let hop = text(&planned(&house, &id, "sound").await?["id"]);
    let made = named(&house, &id, "what sound makes").await?;
    house.post(&on(&made, "reject"), json!({})).await?.refuses(409, "hop 1 makes it");
    house.post(&format!("/v1/hops/{hop}/reject-plan"), json!({"feedback": "another"})).await?.is(200);
    assert_eq!(house.get(&format!("/v1/assets/{made}")).await?.is(200)["status"], "deleted", "with its plan");
    house.sound(&session).await
}

on_both! {
    every_older_word_is_understood_of_missions_and_of_hops;
    a_proposal_is_another_one_when_its_parts_change;
    whoever_decides_while_a_part_changes_decides_on_what_he_saw;
    what_is_promised_does_not_go_by_itself;
    a_proposal_is_revised_and_approved_as_it_was_seen;
    a_bad_proposal_says_every_fault_and_changes_nothing;
    a_hop_goes_through_both_gates_and_back;
    older_words_are_understood_and_land_as_one;
    gates_open_by_policy_where_the_mission_says_so;
    what_has_ended_is_started_over_as_a_new_instance;
    of_two_people_at_once_one_wins_and_the_other_learns_the_revision;
    steps_whose_tool_is_gone_are_neither_approved_nor_executed;
}
