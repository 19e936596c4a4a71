//! The same request twice: one effect, one answer.

use crate::kit::{Backend, House, ask, on_both, text};
use anyhow::Result;
use sea_orm::ConnectionTrait;
use serde_json::json;

async fn a_repeat_gets_the_first_answer_and_has_no_effect(house: House) -> Result<()> {
    let (session, agent) = house.fleet().await?;
    let cases = [
        ("/v1/sessions".to_owned(), json!({"name": "once"})),
        (format!("/v1/sessions/{session}/agents"), json!({"name": "b", "model": "default"})),
        (format!("/v1/agents/{agent}/messages"), json!({"content": "hi", "mode": "queue"})),
        (format!("/v1/sessions/{session}/pause"), json!({})),
        (format!("/v1/sessions/{session}/resume"), json!({})),
        (format!("/v1/agents/{agent}/stop"), json!({})),
        (format!("/v1/agents/{agent}/start"), json!({})),
    ];
    for (n, (path, body)) in cases.iter().enumerate() {
        let key = format!("key {n}");
        let first = house.keyed(path, &key, body).await?;
        assert!(first.status < 300 && !first.headers.contains_key("idempotent-replayed"), "{path}: {}", first.text);
        // Quoted, and spelled differently, it is the same request.
        let again = house.keyed(path, &format!("\"{key}\""), body).await?;
        assert_eq!((again.status, &again.body), (first.status, &first.body), "{path}");
        assert_eq!(again.headers["idempotent-replayed"], "true");
        house.keyed(path, &key, &json!({"name": "other"})).await?.refuses(422, "");
    }
    // Another path with the same body is another request.
    house.keyed(&format!("/v1/sessions/{session}/resume"), "key 3", &json!({})).await?.refuses(422, "another request");
    let said = house.get(&format!("/v1/agents/{agent}/messages")).await?.is(200);
    assert_eq!(said["data"].as_array().unwrap().len(), 1);
    assert_eq!(house.get("/v1/sessions").await?.is(200)["data"].as_array().unwrap().len(), 2);
    // What failed had no effect and is not kept: it may succeed later.
    let late = format!("/v1/sessions/{session}/resume");
    house.keyed(&late, "late", &json!({})).await?.refuses(409, "resume");
    house.post(&format!("/v1/sessions/{session}/pause"), json!({})).await?.is(200);
    house.keyed(&late, "late", &json!({})).await?.is(200);
    // The key belongs to its namespace.
    let request = house.request("POST", "/v1/sessions", "other-admin").header("Idempotency-Key", "key 0");
    house.send(request.json(&json!({"name": "theirs"}))).await?.is(201);
    let request = house.request("POST", "/v1/sessions", "other-admin").header("Idempotency-Key", "");
    house.send(request.json(&json!({}))).await?.refuses(422, "Idempotency-Key");
    Ok(())
}

async fn sixteen_at_once_say_it_once(house: House) -> Result<()> {
    let (session, agent) = house.fleet().await?;
    let (path, body) = (format!("/v1/agents/{agent}/messages"), json!({"content": "only once"}));
    let pause = format!("/v1/sessions/{session}/pause");
    for (path, key, body) in [(&path, "m", &body), (&pause, "p", &json!({}))] {
        let sent = futures::future::join_all((0..16).map(|_| house.keyed(path, key, body))).await;
        let sent = sent.into_iter().collect::<Result<Vec<_>>>()?;
        assert!(sent.iter().all(|got| got.status < 300 && got.body == sent[0].body), "{sent:?}");
        let replayed = sent.iter().filter(|got| got.headers.contains_key("idempotent-replayed")).count();
        assert_eq!(replayed, 15);
    }
    assert_eq!(house.get(&path).await?.is(200)["data"].as_array().unwrap().len(), 1);
    Ok(())
}

