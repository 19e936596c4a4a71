//! `terminate_agent`: ends a child of the caller that is idle, with everything it made.

use super::send::find;
use super::{Caller, Failed, Plan, error_of, success};
use instar_core::id::{AgentId, SessionId};
use instar_core::machine::agent_lifecycle;
use instar_runtime::{Act, ActError};
use serde_json::json;

pub(super) async fn plan(caller: &Caller<'_>) -> Result<Plan, Failed> {
    let Some((session, own)) = caller.rows().await? else {
        return Ok(Plan::Answer(error_of("you are no longer there")));
    };
    let mut circle = caller.runner.hub.store().circle(&own).await?;
    circle.retain(|kin| kin.agent.parent_id == Some(own.id));
    let child = match find(&circle, &own, caller.call.arguments["agent"].as_str().unwrap_or_default().trim()) {
        Ok(kin) => &kin.agent,
        Err(why) => return Ok(Plan::Answer(error_of(why))),
    };
    let id = AgentId::from(child.id);
    if child.lifecycle == "running_turn" {
        return Ok(Plan::Answer(error_of(spared(&child.name, &child.lifecycle))));
    }
    let act = Act::new(SessionId::from(session.id), id, &agent_lifecycle::TABLE, "kill", caller.actor());
    let ended = match act.reason("terminated by its parent").prepare(&caller.runner.hub).await {
        Ok(commit) => commit,
        Err(ActError::Store(error)) => return Err(error.into()),
        Err(_) => None,
    };
    let Some(commit) = ended else {
        // It may have begun something since it was looked at.
        let now = caller.runner.hub.store().agent(id).await?.map_or(child.lifecycle.clone(), |row| row.lifecycle);
        return Ok(Plan::Answer(error_of(spared(&child.name, &now))));
    };
    let outcome = success(json!({"agent_id": id, "name": child.name, "state": "terminated"}));
    Ok(Plan::Commit(Box::new(commit.then(caller.result(&outcome)?)), outcome))
}

fn spared(name: &str, lifecycle: &str) -> String {
    match lifecycle {
        "running_turn" => format!("{name} is in a turn: have its answer with wait_for first, or leave it to a person"),
        "idle" => format!("{name} is about to begin something: try again, or have its answer with wait_for first"),
        other => format!("{name} is {other}: it cannot be ended now"),
    }
}
