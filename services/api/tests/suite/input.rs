//! Bad input: each gets a problem that names what is wrong, and nothing happens.

use crate::kit::{Backend, House, key};
use anyhow::{Context, Result};
use instar_api::Role;
use serde_json::json;

#[tokio::test]
async fn what_cannot_be_understood_is_named() -> Result<()> {
    let house = House::with(Backend::Sqlite, |config| config.api.body_bytes_max = 400_000).await?;
    let (session, agent) = house.fleet().await?;
    let messages = format!("/v1/agents/{agent}/messages");
    let raw = |path: &str, kind: &'static str, body: String| {
        house.request("POST", path, &key(Role::Admin)).header("content-type", kind).body(body)
    };
    house.send(raw(&messages, "application/json", "{\"content\": ".into())).await?.refuses(422, "not JSON");
    house.send(raw(&messages, "application/json", "[1]".into())).await?.refuses(422, "object");
    house.send(raw(&messages, "application/json", "[".repeat(1000))).await?.refuses(422, "not JSON");
    house.send(raw(&messages, "text/plain", "{\"content\": \"hi\"}".into())).await?.refuses(415, "application/json");
    house.send(raw(&messages, "application/json", "x".repeat(400_001))).await?.refuses(413, "400000");
    for (body, words) in [
        (json!({}), "content: is needed"),
        (json!({"content": ""}), "content: must not be empty"),
        (json!({"content": " \n"}), "content: must not be empty"),
        (json!({"content": 5}), "content: must be a text"),
        (json!({"content": "x".repeat(256 * 1024 + 1)}), "262144"),
        (json!({"content": "hi", "mode": "shout"}), "mode: must be one of: queue, steer, interrupt"),
        (json!({"content": "hi", "urgent": true}), "urgent: there is no such field; known are: content, mode"),
    ] {
        house.post(&messages, body).await?.refuses(422, words);
    }
    assert_eq!(house.get(&messages).await?.is(200)["data"], json!([]), "nothing was said");

    let refused = house.post("/v1/sessions", json!({"name": 1, "budget": {"max_tokens": -1}, "x": 0})).await?;
    assert_eq!(refused.refuses(422, "budget.max_tokens")["errors"].as_array().unwrap().len(), 3, "all at once");
    house.post(&format!("/v1/sessions/{session}/pause"), json!({"in_flight": "drop"})).await?.refuses(422, "in_flight");
    house.post(&format!("/v1/sessions/{session}/resume"), json!({"now": true})).await?.refuses(422, "now");
    Ok(())
}

#[tokio::test]
async fn what_is_not_there_is_not_found() -> Result<()> {
    let house = House::on(Backend::Sqlite).await?;
    let (session, _) = house.fleet().await?;
    house.get("/nope").await?.refuses(404, "openapi.json");
    house.get("/v1/nope").await?.refuses(404, "openapi.json");
    house.send(house.request("GET", "/v1/nope", "")).await?.refuses(404, "openapi.json");
    let got = house.send(house.request("DELETE", "/v1/sessions", &key(Role::Admin))).await?;
    assert_eq!(got.headers["allow"], "POST, GET");
    got.refuses(405, "POST, GET");
    house.send(house.request("POST", "/openapi.json", "")).await?.refuses(405, "GET");
    house.send(house.request("POST", "/livez", "")).await?.refuses(405, "GET");
    let unknown = "ses_0123456789abcdef0123456789abcdef";
    for id in [unknown, "ses_", "ses_*", "agt_0123456789abcdef0123456789abcdef", "%00", "a%20b", &"x".repeat(5_000)] {
        house.get(&format!("/v1/sessions/{id}")).await?.refuses(404, "not_found");
        house.post(&format!("/v1/sessions/{id}/pause"), json!({})).await?.refuses(404, "not_found");
    }
    for path in ["agents", "turns", "tool-calls"] {
        house.get(&format!("/v1/{path}/{unknown}")).await?.refuses(404, "not_found");
    }
    house.post(&format!("/v1/agents/{}/messages", session), json!({"content": "hi"})).await?.refuses(404, "agent");
    Ok(())
}

#[tokio::test]
async fn a_list_refuses_what_it_cannot_do() -> Result<()> {
    let house = House::on(Backend::Sqlite).await?;
    for limit in ["0", "-1", "201", "1000000000", "x", ""] {
        house.get(&format!("/v1/sessions?limit={limit}")).await?.refuses(422, "1 to 200");
    }
    house.get("/v1/sessions?cursor=forged").await?.refuses(422, "cursor");
    house.get("/v1/sessions?statsu=active").await?.refuses(422, "statsu");
    house.get("/v1/sessions?status=asleep").await?.refuses(422, "created, active");
    house.get("/v1/agents?session=nope").await?.refuses(422, "ses_");
    house.get("/v1/tool-calls?turn=trn_x").await?.refuses(422, "trn_");
    Ok(())
}

#[tokio::test]
async fn a_database_that_does_not_answer_is_a_503_to_try_again() -> Result<()> {
    let house = House::on(Backend::Sqlite).await?;
    house.get("/v1/whoami").await?.is(200);
    house.store().db().clone().close().await?;
    let got = house.get("/v1/sessions").await?;
    assert_eq!(got.headers["retry-after"], "1");
    assert_eq!(got.refuses(503, "database")["retryable"], true);
    assert_eq!(house.send(house.request("GET", "/readyz", "")).await?.status, 503);
    assert_eq!(house.send(house.request("GET", "/livez", "")).await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn a_body_that_comes_too_slowly_is_a_408() -> Result<()> {
    let house = House::with(Backend::Sqlite, |config| config.api.request_timeout_ms = 200).await?;
    // A body that never ends.
    let body = reqwest::Body::wrap_stream(futures::stream::pending::<Result<Vec<u8>, std::io::Error>>());
    let request = house.request("POST", "/v1/sessions", &key(Role::Admin)).header("content-type", "application/json");
    let refused = house.send(request.body(body)).await?.refuses(408, "180 ms");
    assert_eq!(refused["code"], "body_timeout");
    Ok(())
}

#[tokio::test]
async fn a_key_that_asks_too_often_is_told_when_to_come_back() -> Result<()> {
    let house = House::with(Backend::Sqlite, |config| config.api.requests_per_second_max = 2).await?;
    let mut refused = None;
    for _ in 0..20 {
        let got = house.get("/v1/sessions").await?;
        if got.status != 200 {
            refused = Some(got);
            break;
        }
    }
    let refused = refused.context("nothing was refused")?;
    assert_eq!(refused.headers["retry-after"], "1");
    refused.refuses(429, "2 requests a second");
    Ok(())
}
