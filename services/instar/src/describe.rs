//! What a rune says, in one line for people.

use crate::output::short;
use instar_client::Rune;
use serde_json::Value;

const CHARS_MAX: usize = 100;

/// The fields that tell most, by kind; for the others the payload as it is.
pub(crate) fn rune(rune: &Rune) -> String {
    let payload = rune.payload();
    let field = |name: &str| payload.get(name).map(text).unwrap_or_default();
    let said = match rune.kind.as_str() {
        "session.created" | "agent.loaded" | "mission.proposed" => field("name"),
        "agent.spawning" => format!("{} on {}", field("name"), field("model")),
        "agent.message_received" | "turn.assistant_delta" | "turn.assistant_final" => field("content"),
        "turn.completed" => match field("final_output") {
            output if output.is_empty() => field("finish_reason"),
            output => output,
        },
        "turn.error" | "system.error" => format!("{}: {}", field("error_type"), field("message")),
        "tool.call" => format!("{}({})", field("tool_name"), arguments(&payload)),
        "tool.approval_requested" => field("policy_reason"),
        "tool.approved" => format!("by {}", field("approver")),
        "tool.result" => result(&payload),
        _ if payload.get("reason").is_some() => field("reason"),
        _ => match &payload {
            Value::Object(fields) if fields.is_empty() => String::new(),
            other => other.to_string(),
        },
    };
    short(&said, CHARS_MAX)
}

fn result(payload: &Value) -> String {
    let status = payload.get("status").map(text).unwrap_or_default();
    let said = match payload.get("error").filter(|error| !error.is_null()) {
        Some(error) => text(error),
        None => payload.get("output").filter(|output| !output.is_null()).map(text).unwrap_or_default(),
    };
    if said.is_empty() { status } else { format!("{status}: {said}") }
}

pub(crate) fn arguments(payload: &Value) -> String {
    payload.get("arguments").filter(|arguments| !arguments.is_null()).map(text).unwrap_or_default()
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn line(kind: &str, payload: Value) -> String {
        let wire = json!({"id": "run_1", "session_id": "ses_1", "seq": 1, "kind": kind, "entity_id": "trn_1",
            "actor": {"type": "user", "id": "k"}, "visibility": "public", "payload": payload,
            "at": "2026-11-16T06:00:00Z", "hash": ""});
        rune(&serde_json::from_str(&wire.to_string()).unwrap())
    }

    #[test]
    fn a_rune_is_told_by_what_matters_in_it() {
        let call = json!({"tool_name": "echo", "arguments": {"text": "hi"}});
        assert_eq!(line("tool.call", call), r#"echo({"text":"hi"})"#);
        assert_eq!(line("tool.result", json!({"status": "success", "output": "hi"})), "success: hi");
        assert_eq!(line("tool.result", json!({"status": "denied", "error": "no"})), "denied: no");
        assert_eq!(line("session.paused", json!({"reason": "lunch"})), "lunch");
        assert_eq!(line("agent.ready", json!({})), "");
    }
}
