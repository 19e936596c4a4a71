use crate::schema::*;

migration!(manager => {
    let columns = [
        ("id", Uuid),
        ("namespace", Text),
        ("name", Text),
        ("role", Text),
        ("hash", Bytes),
        ("created_at", Time),
        ("last_used_at?", Time),
        ("revoked_at?", Time),
    ];
    table("api_keys", &["id"], &columns).create(manager, false).await?;
    unique(manager, "api_keys_by_hash", "api_keys", "hash").await?;
    index(manager, "api_keys_by_namespace", "api_keys", "namespace, id", None).await
});
