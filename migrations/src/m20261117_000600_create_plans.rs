use crate::schema::*;

migration!(manager => {
    let columns = [
        ("id", Uuid),
        ("session_id", Uuid),
        ("hop_id?", Uuid),
        ("goal", Text),
        ("autonomy", Text),
        ("config", Json),
        ("budget", Json),
        ("created_at", Time),
        // From here on what its transitions change: an update writes what lies between to the log.
        ("status", Text),
        ("epoch", Int),
        ("version", Int),
        ("iteration", Int),
        ("revision", Int),
        ("drafted", Bool),
        ("asked", Int),
        ("orchestrator_id?", Uuid),
        ("critic_id?", Uuid),
        ("turn_id?", Uuid),
        ("feedback?", Text),
        ("reason?", Text),
        ("summary?", Text),
        ("updated_at", Time),
        ("ended_at?", Time),
    ];
    let plans = table("plans", &["id"], &columns);
    plans.states(&instar_core::machine::plan::TABLE, "status").create(manager, true).await?;
    index(manager, "plans_by_session", "plans", "session_id, id", None).await?;
    // What sweeps look at; it must not name a column that a live plan changes.
    index(manager, "plans_live", "plans", "session_id, id", Some("ended_at IS NULL")).await?;
    index(manager, "plans_by_hop", "plans", "hop_id", Some("hop_id IS NOT NULL")).await?;

    let columns = [
        ("id", Uuid),
        ("session_id", Uuid),
        ("plan_id", Uuid),
        ("key", Text),
        ("title", Text),
        ("description", Text),
        ("priority", Text),
        ("role", Text),
        ("deps", Json),
        ("success_criteria", Json),
        ("attempts_max", Int),
        ("iteration", Int),
        ("created_at", Time),
        ("status", Text),
        ("epoch", Int),
        ("version", Int),
        ("attempt", Int),
        ("asked", Int),
        ("owner_id?", Uuid),
        ("turn_id?", Uuid),
        ("result?", Json),
        ("evidence", Json),
        ("error?", Text),
        ("assigned_at?", Time),
        ("started_at?", Time),
        ("updated_at", Time),
        ("ended_at?", Time),
    ];
    let tasks = table("tasks", &["id"], &columns);
    tasks.states(&instar_core::machine::task::TABLE, "status").create(manager, true).await?;
    index(manager, "tasks_by_plan", "tasks", "plan_id, id", None).await?;

    // The turns that work on a plan: whatever one of them costs, the plan costs.
    let columns = [
        ("id", Uuid),
        ("session_id", Uuid),
        ("plan_id", Uuid),
        ("task_id?", Uuid),
        ("purpose", Text),
        ("created_at", Time),
        ("version", Int),
    ];
    table("plan_turns", &["id"], &columns).create(manager, false).await?;
    index(manager, "plan_turns_by_plan", "plan_turns", "plan_id, id", None).await?;

    let columns = [
        ("id", Uuid),
        ("session_id", Uuid),
        ("plan_id", Uuid),
        ("agent_id", Uuid),
        ("iteration", Int),
        ("pass", Bool),
        ("summary", Text),
        ("findings", Json),
        ("created_at", Time),
        ("version", Int),
    ];
    table("critiques", &["id"], &columns).create(manager, false).await?;
    index(manager, "critiques_by_plan", "critiques", "plan_id, id", None).await
});
