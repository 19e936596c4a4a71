//! What keeps a turn waiting: a pure reading of the rows.

use instar_core::id::{CallId, TurnId};
use instar_store::entity::{agent, session, tool_call, turn};
use serde_json::{Value, json};
use uuid::Uuid;

/// `None` when nothing does. `busy` is another turn of the agent that has begun and not ended.
pub(crate) fn waiting_for(
    session: &session::Model,
    agent: &agent::Model,
    turn: &turn::Model,
    calls: &[tool_call::Model],
    busy: Option<Uuid>,
) -> Option<Value> {
    match turn.status.as_str() {
        "queued" if session.status != "active" => Some(json!({"kind": "session", "status": session.status})),
        "queued" if agent.drive != "running" => Some(json!({"kind": "agent", "drive": agent.drive})),
        "queued" => match busy {
            Some(other) => Some(json!({"kind": "turn", "turn_id": TurnId::from(other)})),
            None => Some(json!({"kind": "worker"})),
        },
        "tool_executing" => {
            let open = |status: Option<&str>| -> Vec<CallId> {
                let open = calls.iter().filter(|call| call.ended_at.is_none());
                open.filter(|call| status.is_none_or(|s| call.status == s)).map(|call| CallId::from(call.id)).collect()
            };
            let asked = open(Some("awaiting_approval"));
            let all = open(None);
            match (asked.is_empty(), all.is_empty()) {
                (false, _) => Some(json!({"kind": "approval", "call_ids": asked})),
                (true, false) => Some(json!({"kind": "tool", "call_ids": all})),
                // Every result is in: whoever owns the agent goes on.
                (true, true) => Some(json!({"kind": "worker"})),
            }
        }
        "streaming" => {
            let parked = turn.control.as_ref().filter(|control| control["action"] == "wait");
            parked.map(|control| json!({"kind": "provider", "until": control["until"]}))
        }
        _ => None,
    }
}
