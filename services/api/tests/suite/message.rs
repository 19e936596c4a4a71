//! Messages: one becomes a turn, the next waits behind it.

use crate::kit::{House, on_both, text};
use anyhow::Result;
use serde_json::json;

async fn a_message_becomes_a_turn_and_the_next_one_waits_behind_it(house: House) -> Result<()> {
    let (session, agent) = house.fleet().await?;
    let first = house.say(&agent, "hello").await?;
    let second = house.say(&agent, "and then?").await?;
    assert!(first["turn_id"].is_string() && second["turn_id"].is_null(), "{first} {second}");
    let turn = house.get(&format!("/v1/turns/{}", text(&first["turn_id"]))).await?.is(200);
    assert_eq!((&turn["status"], &turn["waiting_for"]), (&json!("queued"), &json!({"kind": "worker"})));
    assert_eq!(turn["input"], json!([{"id": first["message_id"], "role": "user", "content": "hello"}]));
    assert_eq!(house.get(&format!("/v1/agents/{agent}")).await?.is(200)["drive"], "running");

    let said = house.get(&format!("/v1/agents/{agent}/messages")).await?.is(200);
    let said: Vec<_> = said["data"].as_array().unwrap().iter().map(|m| text(&m["content"])).collect();
    assert_eq!(said, ["and then?", "hello"], "newest first");
    for (query, found) in [("then", 1), ("THEN", 0), ("%25", 0), ("e", 2)] {
        let page = house.get(&format!("/v1/agents/{agent}/messages?query={query}")).await?.is(200);
        assert_eq!(page["data"].as_array().unwrap().len(), found, "{query}");
    }
    let kinds = house.get(&format!("/v1/sessions/{session}/runes?after=4")).await?.is(200);
    let kinds: Vec<_> = kinds["data"].as_array().unwrap().iter().map(|rune| text(&rune["kind"])).collect();
    assert_eq!(kinds, ["agent.message_received", "agent.drive_started", "turn.queued", "agent.message_received"]);
    Ok(())
}

async fn many_messages_at_once_all_arrive_and_make_one_turn(house: House) -> Result<()> {
    let (_, agent) = house.fleet().await?;
    let texts: Vec<String> = (0..24).map(|n| format!("m{n}")).collect();
    let sent = futures::future::join_all(texts.iter().map(|text| house.say(&agent, text))).await;
    let sent = sent.into_iter().collect::<Result<Vec<_>>>()?;
    assert_eq!(sent.iter().filter(|answer| answer["turn_id"].is_string()).count(), 1);
    let page = house.get(&format!("/v1/agents/{agent}/messages?limit=100")).await?.is(200);
    assert_eq!(page["data"].as_array().unwrap().len(), 24);
    assert_eq!(house.get(&format!("/v1/turns?agent={agent}")).await?.is(200)["data"].as_array().unwrap().len(), 1);
    Ok(())
}

async fn a_steer_is_recorded_on_the_turn_that_runs_and_is_a_message_where_none_does(house: House) -> Result<()> {
    let (session, agent) = house.fleet().await?;
    let path = format!("/v1/agents/{agent}/messages");
    // Nothing runs: it simply begins.
    let sent = house.post(&path, json!({"content": "go", "mode": "steer"})).await?.is(202);
    let turn = text(&sent["turn_id"]);
    house.post(&format!("/v1/turns/{turn}/steer"), json!({"content": "left"})).await?.refuses(409, "steer");
    house.claim(&agent, &turn).await?;
    let steered = house.post(&path, json!({"content": "left", "mode": "steer"})).await?.is(202);
    assert!(steered["turn_id"].is_null());
    let control = house.turn_row(&turn).await?.control.unwrap_or_default();
    assert_eq!((&control["action"], &control["message_id"]), (&json!("steer"), &steered["message_id"]));
    house.post(&format!("/v1/turns/{turn}/steer"), json!({"content": "right"})).await?.is(202);
    house.post(&path, json!({"content": "stop", "mode": "interrupt"})).await?.is(202);
    assert_eq!(house.turn_row(&turn).await?.control.unwrap_or_default()["action"], "interrupt");
    house.sound(&session).await
}

async fn a_message_can_wait_for_the_end_of_its_turn(house: House) -> Result<()> {
    let (_, agent) = house.fleet().await?;
    let path = |wait: &str| format!("/v1/agents/{agent}/messages?wait={wait}");
    for wrong in ["soon", "-1", "26"] {
        house.post(&path(wrong), json!({"content": "hello"})).await?.refuses(422, "wait");
    }
    // Nobody takes it up: after a while it is shown as it is.
    let sent = house.post(&path("0.05"), json!({"content": "hello"})).await?.is(202);
    assert_eq!((&sent["turn"]["status"], &sent["turn"]["id"]), (&json!("queued"), &sent["turn_id"]));
    let first = text(&sent["turn_id"]);
    // One that waits behind another has no turn to wait for.
    let sent = house.post(&path("20"), json!({"content": "and then?"})).await?.is(202);
    assert!(sent["turn_id"].is_null() && sent.get("turn").is_none(), "{sent}");
    // The end of the turn ends the wait, however it comes.
    let (_, other) = house.fleet().await?;
    let path = format!("/v1/agents/{other}/messages?wait=20");
    let waits = house.post(&path, json!({"content": "hello"}));
    let ends = async {
        let turn = loop {
            let page = house.get(&format!("/v1/turns?agent={other}")).await?.is(200);
            match page["data"][0]["id"].as_str() {
                Some(turn) => break turn.to_owned(),
                None => tokio::task::yield_now().await,
            }
        };
        anyhow::Ok(house.post(&format!("/v1/turns/{turn}/interrupt"), json!({})).await?.is(200))
    };
    let (sent, ended) = tokio::try_join!(waits, ends)?;
    let sent = sent.is(202);
    assert_eq!((&sent["turn"]["status"], &sent["turn_id"]), (&json!("interrupted"), &ended["id"]));
    assert_eq!(house.get(&format!("/v1/turns/{first}")).await?.is(200)["status"], "queued");
    Ok(())
}

on_both! {
    a_message_can_wait_for_the_end_of_its_turn;
    a_message_becomes_a_turn_and_the_next_one_waits_behind_it;
    many_messages_at_once_all_arrive_and_make_one_turn;
    a_steer_is_recorded_on_the_turn_that_runs_and_is_a_message_where_none_does;
}
