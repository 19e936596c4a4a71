use crate::schema::*;

migration!(manager => {
    // A step's attempts, for who judges them together or asks for them; calls of turns are not in it.
    index(manager, "tool_calls_by_step", "tool_calls", "step_id, id", Some("step_id IS NOT NULL")).await
});
