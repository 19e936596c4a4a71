//! What keeps a turn or an agent waiting: a pure reading of the rows.

use super::budget::short;
use chrono::{DateTime, Duration, Utc};
use instar_core::id::{AgentId, CallId, TurnId};
use instar_runtime::Hub;
use instar_runtime::flow::{self, Waits};
use instar_store::StoreError;
use instar_store::entity::{agent, budget, session, tool_call, turn};
use serde_json::{Value, json};
use std::collections::HashSet;
use uuid::Uuid;

/// What a wait is read from, beside the turn and its calls.
pub(crate) struct Around<'a> {
    pub(crate) session: &'a session::Model,
    pub(crate) agent: &'a agent::Model,
    /// Another turn of the agent that has begun and not ended.
    pub(crate) busy: Option<Uuid>,
    /// The limits that the agent draws on.
    pub(crate) budgets: &'a [budget::Model],
    /// Which of the processes that have the agent or its calls are alive.
    pub(crate) alive: &'a HashSet<Uuid>,
    /// Services that are there and cannot be told of work, since the bus is down.
    pub(crate) untold: &'a [&'a str],
    pub(crate) now: DateTime<Utc>,
}

/// The processes whose being alive decides what these turns and calls wait for.
pub(crate) fn owners<'a>(
    agents: impl Iterator<Item = &'a agent::Model>,
    calls: impl Iterator<Item = &'a tool_call::Model>,
) -> Vec<Uuid> {
    let of_calls = calls.filter(|call| call.ended_at.is_none()).filter_map(|call| call.owner);
    agents.filter_map(|agent| agent.owner).chain(of_calls).collect()
}

/// `None` when nothing does.
pub(crate) fn waiting_for(around: &Around, turn: &turn::Model, calls: &[tool_call::Model]) -> Option<Value> {
    let mut waiting = waiting_whoever_is_told(around, turn, calls)?;
    if let Some(kind) = around.untold.iter().find(|kind| waiting["kind"] == **kind) {
        waiting["for"] = json!(kind);
        waiting["kind"] = json!("bus");
    }
    Some(waiting)
}

/// Which of those that take up turns and calls are there, and cannot be told of any.
pub(crate) async fn untold(hub: &Hub) -> Result<Vec<&'static str>, StoreError> {
    let mut untold = Vec::new();
    if hub.bus().watch().is_up() {
        return Ok(untold);
    }
    for (kind, service) in [("worker", "agent-worker"), ("runner", "tool-runner")] {
        if !hub.store().live_workers(service).await?.is_empty() {
            untold.push(kind);
        }
    }
    Ok(untold)
}

fn waiting_whoever_is_told(around: &Around, turn: &turn::Model, calls: &[tool_call::Model]) -> Option<Value> {
    let Around { session, agent, budgets, .. } = *around;
    match turn.status.as_str() {
        "queued" if session.status != "active" => Some(held_session(session, budgets)),
        "queued" if agent.drive != "running" => {
            Some(stopped(agent, budgets).unwrap_or_else(|| json!({"kind": "agent", "drive": agent.drive})))
        }
        "queued" if agent.lifecycle == "spawning" => Some(in_the_making(agent)),
        "queued" => match around.busy {
            Some(other) => Some(json!({"kind": "turn", "turn_id": TurnId::from(other)})),
            None => Some(short(budgets).unwrap_or_else(|| json!({"kind": "worker"}))),
        },
        "tool_executing" => Some(open_calls(around, turn, calls)),
        "streaming" => streaming(around, turn),
        _ => None,
    }
}

/// A turn that somebody has waits for nothing. One that was handed back, whose worker is gone, or whose wait for the
/// provider is over is for whoever takes it up, if there is room in the budgets for another call.
fn streaming(around: &Around, turn: &turn::Model) -> Option<Value> {
    let parked = turn.control.as_ref().filter(|control| control["action"] == "wait");
    let until = parked.and_then(|control| control["until"].as_str()?.parse::<DateTime<Utc>>().ok());
    if let Some(until) = until.filter(|until| *until > around.now) {
        let said = |field: &str| parked.map(|control| control[field].clone());
        return Some(json!({"kind": "provider", "until": until, "error_type": said("reason"), "error": said("why")}));
    }
    if around.agent.owner.is_some_and(|owner| around.alive.contains(&owner)) {
        return None;
    }
    // What its old worker had set aside is kept for the call that is made again.
    let tight = short(around.budgets).filter(|_| turn.reserved.is_none());
    Some(tight.unwrap_or_else(|| json!({"kind": "worker"})))
}

/// A child waits for a place among its siblings, any other for servers to say which tools it has.
fn in_the_making(agent: &agent::Model) -> Value {
    match agent.parent_id {
        Some(parent) => json!({"kind": "place", "parent_id": AgentId::from(parent)}),
        None => json!({"kind": "tools"}),
    }
}

