//! MCP servers as runners see them, and a person's word on a definition that changed.

use super::catalog;
use crate::call::{Call, Reply};
use crate::problem::Problem;
use crate::shape::{Kind, Shape, may, must};
use axum::http::StatusCode;
use instar_core::id::WorkerId;
use instar_runtime::unavailable;
use instar_store::clock;
use instar_store::entity::{mcp_server, mcp_tool};
use instar_tools::mcp::ToolStanding;
use instar_tools::{Origin, Spec, Tool};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

pub(crate) static SERVER: Shape = Shape {
    name: "McpServer",
    fields: &[
        must("name", Kind::Text(64), "What its tools' names begin with"),
        must("runner", Kind::Id("wrk"), "The tool-runner that has it"),
        must("status", Kind::Text(40), "starting, ready, failing or stopped"),
        may("reason", Kind::Prose(usize::MAX), "Why it is not ready"),
        may("protocol", Kind::Text(40), "The revision of MCP that it speaks"),
        may("about", Kind::Text(200), "What it calls itself"),
        must("tools", Kind::Integer, "How many it offers"),
        must("changed_at", Kind::Time, "Since when"),
    ],
};
pub(crate) static ACCEPT: Shape = Shape {
    name: "AcceptTool",
    fields: &[may("hash", Kind::Text(64), "The offered definition that is meant; any, if left out")],
};

#[derive(Deserialize)]
struct Accept {
    hash: Option<String>,
}

fn show_server(row: &mcp_server::Model) -> Value {
    json!({
        "name": row.server,
        "runner": WorkerId::from(row.runner),
        "status": row.standing,
        "reason": row.reason,
        "protocol": row.protocol,
        "about": row.about,
        "tools": row.tools,
        "changed_at": row.changed_at,
    })
}

pub(crate) async fn servers(call: Arc<Call>) -> Result<Reply, Problem> {
    let data: Vec<Value> = call.api.store().mcp_servers().await?.iter().map(show_server).collect();
    Ok(Reply::ok(json!({"data": data, "next_cursor": null})))
}

/// A row as a tool, the accepted definition if there is one.
pub(crate) fn show_tool(row: &mcp_tool::Model, servers: &[mcp_server::Model]) -> Option<Value> {
    let spec: Spec = serde_json::from_value(row.spec.clone().or_else(|| row.offered.clone())?).ok()?;
    let reason = unavailable(row, servers);
    let mut shown = match Tool::new(spec.clone(), Origin::Server) {
        Ok(tool) => catalog::show(&tool),
        // It is refused, which is what the reason says.
        Err(_) => catalog::describe(&spec, spec.parameters.clone(), Origin::Server, &spec.definition_hash()),
    };
    shown["available"] = reason.is_none().into();
    shown["reason"] = reason.into();
    shown["server"] = row.server.clone().into();
    shown["hash"] = row.hash.clone().into();
    shown["offered_hash"] = row.offered_hash.clone().into();
    if let (Some(_), Some(offered)) = (&row.spec, &row.offered) {
        shown["offered"] = json!({"description": offered["description"], "parameters": offered["parameters"]});
    }
    Some(shown)
}

/// From now on what the server offers is what was accepted.
pub(crate) async fn accept(call: Arc<Call>) -> Result<Reply, Problem> {
    let (name, Accept { hash }) = (call.part("name").to_owned(), call.read()?);
    let store = call.api.store();
    let row = store.mcp_tool(&name).await?.ok_or_else(|| Problem::absent("tool of an MCP server", &name))?;
    if row.standing == ToolStanding::Refused.token() {
        let why = row.reason.unwrap_or_default();
        return Err(Problem::conflict("tool_refused", format!("the tool cannot be had, accepted or not: {why}")));
    }
    let wanted = row.offered_hash.clone().or_else(|| row.hash.clone());
    if hash.is_some() && hash != wanted {
        let detail = "the server offers another definition by now: look at the tool again";
        return Err(Problem::conflict("digest_mismatch", detail).with("hash", wanted));
    }
    let (by, at) = (call.actor().id, clock::now());
    let decide = move |rows: &[mcp_tool::Model]| {
        let meant =
            rows.iter().filter(|row| row.name == name && row.offered_hash.is_some() && row.offered_hash == wanted);
        let accepted = |row: &mcp_tool::Model| mcp_tool::Model {
            spec: row.offered.clone(),
            hash: row.offered_hash.clone(),
            offered: None,
            offered_hash: None,
            standing: ToolStanding::Available.token().to_owned(),
            reason: None,
            accepted_by: Some(by.clone()),
            accepted_at: Some(at),
            ..row.clone()
        };
        meant.map(accepted).collect()
    };
    store.change_mcp_tools(&row.server, decide).await?;
    call.api.discovered.look().await;
    let row = store.mcp_tool(&row.name).await?.ok_or_else(|| Problem::absent("tool", &row.name))?;
    let servers = store.mcp_servers().await?;
    let body = show_tool(&row, &servers).unwrap_or_default();
    Ok(Reply::Json { status: StatusCode::OK, body, kept: false })
}
