use crate::schema::*;

migration!(manager => {
    let columns = [
        // As agents name it: `server.tool`.
        ("name", Text),
        ("server", Text),
        // What was accepted, and its hash in the server's words; none before anybody accepted it.
        ("spec?", Json),
        ("hash?", Text),
        // What the server offers now, where that is another.
        ("offered?", Json),
        ("offered_hash?", Text),
        ("standing", Text),
        ("reason?", Text),
        ("accepted_by?", Text),
        ("accepted_at?", Time),
        ("seen_at", Time),
        // Grows with every write: readers compare the sum to see whether anything changed.
        ("version", Int),
    ];
    table("mcp_tools", &["name"], &columns).create(manager, false).await?;
    index(manager, "mcp_tools_by_server", "mcp_tools", "server", None).await?;

    let columns = [
        ("server", Text),
        // The tool-runner that has it.
        ("runner", Uuid),
        ("standing", Text),
        ("reason?", Text),
        ("protocol?", Text),
        ("about?", Text),
        ("tools", Int),
        ("changed_at", Time),
        ("version", Int),
    ];
    table("mcp_servers", &["server", "runner"], &columns).create(manager, true).await
});
