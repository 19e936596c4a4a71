//! What a command and its cascades say: the payload of each rune, and the columns that go with
//! each transition.

pub(crate) mod mission;

use chrono::{DateTime, Utc};
use instar_core::cascade::{Entry, Planned};
use instar_core::id::StepId;
use instar_core::machine::Phase;
use instar_store::Change;
use instar_store::entity::{agent, tool_call, turn};
use serde_json::{Value, json};

/// Fields that the command supplies for the rune it causes itself go before these.
pub(crate) fn payload(entry: &Entry, reason: &str, actor: &str) -> Value {
    let rows: Vec<&str> = entry.moves.iter().filter(|m| m.entity == entry.entity).map(|m| m.row.as_str()).collect();
    let row = |id: &str| rows.contains(&id);
    match entry.kind {
        // An agent that ends with another one, or with its session, says so, whatever the command was.
        "agent.terminated" if row("L10") => json!({"reason": "parent_closed"}),
        "agent.terminated" if row("L17") => json!({"reason": "session_closed"}),
        "turn.interrupted" if row("T22") => json!({"reason": reason, "forced": true}),
        "session.suspended" | "agent.terminated" | "agent.drive_idled" | "turn.interrupted" | "tool.denied" => {
            json!({"reason": reason})
        }
        "agent.drive_errored" => json!({"last_error": in_words(reason)}),
        "agent.failed" => json!({"error": reason}),
        "turn.error" => turn_error(reason),
        "turn.control_requested" => json!({"action": "interrupt", "reason": reason}),
        "tool.approved" => json!({"approver": actor}),
        "tool.result" => json!({"status": status(&rows), "error": error(status(&rows), reason)}),
        "session.paused"
        | "session.resumed"
        | "session.closing"
        | "session.unsuspended"
        | "agent.drive_stopped"
        | "agent.drive_started"
        | "agent.deleted" => json!({"reason": reason}),
        _ => json!({}),
    }
}

/// The same for a call that a step makes: nobody but the rows knows what it is.
pub(crate) fn step_call(entry: &Entry, call: &tool_call::Model, reason: &str, actor: &str) -> Value {
    let made = |id: &str| entry.moves.iter().any(|moved| moved.entity == entry.entity && moved.row == id);
    match entry.kind {
        "tool.call" => json!({
            "tool_name": call.name,
            "arguments": call.arguments,
            "provenance": "step",
            "digest": call.digest,
            "step_id": call.step_id.map(StepId::from),
        }),
        "tool.approval_requested" => {
            let why = call.approval.as_ref().and_then(|asked| asked["reason"].as_str()).unwrap_or(reason);
            json!({"policy_reason": why, "digest": call.digest, "expires_at": call.expires_at})
        }
        "tool.approved" => {
            let approver = if made("C3") { "policy" } else { actor };
            json!({"approver": approver, "digest": call.digest})
        }
        "tool.result" if made("C14") || made("C15") => {
            let why = call.result.as_ref().and_then(|result| result["error"].as_str()).unwrap_or(reason);
            let status = if made("C14") { "error" } else { "sandbox_violation" };
            json!({"status": status, "error": why})
        }
        _ => payload(entry, reason, actor),
    }
}

/// Why a turn failed, as a class and in words.
fn turn_error(reason: &str) -> Value {
    json!({"error_type": reason, "message": in_words(reason)})
}

/// What a person can do about it.
fn in_words(reason: &str) -> &str {
    match reason {
        "stuck" => "nothing was heard of the turn for too long; look at the worker that had it, then send again",
        "timeout" => "the turn took longer than it may",
        "tool_crash" => "a call of this turn has cost three tool-runners and is not run again; look at its tool",
        other => other,
    }
}

fn status(rows: &[&str]) -> &'static str {
    let row = |id: &str| rows.contains(&id);
    match () {
        _ if row("C6") || row("C13") => "denied",
        _ if row("C7") || row("C11") => "timeout",
        _ if row("C16") => "unknown",
        _ if row("C12") || row("C17") => "cancelled",
        _ if row("C9") => "success",
        _ if row("C15") => "sandbox_violation",
        _ => "error",
    }
}

/// What the model is told of a call that did not run to its end.
fn error(status: &str, reason: &str) -> String {
    match status {
        "denied" => format!("the call was denied: {reason}"),
        "cancelled" => format!("the call was cancelled: {reason}"),
        "timeout" => "nobody decided about the call in time".into(),
        "unknown" => "it is not known whether the call took effect".into(),
        other => format!("{other}: {reason}"),
    }
}

/// The columns besides its state that a row's transition sets. `cause` is the command's own event.
pub(crate) fn dress(change: Change, planned: &Planned, cause: &str, reason: &str, at: DateTime<Utc>) -> Change {
    let mv = &planned.mv;
    let ends = mv.table().phase(mv.to()) == Some(Phase::Terminal) && mv.changes_state();
    match mv.machine() {
        "turn" if ends => {
            let change = change.set(turn::Column::EndedAt, at).set(turn::Column::OpenCalls, 0i64);
            match mv.to() {
                "error" => change.set(turn::Column::Error, turn_error(reason)),
                _ => change,
            }
        }
        "turn" if mv.event() == "request_control" => {
            change.set(turn::Column::Control, json!({"action": "interrupt", "cause": cause, "reason": reason}))
        }
        "tool_call" if ends => {
            let status = status(&[mv.row()]);
            change
                .set(tool_call::Column::EndedAt, at)
                .set(tool_call::Column::ResultStatus, status)
                .set(tool_call::Column::Result, json!({"error": error(status, reason)}))
        }
        "agent_lifecycle" if ends => change.set(agent::Column::Owner, None::<uuid::Uuid>),
        "agent_drive" if matches!(mv.event(), "start") => {
            let change = change.set(agent::Column::NudgeCount, 0i64).set(agent::Column::LetterCount, None::<i64>);
            change.set(agent::Column::LateCount, None::<i64>).set(agent::Column::LastError, None::<String>)
        }
        "agent_drive" if mv.to() == "errored" => change.set(agent::Column::LastError, in_words(reason).to_owned()),
        _ => change,
    }
}
