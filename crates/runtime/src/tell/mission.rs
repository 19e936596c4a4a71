//! What the runes of missions, hops, steps and assets say.

use crate::asset::Fresh;
use crate::snapshot::{Missions, asset_ids, failed_phase, stopped_hop};
use instar_core::cascade::Entry;
use instar_core::id::{AgentId, AssetId, CallId, HopId, Kind, MissionId, StepId};
use instar_core::machine;
use instar_store::entity::{asset, hop, mission, tool_step};
use serde_json::{Value, json};

/// The rows before and after a commit, and who says what.
pub(crate) struct Scene<'a> {
    pub(crate) before: &'a Missions,
    pub(crate) after: &'a Missions,
    /// Versions that it writes.
    pub(crate) fresh: &'a [Fresh],
    pub(crate) reason: &'a str,
    pub(crate) actor: &'a str,
}

/// Fields that the command supplies for the rune it causes itself go before these.
pub(crate) fn payload(entry: &Entry, scene: &Scene<'_>) -> Value {
    let id = entry.entity.id;
    let told = match entry.entity.kind {
        Kind::Mission => scene.after.missions.get(&id).map(|row| mission(entry, row, scene)),
        Kind::Hop => scene.after.hops.get(&id).map(|row| hop(entry, row, scene)),
        Kind::ToolStep => scene.after.step(id).map(|row| step(entry, row, scene)),
        Kind::Asset => scene.after.assets.get(&id).map(|row| asset(entry, row, scene)),
        _ => None,
    };
    told.unwrap_or_else(|| json!({}))
}

fn made(entry: &Entry, row: &str) -> bool {
    entry.moves.iter().any(|moved| moved.entity == entry.entity && moved.row == row)
}

fn mission(entry: &Entry, row: &mission::Model, scene: &Scene<'_>) -> Value {
    let (reason, hop) = (scene.reason, row.current_hop_id.map(HopId::from));
    let before = scene.before.missions.get(&row.id);
    match entry.kind {
        "mission.proposed" => {
            let assets = scene.after.assets.values().filter(|asset| asset.mission_id == row.id);
            json!({
                "name": row.name,
                "goal": row.goal,
                "description": row.description,
                "success_criteria": row.success_criteria,
                "revision": row.revision,
                "reset_of": row.reset_of.map(MissionId::from),
                "asset_ids": assets.map(|asset| AssetId::from(asset.id)).collect::<Vec<_>>(),
            })
        }
        "mission.approved" => json!({"approver": scene.actor, "revision": row.revision}),
        "mission.changes_requested" => {
            json!({"feedback": row.feedback.as_deref().unwrap_or(reason), "revision": row.revision})
        }
        "mission.revised" => json!({"revision": row.revision}),
        "mission.completed" => json!({"early": made(entry, "M8"), "reason": reason}),
        "mission.failed" => {
            let failed = row.current_hop_id.and_then(|id| scene.after.hops.get(&id));
            json!({"reason": reason, "phase": failed.and_then(|hop| hop.phase.clone()), "hop_id": hop})
        }
        "mission.cancelled" if made(entry, "M5") => json!({"reason": "rejected"}),
        "mission.cancelled" if made(entry, "M19") => json!({"reason": "session_closed"}),
        "mission.cancelled" => json!({"reason": reason}),
        "mission.retried" => json!({"hop_id": hop, "reason": reason}),
        "mission.resumed" => json!({"hop_id": before.and_then(stopped_hop), "reason": reason}),
        "mission.reset" => json!({"new_mission_id": row.reset_to.map(MissionId::from), "reason": reason}),
        "mission.attention" => {
            let asked = row.attention.as_ref().and_then(|attention| attention["reason"].as_str());
            let hop = hop.or(before.and_then(|row| row.current_hop_id).map(HopId::from));
            json!({"reason": asked.unwrap_or(reason), "hop_id": hop, "error": {"message": reason}})
        }
        _ => json!({}),
    }
}

