//! `send_message`: what one agent says to another of its circle.

use super::{Caller, Failed, Plan, error_of, success};
use instar_core::id::{AgentId, SessionId};
use instar_runtime::flow::{self, Letter};
use instar_store::entity::agent;
use instar_store::{Commit, Kin, clock};
use serde_json::json;

pub(super) async fn plan(caller: &Caller<'_>) -> Result<Plan, Failed> {
    let arguments = &caller.call.arguments;
    let text = |field: &str| arguments[field].as_str().unwrap_or_default().trim();
    let content = text("content");
    if content.is_empty() {
        return Ok(Plan::Answer(error_of("content is empty: say something")));
    }
    let Some((session, from)) = caller.rows().await? else {
        return Ok(Plan::Answer(error_of("you are no longer there")));
    };
    let circle = caller.runner.hub.store().circle(&from).await?;
    let to = match find(&circle, &from, text("to")) {
        Ok(to) => to,
        Err(why) => return Ok(Plan::Answer(error_of(why))),
    };
    if let Some(why) = deaf(&to.agent) {
        return Ok(Plan::Answer(error_of(why)));
    }
    if !["created", "active", "paused"].contains(&session.status.as_str()) {
        return Ok(Plan::Answer(error_of(format!("the session is {}: it takes no more input", session.status))));
    }
    let agents = &caller.runner.config.agents;
    let (most, ceiling) = (agents.letter_turns_max, flow::Ceiling::usual(agents));
    // A letter that wakes nobody raises no event of an agent.
    let wakes_nobody =
        to.agent.drive == "idle" && !to.busy && flow::letter_waits(&to.agent, most, ceiling, clock::now()).is_some();
    let actor = if wakes_nobody { caller.system() } else { caller.actor() };
    let session = SessionId::from(caller.call.session_id);
    let mut commit = Commit::new(session, actor.clone()).traced(caller.call.traceparent.clone());
    let told = flow::tell(&mut commit, Letter { from: &from, content }, &to.agent, to.busy, most, ceiling)?;
    let state = match told.turn {
        Some(_) => "it reads it now",
        None if told.waits == Some(flow::LetterWaits::Person) => {
            "it has had too many messages without a word of a person, and reads it when one speaks"
        }
        None if told.waits.is_some() => "it has done as much today as it may without a person, and reads it tomorrow",
        None => "it reads it after what it does now",
    };
    let outcome = success(json!({
        "message_id": told.message, "to": AgentId::from(to.agent.id), "name": to.agent.name, "state": state,
    }));
    let commit = commit.then(flow::result(caller.call, actor, &outcome)?);
    Ok(Plan::Commit(Box::new(commit), outcome))
}

/// The one meant by an id, a name or the word `parent`.
pub(super) fn find<'a>(circle: &'a [Kin], from: &agent::Model, to: &str) -> Result<&'a Kin, String> {
    let named: Vec<&Kin> = circle.iter().filter(|kin| kin.agent.name == to && is_live(&kin.agent)).collect();
    let meant = match to.parse::<AgentId>() {
        Ok(id) => circle.iter().find(|kin| kin.agent.id == id.uuid()),
        Err(_) if to == "parent" => circle.iter().find(|kin| Some(kin.agent.id) == from.parent_id),
        Err(_) => match named.as_slice() {
            [one] => Some(*one),
            [] => circle.iter().rev().find(|kin| kin.agent.name == to),
            several => {
                let ids: Vec<_> = several.iter().map(|kin| AgentId::from(kin.agent.id).to_string()).collect();
                return Err(format!("there are several agents {to:?}: name one by its id: {}", ids.join(", ")));
            }
        },
    };
    meant.ok_or_else(|| {
        let live = circle.iter().filter(|kin| is_live(&kin.agent)).map(|kin| kin.agent.name.as_str());
        let live = live.collect::<Vec<_>>().join(", ");
        let live = if live.is_empty() { "nobody".to_owned() } else { live };
        format!("there is no agent {to:?} that you may address; there is: {live}")
    })
}

pub(super) fn is_live(agent: &agent::Model) -> bool {
    !["terminated", "failed"].contains(&agent.lifecycle.as_str())
}

/// Why an agent takes no letters.
fn deaf(to: &agent::Model) -> Option<String> {
    if !is_live(to) {
        return Some(format!("{} is {}: it takes no more messages", to.name, to.lifecycle));
    }
    let error = to.last_error.as_deref().unwrap_or("no details");
    match to.drive.as_str() {
        "stopped" => Some(format!("{} is stopped: a person must start it before it takes messages", to.name)),
        "errored" => Some(format!("{} is errored ({error}): a person must start it before it takes messages", to.name)),
        _ => None,
    }
}
