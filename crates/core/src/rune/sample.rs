//! A smallest valid payload for every rune kind, for tests that need a rune of a kind and do not
//! care what it says.

use super::info;

macro_rules! id {
    ($prefix:literal) => {
        concat!($prefix, "_00000000000070008000000000000001")
    };
}

/// `None` when no kind is called so.
pub fn sample(token: &str) -> Option<&'static str> {
    info(token)?;
    Some(match token {
        "agent.spawning" => r#"{"name":"sample","role":"sample","model":"sample"}"#,
        "agent.loaded" | "config.tool_removed" => r#"{"name":"sample"}"#,
        "agent.failed" => r#"{"error":"sample"}"#,
        "agent.message" => {
            concat!(r#"{"from_agent_id":""#, id!("agt"), r#"","to_agent_id":""#, id!("agt"), r#"","content":"sample"}"#)
        }
        "agent.message_received" => concat!(r#"{"message_id":""#, id!("msg"), r#"","source":"user"}"#),
        "agent.budget_exhausted" => r#"{"kind":"tokens","used":1,"limit":1}"#,
        "agent.drive_errored" => r#"{"last_error":"sample"}"#,
        "agent.nudged" => r#"{"n":1}"#,
        "turn.queued" => r#"{"cause":"user"}"#,
        "turn.started"
        | "tool.started"
        | "tool.reclaimed"
        | "hop.execution_started"
        | "hop.retried"
        | "step.started" => r#"{"attempt":1}"#,
        "turn.assistant_delta" | "turn.assistant_final" => r#"{"content":"sample"}"#,
        "turn.usage" => r#"{"input_tokens":1,"output_tokens":1}"#,
        "turn.tool_calls_received" => r#"{"call_ids":[]}"#,
        "turn.control_requested" => r#"{"action":"interrupt"}"#,
        "turn.completed" => r#"{"usage":{"input_tokens":1,"output_tokens":1}}"#,
        "turn.error" | "system.error" => r#"{"error_type":"sample","message":"sample"}"#,
        "turn.recovered" => r#"{"attempt":2,"epoch":2}"#,
        "tool.call" => r#"{"tool_name":"sample"}"#,
        "tool.approval_requested" => r#"{"policy_reason":"sample"}"#,
        "tool.approved" | "mission.approved" | "hop.plan_approved" | "hop.impl_approved" | "plan.approved" => {
            r#"{"approver":"policy"}"#
        }
        "tool.progress" => r#"{"chunk":"sample"}"#,
        "tool.result" => r#"{"status":"success"}"#,
        "tool.resolved" => r#"{"outcome":"sample"}"#,
        "mission.proposed" => r#"{"name":"sample","goal":"sample"}"#,
        "mission.changes_requested" | "hop.plan_rejected" | "hop.impl_rejected" | "plan.rejected" => {
            r#"{"feedback":"sample"}"#
        }
        "mission.revised" | "mission.terms_changed" | "hop.plan_revised" | "hop.impl_revised" | "asset.revised" => {
            r#"{"revision":2}"#
        }
        "mission.reset" => concat!(r#"{"new_mission_id":""#, id!("mis"), r#""}"#),
        "hop.plan_started" => concat!(r#"{"mission_id":""#, id!("mis"), r#"","sequence_order":1}"#),
        "hop.plan_proposed" => concat!(r#"{"mission_id":""#, id!("mis"), r#"","name":"sample"}"#),
        "hop.impl_proposed" => r#"{"step_ids":[]}"#,
        "hop.impl_invalid" => r#"{"errors":["sample"]}"#,
        "hop.failed" | "hop.fixed" | "step.failed" => r#"{"phase":"execute"}"#,
        "step.created" => concat!(r#"{"hop_id":""#, id!("hop"), r#"","sequence_order":1}"#),
        "step.tool_selected" => r#"{"tool_id":"sample"}"#,
        "step.attempt_failed" => r#"{"attempt":1,"error":"sample"}"#,
        "asset.proposed" => r#"{"name":"sample","role":"output"}"#,
        "asset.processing_started" | "asset.ready" => r#"{"version":1}"#,
        "asset.promoted" => concat!(r#"{"from_hop":""#, id!("hop"), r#"","version":1}"#),
        "plan.goal_received" => r#"{"goal":"sample"}"#,
        "plan.created" => r#"{"tasks":[{"name":"sample"}]}"#,
        "plan.updated" | "config.updated" => r#"{"changes":{}}"#,
        "plan.critique" => r#"{"pass":true}"#,
        "plan.task_assigned" => concat!(r#"{"agent_id":""#, id!("agt"), r#""}"#),
        "plan.task_completed" => r#"{"result":null}"#,
        "plan.task_failed" => r#"{"error":"sample"}"#,
        "config.tool_registered" => r#"{"tool":{}}"#,
        "checkpoint.created" => r#"{"checkpoint_id":"sample"}"#,
        "checkpoint.restored" => r#"{"checkpoint_id":"sample","mode":"files"}"#,
        "system.invariant_violation" => r#"{"invariant_id":"sample","severity":"error","message":"sample"}"#,
        "system.gap" => r#"{"earliest_available":1}"#,
        "session.suspended" | "agent.terminated" | "agent.drive_idled" | "turn.interrupted" | "tool.denied"
        | "mission.failed" | "mission.cancelled" | "mission.attention" | "asset.error" | "plan.stopped"
        | "plan.task_updated" => r#"{"reason":"sample"}"#,
        _ => "{}",
    })
}

#[cfg(test)]
mod tests {
    use super::super::KINDS;
    use super::*;

    #[test]
    fn every_kind_has_a_sample_that_its_check_accepts() {
        for kind in KINDS {
            let text = sample(kind.token).expect(kind.token);
            (kind.check)(text).unwrap_or_else(|no| panic!("{}: {no}", kind.token));
        }
        assert_eq!(sample("no.such_kind"), None);
    }
}
