//! Broadcasts: one record, one message per agent that takes it, never two.

use crate::kit::{House, on_both, text};
use anyhow::{Result, ensure};
use chrono::{Duration, Utc};
use instar_core::id::SessionId;
use instar_store::entity::{message, timer};
use sea_orm::{ColumnTrait, EntityTrait, PaginatorTrait, QueryFilter};
use serde_json::{Value, json};
use std::collections::HashSet;

async fn agents(house: &House, session: &str, count: usize) -> Result<Vec<String>> {
    let mut ids = Vec::new();
    for n in 0..count {
        let body = json!({"name": format!("a{n}"), "model": "default"});
        ids.push(text(&house.post(&format!("/v1/sessions/{session}/agents"), body).await?.is(201)["id"]));
    }
    Ok(ids)
}

fn listed(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(text).collect()
}

async fn heard(house: &House, session: &str) -> Result<u64> {
    let id: SessionId = session.parse()?;
    let heard = message::Entity::find().filter(message::Column::SessionId.eq(id.uuid()));
    Ok(heard.filter(message::Column::Source.eq("broadcast")).count(house.store().db()).await?)
}

async fn it_wakes_the_idle_waits_for_the_busy_and_skips_who_cannot_take_it(house: House) -> Result<()> {
    let (session, busy) = house.fleet().await?;
    let others = agents(&house, &session, 4).await?;
    let [idle, stopped, ended, gone] = others.as_slice() else { unreachable!() };
    let turn = text(&house.say(&busy, "work").await?["turn_id"]);
    house.claim(&busy, &turn).await?;
    house.post(&format!("/v1/agents/{stopped}/hold"), json!({})).await?.is(200);
    house.post(&format!("/v1/agents/{ended}/terminate"), json!({})).await?.is(200);
    house.post(&format!("/v1/agents/{gone}/terminate"), json!({"force": true})).await?.is(200);
    let path = format!("/v1/sessions/{session}/broadcasts");
    let sent = house.post(&path, json!({"content": "to the gate"})).await?.is(202);
    assert_eq!(listed(&sent["delivered"]), [busy.clone(), idle.clone()]);
    let skipped = sent["skipped"].as_array().unwrap();
    assert_eq!(
        skipped.iter().map(|s| text(&s["agent"])).collect::<Vec<_>>(),
        [stopped.clone(), ended.clone(), gone.clone()]
    );
    assert!(text(&skipped[0]["reason"]).contains("relaunch") && text(&skipped[1]["reason"]).contains("terminated"));

    let woken = house.get(&format!("/v1/agents/{idle}")).await?.is(200);
    assert_eq!(woken["drive"], "running");
    let turns = house.get(&format!("/v1/turns?agent={idle}")).await?.is(200);
    assert_eq!(turns["data"][0]["input"][0]["content"], "to the gate");
    let said = house.get(&format!("/v1/agents/{busy}/messages?query=gate")).await?.is(200);
    assert_eq!((&said["data"][0]["source"], &said["data"][0]["turn_id"]), (&json!("broadcast"), &Value::Null));
    let runes = house.get(&format!("/v1/sessions/{session}/runes?limit=200")).await?.is(200);
    let told = |rune: &&Value| rune["payload"]["broadcast_id"] == sent["broadcast_id"];
    let told: Vec<_> = runes["data"].as_array().unwrap().iter().filter(told).collect();
    assert_eq!(told.len(), 2, "one per recipient");
    let page = house.get(&path).await?.is(200);
    assert_eq!((&page["data"][0]["id"], &page["data"][0]["standing"]), (&sent["broadcast_id"], &json!(true)));
    house.sound(&session).await
}

async fn one_that_nobody_can_take_is_refused_and_leaves_nothing(house: House) -> Result<()> {
    let (session, agent) = house.fleet().await?;
    house.post(&format!("/v1/agents/{agent}/hold"), json!({})).await?.is(200);
    let path = format!("/v1/sessions/{session}/broadcasts");
    house.post(&path, json!({"content": "hello?"})).await?.refuses(409, "relaunch");
    assert_eq!(house.get(&path).await?.is(200)["data"], json!([]));
    assert_eq!(heard(&house, &session).await?, 0);
    for (body, words) in [
        (json!({}), "content"),
        (json!({"content": " "}), "content"),
        (json!({"content": "x", "standing": "yes"}), "standing"),
        (json!({"content": "x", "expires_at": "soon"}), "RFC 3339"),
        (json!({"content": "x", "expires_at": "2001-01-01T00:00:00Z"}), "past"),
        (json!({"content": "x", "to": "all"}), "no such field"),
    ] {
        house.post(&path, body).await?.refuses(422, words);
    }
    house
        .post("/v1/sessions/ses_00000000000000000000000000000000/broadcasts", json!({"content": "x"}))
        .await?
        .refuses(404, "session");
    house.sound(&session).await
}

