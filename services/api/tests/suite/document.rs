//! The OpenAPI document: every path of the contract, and answers that look as it says.

use crate::kit::{Backend, House, ask, text};
use anyhow::Result;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Paths of the public contract that this service answers.
const CONTRACT: &[&str] = &[
    "POST /v1/sessions",
    "GET /v1/sessions",
    "GET /v1/sessions/{id}",
    "POST /v1/sessions/{id}/pause",
    "POST /v1/sessions/{id}/resume",
    "POST /v1/sessions/{id}/replenish",
    "POST /v1/sessions/{id}/reset",
    "POST /v1/sessions/{id}/close",
    "POST /v1/sessions/{id}/archive",
    "POST /v1/sessions/{id}/agents",
    "POST /v1/sessions/{id}/agents/import",
    "GET /v1/agents",
    "GET /v1/agents/{id}",
    "PATCH /v1/agents/{id}",
    "DELETE /v1/agents/{id}",
    "GET /v1/agents/{id}/definition",
    "POST /v1/agents/{id}/start",
    "POST /v1/agents/{id}/stop",
    "POST /v1/agents/{id}/hold",
    "POST /v1/agents/{id}/terminate",
    "POST /v1/agents/{id}/messages",
    "GET /v1/agents/{id}/messages",
    "GET /v1/turns",
    "GET /v1/turns/{id}",
    "POST /v1/turns/{id}/interrupt",
    "POST /v1/turns/{id}/steer",
    "GET /v1/tool-calls",
    "GET /v1/tool-calls/{id}",
    "POST /v1/tool-calls/{id}/approve",
    "POST /v1/tool-calls/{id}/deny",
    "POST /v1/tool-calls/{id}/cancel",
    "POST /v1/tool-calls/{id}/resolve",
    "POST /v1/sessions/{id}/missions",
    "GET /v1/missions",
    "GET /v1/missions/{id}",
    "POST /v1/missions/{id}/approve",
    "POST /v1/missions/{id}/reject",
    "POST /v1/missions/{id}/request-changes",
    "POST /v1/missions/{id}/revise",
    "POST /v1/missions/{id}/complete",
    "POST /v1/missions/{id}/cancel",
    "POST /v1/missions/{id}/retry",
    "POST /v1/missions/{id}/resume",
    "POST /v1/missions/{id}/reset",
    "POST /v1/missions/{id}/hops",
    "GET /v1/hops",
    "GET /v1/hops/{id}",
    "DELETE /v1/hops/{id}",
    "POST /v1/hops/{id}/approve-plan",
    "POST /v1/hops/{id}/reject-plan",
    "POST /v1/hops/{id}/edit-plan",
    "POST /v1/hops/{id}/approve-impl",
    "POST /v1/hops/{id}/reject-impl",
    "POST /v1/hops/{id}/edit-impl",
    "POST /v1/hops/{id}/request-changes",
    "POST /v1/hops/{id}/execute",
    "POST /v1/hops/{id}/stop",
    "POST /v1/hops/{id}/cancel",
    "POST /v1/hops/{id}/fix",
    "POST /v1/hops/{id}/retry",
    "POST /v1/hops/{id}/replan",
    "POST /v1/hops/{id}/complete",
    "POST /v1/hops/{id}/reset",
    "GET /v1/sessions/{id}/runes",
    "GET /v1/sessions/{id}/events",
    "GET /v1/machines",
    "GET /v1/machines/{name}",
    "GET /v1/machines/{name}.mmd",
    "GET /v1/machines/{name}.svg",
    "GET /v1/tools",
    "POST /v1/tools",
    "GET /v1/models",
    "GET /livez",
    "GET /readyz",
    "GET /metrics",
];

fn described(document: &Value) -> BTreeSet<String> {
    let paths = document["paths"].as_object().unwrap();
    let methods = |(path, item): (&String, &Value)| {
        let methods = item.as_object().unwrap().keys().map(|method| format!("{} {path}", method.to_uppercase()));
        methods.collect::<Vec<_>>()
    };
    paths.iter().flat_map(methods).collect()
}

#[tokio::test]
async fn the_document_lists_every_path_and_every_path_is_served() -> Result<()> {
    let house = House::on(Backend::Sqlite).await?;
    let document = house.send(house.request("GET", "/openapi.json", "")).await?.is(200);
    assert_eq!(document["openapi"], "3.1.0");
    let described = described(&document);
    for path in CONTRACT {
        assert!(described.contains(*path), "{path} is not described");
    }
    let mut names = BTreeSet::new();
    for route in &described {
        let (method, path) = route.split_once(' ').unwrap();
        let operation = &document["paths"][path][method.to_lowercase()];
        assert!(path.starts_with("/v1") == names.insert(text(&operation["operationId"])) || !path.starts_with("/v1"));
        if !path.starts_with("/v1") {
            continue;
        }
        // Without a key a served path says 401; one that is not would say 404 or 405.
        let path = path.replace("{id}", "x").replace("{name}", "turn");
        assert_eq!(house.send(house.request(method, &path, "")).await?.status, 401, "{route}");
    }
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let references = document.to_string();
    for reference in references.split("#/components/schemas/").skip(1) {
        let name: String = reference.chars().take_while(|c| c.is_alphanumeric()).collect();
        assert!(schemas.contains_key(&name), "{name} is referred to and not there");
    }
    Ok(())
}

/// Every field of an answer is described, and every one that is always there is there.
#[track_caller]
fn fits(document: &Value, schema: &str, answer: &Value) {
    let schema = &document["components"]["schemas"][schema];
    let properties = schema["properties"].as_object().unwrap();
    for field in answer.as_object().unwrap().keys() {
        assert!(properties.contains_key(field), "{field} is not described");
    }
    for field in schema["required"].as_array().unwrap() {
        assert!(!answer[field.as_str().unwrap()].is_null(), "{field} is missing");
    }
}

#[tokio::test]
async fn answers_look_as_the_document_says() -> Result<()> {
    let house = House::on(Backend::Sqlite).await?;
    let document = instar_api::openapi();
    let made = house.post("/v1/sessions", json!({"root_agent": {"name": "ada", "model": "default"}})).await?.is(201);
    let (session, agent) = (text(&made["id"]), text(&made["root_agent_id"]));
    let (turn, calls) = house.calls(&agent, &[ask()]).await?;
    fits(&document, "Session", &made);
    fits(&document, "Accepted", &house.say(&agent, "hi").await?);
    for (path, schema) in [
        (format!("/v1/sessions/{session}"), "Session"),
        (format!("/v1/agents/{agent}"), "Agent"),
        (format!("/v1/turns/{turn}"), "Turn"),
        (format!("/v1/tool-calls/{}", calls[0]), "ToolCall"),
        ("/v1/whoami".into(), "Whoami"),
        ("/v1/machines/turn".into(), "Machine"),
    ] {
        fits(&document, schema, &house.get(&path).await?.is(200));
    }
    for (path, schema) in [
        (format!("/v1/sessions/{session}/runes"), "Rune"),
        (format!("/v1/agents/{agent}/messages"), "Message"),
        ("/v1/keys".into(), "Key"),
        ("/v1/tools".into(), "Tool"),
        ("/v1/models".into(), "Model"),
    ] {
        fits(&document, schema, &house.get(&path).await?.is(200)["data"][0]);
    }
    fits(&document, "Problem", &house.get("/nope").await?.body);
    Ok(())
}
