use crate::schema::*;

migration!(manager => {
    let columns = [
        ("name", Text),
        ("spec", Json),
        ("hash", Text),
        ("registered_by", Text),
        ("created_at", Time),
        // Never the same twice: readers compare the sum to see whether anything changed.
        ("version", Int),
    ];
    table("registered_tools", &["name"], &columns).create(manager, false).await
});
