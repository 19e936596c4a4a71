use crate::schema::*;

migration!(manager => {
    let columns = [
        ("id", Uuid),
        ("session_id", Uuid),
        ("content", Text),
        ("standing", Bool),
        ("expires_at?", Time),
        ("sender", Text),
        ("created_at", Time),
        ("version", Int),
    ];
    table("broadcasts", &["id"], &columns).create(manager, false).await?;
    index(manager, "broadcasts_by_session", "broadcasts", "session_id, id", None).await?;
    // Ids are in order of time: the newest one is at the end.
    index(manager, "broadcasts_standing", "broadcasts", "session_id, id", Some("standing")).await
});
