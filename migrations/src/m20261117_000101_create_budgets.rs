use crate::schema::*;

migration!(manager => {
    // One row per limit: what it is, what is used of it, and what is set aside for calls under way.
    let columns = [
        ("id", Uuid),
        ("session_id", Uuid),
        ("scope", Text),
        ("scope_id", Uuid),
        ("kind", Text),
        ("cap", Int),
        ("used", Int),
        ("reserved", Int),
        ("since?", Time),
        ("version", Int),
    ];
    table("budgets", &["id"], &columns).create(manager, true).await?;
    unique(manager, "budgets_by_scope", "budgets", "scope_id, kind").await?;
    // What a turn has set aside goes with its row, so that whoever takes the turn over has it.
    add(manager, "turns", "reserved", Json).await
});
