//! The OpenAPI 3.1 document, made from the list of routes and the shapes they name.

use crate::route::{Gives, ROLES, ROUTES, Route};
use crate::shape::Shape;
use serde_json::{Map, Value, json};

/// What is served at `/openapi.json`.
pub fn openapi() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.to_ascii_lowercase()] = operation(route);
    }
    for (path, summary) in [
        ("/livez", "Whether the process turns over"),
        ("/readyz", "Whether it can serve"),
        ("/metrics", "Prometheus metrics"),
    ] {
        let answer = json!({"200": {"description": "Yes"}});
        paths.insert(path.into(), json!({"get": {"summary": summary, "security": [], "responses": answer}}));
    }
    let roles = ROLES.map(|role| role.token()).join(" < ");
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Instar",
            "version": env!("CARGO_PKG_VERSION"),
            "description": format!("Durable fleets of LLM agents. Roles of keys: {roles}."),
        },
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": schemas(),
        },
    })
}

fn operation(route: &Route) -> Value {
    let mut parameters: Vec<Value> = placeholders(route.path)
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
        .collect();
    parameters.extend(route.query.iter().map(
        |param| json!({"name": param.name, "in": "query", "description": param.doc, "schema": {"type": "string"}}),
    ));
    if route.method == "POST" {
        let doc = "The same key and body give the first answer again; another body is refused";
        let schema = json!({"type": "string", "maxLength": 255});
        parameters.push(json!({"name": "Idempotency-Key", "in": "header", "description": doc, "schema": schema}));
    }
    let (status, content) = match &route.gives {
        Gives::One(status, shape) => (*status, json!({"application/json": {"schema": reference(shape)}})),
        Gives::Many(shape) => {
            let schema = json!({
                "type": "object",
                "properties": {
                    "data": {"type": "array", "items": reference(shape)},
                    "next_cursor": {"type": ["string", "null"]},
                },
                "required": ["data", "next_cursor"],
            });
            (200, json!({"application/json": {"schema": schema}}))
        }
        Gives::Text(kind) => (200, json!({*kind: {"schema": {"type": "string"}}})),
    };
    let problem = json!({
        "description": "What is wrong, and what to do",
        "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
    });
    let mut operation = json!({
        "operationId": name(route),
        "tags": [route.path.split('/').nth(2).unwrap_or("instar")],
        "summary": route.summary,
        "x-role": route.role.token(),
        "parameters": parameters,
        "responses": {status.to_string(): {"description": "Done", "content": content}, "default": problem},
    });
    if route.reads_body() {
        let schema = route.takes.map_or(json!({"type": "object"}), reference);
        let needed = route.takes.is_none_or(|shape| shape.fields.iter().any(|field| field.required));
        operation["requestBody"] = json!({"required": needed, "content": {"application/json": {"schema": schema}}});
    }
    operation
}

/// `post_sessions_id_pause`: unique, and the same for as long as the path is.
fn name(route: &Route) -> String {
    let path = route.path.trim_start_matches("/v1/").replace(['/', '-', '.'], "_").replace(['{', '}'], "");
    format!("{}_{path}", route.method.to_ascii_lowercase())
}

fn placeholders(path: &str) -> impl Iterator<Item = &str> {
    path.split('{').skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name)
}

fn reference(shape: &Shape) -> Value {
    json!({"$ref": format!("#/components/schemas/{}", shape.name)})
}

fn schemas() -> Map<String, Value> {
    let mut schemas = Map::new();
    let mut open: Vec<&'static Shape> = Vec::new();
    for route in ROUTES {
        open.extend(route.takes);
        match route.gives {
            Gives::One(_, shape) | Gives::Many(shape) => open.push(shape),
            Gives::Text(_) => {}
        }
    }
    while let Some(shape) = open.pop() {
        if schemas.insert(shape.name.to_owned(), shape.schema()).is_none() {
            open.extend(shape.inner());
        }
    }
    schemas.insert("Problem".into(), problem());
    schemas
}

fn problem() -> Value {
    json!({
        "type": "object",
        "description": "RFC 9457",
        "properties": {
            "type": {"type": "string", "format": "uri"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string", "description": "What is wrong and what to do"},
            "code": {"type": "string", "description": "A word for programs"},
            "retryable": {"type": "boolean"},
            "request_id": {"type": "string"},
            "errors": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"pointer": {"type": "string"}, "detail": {"type": "string"}},
                },
            },
            "machine": {"type": "string", "description": "The machine that refused"},
            "from": {"type": "string", "description": "The state it is in"},
            "event": {"type": "string", "description": "What was asked of it"},
            "allowed": {"type": "array", "items": {"type": "string"}, "description": "Events legal now for this caller"},
        },
        "required": ["type", "title", "status", "detail"],
    })
}
