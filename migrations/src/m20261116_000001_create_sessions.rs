use crate::schema::*;

migration!(manager => {
    let columns = [
        ("id", Uuid),
        ("namespace", Text),
        ("name?", Text),
        ("config", Json),
        ("budget", Json),
        ("created_at", Time),
        ("root_agent_id?", Uuid),
        // From here on what its transitions change: an update writes what lies between to the log.
        ("status", Text),
        ("epoch", Int),
        ("version", Int),
        ("head_seq", Int),
        ("published_seq", Int),
        ("sealed_seq", Int),
        ("updated_at", Time),
    ];
    let sessions = table("sessions", &["id"], &columns);
    sessions.states(&instar_core::machine::session::TABLE, "status").create(manager, true).await?;

    let columns = [
        ("id", Uuid),
        ("session_id", Uuid),
        ("namespace", Text),
        ("key", Text),
        ("body_hash", Bytes),
        ("status", Int),
        ("answer", Json),
        ("version", Int),
        ("created_at", Time),
    ];
    table("idempotency_keys", &["id"], &columns).create(manager, false).await?;
    unique(manager, "idempotency_keys_by_key", "idempotency_keys", "namespace, key").await
});
