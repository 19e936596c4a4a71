//! Agents: made, configured, started, stopped, ended.

use crate::kit::{Backend, House, on_both, shows, text};
use anyhow::Result;
use instar_api::Role;
use instar_store::entity::timer;
use sea_orm::{ColumnTrait, EntityTrait, PaginatorTrait, QueryFilter};
use serde_json::{Value, json};

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
        (json!({"loop": "endless"}), "autonomous"),
        (json!({"provider_calls_max": 0}), "1 to 1000"),
        (json!({"provider_calls_max": 1001}), "1 to 1000"),
        (json!({"auto_start": "yes"}), "true or false"),
    ] {
        house.as_role(Role::Operator, "PATCH", &path, Some(bad)).await?.refuses(422, words);
    }
    Ok(())
}

async fn what_an_agent_is_made_of_is_changed_and_taken_away(house: House) -> Result<()> {
    let (session, agent) = house.fleet().await?;
    let path = format!("/v1/agents/{agent}");
    let patch = async |body: Value| house.as_role(Role::Operator, "PATCH", &path, Some(body)).await;
    let given = json!({"role": "scout", "loop": "autonomous", "auto_start": true, "provider_calls_max": 20,
        "budget": {"max_tokens": 500, "max_tool_calls": 5}});
    let after = patch(given).await?.is(200);
    assert_eq!((&after["role"], &after["loop"]), (&json!("scout"), &json!("autonomous")));
    assert_eq!(after["provider_calls_max"], 20);
    let defined = house.get(&format!("{path}/definition")).await?.is(200);
    assert_eq!((&defined["auto_start"], &defined["provider_calls_max"]), (&json!(true), &json!(20)));
    // It does not run: nothing goes on by itself yet. One that does gets its first nudge.
    assert_eq!(nudges(&house, &session).await?, 0);
    patch(json!({"loop": "reactive"})).await?.is(200);
    house.post(&format!("{path}/start"), json!({})).await?.is(200);
    patch(json!({"loop": "autonomous"})).await?.is(200);
    assert_eq!(nudges(&house, &session).await?, 1);
    let nothing = json!({"provider_calls_max": null, "system_prompt": null, "account": null,
        "budget": {"max_tool_calls": null}});
    let after = patch(nothing).await?.is(200);
    for field in ["provider_calls_max", "system_prompt", "account"] {
        assert_eq!(after[field], Value::Null, "{field}");
    }
    assert_eq!(after["budget"], json!({"max_tokens": 500}));
    let shown = house.get(&path).await?.is(200);
    assert_eq!(shown["budget"]["remaining"], json!({"tokens": 500}));
    // What null cannot take away it does not touch.
    patch(json!({"name": null, "tools": null})).await?.refuses(422, "nothing to change");
    house.sound(&session).await
}

async fn nudges(house: &House, session: &str) -> Result<u64> {
    let id: instar_core::id::SessionId = session.parse()?;
    let timers = timer::Entity::find().filter(timer::Column::SessionId.eq(id.uuid()));
    Ok(timers.filter(timer::Column::Kind.eq("nudge")).count(house.store().db()).await?)
}

#[tokio::test]
async fn a_session_has_as_many_agents_as_it_may() -> Result<()> {
    let house = House::with(Backend::Sqlite, |config| config.agents.session_max = 2).await?;
    let (session, first) = house.fleet().await?;
    let (path, new) = (format!("/v1/sessions/{session}/agents"), json!({"name": "x", "model": "default"}));
    house.post(&path, new.clone()).await?.is(201);
    let refused = house.post(&path, new.clone()).await?.refuses(409, "agents.session_max");
    assert_eq!(refused["code"], "too_many_agents");
    house.post(&format!("{path}/import"), json!({"agents": [new.clone()]})).await?.refuses(409, "terminate some");
    house.post(&format!("/v1/agents/{first}/terminate"), json!({})).await?.is(200);
    house.post(&path, new).await?.is(201);
    Ok(())
}

/// Two processes, each asked for many at the same moment, some of them two at once.
async fn however_many_ask_at_once_a_session_has_no_more_agents_than_it_may(backend: Backend) -> Result<()> {
    let house = House::with(backend, |config| config.agents.session_max = 8).await?;
    let twin = house.twin().await?;
    let (session, _) = house.fleet().await?;
    let path = format!("/v1/sessions/{session}/agents");
    let agent = |n: usize| json!({"name": format!("agent-{n}"), "model": "default"});
    let asked = (0..24).map(|n| {
        let (house, path) = (if n % 2 == 0 { &house } else { &twin }, &path);
        async move {
            match n % 3 {
                0 => house.post(&format!("{path}/import"), json!({"agents": [agent(n), agent(n + 100)]})).await,
                _ => house.post(path, agent(n)).await,
            }
        }
    });
    let mut made = 1;
    for (n, got) in futures::future::try_join_all(asked).await?.into_iter().enumerate() {
        match got.status {
            201 => made += if n % 3 == 0 { 2 } else { 1 },
            _ => assert_eq!(got.refuses(409, "agents.session_max")["code"], "too_many_agents"),
        }
    }
    let there = house.get(&format!("/v1/agents?session={session}&limit=200")).await?.is(200);
    assert_eq!(there["data"].as_array().map(Vec::len), Some(made));
    // Whoever wanted two may have been turned away from the last place.
    assert!(made == 8 || made == 7, "{made}");
    house.sound(&session).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn however_many_ask_at_once_on_sqlite() -> Result<()> {
    however_many_ask_at_once_a_session_has_no_more_agents_than_it_may(Backend::Sqlite).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn however_many_ask_at_once_on_postgres() -> Result<()> {
    however_many_ask_at_once_a_session_has_no_more_agents_than_it_may(Backend::Postgres).await
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
    what_an_agent_is_made_of_is_changed_and_taken_away;
    an_agent_with_unknown_names_is_refused_with_all_of_them;
}
