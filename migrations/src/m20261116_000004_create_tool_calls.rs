use crate::schema::*;

migration!(manager => {
    let columns = [
        ("id", Uuid),
        ("session_id", Uuid),
        ("agent_id", Uuid),
        ("turn_id?", Uuid),
        ("step_id?", Uuid),
        ("iteration", Int),
        ("position", Int),
        ("name", Text),
        ("provider_call_id?", Text),
        ("arguments", Json),
        ("digest", Text),
        ("effect", Text),
        ("traceparent?", Text),
        ("created_at", Time),
        // From here on what its transitions change: an update writes what lies between to the log.
        ("status", Text),
        ("epoch", Int),
        ("version", Int),
        ("owner?", Uuid),
        ("attempts", Int),
        ("approval?", Json),
        ("result_status?", Text),
        ("result?", Json),
        ("expires_at?", Time),
        ("updated_at", Time),
        ("ended_at?", Time),
    ];
    let calls = table("tool_calls", &["id"], &columns);
    calls.states(&instar_core::machine::tool_call::TABLE, "status").create(manager, true).await?;
    index(manager, "tool_calls_by_turn", "tool_calls", "turn_id, position", None).await?;
    index(manager, "tool_calls_live", "tool_calls", "session_id, id", Some("ended_at IS NULL")).await
});