/// Its answer cannot be stored any more once its effect has landed, as when the process dies in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_carried_out_and_never_answered_is_not_carried_out_again() -> Result<()> {
    let house = House::on(Backend::Sqlite).await?;
    let (session, agent) = house.fleet().await?;
    let lost = "CREATE TRIGGER lost BEFORE INSERT ON idempotency_keys WHEN NEW.status > 0 \
                BEGIN SELECT RAISE(FAIL, 'the process is gone'); END";
    let found = "DROP TRIGGER lost";
    let mission = json!({"name": "map", "goal": "a map", "outputs": [{"name": "map", "type": "markdown"}]});
    let cases = [
        (format!("/v1/sessions/{session}/pause"), format!("/v1/sessions/{session}/resume"), json!({})),
        (format!("/v1/agents/{agent}/hold"), format!("/v1/agents/{agent}/start"), json!({})),
        (format!("/v1/sessions/{session}/missions"), String::new(), mission),
    ];
    for (path, back, body) in cases {
        house.store().db().execute_unprepared(lost).await?;
        let first = house.keyed(&path, &path, &body).await?;
        assert!(first.status < 300, "{path}: {}", first.text);
        house.store().db().execute_unprepared(found).await?;
        if !back.is_empty() {
            // Somebody takes it back before it is repeated.
            house.post(&back, json!({})).await?.is(200);
        }
        let head =
            || async { house.get(&format!("/v1/sessions/{session}")).await.map(|got| got.is(200)["head_seq"].clone()) };
        let before = head().await?;
        let again = house.keyed(&path, &path, &body).await?;
        assert_eq!((again.status, &again.body["id"]), (first.status, &first.body["id"]), "{path}: {}", again.text);
        assert_eq!(head().await?, before, "{path} was carried out twice");
        let kept = house.keyed(&path, &path, &body).await?;
        assert_eq!((kept.status, &kept.body), (again.status, &again.body), "{path}");
        assert_eq!(kept.headers["idempotent-replayed"], "true");
    }
    Ok(())
}

/// Each word on a call, as if the process died after it: its decision is no reason to refuse it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_word_on_a_call_is_heard_once_and_answered_all_the_same() -> Result<()> {
    let house = House::on(Backend::Sqlite).await?;
    let (session, agent) = house.fleet().await?;
    let (_, calls) = house.calls(&agent, &[ask(), ask(), ask()]).await?;
    let lost = "CREATE TRIGGER lost BEFORE INSERT ON idempotency_keys WHEN NEW.status > 0 AND NEW.key <> 'whole' \
                BEGIN SELECT RAISE(FAIL, 'the process is gone'); END";
    let cases = [
        (&calls[0], "deny", "denied", json!({"reason": "too dear"})),
        (&calls[1], "cancel", "cancelled_result", json!({})),
        // Its answer is stored by its own commit.
        (&calls[2], "approve", "executing", json!({})),
    ];
    for (call, action, status, body) in cases {
        let path = format!("/v1/tool-calls/{call}/{action}");
        let key = if action == "approve" { "whole" } else { action };
        house.store().db().execute_unprepared(lost).await?;
        let first = house.keyed(&path, key, &body).await?;
        assert_eq!((first.status, &first.body["status"]), (200, &json!(status)), "{path}: {}", first.text);
        house.store().db().execute_unprepared("DROP TRIGGER lost").await?;
        let head =
            || async { house.get(&format!("/v1/sessions/{session}")).await.map(|got| got.is(200)["head_seq"].clone()) };
        let before = head().await?;
        let again = house.keyed(&path, key, &body).await?;
        assert_eq!((again.status, &again.body), (200, &first.body), "{path}");
        assert_eq!(head().await?, before, "{path} was carried out twice");
        if action != "cancel" {
            house.keyed(&path, "another", &body).await?.refuses(409, "already_decided");
        }
    }
    Ok(())
}