fn hop(entry: &Entry, row: &hop::Model, scene: &Scene<'_>) -> Value {
    let reason = scene.reason;
    let before = scene.before.hops.get(&row.id);
    let mission = MissionId::from(row.mission_id);
    match entry.kind {
        "hop.plan_started" => json!({"mission_id": mission, "sequence_order": row.sequence}),
        "hop.plan_proposed" => json!({
            "mission_id": mission,
            "name": row.name,
            "author": row.author,
            "goal": row.goal,
            "is_final": row.is_final,
            "revision": row.revision,
            "inputs": asset_ids(&row.inputs).into_iter().map(AssetId::from).collect::<Vec<_>>(),
            "output": asset_ids(&row.outputs).first().copied().map(AssetId::from),
            "rationale": row.rationale,
        }),
        "hop.plan_approved" | "hop.impl_approved" => json!({"approver": scene.actor, "revision": row.revision}),
        "hop.plan_rejected" | "hop.impl_rejected" => {
            let after_accept = made(entry, "H10") || made(entry, "H19");
            json!({"feedback": row.feedback.as_deref().unwrap_or(reason), "after_accept": after_accept})
        }
        "hop.plan_revised" | "hop.impl_revised" => json!({"revision": row.revision}),
        "hop.impl_started" => {
            let agent = scene.after.missions.get(&row.mission_id).and_then(|mission| mission.agent_id);
            json!({"agent_id": agent.map(AgentId::from)})
        }
        "hop.impl_proposed" => {
            let live = scene.after.steps_of(row.id).filter(|step| step.status != "CANCELLED");
            let steps: Vec<StepId> = live.map(|step| StepId::from(step.id)).collect();
            json!({"step_ids": steps, "revision": row.revision})
        }
        "hop.impl_invalid" => json!({"errors": [reason]}),
        "hop.execution_started" => json!({"attempt": row.attempts, "input_versions": row.input_versions}),
        "hop.completed" => json!({"manual": made(entry, "H27"), "reason": reason, "result": row.result}),
        "hop.failed" => {
            let moved = entry.moves.iter().find(|moved| moved.entity == entry.entity);
            let mv = moved.and_then(|moved| machine::restore(&moved.row, moved.from.as_deref(), &moved.to));
            let phase = mv.as_ref().and_then(failed_phase).map(|phase| phase.token().to_owned());
            let failed = scene.after.steps_of(row.id).find(|step| step.status == "FAILED");
            let reason = if made(entry, "H26") { "mission" } else { reason };
            json!({
                "phase": phase.or(row.phase.clone()).unwrap_or_default(),
                "step_id": failed.map(|step| StepId::from(step.id)),
                "reason": reason,
                "class": row.failure_class,
                "error": row.error,
            })
        }
        "hop.cancelled" if made(entry, "H25") => json!({"reason": "mission"}),
        "hop.cancelled" if made(entry, "H23") => json!({"reason": "stopped"}),
        "hop.fixed" => {
            json!({"phase": before.and_then(|row| row.phase.clone()).unwrap_or_default(), "reason": reason})
        }
        "hop.retried" => {
            let phase = before.and_then(|row| row.phase.clone());
            json!({"attempt": row.attempts + 1, "phase": phase})
        }
        "hop.cancelled" | "hop.reset" | "hop.archived" | "hop.deleted" => json!({"reason": reason}),
        _ => json!({}),
    }
}

fn step(entry: &Entry, row: &tool_step::Model, scene: &Scene<'_>) -> Value {
    let reason = scene.reason;
    match entry.kind {
        "step.created" => json!({
            "hop_id": HopId::from(row.hop_id),
            "sequence_order": row.sequence,
            "name": row.name,
            "description": row.description,
        }),
        "step.tool_selected" => json!({"tool_id": row.tool.as_deref().unwrap_or_default()}),
        "step.configured" => json!({
            "parameter_mapping": row.parameter_mapping,
            "result_mapping": row.result_mapping,
            "resource_configs": row.resource_configs,
        }),
        "step.started" => json!({"attempt": row.attempts.max(1), "call_id": row.call_id.map(CallId::from)}),
        "step.completed" => {
            json!({"manual": made(entry, "ST18") || made(entry, "ST20"), "outputs": row.result})
        }
        "step.attempt_failed" => json!({"attempt": row.attempts, "error": reason, "next_at": row.next_at}),
        "step.failed" => {
            let phase = if made(entry, "ST4") { "configure" } else { "execute" };
            let error = row.error.as_ref().and_then(|error| error["message"].as_str()).unwrap_or(reason);
            json!({"phase": phase, "error": error, "attempt": row.attempts})
        }
        "step.retried" => json!({"restart": made(entry, "ST19"), "reason": reason}),
        "step.config_reopened" => json!({"errors": row.validation_errors.clone().unwrap_or_else(|| json!([])),
            "tool_cleared": made(entry, "ST14")}),
        "step.cancelled" | "step.reset" | "step.deleted" => json!({"reason": reason}),
        _ => json!({}),
    }
}

fn asset(entry: &Entry, row: &asset::Model, scene: &Scene<'_>) -> Value {
    let reason = scene.reason;
    match entry.kind {
        "asset.proposed" => json!({
            "name": row.name,
            "role": row.role,
            "scope": row.scope,
            "schema": row.schema,
            "mission_id": MissionId::from(row.mission_id),
            "hop_id": row.hop_id.map(HopId::from),
        }),
        "asset.accepted" => json!({"auto": made(entry, "AS19"), "name": row.name}),
        "asset.revised" => json!({"revision": row.revision}),
        "asset.processing_started" => {
            json!({"version": row.content_version + 1, "step_id": row.step_id.map(StepId::from)})
        }
        "asset.ready" => {
            let by = if made(entry, "AS5") { None } else { Some(scene.actor) };
            let fresh = scene.fresh.iter().find(|fresh| fresh.asset.uuid() == row.id);
            json!({
                "version": row.content_version,
                "by": by,
                "content_hash": fresh.map(|fresh| &fresh.hash),
                "bytes": fresh.map_or(0, |fresh| fresh.bytes),
            })
        }
        "asset.error" => json!({"reason": reason, "error": row.error}),
        "asset.expired" => json!({"expires_at": row.expires_at}),
        "asset.refreshed" => json!({"reason": reason, "expires_at": row.expires_at}),
        "asset.promoted" => {
            let from = row.hop_id.or_else(|| {
                let makes = |hop: &&hop::Model| asset_ids(&hop.outputs).contains(&row.id);
                scene.after.hops.values().find(makes).map(|hop| hop.id)
            });
            json!({"from_hop": from.map(HopId::from), "version": row.content_version})
        }
        "asset.rejected" | "asset.processing_cancelled" | "asset.reopened" | "asset.deleted" => {
            json!({"reason": reason})
        }
        _ => json!({}),
    }
}
