use crate::schema::*;

migration!(manager => {
    let columns = [
        ("id", Uuid),
        ("session_id", Uuid),
        ("parent_id?", Uuid),
        ("name", Text),
        ("role", Text),
        ("model", Text),
        ("config", Json),
        ("created_at", Time),
        // From here on what its transitions change: an update writes what lies between to the log.
        ("lifecycle", Text),
        ("drive", Text),
        ("epoch", Int),
        ("version", Int),
        ("owner?", Uuid),
        ("nudge_count", Int),
        ("last_error?", Text),
        ("usage", Json),
        ("updated_at", Time),
    ];
    let agents = table("agents", &["id"], &columns)
        .states(&instar_core::machine::agent_lifecycle::TABLE, "lifecycle")
        .states(&instar_core::machine::agent_drive::TABLE, "drive");
    agents.create(manager, true).await?;
    index(manager, "agents_by_session", "agents", "session_id, id", None).await?;
    index(manager, "agents_by_parent", "agents", "parent_id", Some("parent_id IS NOT NULL")).await?;
    // Take-over of a lost worker looks here; an idle agent is not in it.
    index(manager, "agents_by_owner", "agents", "owner", Some("owner IS NOT NULL")).await
});
