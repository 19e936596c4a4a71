//! Sessions from their making to their close.

use crate::kit::{House, on_both, shows, text};
use anyhow::Result;
use serde_json::json;

async fn a_session_is_made_with_its_root_agent_and_found_again(house: House) -> Result<()> {
    let body = json!({
        "name": "night shift", "config": {"missions": {"hop_attempts_max": 2}}, "budget": {"max_tokens": 1000},
        "root_agent": {"name": "ada", "model": "default", "system_prompt": "Be brief.", "tools": ["echo"], "approval_mode": "auto"},
    });
    let made = house.post("/v1/sessions", body).await?.is(201);
    assert_eq!(made["status"], "active");
    assert_eq!((&made["name"], &made["head_seq"]), (&json!("night shift"), &json!(4)));
    let found = house.get(&format!("/v1/sessions/{}", text(&made["id"]))).await?.is(200);
    for field in ["id", "name", "status", "config", "root_agent_id", "head_seq", "created_at"] {
        assert_eq!(found[field], made[field], "{field}");
    }
    assert_eq!(made["budget"], json!({"max_tokens": 1000}));
    assert_eq!(
        (&found["budget"]["max_tokens"], &found["budget"]["remaining"]),
        (&json!(1000), &json!({"tokens": 1000}))
    );
    let agent = house.get(&format!("/v1/agents/{}", text(&made["root_agent_id"]))).await?.is(200);
    shows(&agent, &made["root_agent"]);
    assert_eq!(
        (&agent["lifecycle"], &agent["drive"], &agent["badge"]),
        (&json!("idle"), &json!("idle"), &json!("idle"))
    );
    assert_eq!((&agent["system_prompt"], &agent["tools"]), (&json!("Be brief."), &json!(["echo"])));
    assert_eq!((&agent["approval_mode"], &agent["loop"]), (&json!("auto"), &json!("reactive")));
    let kinds = house.get(&format!("/v1/sessions/{}/runes", text(&made["id"]))).await?.is(200);
    let kinds: Vec<_> = kinds["data"].as_array().unwrap().iter().map(|rune| text(&rune["kind"])).collect();
    assert_eq!(kinds, ["session.created", "agent.spawning", "agent.ready", "session.activated"]);
    Ok(())
}

async fn terms_that_nobody_could_follow_are_refused_when_the_session_is_made(house: House) -> Result<()> {
    for (config, said) in [
        (json!({"missions": {"gates": {"plan": "automatic"}}}), "config.missions.gates.plan"),
        (json!({"missions": {"gates": {"plans": "auto"}}}), "config.missions.gates.plans"),
        (json!({"missions": {"gate": {}}}), "config.missions.gate"),
        (json!({"missions": {"hop_attempts_max": 0}}), "config.missions.hop_attempts_max"),
        (json!({"missions": []}), "config.missions"),
        (json!({"missions": {"agent_id": "agt_x"}}), "config.missions.agent_id"),
        (json!({"plans": {"max_iterations": 1000}}), "config.plans.max_iterations"),
        (json!({"plans": {"rubrik": "x"}}), "config.plans.rubrik"),
        (json!({"plans": {"model": "nobody"}}), "config.plans.model"),
        (json!({"plans": {"budget": {"max_tokens": -1}}}), "config.plans.budget.max_tokens"),
        (json!({"plans": {"instructions": {"worker": 1}}}), "config.plans.instructions.worker"),
    ] {
        house.post("/v1/sessions", json!({"config": config})).await?.refuses(422, said);
    }
    let good = json!({"missions": {"gates": {"plan": "auto"}, "hop_attempts_max": 2, "detached": null},
        "plans": {"model": "default", "tools": ["echo"], "budget": {"max_tokens": 9}}});
    house.post("/v1/sessions", json!({"config": good})).await?.is(201);
    Ok(())
}

async fn a_session_without_agents_is_made_active_by_its_first(house: House) -> Result<()> {
    let made = house.post("/v1/sessions", json!({})).await?.is(201);
    assert_eq!(
        (&made["status"], &made["root_agent_id"], &made["head_seq"]),
        (&json!("created"), &json!(null), &json!(1))
    );
    let path = format!("/v1/sessions/{}", text(&made["id"]));
    let first = house.post(&format!("{path}/agents"), json!({"name": "a", "model": "default"})).await?.is(201);
    let second = house.post(&format!("{path}/agents"), json!({"name": "b", "model": "fast"})).await?.is(201);
    let found = house.get(&path).await?.is(200);
    assert_eq!((&found["status"], &found["root_agent_id"]), (&json!("active"), &first["id"]));
    assert_ne!(first["id"], second["id"]);
    house.sound(&text(&made["id"])).await
}

async fn a_session_is_paused_resumed_and_closed_and_refuses_what_its_machine_refuses(house: House) -> Result<()> {
    let (session, agent) = house.fleet().await?;
    let path = format!("/v1/sessions/{session}");
    assert_eq!(
        house.post(&format!("{path}/pause"), json!({"in_flight": "interrupt"})).await?.is(200)["status"],
        "paused"
    );
    let refused = house.post(&format!("{path}/pause"), json!({})).await?.refuses(409, "pause_requested");
    assert_eq!((&refused["machine"], &refused["from"]), (&json!("session"), &json!("paused")));
    assert_eq!(refused["allowed"], json!(["resume_requested", "close_requested"]));
    // Input queues up meanwhile.
    let sent = house.say(&agent, "later").await?;
    let turn = house.get(&format!("/v1/turns/{}", text(&sent["turn_id"]))).await?.is(200);
    assert_eq!(turn["waiting_for"], json!({"kind": "session", "status": "paused", "act": "resume"}));
    // An empty body, and none at all, are the same.
    assert_eq!(
        house.as_role(instar_api::Role::Operator, "POST", &format!("{path}/resume"), None).await?.is(200)["status"],
        "active"
    );
    house.post(&format!("{path}/reset"), json!({})).await?.refuses(409, "reset");
    house
        .post(&format!("{path}/replenish"), json!({"budget": {"max_tokens": 5}}))
        .await?
        .refuses(409, "budget_replenished");
    house.post(&format!("{path}/archive"), json!({})).await?.refuses(409, "archive_requested");
    assert_eq!(house.post(&format!("{path}/close"), json!({})).await?.is(200)["status"], "closing");
    house.post(&format!("/v1/agents/{agent}/messages"), json!({"content": "hi"})).await?.refuses(409, "no more input");
    house
        .post(&format!("{path}/agents"), json!({"name": "late", "model": "default"}))
        .await?
        .refuses(409, "no more agents");
    house.sound(&session).await
}

