//! Tools and models that agents may be given.

use crate::call::{Call, Reply};
use crate::problem::Problem;
use crate::shape::{Kind, Shape, Wrong, may, must};
use axum::http::StatusCode;
use instar_store::clock;
use instar_store::entity::registered_tool;
use instar_tools::{Origin, Refused, Spec, Tool};
use serde_json::{Value, json};
use std::sync::Arc;

pub(crate) static TOOL: Shape = Shape {
    name: "Tool",
    fields: &[
        must("name", Kind::Text(200), "What agents call it"),
        must("description", Kind::Prose(usize::MAX), "What the model reads"),
        must("kind", Kind::Text(40), "builtin, native, http, command or mcp"),
        must("parameters", Kind::Object, "JSON Schema of its arguments"),
        must("side_effects", Kind::Bool, "Whether it changes anything"),
        must("idempotent", Kind::Bool, "Whether the same key has one effect"),
        must("requires_approval", Kind::Text(40), "inherit, always or never"),
        must("timeout_ms", Kind::Integer, "How long an attempt may take"),
        must("max_output_bytes", Kind::Integer, "How much of its output is kept"),
        must("enabled", Kind::Bool, "Whether it may be called"),
        must("origin", Kind::Text(40), "operator, api or server"),
        must("definition_hash", Kind::Text(64), "Of what it does"),
        must("available", Kind::Bool, "Whether it can be called now"),
        may("reason", Kind::Prose(usize::MAX), "Why it cannot be called now"),
        may("server", Kind::Text(64), "mcp: the server that has it"),
        may("hash", Kind::Text(64), "mcp: of the accepted definition in the server's words"),
        may("offered_hash", Kind::Text(64), "mcp: of another definition, which waits to be accepted"),
        may("offered", Kind::Object, "mcp: that other definition"),
    ],
};
pub(crate) static MODEL: Shape =
    Shape { name: "Model", fields: &[must("name", Kind::Text(200), "What agents call it")] };

pub(crate) fn show(tool: &Tool) -> Value {
    describe(tool.spec(), tool.offer().parameters, tool.origin(), tool.definition_hash())
}

pub(crate) fn describe(spec: &Spec, parameters: Value, origin: Origin, hash: &str) -> Value {
    json!({
        "name": spec.name,
        "description": spec.description,
        "kind": spec.kind,
        "parameters": parameters,
        "side_effects": spec.side_effects,
        "idempotent": spec.idempotent,
        "requires_approval": spec.requires_approval,
        "timeout_ms": spec.timeout_ms,
        "max_output_bytes": spec.max_output_bytes,
        "enabled": spec.enabled,
        "origin": match origin {
            Origin::Operator => "operator",
            Origin::Api => "api",
            Origin::Server => "server",
        },
        "definition_hash": hash,
        "available": spec.enabled,
        "reason": (!spec.enabled).then_some("it is switched off"),
        "server": null,
    })
}

pub(crate) async fn tools(call: Arc<Call>) -> Result<Reply, Problem> {
    call.api.discovered.refresh().await;
    let own = call.api.catalog.tools.list();
    let mut data: Vec<Value> = own.iter().filter(|t| t.origin() != Origin::Server).map(|tool| show(tool)).collect();
    let (rows, servers) = (call.api.store().mcp_tools().await?, call.api.store().mcp_servers().await?);
    data.extend(rows.iter().filter_map(|row| super::mcp::show_tool(row, &servers)));
    data.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
    Ok(Reply::ok(json!({"data": data, "next_cursor": null})))
}

pub(crate) async fn models(call: Arc<Call>) -> Result<Reply, Problem> {
    let data: Vec<Value> = call.api.catalog.models.iter().map(|name| json!({"name": name})).collect();
    Ok(Reply::ok(json!({"data": data, "next_cursor": null})))
}

/// The fields that cannot be read, each by itself; `None` if it is none of them.
fn misread(call: &Call) -> Option<Wrong> {
    let alone = |(name, value): (&String, &Value)| {
        let mut spec = json!({"name": "x", "kind": "builtin"});
        spec[name] = value.clone();
        let no = serde_json::from_value::<Spec>(spec).err()?;
        Some((format!("/{name}"), no.to_string()))
    };
    let wrong: Wrong = call.body.iter().filter_map(alone).collect();
    (!wrong.is_empty()).then_some(wrong)
}

/// Judged by what this process knows, then written for all: whoever is first has the name.
pub(crate) async fn register(call: Arc<Call>) -> Result<Reply, Problem> {
    let spec: Spec = call.read().map_err(|no| misread(&call).map_or(no, Problem::invalid))?;
    call.api.discovered.look().await;
    let tool = call.api.catalog.tools.register(spec, Origin::Api).map_err(refused)?;
    let at = clock::now();
    let row = registered_tool::Model {
        name: tool.name().to_owned(),
        spec: json!(tool.spec()),
        hash: tool.definition_hash().to_owned(),
        registered_by: call.actor().id,
        created_at: at,
        version: at.timestamp_micros(),
    };
    let stands = call.api.store().register_tool(row).await;
    if !stands.as_ref().is_ok_and(|row| row.hash == tool.definition_hash()) {
        // What nobody else knows must not be known here.
        call.api.catalog.tools.unregister(tool.name());
        call.api.discovered.look().await;
        stands?;
        return Err(refused(Refused::Taken { name: tool.name().to_owned() }));
    }
    call.api.discovered.look().await;
    Ok(Reply::Json { status: StatusCode::CREATED, body: show(&tool), kept: false })
}

/// Agents that were given it go on without it; a call of it that waits for approval ends with an error.
pub(crate) async fn remove(call: Arc<Call>) -> Result<Reply, Problem> {
    let name = call.part("name");
    call.api.discovered.look().await;
    let tool = call.api.catalog.tools.get(name).ok_or_else(|| Problem::absent("tool", name))?;
    if tool.origin() != Origin::Api {
        let detail = format!("{name} is of the configuration or of an MCP server: take it out there");
        return Err(Problem::conflict("tool_refused", detail));
    }
    call.api.store().forget_tool(name).await?;
    call.api.discovered.look().await;
    Ok(Reply::ok(show(&tool)))
}

fn refused(refused: Refused) -> Problem {
    match refused {
        Refused::Invalid { problems, .. } => {
            Problem::invalid(problems.into_iter().map(|p| (format!("/{}", p.field), p.message)).collect())
        }
        refused => Problem::conflict("tool_refused", refused.to_string()),
    }
}
