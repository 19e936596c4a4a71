//! What keeps a turn or an agent waiting: a pure reading of the rows.

use super::budget::short;
use chrono::{DateTime, Duration, Utc};
use instar_core::id::{AgentId, CallId, TurnId};
use instar_runtime::flow::{self, Waits};
use instar_store::entity::{agent, budget, session, tool_call, turn};
use serde_json::{Value, json};
use uuid::Uuid;

/// `None` when nothing does. `busy` is another turn of the agent that has begun and not ended; `budgets` are the
/// limits that the agent draws on.
pub(crate) fn waiting_for(
    session: &session::Model,
    agent: &agent::Model,
    turn: &turn::Model,
    calls: &[tool_call::Model],
    busy: Option<Uuid>,
    budgets: &[budget::Model],
) -> Option<Value> {
    match turn.status.as_str() {
        "queued" if session.status != "active" => Some(held_session(session, budgets)),
        "queued" if agent.drive != "running" => {
            Some(stopped(agent, budgets).unwrap_or_else(|| json!({"kind": "agent", "drive": agent.drive})))
        }
        "queued" if agent.lifecycle == "spawning" => Some(in_the_making(agent)),
        "queued" => match busy {
            Some(other) => Some(json!({"kind": "turn", "turn_id": TurnId::from(other)})),
            None => Some(short(budgets).unwrap_or_else(|| json!({"kind": "worker"}))),
        },
        "tool_executing" => Some(open_calls(session, turn, calls, budgets)),
        "streaming" => {
            let parked = turn.control.as_ref().filter(|control| control["action"] == "wait");
            parked.map(|control| json!({"kind": "provider", "until": control["until"]}))
        }
        _ => None,
    }
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

fn open_calls(
    session: &session::Model,
    turn: &turn::Model,
    calls: &[tool_call::Model],
    budgets: &[budget::Model],
) -> Value {
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
        return json!({"kind": "tool", "call_ids": ids(&open)});
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
            Some(json!({"kind": "timer", "until": until}))
        }
        (None, _) => Some(json!({"kind": "message"})),
    }
}
