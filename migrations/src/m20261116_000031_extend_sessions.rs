use crate::schema::*;

migration!(manager => {
    // The chain's last hash, known when nothing can follow; times during which clocks stood still; when
    // errors were last forgiven.
    add(manager, "sessions", "final_hash", Bytes).await?;
    add(manager, "sessions", "holds", Json).await?;
    add(manager, "sessions", "reset_at", Time).await?;
    // Few runes are of this kind, so that it costs the others nothing.
    index(manager, "runes_drive_errors", "runes", "at_us, session_id", Some("kind = 'agent.drive_errored'")).await
});
