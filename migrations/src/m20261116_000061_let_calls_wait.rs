use crate::schema::*;

migration!(manager => {
    // Whom a call waits for that nobody runs meanwhile.
    add(manager, "tool_calls", "waits_for", Json).await?;
    let waiting = Some("waits_for IS NOT NULL AND ended_at IS NULL");
    index(manager, "tool_calls_waiting", "tool_calls", "agent_id, id", waiting).await
});
