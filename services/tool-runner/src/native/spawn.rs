//! `spawn_agent`: a child of the caller, with its first task.

use super::role::Role;
use super::{Caller, Failed, Plan, error_of, success};
use instar_core::budget::{Kind, Limits};
use instar_core::id::AgentId;
use instar_runtime::flow::{self, NewAgent, Outcome};
use instar_store::Kin;
use instar_store::entity::agent;
use instar_tools::beyond;
use serde::Deserialize;
use serde_json::{Map, Value, json};

#[derive(Deserialize)]
struct Wanted {
    name: String,
    role: Option<String>,
    model: Option<String>,
    system_prompt: Option<String>,
    tools: Option<Vec<String>>,
    budget: Option<Map<String, Value>>,
    task: String,
}

pub(super) async fn plan(caller: &Caller<'_>) -> Result<Plan, Failed> {
    let wanted: Wanted = match serde_json::from_value(caller.call.arguments.clone()) {
        Ok(wanted) => wanted,
        Err(error) => return Ok(Plan::Answer(error_of(format!("the arguments cannot be read: {error}")))),
    };
    let Some((session, parent)) = caller.rows().await? else {
        return Ok(Plan::Answer(error_of("you are no longer there")));
    };
    let (config, hub) = (&caller.runner.config, &caller.runner.hub);
    let children = hub.store().live_children(caller.agent()).await?;
    let depth = parent.config["depth"].as_u64().unwrap_or(0) + 1;
    if let Some(why) = refusal(caller, &wanted, &parent, depth) {
        return Ok(Plan::Answer(why));
    }
    if children.len() >= config.agents.children_max as usize {
        let why = format!(
            "you have {} agents, which is the most you may have: give the task to one of them with send_message, or \
             end one that is done with terminate_agent",
            children.len()
        );
        return Ok(Plan::Answer(error_of(why)));
    }
    if children.iter().any(|child| child.agent.name == wanted.name) {
        return Ok(Plan::Answer(error_of(format!("you have an agent {:?} already: choose another name", wanted.name))));
    }
    let waits = |child: &&Kin| child.agent.lifecycle == "spawning";
    let at_work = children.iter().filter(|child| !waits(child) && (child.busy || child.waiting)).count();
    // Those that wait already go first.
    let starts = at_work < config.agents.children_at_work_max as usize && !children.iter().any(|child| waits(&child));
    let task = wanted.task.clone();
    let new = bound(caller, wanted, &parent, depth);
    let known = config.models.is_empty() || config.models.iter().any(|model| model.name == new.model);
    let role = json!({"name": new.name, "role": new.role, "model": new.model, "tools": new.tools});
    if !known {
        let names: Vec<&str> = config.models.iter().map(|model| model.name.as_str()).collect();
        let why = format!("there is no model {:?}; configured are: {}", new.model, names.join(", "));
        let outcome = error_of(format!("{} could not be brought up: {why}", new.name));
        let mut commit = caller.result(&outcome)?;
        flow::fail_child(&mut commit, &session, &parent, caller.turn(), new, &why)?;
        return Ok(Plan::Commit(Box::new(commit), outcome));
    }
    if let Some(why) = unpriced(caller, &parent, &new).await? {
        return Ok(Plan::Answer(error_of(why)));
    }
    // Counted after the session's row was read, whose version the commit names.
    let max = u64::from(caller.runner.config.agents.session_max);
    if max > 0 && caller.runner.hub.store().count_agents(session.id.into(), max).await? >= max {
        let why = format!("the session may have {max} agents, and has: do the task yourself, or end one you made");
        return Ok(Plan::Answer(error_of(why)));
    }
    // The result names the child, and the child's id is made with its row: so the row comes first.
    let mut born = caller.commit();
    let child = flow::bear_child(&mut born, &session, &parent, new, &task, starts)?;
    if max > 0 {
        flow::counted(&mut born, &session);
    }
    let mut output = json!({"agent_id": AgentId::from(child.agent.id), "state": "working"});
    if !starts {
        output["state"] = json!(format!("waiting: {at_work} of your agents work; it begins when one of them is done"));
    }
    if let (Some(output), Value::Object(role)) = (output.as_object_mut(), role) {
        output.extend(role);
    }
    let outcome = success(output);
    let commit = born.then(caller.result(&outcome)?);
    Ok(Plan::Commit(Box::new(commit), outcome))
}

fn refusal(caller: &Caller<'_>, wanted: &Wanted, parent: &agent::Model, depth: u64) -> Option<Outcome> {
    if wanted.name.trim().is_empty() || wanted.task.trim().is_empty() {
        return Some(error_of("name and task must not be empty"));
    }
    let depth_max = u64::from(caller.runner.config.agents.depth_max);
    if depth > depth_max {
        let why =
            format!("agents may be made {depth_max} generations deep, and you are of the last: do the task yourself");
        return Some(error_of(why));
    }
    let beyond = beyond(wanted.tools.as_deref().unwrap_or_default(), &parent.tools());
    (!beyond.is_empty()).then(|| {
        let held = parent.tools().join(", ");
        error_of(format!("you cannot give tools that you do not have: {}; you have: {held}", beyond.join(", ")))
    })
}

/// Why what the child may cost could not be counted, if that is limited.
async fn unpriced(caller: &Caller<'_>, parent: &agent::Model, new: &NewAgent) -> Result<Option<String>, Failed> {
    let own = Limits::of(&new.config["budget"]).cost.is_some();
    let above = caller.runner.hub.store().budgets(&flow::payers(parent)).await?;
    let limited = own || above.iter().any(|limit| limit.kind == Kind::Cost.token() && flow::is_limit(limit));
    let models = &caller.runner.config.models;
    let priced = models.iter().any(|model| model.name == new.model && model.price.is_some());
    Ok((limited && !priced).then(|| {
        format!("what agents may cost here is limited, and model {:?} has no price: choose another model", new.model)
    }))
}

/// What it is made of: as wanted, else by its role, else as its parent. Whoever makes an agent may not
/// loosen what a person has to approve.
fn bound(caller: &Caller<'_>, wanted: Wanted, parent: &agent::Model, depth: u64) -> NewAgent {
    let name = wanted.role.as_deref().unwrap_or("worker");
    let role = Role::named(name);
    let by_role = caller.runner.config.agents.models.get(name).cloned();
    let model = wanted.model.or(by_role).unwrap_or_else(|| parent.model.clone());
    let tools = match wanted.tools {
        Some(tools) => tools,
        None => role.map(|role| role.tools(&caller.runner.tools, &parent.tools())).unwrap_or_default(),
    };
    let prompt = wanted.system_prompt.or_else(|| role.map(|role| role.prompt(&parent.name)));
    let config = json!({
        "system_prompt": prompt,
        "tools": tools,
        "loop": "reactive",
        "approval_mode": parent.config["approval_mode"],
        "tool_approvals": parent.config.get("tool_approvals"),
        "policy": parent.config.get("policy"),
        "budget": role.map(|role| role.budget(wanted.budget.as_ref())),
        "depth": depth,
        // Any of the same pool, for itself. A certain one is its parent's.
        "account": parent.config.get("account").filter(|account| account.get("pool").is_some()),
    });
    let parent = Some(AgentId::from(parent.id));
    NewAgent { name: wanted.name, role: name.to_owned(), model, config, tools, parent, ..NewAgent::default() }
}
