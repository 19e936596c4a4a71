use crate::schema::*;
use instar_core::machine::{asset, hop, mission, tool_step};

migration!(manager => {
    let columns = [
        ("id", Uuid),
        ("session_id", Uuid),
        ("agent_id?", Uuid),
        ("author", Text),
        ("gates", Json),
        ("gate_timeout_ms?", Int),
        ("on_hop_failure", Text),
        ("hop_attempts_max", Int),
        ("detached", Bool),
        ("reset_of?", Uuid),
        ("traceparent?", Text),
        ("created_at", Time),
        // From here on what its transitions change: an update writes what lies between to the log.
        ("status", Text),
        ("epoch", Int),
        ("version", Int),
        ("revision", Int),
        ("name", Text),
        ("description?", Text),
        ("goal", Text),
        ("success_criteria", Json),
        ("scope?", Text),
        ("metadata?", Json),
        ("current_hop_id?", Uuid),
        ("hops", Int),
        ("awaits", Text),
        ("asked", Int),
        ("asked_turn_id?", Uuid),
        ("question?", Json),
        ("feedback?", Text),
        ("attention?", Json),
        ("gate_due_at?", Time),
        ("failure?", Json),
        ("reset_to?", Uuid),
        ("updated_at", Time),
        ("ended_at?", Time),
    ];
    let missions = table("missions", &["id"], &columns);
    missions.states(&mission::TABLE, "status").create(manager, true).await?;
    index(manager, "missions_by_session", "missions", "session_id, id", None).await?;
    index(manager, "missions_live", "missions", "session_id, id", Some("ended_at IS NULL")).await?;
    index(manager, "missions_by_agent", "missions", "agent_id, id", Some("ended_at IS NULL")).await?;
    // What sweeps look at: somebody who is no person has to act.
    index(manager, "missions_waiting", "missions", "id", Some("awaits IN ('agent', 'policy', 'steps')")).await?;
    index(manager, "missions_gated", "missions", "gate_due_at", Some("gate_due_at IS NOT NULL")).await?;

    let columns = [
        ("id", Uuid),
        ("session_id", Uuid),
        ("mission_id", Uuid),
        ("sequence", Int),
        ("author", Text),
        ("executor", Text),
        ("traceparent?", Text),
        ("created_at", Time),
        ("status", Text),
        ("epoch", Int),
        ("version", Int),
        ("revision", Int),
        ("name", Text),
        ("description?", Text),
        ("goal?", Text),
        ("success_criteria", Json),
        ("rationale?", Text),
        ("alternatives?", Json),
        ("inputs", Json),
        ("outputs", Json),
        ("is_final", Bool),
        ("plan_accepted_once", Bool),
        ("archived", Bool),
        ("attempts", Int),
        ("repairs", Int),
        ("phase?", Text),
        ("failure_class?", Text),
        ("error?", Json),
        ("feedback?", Text),
        ("input_versions?", Json),
        ("result?", Json),
        ("updated_at", Time),
        ("ended_at?", Time),
    ];
    let hops = table("hops", &["id"], &columns);
    hops.states(&hop::TABLE, "status").create(manager, true).await?;
    unique(manager, "hops_by_mission", "hops", "mission_id, sequence").await?;
    index(manager, "hops_by_session", "hops", "session_id, id", None).await?;
    // A mission goes one hop at a time; a failed one is its current one until somebody says what becomes of it.
    let live = "status NOT IN ('COMPLETED', 'CANCELLED', 'deleted')";
    unique_where(manager, "hops_current", "hops", "mission_id", live).await?;

    let columns = [
        ("id", Uuid),
        ("session_id", Uuid),
        ("mission_id", Uuid),
        ("hop_id", Uuid),
        ("sequence", Int),
        ("attempts_max", Int),
        ("traceparent?", Text),
        ("created_at", Time),
        ("status", Text),
        ("epoch", Int),
        ("version", Int),
        ("name", Text),
        ("description?", Text),
        ("tool?", Text),
        ("parameter_mapping", Json),
        ("result_mapping", Json),
        ("resource_configs?", Json),
        ("attempts", Int),
        ("call_id?", Uuid),
        ("next_at?", Time),
        ("validation_errors?", Json),
        ("result?", Json),
        ("error?", Json),
        ("started_at?", Time),
        ("updated_at", Time),
        ("ended_at?", Time),
    ];
    let steps = table("tool_steps", &["id"], &columns);
    steps.states(&tool_step::TABLE, "status").create(manager, true).await?;
    unique(manager, "tool_steps_by_hop", "tool_steps", "hop_id, sequence").await?;
    index(manager, "tool_steps_by_session", "tool_steps", "session_id, id", None).await?;
    index(manager, "tool_steps_running", "tool_steps", "next_at, id", Some("status = 'EXECUTING'")).await?;

    let columns = [
        ("id", Uuid),
        ("session_id", Uuid),
        ("mission_id", Uuid),
        ("hop_id?", Uuid),
        ("scope", Text),
        ("author", Text),
        ("traceparent?", Text),
        ("created_at", Time),
        ("status", Text),
        ("epoch", Int),
        ("version", Int),
        ("revision", Int),
        ("role", Text),
        ("name", Text),
        ("description?", Text),
        ("kind", Text),
        ("subtype?", Text),
        ("is_array", Bool),
        ("schema", Json),
        ("metadata?", Json),
        ("content_version", Int),
        ("promoted_version?", Int),
        ("step_id?", Uuid),
        ("summary?", Text),
        ("error?", Json),
        ("ttl_ms?", Int),
        ("expires_at?", Time),
        ("updated_at", Time),
        ("ended_at?", Time),
    ];
    let assets = table("assets", &["id"], &columns);
    assets.states(&asset::TABLE, "status").create(manager, true).await?;
    index(manager, "assets_by_mission", "assets", "mission_id, id", None).await?;
    index(manager, "assets_by_session", "assets", "session_id, id", None).await?;
    let mortal = "expires_at IS NOT NULL AND status NOT IN ('EXPIRED', 'deleted')";
    index(manager, "assets_expiring", "assets", "expires_at", Some(mortal)).await?;

    let columns = [
        ("id", Uuid),
        ("session_id", Uuid),
        ("asset_id", Uuid),
        ("number", Int),
        ("hash", Text),
        ("bytes", Int),
        ("media_type", Text),
        ("summary?", Text),
        ("content?", Bytes),
        ("content_of?", Uuid),
        ("step_id?", Uuid),
        ("call_id?", Uuid),
        ("author", Text),
        ("lineage", Json),
        ("created_at", Time),
        ("version", Int),
    ];
    table("asset_versions", &["id"], &columns).create(manager, false).await?;
    unique(manager, "asset_versions_by_asset", "asset_versions", "asset_id, number").await?;
    index(manager, "asset_versions_by_hash", "asset_versions", "session_id, hash", None).await
});