/// What would let the session go on stands beside its state.
fn held_session(session: &session::Model, budgets: &[budget::Model]) -> Value {
    let own: Vec<_> = budgets.iter().filter(|row| row.scope_id == session.id && row.used >= row.cap).cloned().collect();
    if let Some(spent) = short(&own).filter(|_| session.status == "suspended") {
        return spent;
    }
    let act = match session.status.as_str() {
        "paused" => "resume",
        "suspended" => "replenish or reset",
        _ => return json!({"kind": "session", "status": session.status}),
    };
    json!({"kind": "session", "status": session.status, "act": act})
}

/// An agent that its own budget has stopped.
fn stopped(agent: &agent::Model, budgets: &[budget::Model]) -> Option<Value> {
    let own: Vec<_> = budgets.iter().filter(|row| row.scope_id == agent.id && row.used >= row.cap).cloned().collect();
    short(&own).filter(|_| agent.drive == "stopped")
}

fn open_calls(around: &Around, turn: &turn::Model, calls: &[tool_call::Model]) -> Value {
    let Around { session, budgets, alive, .. } = *around;
    let open: Vec<&tool_call::Model> =
        calls.iter().filter(|call| call.iteration == turn.iterations && call.ended_at.is_none()).collect();
    let ids = |calls: &[&tool_call::Model]| calls.iter().map(|call| CallId::from(call.id)).collect::<Vec<_>>();
    let asked: Vec<_> = open.iter().copied().filter(|call| call.status == "awaiting_approval").collect();
    if !asked.is_empty() {
        // The clock stands while the session does.
        let until = asked.iter().filter_map(|call| call.expires_at).min().filter(|_| session.status == "active");
        return json!({"kind": "approval", "call_ids": ids(&asked), "role": "approver", "until": until});
    }
    // What it waits for stays in the row of a call that has begun.
    let parked = open.iter().filter(|call| call.owner.is_none());
    let awaited: Vec<Waits> = parked.filter_map(|call| Waits::of(call)).collect();
    if let Some(wanted) = awaited.iter().find_map(|waits| waits.account.clone()) {
        let until = awaited.iter().filter(|waits| waits.account.is_some()).filter_map(|waits| waits.until).min();
        return json!({"kind": "account", "call_ids": ids(&open), "account": wanted, "until": until});
    }
    if !awaited.is_empty() && awaited.len() == open.len() {
        let agents: Vec<AgentId> = awaited.iter().flat_map(|w| w.agents.iter().copied().map(AgentId::from)).collect();
        let until = awaited.iter().filter_map(|waits| waits.until).min();
        return json!({"kind": "agents", "call_ids": ids(&open), "agent_ids": agents, "until": until});
    }
    if !open.is_empty() {
        // One that nobody has begun, or whose runner is gone, is for the next tool-runner to take.
        let runs = open.iter().any(|call| call.owner.is_some_and(|owner| alive.contains(&owner)));
        return json!({"kind": if runs { "tool" } else { "runner" }, "call_ids": ids(&open)});
    }
    // Every result is in: whoever owns the agent goes on, unless the session stands still.
    match session.status.as_str() {
        "active" => short(budgets).unwrap_or_else(|| json!({"kind": "worker"})),
        _ => held_session(session, budgets),
    }
}

/// The oldest turn of an agent that has not ended, and what it waits for.
pub(crate) struct Live {
    pub(crate) id: TurnId,
    pub(crate) waiting: Option<Value>,
}

/// `None` for an agent that works, or that has ended. `letters`: messages wait for it without a turn.
pub(crate) fn agent_waits_for(
    session: &session::Model,
    agent: &agent::Model,
    live: Option<Live>,
    letters: bool,
    pause: Duration,
    budgets: &[budget::Model],
    now: DateTime<Utc>,
) -> Option<Value> {
    if ["terminated", "failed"].contains(&agent.lifecycle.as_str()) || agent.drive == "deleted" {
        return None;
    }
    match (live, agent.drive.as_str()) {
        (Some(live), _) => live.waiting.map(|mut waiting| {
            waiting["turn_id"] = json!(live.id);
            waiting
        }),
        (None, drive @ ("stopped" | "errored")) => {
            Some(stopped(agent, budgets).unwrap_or_else(|| json!({"kind": "start", "drive": drive})))
        }
        (None, _) if !["created", "active"].contains(&session.status.as_str()) => Some(held_session(session, budgets)),
        (None, _) if agent.lifecycle == "spawning" => Some(in_the_making(agent)),
        (None, "running") if letters => Some(json!({"kind": "scheduler"})),
        (None, "running") if flow::is_autonomous(agent) => {
            let until: DateTime<Utc> = agent.updated_at + pause;
            // One that is due, or whose timer was lost, the scheduler finds.
            Some(if until > now { json!({"kind": "timer", "until": until}) } else { json!({"kind": "scheduler"}) })
        }
        (None, _) => Some(json!({"kind": "message"})),
    }
}
