//! An agent's configuration, changed while it lives. It counts from the next turn on.

use super::agent::{
    APPROVAL_MODES, LOOPS, PROMPT_BYTES_MAX, RELAUNCH, TOOLS_MAX, bad_approvals, bad_policy, bad_relaunch, show,
    too_many_calls, unknown_model, unknown_tools,
};
use super::{account, budget};
use crate::call::{Call, Reply};
use crate::problem::Problem;
use crate::settle::settle;
use crate::shape::{Kind, Shape, may};
use instar_core::budget::Limits;
use instar_core::id::{AgentId, SessionId};
use instar_core::rune::Draft;
use instar_core::rune::payload::ConfigUpdated;
use instar_runtime::flow;
use instar_store::entity::agent;
use instar_store::{Change, Commit};
use serde_json::{Value, json};
use std::sync::Arc;

pub(crate) static CONFIGURE: Shape = Shape {
    name: "AgentPatch",
    fields: &[
        may("name", Kind::Text(200), "What people call it"),
        may("role", Kind::Text(200), "What it is for"),
        may("model", Kind::Text(200), "The name of a configured model"),
        may("system_prompt", Kind::Prose(PROMPT_BYTES_MAX), "Its instructions; null: none"),
        may("tools", Kind::Texts(TOOLS_MAX), "Tools it may use, by name or pattern"),
        may("loop", Kind::Choice(LOOPS), "Whether it goes on by itself"),
        may("auto_start", Kind::Bool, "Whether one loaded from its definition takes up work at once"),
        may("approval_mode", Kind::Choice(APPROVAL_MODES), "What tools with side effects need"),
        may("tool_approvals", Kind::Object, "By tool: always or never asks a person; replaces all that was said"),
        may("policy", Kind::Object, "Paths and hosts that its calls may name; replaces all that was said; null: any"),
        may(
            "account",
            Kind::Any,
            "The account it claims when a call next needs one: a name, or {\"pool\": …}; null: none any more",
        ),
        may("provider_calls_max", Kind::Integer, "Provider calls of one turn, 1 to 1000; null: as is usual"),
        may("relaunch_after_ms", Kind::Integer, RELAUNCH),
        may("budget", Kind::Budget, "Limits that replace those of the same name; null takes one away"),
    ],
};

/// What null takes away; of anything else it says nothing.
const REMOVABLE: [&str; 5] = ["system_prompt", "policy", "account", flow::CALLS_MAX, flow::RELAUNCH_AFTER];
/// What is kept in the agent's `config` as it is given.
const KEPT: [&str; 10] = [
    "system_prompt",
    "tools",
    "loop",
    "auto_start",
    "approval_mode",
    "tool_approvals",
    "policy",
    "account",
    flow::CALLS_MAX,
    flow::RELAUNCH_AFTER,
];

pub(crate) async fn patch(call: Arc<Call>) -> Result<Reply, Problem> {
    let counts = |name: &str, value: &Value| !value.is_null() || REMOVABLE.contains(&name);
    let mut changes: serde_json::Map<String, Value> =
        call.body.iter().filter(|(name, value)| counts(name, value)).map(|(k, v)| (k.clone(), v.clone())).collect();
    if changes.is_empty() {
        let known = CONFIGURE.fields.iter().map(|field| field.name).collect::<Vec<_>>().join(", ");
        return Err(Problem::invalid(vec![(String::new(), format!("nothing to change; give one of: {known}"))]));
    }
    let text = |name: &str| changes.get(name).and_then(Value::as_str).map(str::to_owned);
    let (name, role, model) = (text("name"), text("role"), text("model"));
    let catalog = &call.api.catalog;
    let mut wrong = model.iter().flat_map(|model| unknown_model(catalog, model, "")).collect::<Vec<_>>();
    if let Some(Value::Array(tools)) = changes.get("tools") {
        let tools: Vec<String> = tools.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        call.api.discovered.refresh_for(&tools).await;
        wrong.extend(unknown_tools(catalog, &tools, ""));
    }
    wrong.extend(changes.get("tool_approvals").map(|said| bad_approvals(catalog, said, "")).unwrap_or_default());
    wrong.extend(changes.get("policy").map(|said| bad_policy(said, "")).unwrap_or_default());
    wrong.extend(changes.get(flow::CALLS_MAX).and_then(Value::as_i64).and_then(|n| too_many_calls(n, "")));
    wrong.extend(changes.get(flow::RELAUNCH_AFTER).and_then(Value::as_i64).and_then(|ms| bad_relaunch(ms, "")));
    if !wrong.is_empty() {
        return Err(Problem::invalid(wrong));
    }
    if let Some(wanted) = account::wanted(&call, changes.get("account").cloned(), "").await? {
        changes.insert("account".into(), json!(wanted));
    }
    let limits = Limits::of(changes.get("budget").unwrap_or(&Value::Null));
    let (_, answer) = settle(&call, budget::of_agent, |(mut row, session, mut rows)| {
        if matches!(row.lifecycle.as_str(), "terminated" | "failed") {
            return Err(Problem::conflict("ended", format!("the agent is {}: it has ended", row.lifecycle)));
        }
        let id = AgentId::from(row.id);
        let merged = budget::merged(&row.config["budget"], changes.get("budget"));
        let thinks_with = model.as_deref().unwrap_or(&row.model);
        let wrong = budget::unpriced(&call, thinks_with, &merged, &session.budget, "");
        if !wrong.is_empty() && (model.is_some() || limits.cost.is_some()) {
            return Err(Problem::invalid(wrong));
        }
        let mut commit = Commit::new(SessionId::from(row.session_id), call.actor()).traced(call.traceparent.clone());
        let mut change = Change::new(&agent::TABLE, id.uuid()).version(row.version);
        let looped = flow::is_autonomous(&row);
        for field in KEPT {
            if let (Some(value), Some(config)) = (changes.get(field), row.config.as_object_mut()) {
                config.insert(field.into(), value.clone());
            }
        }
        if let (true, Some(config)) = (changes.contains_key("budget"), row.config.as_object_mut()) {
            config.insert("budget".into(), merged);
            flow::lift(&mut commit, &budget::lifted(changes.get("budget")), &mut rows);
            flow::limit(&mut commit, id, &limits, &rows);
        }
        change = change.set(agent::Column::Config, row.config.clone());
        if let Some(name) = &name {
            row.name.clone_from(name);
            change = change.set(agent::Column::Name, name.clone());
        }
        if let Some(role) = &role {
            row.role.clone_from(role);
            change = change.set(agent::Column::Role, role.clone());
        }
        if !looped && flow::is_autonomous(&row) && row.drive == "running" {
            let now = commit.at();
            flow::nudge_later(&mut commit, &row, row.epoch, now);
        }
        if let Some(model) = &model {
            row.model.clone_from(model);
            change = change.set(agent::Column::Model, model.clone());
        }
        commit.change(change);
        commit.rune(Draft::new(id, &ConfigUpdated { changes: json!(changes) })?.agent(id));
        row.updated_at = commit.at();
        Ok((commit, show(&row)))
    })
    .await?;
    Ok(Reply::ok(answer))
}
