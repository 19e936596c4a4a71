//! `wait_for`: the call waits as a row until agents that the caller made have nothing to do any more.
//!
//! While it waits nobody has it: no task, no lease, no timeout of the tool. Whoever ends the turn of a
//! child says so, the timer of its own timeout does, and a sweep finds what a lost word left.

use super::send::{find, is_live};
use super::{Caller, Failed, Plan, error_of, success};
use chrono::{DateTime, Duration, Utc};
use instar_core::id::AgentId;
use instar_runtime::flow::{self, Waits};
use instar_store::Kin;
use serde_json::{Value, json};
use uuid::Uuid;

pub(super) async fn plan(caller: &Caller<'_>) -> Result<Plan, Failed> {
    let store = caller.runner.hub.store();
    let now = store.now().await?;
    let parked = Waits::of(caller.call);
    let waits = match &parked {
        Some(waits) => waits.clone(),
        None => match begin(caller, now).await? {
            Ok(waits) => waits,
            Err(why) => return Ok(Plan::Answer(error_of(why))),
        },
    };
    let awaited = store.kin_of(&waits.agents).await?;
    let (done, late) = (awaited.iter().all(Kin::rests), waits.until.is_some_and(|until| until <= now));
    if done || late {
        return Ok(Plan::Answer(success(answer(caller, &awaited, done).await?)));
    }
    if parked.is_some() {
        return Ok(Plan::Nothing);
    }
    Ok(Plan::Park(Box::new(flow::wait(caller.call, &waits, caller.runner.id)?)))
}

/// Whom the call names, and until when it waits for them; the error says whom it may name.
async fn begin(caller: &Caller<'_>, now: DateTime<Utc>) -> Result<Result<Waits, String>, Failed> {
    let Some((_, own)) = caller.rows().await? else { return Ok(Err("you are no longer there".into())) };
    let mut circle = caller.runner.hub.store().circle(&own).await?;
    circle.retain(|kin| kin.agent.parent_id == Some(own.id));
    let arguments = &caller.call.arguments;
    let names = arguments["agents"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut agents: Vec<Uuid> = Vec::new();
    for name in names.iter().filter_map(Value::as_str) {
        match find(&circle, &own, name.trim()) {
            Ok(kin) if !agents.contains(&kin.agent.id) => agents.push(kin.agent.id),
            Ok(_) => {}
            Err(_) => {
                let live = circle.iter().filter(|kin| is_live(&kin.agent)).map(|kin| kin.agent.name.as_str());
                let live = live.collect::<Vec<_>>().join(", ");
                return Ok(Err(format!("{name:?} is none of the agents that you made; those are: {live}")));
            }
        }
    }
    if agents.is_empty() {
        return Ok(Err("agents is empty: name those to wait for".into()));
    }
    // 5.0 is an integer to JSON Schema.
    let wait = arguments["timeout_ms"].as_f64().map(|ms| Duration::milliseconds(ms as i64));
    Ok(Ok(Waits { agents, account: None, until: wait.map(|wait| now + wait) }))
}

async fn answer(caller: &Caller<'_>, awaited: &[Kin], done: bool) -> Result<Value, Failed> {
    let chars_max = caller.spec.max_output_bytes / (4 * awaited.len().max(1));
    let mut agents = Vec::new();
    for kin in awaited {
        let last = caller.runner.hub.store().last_turn(kin.agent.id).await?;
        let mut shown = json!({"agent_id": AgentId::from(kin.agent.id), "name": kin.agent.name, "state": state(kin)});
        if let Some(output) = last.as_ref().and_then(|turn| turn.output.as_deref()) {
            shown["output"] = json!(output.chars().take(chars_max).collect::<String>());
            if output.chars().count() > chars_max {
                shown["cut"] = json!(format!("the first {chars_max} characters"));
            }
        }
        let failed = last.as_ref().and_then(|turn| turn.error.as_ref()).map(|error| error["message"].clone());
        if let Some(error) = kin.agent.last_error.as_ref().map(|error| json!(error)).or(failed) {
            shown["error"] = error;
        }
        agents.push(shown);
    }
    Ok(json!({"done": done, "agents": agents}))
}

/// What became of it, in one word.
fn state(kin: &Kin) -> &str {
    match (kin.agent.lifecycle.as_str(), kin.agent.drive.as_str()) {
        (ended @ ("terminated" | "failed"), _) => ended,
        (_, held @ ("errored" | "stopped")) => held,
        ("spawning", _) => "waiting for a place",
        _ if kin.rests() => "idle",
        _ => "working",
    }
}
