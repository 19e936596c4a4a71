//! What an agent is made of, apart from what has become of it: taken out of one, and loaded as others.

use super::agent::{
    AGENT, APPROVAL_MODES, LOOPS, POLICY, PROMPT_BYTES_MAX, PROVIDER_CALLS, RELAUNCH, Spec, TOOLS_MAX, admit, show,
};
use super::{find, wake};
use crate::call::{Call, Reply};
use crate::problem::Problem;
use crate::shape::{Kind, Shape, may, must};
use axum::http::StatusCode;
use instar_runtime::flow::Loaded;
use instar_store::entity::agent;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Definitions of one import: they are loaded by one commit, all or none.
const DEFINITIONS_MAX: usize = 100;

pub(crate) static DEFINITION: Shape = Shape {
    name: "AgentDefinition",
    fields: &[
        must("name", Kind::Text(200), "What people call it"),
        may("role", Kind::Text(200), "What it is for; worker"),
        must("model", Kind::Text(200), "The name of a configured model"),
        may("system_prompt", Kind::Prose(PROMPT_BYTES_MAX), "Its instructions"),
        may("tools", Kind::Texts(TOOLS_MAX), "Tools it may use, by name or pattern; none"),
        may("loop", Kind::Choice(LOOPS), "Whether it goes on by itself; reactive"),
        may("budget", Kind::Budget, "Its limits"),
        may("provider_calls_max", Kind::Integer, PROVIDER_CALLS),
        may("relaunch_after_ms", Kind::Integer, RELAUNCH),
        may("approval_mode", Kind::Choice(APPROVAL_MODES), "What tools with side effects need; full_access"),
        may(
            "tool_approvals",
            Kind::Object,
            "By tool: always or never asks a person, whatever approval_mode says; none",
        ),
        may("policy", Kind::Object, POLICY),
        may("account", Kind::Any, "The account it claims when a call needs one: a name, or {\"pool\": …}; none"),
        may("auto_start", Kind::Bool, "Whether it takes up work as soon as it is loaded; false"),
    ],
};
pub(crate) static IMPORT: Shape = Shape {
    name: "AgentImport",
    fields: &[
        must("agents", Kind::List(&DEFINITION), "Definitions, 100 at the most; all are loaded or none"),
        may("origin", Kind::Text(200), "Where they come from, for the log"),
    ],
};
pub(crate) static IMPORTED: Shape = Shape {
    name: "AgentsImported",
    fields: &[must("agents", Kind::List(&AGENT), "The agents, in the order of their definitions")],
};

#[derive(Deserialize)]
struct Import {
    agents: Vec<Definition>,
    origin: Option<String>,
}

#[derive(Deserialize)]
struct Definition {
    #[serde(flatten)]
    spec: Spec,
    #[serde(default)]
    auto_start: Option<bool>,
}

pub(crate) async fn import(call: Arc<Call>) -> Result<Reply, Problem> {
    let Import { agents, origin } = call.read()?;
    if agents.is_empty() || agents.len() > DEFINITIONS_MAX {
        let detail = format!("has {} definitions; 1 to {DEFINITIONS_MAX} are loaded at once", agents.len());
        return Err(Problem::field("agents", detail));
    }
    let mut new = Vec::new();
    for (n, Definition { spec, auto_start }) in agents.into_iter().enumerate() {
        let mut agent = spec.settle(&call, &format!("/agents/{n}")).await?;
        let auto_start = auto_start.unwrap_or(false);
        if auto_start {
            agent.config["auto_start"] = json!(true);
        }
        agent.loaded = Some(Loaded { origin: origin.clone(), auto_start });
        new.push(agent);
    }
    let told = |agents: &[agent::Model]| json!({"agents": agents.iter().map(show).collect::<Vec<_>>()});
    let (agents, answer) = admit(&call, new, |n| format!("/agents/{n}"), told).await?;
    for agent in agents.iter().filter(|agent| agent.drive == "running") {
        wake::agent(&call, agent.id).await;
    }
    Ok(Reply::kept(StatusCode::CREATED, answer))
}

pub(crate) async fn export(call: Arc<Call>) -> Result<Reply, Problem> {
    Ok(Reply::ok(define(&find::agent(&call).await?.0)))
}

fn define(row: &agent::Model) -> Value {
    let shown = show(row);
    let fields = DEFINITION.fields.iter().map(|field| field.name);
    let mut definition: serde_json::Map<String, Value> = fields
        .filter_map(|name| shown.get(name).filter(|value| !value.is_null()).map(|value| (name.into(), value.clone())))
        .collect();
    definition.insert("auto_start".into(), json!(row.config["auto_start"] == true));
    definition.into()
}
