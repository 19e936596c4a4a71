use crate::schema::*;

migration!(manager => {
    // Agents that loop by themselves, for the sweep that finds a loop whose timer was lost; every other agent
    // is not in it. It must not name a column that a turn changes: see turns_live.
    let loops = "drive = 'running' AND config->>'loop' = 'autonomous'";
    index(manager, "agents_autonomous", "agents", "session_id, id", Some(loops)).await
});
