//! The log: exact, in order, and only what the reader may see.

use crate::kit::{Backend, House, on_both, text};
use anyhow::Result;
use instar_api::Role;
use serde_json::{Value, json};

async fn the_log_is_read_page_by_page_and_shows_what_the_role_may_see(house: House) -> Result<()> {
    let (session, agent) = house.fleet().await?;
    let turn = text(&house.say(&agent, "hello").await?["turn_id"]);
    house.claim(&agent, &turn).await?;
    house.post(&format!("/v1/turns/{turn}/interrupt"), json!({})).await?.is(200);
    let path = format!("/v1/sessions/{session}/runes");
    let read = async |role: Role| -> Result<Vec<Value>> {
        let (mut all, mut after) = (Vec::new(), "0".to_owned());
        loop {
            let page = house.as_role(role, "GET", &format!("{path}?limit=3&after={after}"), None).await?.is(200);
            all.extend(page["data"].as_array().unwrap().iter().cloned());
            match page["next_cursor"].as_str() {
                Some(next) => after = next.to_owned(),
                None => return Ok(all),
            }
        }
    };
    let (operator, viewer) = (read(Role::Operator).await?, read(Role::Viewer).await?);
    let seqs: Vec<_> = operator.iter().map(|rune| rune["seq"].as_i64().unwrap()).collect();
    assert_eq!(seqs, (1..=operator.len() as i64).collect::<Vec<_>>());
    let hidden: Vec<_> =
        operator.iter().filter(|rune| rune["visibility"] == "internal").map(|r| text(&r["kind"])).collect();
    assert_eq!(hidden, ["turn.control_requested"]);
    assert_eq!(viewer.len(), operator.len() - 1);
    let rune = &operator[0];
    assert_eq!((&rune["kind"], &rune["machine"]), (&json!("session.created"), &json!("session")));
    assert_eq!((&rune["entity_id"], &rune["actor"]["type"]), (&json!(session), &json!("user")));
    assert!(text(&rune["actor"]["id"]).starts_with("key_"));
    assert_eq!(text(&rune["hash"]).len(), 64);
    assert_eq!(rune["moves"], json!([{"row": "S1", "entity_id": session, "to": "created"}]));
    house.get(&format!("{path}?after=-1")).await?.refuses(422, "after");
    Ok(())
}

on_both! { the_log_is_read_page_by_page_and_shows_what_the_role_may_see; }

#[tokio::test]
async fn machines_tools_models_and_health_are_there() -> Result<()> {
    let house = House::on(Backend::Sqlite).await?;
    let machines = house.get("/v1/machines").await?.is(200);
    assert_eq!(machines["data"].as_array().unwrap().len(), 11);
    assert_eq!(house.get("/v1/machines/turn").await?.is(200)["name"], "turn");
    assert!(house.get("/v1/machines/turn.mmd").await?.text.starts_with("stateDiagram-v2"));
    let picture = house.get("/v1/machines/hop.svg").await?;
    assert!(picture.headers["content-type"] == "image/svg+xml" && picture.text.ends_with("</svg>"));
    house.get("/v1/machines/nope").await?.refuses(404, "nope");
    house.get("/v1/machines/turn.pdf").await?.refuses(404, "turn.pdf");
    assert_eq!(house.get("/v1/models").await?.is(200)["data"], json!([{"name": "default"}, {"name": "fast"}]));
    let tools = house.get("/v1/tools").await?.is(200);
    assert!(tools["data"].as_array().unwrap().iter().any(|tool| tool["name"] == "echo"), "{tools}");
    let tool = json!({"name": "charge", "kind": "http", "url": "https://example.com/charge", "description": "charges"});
    assert_eq!(house.post("/v1/tools", tool.clone()).await?.is(201)["origin"], "api");
    house.post("/v1/tools", tool).await?.is(201);
    house
        .post("/v1/tools", json!({"name": "charge", "kind": "http", "url": "https://example.com/x"}))
        .await?
        .refuses(409, "another definition");
    let other = house.twin().await?;
    let seen = other.get("/v1/tools").await?.is(200);
    assert!(seen["data"].as_array().unwrap().iter().any(|tool| tool["name"] == "charge"), "{seen}");
    other.as_role(Role::Admin, "DELETE", "/v1/tools/echo", None).await?.refuses(409, "configuration");
    assert_eq!(other.as_role(Role::Admin, "DELETE", "/v1/tools/charge", None).await?.is(200)["name"], "charge");
    house.as_role(Role::Admin, "DELETE", "/v1/tools/charge", None).await?.refuses(404, "charge");
    house.post("/v1/tools", json!({"name": "sh", "kind": "command", "command": ["sh"]})).await?.refuses(422, "command");
    house.post("/v1/tools", json!({"name": "x", "kind": "http", "nope": 1})).await?.refuses(422, "nope");
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(house.send(house.request("GET", path, "")).await?.status, 200, "{path}");
    }
    let metrics = house.send(house.request("GET", "/metrics", "")).await?.text;
    assert!(
        metrics.contains("instar_http_requests_total{route=\"/v1/machines/{name}\",method=\"GET\",status=\"200\"}"),
        "{metrics}"
    );
    assert!(metrics.contains("instar_http_request_duration_seconds_bucket{route=\"/v1/models\""));
    Ok(())
}
