use crate::schema::*;

migration!(manager => {
    let columns = [
        ("id", Uuid),
        ("session_id", Uuid),
        ("agent_id", Uuid),
        ("cause", Text),
        ("input", Json),
        ("traceparent?", Text),
        ("created_at", Time),
        // From here on what its transitions change: an update writes what lies between to the log.
        ("status", Text),
        ("epoch", Int),
        ("version", Int),
        ("attempts", Int),
        ("iterations", Int),
        ("open_calls", Int),
        ("output?", Text),
        ("usage", Json),
        ("control?", Json),
        ("error?", Json),
        ("deadline_at?", Time),
        ("updated_at", Time),
        ("ended_at?", Time),
    ];
    let turns = table("turns", &["id"], &columns);
    turns.states(&instar_core::machine::turn::TABLE, "status").create(manager, true).await?;
    index(manager, "turns_by_agent", "turns", "agent_id, id", None).await?;
    // What sweeps look at; an ended turn is not in it. It must not name a column that a live turn
    // changes: every such change would have to touch every index of the table.
    index(manager, "turns_live", "turns", "session_id, id", Some("ended_at IS NULL")).await?;

    let columns = [
        ("id", Uuid),
        ("session_id", Uuid),
        ("agent_id", Uuid),
        ("turn_id?", Uuid),
        ("version", Int),
        ("role", Text),
        ("source", Text),
        ("mode", Text),
        ("content", Text),
        ("data?", Json),
        ("created_at", Time),
    ];
    table("messages", &["id"], &columns).create(manager, false).await?;
    index(manager, "messages_by_agent", "messages", "agent_id, id", None).await?;
    // What waits to be taken up by a turn; the history is not in it.
    index(manager, "messages_waiting", "messages", "agent_id, id", Some("turn_id IS NULL")).await
});
