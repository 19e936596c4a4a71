use crate::schema::*;

migration!(manager => {
    let columns = [
        ("session_id", Uuid),
        ("seq", Int),
        ("id", Uuid),
        ("kind", Text),
        ("entity_kind", Text),
        ("entity_id", Uuid),
        ("agent_id?", Uuid),
        ("turn_id?", Uuid),
        ("actor_type", Text),
        ("actor_id", Text),
        ("visibility", Text),
        // Text, not JSON: the hash is over these very bytes.
        ("payload", Text),
        ("moves", Text),
        ("epoch", Int),
        ("traceparent?", Text),
        ("at_us", Int),
        ("hash", Bytes),
        ("command_id", Uuid),
    ];
    table("runes", &["session_id", "seq"], &columns).create(manager, false).await?;
    let columns = [("session_id", Uuid), ("seq", Int), ("hash", Bytes), ("at_us", Int)];
    table("seals", &["session_id", "seq"], &columns).create(manager, false).await
});