async fn a_session_that_goes_on_gets_another_name_and_other_limits(house: House) -> Result<()> {
    let (session, _) = house.fleet().await?;
    let path = format!("/v1/sessions/{session}");
    let patch = async |body| house.as_role(instar_api::Role::Operator, "PATCH", &path, Some(body)).await;
    let after = patch(json!({"name": "day shift", "budget": {"max_tokens": 7, "max_tool_calls": 3}})).await?.is(200);
    assert_eq!((&after["name"], &after["status"]), (&json!("day shift"), &json!("active")));
    let after = patch(json!({"budget": {"max_tokens": 9, "max_tool_calls": null}})).await?.is(200);
    assert_eq!(after["budget"], json!({"max_tokens": 9}));
    let found = house.get(&path).await?.is(200);
    assert_eq!((&found["budget"]["remaining"], &found["name"]), (&json!({"tokens": 9}), &json!("day shift")));
    assert_eq!(found["head_seq"], after["head_seq"]);
    patch(json!({})).await?.refuses(422, "nothing to change");
    patch(json!({"budget": {"max_tokens": -1}})).await?.refuses(422, "above zero");
    patch(json!({"config": {}})).await?.refuses(422, "no such field");
    house.post(&format!("{path}/close"), json!({})).await?.is(200);
    patch(json!({"name": "late"})).await?.refuses(409, "no more changes");
    house.sound(&session).await
}

async fn a_configuration_that_nobody_reads_is_refused(house: House) -> Result<()> {
    for (config, words) in [
        (json!({"color": "blue"}), "known are: missions, plans"),
        (json!({"missions": {"gate": {}}}), "/config/missions/gate"),
        (json!({"plans": {"workers": 3}}), "/config/plans/workers"),
        (json!({"missions": {"hop_attempts_max": "many"}}), "whole number"),
        (json!([]), "must be an object"),
    ] {
        house.post("/v1/sessions", json!({"config": config})).await?.refuses(422, words);
    }
    assert_eq!(house.get("/v1/sessions").await?.is(200)["data"], json!([]), "nothing was made");
    Ok(())
}

async fn sessions_are_listed_newest_first_page_by_page(house: House) -> Result<()> {
    let mut made = Vec::new();
    for n in 0..5 {
        made.push(text(&house.post("/v1/sessions", json!({"name": format!("s{n}")})).await?.is(201)["id"]));
    }
    made.reverse();
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = house.get(&format!("/v1/sessions?limit=2&status=created{cursor}")).await?.is(200);
        seen.extend(page["data"].as_array().unwrap().iter().map(|row| text(&row["id"])));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, made);
    assert_eq!(house.get("/v1/sessions?status=active").await?.is(200)["data"], json!([]));
    Ok(())
}

async fn a_suspended_session_is_replenished_with_new_limits(house: House) -> Result<()> {
    use instar_core::cascade::Fact;
    use instar_core::machine::session::TABLE;
    use instar_core::rune::Actor;
    let body =
        json!({"budget": {"max_tokens": 10, "max_tool_calls": 1}, "root_agent": {"name": "ada", "model": "default"}});
    let session = text(&house.post("/v1/sessions", body).await?.is(201)["id"]);
    let id: instar_core::id::SessionId = session.parse()?;
    let act = instar_runtime::Act::new(id, id, &TABLE, "budget_exhausted", Actor::system("test"));
    act.given(Fact::SessionBudget).carry_out(&house.context.hub).await?;
    let agent = text(&house.get("/v1/agents").await?.is(200)["data"][0]["id"]);
    house.post(&format!("/v1/agents/{agent}/messages"), json!({"content": "hi"})).await?.refuses(409, "replenish");
    let path = format!("/v1/sessions/{session}/replenish");
    let after = house.keyed(&path, "r1", &json!({"budget": {"max_tokens": 20}})).await?.is(200);
    assert_eq!(
        (&after["status"], &after["budget"]),
        (&json!("active"), &json!({"max_tokens": 20, "max_tool_calls": 1}))
    );
    let again = house.keyed(&path, "r1", &json!({"budget": {"max_tokens": 20}})).await?;
    assert_eq!(again.headers["idempotent-replayed"], "true");
    assert_eq!(again.is(200), after);
    Ok(())
}

on_both! {
    terms_that_nobody_could_follow_are_refused_when_the_session_is_made;
    a_session_that_goes_on_gets_another_name_and_other_limits;
    a_configuration_that_nobody_reads_is_refused;
    a_session_is_made_with_its_root_agent_and_found_again;
    a_session_without_agents_is_made_active_by_its_first;
    a_session_is_paused_resumed_and_closed_and_refuses_what_its_machine_refuses;
    sessions_are_listed_newest_first_page_by_page;
    a_suspended_session_is_replenished_with_new_limits;
}
