//! Agents: made, configured, started, stopped, ended.

use crate::kit::{House, on_both, shows, text};
use anyhow::Result;
use instar_api::Role;
use serde_json::json;

async fn an_agent_is_started_stopped_held_and_ended(house: House) -> Result<()> {
    let (session, root) = house.fleet().await?;
    let made =
        json!({"name": "bob", "role": "critic", "model": "fast", "loop": "autonomous", "budget": {"max_tokens": 5}});
    let bob = text(&house.post(&format!("/v1/sessions/{session}/agents"), made).await?.is(201)["id"]);
    let path = format!("/v1/agents/{bob}");
    let started = house.post(&format!("{path}/start"), json!({})).await?.is(200);
    assert_eq!((&started["drive"], &started["badge"]), (&json!("running"), &json!("running")));
    let refused = house.post(&format!("{path}/start"), json!({})).await?.refuses(409, "already running");
    assert!(refused["allowed"].as_array().unwrap().contains(&json!("stop")), "{refused}");
    assert_eq!(house.post(&format!("{path}/stop"), json!({})).await?.is(200)["drive"], "stopped");
    assert_eq!(house.post(&format!("{path}/stop"), json!({})).await?.is(200)["drive"], "stopped", "already so");
    house.post(&format!("{path}/messages"), json!({"content": "hi"})).await?.refuses(409, "relaunch");
    assert_eq!(house.post(&format!("/v1/agents/{root}/hold"), json!({})).await?.is(200)["badge"], "stopped");

    let listed = house.get(&format!("/v1/agents?session={session}&drive=stopped")).await?.is(200);
    assert_eq!(listed["data"].as_array().unwrap().len(), 2);
    assert_eq!(
        house.get(&format!("/v1/agents?session={session}&lifecycle=terminated")).await?.is(200)["data"],
        json!([])
    );
    let ended = house.post(&format!("{path}/terminate"), json!({"force": true})).await?.is(200);
    assert_eq!((&ended["lifecycle"], &ended["badge"]), (&json!("terminated"), &json!("terminated")));
    // Its drive is stopped, but it cannot be relaunched.
    house.post(&format!("{path}/start"), json!({})).await?.refuses(409, "has ended");
    house.post(&format!("{path}/terminate"), json!({})).await?.refuses(409, "kill");
    house.sound(&session).await
}

async fn an_agent_is_configured_and_the_log_says_what_changed(house: House) -> Result<()> {
    let (session, agent) = house.fleet().await?;
    let path = format!("/v1/agents/{agent}");
    let patch =
        json!({"name": "eva", "model": "fast", "system_prompt": "Be kind.", "tools": [], "approval_mode": "read_only"});
    let after = house.as_role(Role::Operator, "PATCH", &path, Some(patch.clone())).await?.is(200);
    for field in ["name", "model", "system_prompt", "tools", "approval_mode"] {
        assert_eq!(after[field], patch[field], "{field}");
    }
    shows(&house.get(&path).await?.is(200), &after);
    let runes = house.get(&format!("/v1/sessions/{session}/runes?after=4")).await?.is(200);
    assert_eq!(
        (&runes["data"][0]["kind"], &runes["data"][0]["payload"]["changes"]),
        (&json!("config.updated"), &patch)
    );
    for (bad, words) in [
        (json!({}), "nothing to change"),
        (json!({"model": "gpt-99"}), "gpt-99"),
        (json!({"tools": ["echo", "nope"]}), "nope"),
        (json!({"loop": "autonomous"}), "no such field"),
    ] {
        house.as_role(Role::Operator, "PATCH", &path, Some(bad)).await?.refuses(422, words);
    }
    Ok(())
}

async fn an_agent_with_unknown_names_is_refused_with_all_of_them(house: House) -> Result<()> {
    let (session, _) = house.fleet().await?;
    let bad = json!({"name": "x", "model": "gpt-99", "tools": ["nope", "echo", "nada"], "budget": {"max_tokens": 0}});
    let path = format!("/v1/sessions/{session}/agents");
    house.post(&path, bad.clone()).await?.refuses(422, "above zero");
    let mut bad = bad;
    bad["budget"] = json!({"max_tokens": 1});
    let refused = house.post(&path, bad.clone()).await?.refuses(422, "gpt-99");
    let said = refused["detail"].as_str().unwrap();
    assert!(said.contains("nope") && said.contains("nada") && said.contains("default, fast"), "{said}");
    let refused = house.post("/v1/sessions", json!({"root_agent": bad})).await?.refuses(422, "nada");
    assert_eq!(refused["errors"][0]["pointer"], "/root_agent/model");
    assert_eq!(house.get("/v1/sessions").await?.is(200)["data"].as_array().unwrap().len(), 1, "nothing was made");
    Ok(())
}

on_both! {
    an_agent_is_started_stopped_held_and_ended;
    an_agent_is_configured_and_the_log_says_what_changed;
    an_agent_with_unknown_names_is_refused_with_all_of_them;
}
