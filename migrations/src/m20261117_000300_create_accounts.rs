use crate::schema::*;

migration!(manager => {
    let columns = [
        ("id", Uuid),
        ("namespace", Text),
        ("name", Text),
        ("pool", Text),
        ("username?", Text),
        // Names and values of its secrets, under a key that is not in this database.
        ("sealed?", Bytes),
        // Names of its secrets, and where the process that needs one finds it.
        ("refs?", Json),
        ("release_on", Text),
        ("origin", Text),
        ("holder?", Uuid),
        ("held_until?", Time),
        ("released_at?", Time),
        ("created_at", Time),
        ("updated_at", Time),
    ];
    table("accounts", &["id"], &columns).create(manager, false).await?;
    unique(manager, "accounts_by_name", "accounts", "namespace, name").await?;
    // An agent holds one account at the most.
    unique(manager, "accounts_by_holder", "accounts", "holder").await?;
    index(manager, "accounts_by_pool", "accounts", "namespace, pool, id", None).await?;
    index(manager, "accounts_by_namespace", "accounts", "namespace, id", None).await?;
    index(manager, "accounts_held", "accounts", "held_until", Some("holder IS NOT NULL")).await
});
