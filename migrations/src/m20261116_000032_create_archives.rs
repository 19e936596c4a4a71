use crate::schema::*;

migration!(manager => {
    let columns = [
        // The session's.
        ("id", Uuid),
        ("namespace", Text),
        // Its number in the namespace's catalogue.
        ("seq", Int),
        // Of the transition; the session's own log has ended before it.
        ("rune_id", Uuid),
        ("actor_type", Text),
        ("actor_id", Text),
        ("payload", Text),
        ("moves", Text),
        ("traceparent?", Text),
        ("at_us", Int),
        ("hash", Bytes),
        ("command_id", Uuid),
        ("manifest", Json),
        ("imported", Int),
        ("pruned_at?", Time),
    ];
    table("archives", &["id"], &columns).create(manager, false).await?;
    unique(manager, "archives_by_number", "archives", "namespace, seq").await?;
    index(manager, "archives_unpruned", "archives", "id", Some("pruned_at IS NULL")).await
});