async fn the_newest_that_stands_and_has_not_expired_is_everybodys_task(house: House) -> Result<()> {
    let (session, _) = house.fleet().await?;
    let (id, path): (SessionId, _) = (session.parse()?, format!("/v1/sessions/{session}/broadcasts"));
    let standing = async |at| -> Result<Option<String>> {
        Ok(house.store().standing_broadcast(id, at).await?.map(|row| row.content))
    };
    assert_eq!(standing(Utc::now()).await?, None);
    house.post(&path, json!({"content": "first"})).await?.is(202);
    let soon = Utc::now() + Duration::minutes(5);
    house.post(&path, json!({"content": "for a while", "expires_at": soon})).await?.is(202);
    house.post(&path, json!({"content": "in passing", "standing": false})).await?.is(202);
    assert_eq!(standing(Utc::now()).await?.as_deref(), Some("for a while"));
    assert_eq!(standing(soon + Duration::seconds(1)).await?.as_deref(), Some("first"));
    Ok(())
}

async fn a_thousand_agents_hear_it_once_though_it_is_sent_again(house: House) -> Result<()> {
    let (session, root) = house.fleet().await?;
    let (id, made) = (session.parse::<SessionId>()?, 999);
    // By hand, since making them is not what is looked at.
    let row = house.store().session(id).await?.expect("a session");
    let births = (0..made).map(|n| {
        let new =
            instar_runtime::flow::NewAgent { name: format!("a{n}"), model: "default".into(), ..Default::default() };
        instar_runtime::flow::join(
            &row,
            vec![new],
            instar_core::rune::Actor::new(instar_core::machine::By::User, "key_test"),
            None,
        )
    });
    let births = births.map(|born| async { house.land(born?.commit).await });
    futures::future::try_join_all(births).await?;
    let (path, body) = (format!("/v1/sessions/{session}/broadcasts"), json!({"content": "to the gate"}));
    let sent = house.keyed(&path, "once", &body).await?.is(202);
    // As many as one commit holds have it when that is said; the others are on their way.
    let (delivered, pending) = (listed(&sent["delivered"]), listed(&sent["pending"]));
    ensure!(delivered.contains(&root) && !pending.is_empty(), "{sent}");
    assert_eq!(delivered.iter().chain(&pending).collect::<HashSet<_>>().len(), made + 1);
    ensure!(delivered.len() <= instar_runtime::flow::recipients_max("to the gate"), "{} delivered", delivered.len());
    assert_eq!(heard(&house, &session).await?, made as u64 + 1);
    let again = house.keyed(&path, "once", &body).await?;
    assert_eq!(again.headers["idempotent-replayed"], "true");
    assert_eq!(again.is(202), sent);
    // Whoever finishes it finds nothing to do; nor does a look that is repeated.
    let broadcast = sent["broadcast_id"].as_str().unwrap_or_default().parse()?;
    let row = house.store().broadcast(broadcast).await?.expect("a broadcast");
    house.context.hub.finish_broadcast(&row).await?;
    assert_eq!(heard(&house, &session).await?, made as u64 + 1);
    Ok(())
}

async fn what_was_left_half_done_is_finished_for_those_it_was_for(house: House) -> Result<()> {
    let (session, first) = house.fleet().await?;
    let others = agents(&house, &session, 5).await?;
    let id: SessionId = session.parse()?;
    // The API dies after the first of several commits.
    let audience = house.store().audience(id).await?;
    let row = instar_store::entity::broadcast::Model {
        id: uuid::Uuid::now_v7(),
        session_id: id.uuid(),
        content: "to the gate".into(),
        standing: true,
        expires_at: None,
        sender: "key_test".into(),
        created_at: Utc::now(),
        version: 0,
    };
    let actor = instar_core::rune::Actor::new(instar_core::machine::By::User, "key_test");
    let commit = instar_runtime::flow::broadcast(&row, &[&audience[0]], true, actor, None)?;
    house.land(commit).await?;
    assert_eq!(
        timer::Entity::find().filter(timer::Column::SessionId.eq(id.uuid())).count(house.store().db()).await?,
        1
    );
    house.post(&format!("/v1/agents/{}/hold", others[4]), json!({})).await?.is(200);
    let later = agents(&house, &session, 1).await?;
    house.context.hub.finish_broadcast(&row).await?;
    for agent in [&first, &others[0], &others[3]] {
        let said = house.get(&format!("/v1/agents/{agent}/messages")).await?.is(200);
        assert_eq!(said["data"].as_array().unwrap().len(), 1, "{agent}");
    }
    for agent in [&others[4], &later[0]] {
        let said = house.get(&format!("/v1/agents/{agent}/messages")).await?.is(200);
        assert_eq!(said["data"].as_array().unwrap().len(), 0, "{agent}");
    }
    house.sound(&session).await
}

on_both! {
    it_wakes_the_idle_waits_for_the_busy_and_skips_who_cannot_take_it;
    one_that_nobody_can_take_is_refused_and_leaves_nothing;
    the_newest_that_stands_and_has_not_expired_is_everybodys_task;
    a_thousand_agents_hear_it_once_though_it_is_sent_again;
    what_was_left_half_done_is_finished_for_those_it_was_for;
}