on_both! {
    a_repeat_gets_the_first_answer_and_has_no_effect;
    sixteen_at_once_say_it_once;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_that_get_the_same_request_carry_it_out_once() -> Result<()> {
    let house = House::on(Backend::Postgres).await?;
    let twin = house.twin().await?;
    let (_, agent) = house.fleet().await?;
    let (path, body) = (format!("/v1/agents/{agent}/messages"), json!({"content": "only once"}));
    for round in 0..5 {
        let key = format!("round {round}");
        let one = (0..8).map(|_| house.keyed(&path, &key, &body));
        let two = (0..8).map(|_| twin.keyed(&path, &key, &body));
        let (one, two) = tokio::join!(futures::future::join_all(one), futures::future::join_all(two));
        let sent = one.into_iter().chain(two).collect::<Result<Vec<_>>>()?;
        let ids: std::collections::BTreeSet<_> = sent.iter().map(|got| text(&got.body["message_id"])).collect();
        assert!(ids.len() == 1 && sent.iter().all(|got| got.status == 202), "{sent:?}");
    }
    assert_eq!(house.get(&path).await?.is(200)["data"].as_array().unwrap().len(), 5);
    Ok(())
}

/// Each command of a mission's life, as if the process died after it: a repeat finds things moved on, does nothing and
/// is answered all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mission_is_never_led_twice_by_one_request() -> Result<()> {
    let house = House::on(Backend::Sqlite).await?;
    let (session, _) = house.fleet().await?;
    let lost = "CREATE TRIGGER lost BEFORE INSERT ON idempotency_keys WHEN NEW.status > 0 \
                BEGIN SELECT RAISE(FAIL, 'the process is gone'); END";
    let new = json!({"name": "map", "goal": "a map", "outputs": [{"name": "map", "type": "markdown"}]});
    let mission = text(&house.post(&format!("/v1/sessions/{session}/missions"), new).await?.is(201)["id"]);
    let plan =
        text(&house.post(&format!("/v1/sessions/{session}/plans"), json!({"goal": "rest"})).await?.is(201)["id"]);
    let (on_mission, hop) = (|action: &str| format!("/v1/missions/{mission}/{action}"), "{hop}");
    let on_hop = |action: &str| format!("/v1/hops/{hop}/{action}");
    let leg = json!({"name": "leg", "output": {"asset": {"name": "draft"}}});
    let accept = json!({"command": "accept_hop_proposal"});
    let cases = [
        (on_mission("revise"), json!({"revision": 1, "goal": "a better map"}), 200),
        (on_mission("request-changes"), json!({"feedback": "shorter"}), 200),
        (on_mission("approve"), json!({"revision": 2}), 200),
        (on_mission("assets"), json!({"name": "notes", "role": "input", "type": "string", "value": "deep"}), 201),
        (on_mission("hops"), leg, 201),
        (on_hop("edit-plan"), json!({"revision": 1, "name": "short leg"}), 200),
        (on_mission("command"), accept, 200),
        (on_hop("request-changes"), json!({"feedback": "other tools"}), 200),
        (on_hop("cancel"), json!({}), 200),
        (on_hop("reset"), json!({}), 200),
        (on_mission("cancel"), json!({"reason": "enough"}), 200),
        (on_mission("reset"), json!({}), 201),
        (format!("/v1/plans/{plan}/cancel"), json!({}), 200),
    ];
    let mut current = String::new();
    for (path, body, status) in cases {
        let path = path.replace("{hop}", &current);
        house.store().db().execute_unprepared(lost).await?;
        let first = house.keyed(&path, &path, &body).await?;
        assert_eq!(first.status, status, "{path}: {}", first.text);
        house.store().db().execute_unprepared("DROP TRIGGER lost").await?;
        if path.ends_with("/hops") {
            current = text(&first.body["id"]);
        }
        let head =
            || async { house.get(&format!("/v1/sessions/{session}")).await.map(|got| got.is(200)["head_seq"].clone()) };
        let before = head().await?;
        let again = house.keyed(&path, &path, &body).await?;
        assert_eq!((again.status, &again.body["id"]), (status, &first.body["id"]), "{path}: {}", again.text);
        assert_eq!(again.body["status"], first.body["status"], "{path}");
        assert_eq!(head().await?, before, "{path} was carried out twice");
        let kept = house.keyed(&path, &path, &body).await?;
        assert_eq!((kept.status, &kept.body), (again.status, &again.body), "{path}");
        assert_eq!(kept.headers["idempotent-replayed"], "true", "{path}");
    }
    Ok(())
}
