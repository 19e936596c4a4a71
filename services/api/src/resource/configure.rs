//! An agent's configuration, changed while it lives. It counts from the next turn on.

use super::agent::{
    APPROVAL_MODES, COST_PER_DAY, LOOPS, PROMPT_BYTES_MAX, RELAUNCH, TOOLS_MAX, TURNS_PER_DAY, bad_approvals,
    bad_policy, bad_relaunch, show, too_many_calls, unknown_model, unknown_tools,
};
use super::{account, budget};
use crate::auth::Role;
use crate::call::{Call, Reply};
use crate::problem::Problem;
use crate::settle::settle;
use crate::shape::{Kind, Shape, Wrong, may};
use instar_core::budget::Limits;
use instar_core::id::{AgentId, SessionId};
use instar_core::machine::By;
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
        may("turns_per_day_max", Kind::Integer, TURNS_PER_DAY),
        may("cost_per_day_max", Kind::Any, COST_PER_DAY),
        may("relaunch_after_ms", Kind::Integer, RELAUNCH),
        may("budget", Kind::Budget, "Limits that replace those of the same name; null takes one away"),
    ],
};

/// More is as good as any number.
const TURNS_PER_DAY_LIMIT: i64 = 1_000_000_000;

/// What null takes away; of anything else it says nothing.
const REMOVABLE: [&str; 7] = [
    "system_prompt",
    "policy",
    "account",
    flow::CALLS_MAX,
    flow::RELAUNCH_AFTER,
    flow::TURNS_PER_DAY,
    flow::COST_PER_DAY,
];
/// What is kept in the agent's `config` as it is given.
const KEPT: [&str; 12] = [
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
    flow::TURNS_PER_DAY,
    flow::COST_PER_DAY,
];
/// Its ceilings per day: only who may approve takes the brakes off.
const BRAKES: [&str; 2] = [flow::TURNS_PER_DAY, flow::COST_PER_DAY];

/// What is wrong with ceilings per day.
fn bad_ceilings(changes: &serde_json::Map<String, Value>) -> Wrong {
    let given = |name: &str| changes.get(name).filter(|value| !value.is_null());
    let turns = given(flow::TURNS_PER_DAY).and_then(Value::as_i64).filter(|n| !(0..=TURNS_PER_DAY_LIMIT).contains(n));
    let turns = turns.map(|_| (flow::TURNS_PER_DAY, format!("must be 0 to {TURNS_PER_DAY_LIMIT}; 0 for any number")));
    let cost = given(flow::COST_PER_DAY).filter(|value| flow::amount(value).is_none());
    let why = "must be an amount: a text such as \"2.50\", or a whole number; \"0\" for any amount";
    let cost = cost.map(|_| (flow::COST_PER_DAY, why.to_owned()));
    turns.into_iter().chain(cost).map(|(name, why)| (format!("/{name}"), why)).collect()
}

pub(crate) async fn patch(call: Arc<Call>) -> Result<Reply, Problem> {
    let counts = |name: &str, value: &Value| !value.is_null() || REMOVABLE.contains(&name);
    let mut changes: serde_json::Map<String, Value> =
        call.body.iter().filter(|(name, value)| counts(name, value)).map(|(k, v)| (k.clone(), v.clone())).collect();
    if changes.is_empty() {
        let known = CONFIGURE.fields.iter().map(|field| field.name).collect::<Vec<_>>().join(", ");
        return Err(Problem::invalid(vec![(String::new(), format!("nothing to change; give one of: {known}"))]));
    }
    if BRAKES.iter().any(|name| changes.contains_key(*name)) && call.caller.role < Role::Approver {
        let why = format!(
            "this key is a {}; to set {} takes an approver's: what an agent may cause itself in a day is a brake",
            call.caller.role.token(),
            BRAKES.join(" or ")
        );
        return Err(Problem::forbidden(call.caller.role.token(), Role::Approver.token()).saying(why));
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
    wrong.extend(bad_ceilings(&changes));
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
        let mut change = Change::entity(&agent::TABLE, id).version(row.version);
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
        let today = flow::Today::of(&row, commit.at());
        let ceiling = flow::Ceiling::of(&row, flow::Ceiling::usual(&call.api.context.config.agents));
        let brakes = BRAKES.iter().any(|name| changes.contains_key(*name));
        let asked = [flow::COST_PER_DAY, "model"].into_iter().find(|name| changes.contains_key(*name));
        if let Some(asked) = asked.filter(|_| ceiling.cost.0 > 0 && !budget::is_priced(&call, &row.model)) {
            let why = format!(
                "what it costs in a day ({}) cannot be counted: model {:?} has no price; give it one in the \
                 configuration (price of [[models]]), or set {} instead and {} to \"0\"",
                flow::COST_PER_DAY,
                row.model,
                flow::TURNS_PER_DAY,
                flow::COST_PER_DAY
            );
            return Err(Problem::invalid(vec![(format!("/{asked}"), why)]));
        }
        if brakes && flow::rests_for_today(&row) && row.lifecycle == "idle" && !ceiling.is_reached(today) {
            change = flow::go_on_today(&mut commit, &row, change, By::User, today)?;
            row.drive = "running".into();
        }
        commit.change(change);
        commit.rune(Draft::new(id, &ConfigUpdated { changes: json!(changes) })?.agent(id));
        row.updated_at = commit.at();
        Ok((commit, show(&row)))
    })
    .await?;
    Ok(Reply::ok(answer))
}
