use crate::schema::*;

migration!(manager => {
    let columns = [("id", Uuid), ("service", Text), ("lease_until", Time), ("started_at", Time), ("info", Json)];
    table("workers", &["id"], &columns).create(manager, true).await?;
    index(manager, "workers_by_lease", "workers", "lease_until", None).await?;

    let columns = [
        ("id", Uuid),
        ("session_id", Uuid),
        ("kind", Text),
        ("entity", Text),
        ("due_at", Time),
        ("claimed_until?", Time),
        ("payload?", Json),
        ("version", Int),
        ("created_at", Time),
    ];
    table("timers", &["id"], &columns).create(manager, false).await?;
    index(manager, "timers_by_due", "timers", "due_at", None).await
});
