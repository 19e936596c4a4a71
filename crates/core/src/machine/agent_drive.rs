//! Agent drive: whether an agent takes work. The other half is its lifecycle.

super::machine! {
    name: "agent_drive", prefix: "D",
    doc: "Whether an agent takes work and loops by itself; orthogonal to its lifecycle.";
    states {
        Idle    "idle"    Live     "waits for a start, a message, a broadcast or a task";
        Running "running" Live     "takes work; an autonomous agent loops by itself";
        Stopped "stopped" Rest     "held by a person, its budget or its end: refuses messages";
        Errored "errored" Rest     "a drive-fatal error: refuses messages until relaunched";
        Deleted "deleted" Terminal "removed from the fleet; its runes stay";
    }
    events {
        Create               "create"                 [User Agent System] "the agent is made";
        Load                 "load"                   [System]            "a definition is imported";
        Start                "start"                  [User System]       "launch or relaunch it";
        MessageReceived      "message_received"       [User]              "a direct message for it";
        BroadcastReceived    "broadcast_received"     [User]              "a broadcast reaches it";
        AgentMessageReceived "agent_message_received" [Agent]             "a message of another agent";
        NudgeTurnEnded       "nudge_turn_ended"       [System]            "a turn with a synthetic prompt completed";
        NudgeLimitReached    "nudge_limit_reached"    [System]            "three nudge turns, or too many that letters caused, in a row without a user message; or too many of its own in a day";
        Stop                 "stop"                   [User]              "a person stops it";
        Hold                 "hold"                   [User]              "a person keeps an idle agent from waking";
        ExecutionError       "execution_error"        [System]            "a drive-fatal error";
        TaskAssigned         "task_assigned"          [System Agent]      "a plan's task is given to it";
        WorkerRecovered      "worker_recovered"       [System]            "another node took over its lease";
        BudgetExhausted      "budget_exhausted"       [System]            "an agent-scoped limit is spent and on_budget = stop";
        LifecycleTerminated  "lifecycle_terminated"   [System]            "its lifecycle ended";
        LifecycleFailed      "lifecycle_failed"       [System]            "it could not be brought up";
        Delete               "delete"                 [User]              "remove it from the fleet";
    }
    rows {
        "D1"  []        Create               => Idle    via "agent.spawning"           "fleet below max_agents";
        "D2"  []        Load                 => Idle    emits ["agent.loaded"]         "not started by itself unless auto_start";
        "D3"  [Idle]    Start                => Running emits ["agent.drive_started"]  "lifecycle not ended; nudge_count = 0, last_error cleared";
        "D4"  [Idle]    MessageReceived      => Running emits ["agent.message_received", "agent.drive_started"] "message durable first; nudge_count = 0";
        "D4"  [Idle]    BroadcastReceived    => Running emits ["agent.message_received", "agent.drive_started"] "message durable first; nudge_count = 0";
        "D5"  [Running] NudgeLimitReached    => Idle    emits ["agent.drive_idled"]    "nudge_count >= 3 at turn end, letter_turns_max or a daily ceiling reached; needs_attention";
        "D6"  [Running] Stop                 => Stopped emits ["agent.drive_stopped"]  "written before anything is awaited";
        "D7"  [Running] ExecutionError       => Errored emits ["agent.drive_errored"]  "drive-fatal class";
        "D8"  [Running] NudgeTurnEnded       => stay    emits ["agent.nudged"]         "nudge_count + 1, then the D5 check";
        "D9"  [Stopped] Start by [User]      => Running emits ["agent.drive_started"]  "relaunch; lifecycle not ended";
        "D10" [Errored] Start                => Running emits ["agent.drive_started"]  "relaunch, by the system only by relaunch_after; old turn ended or 2 s passed";
        "D13" [Running] MessageReceived      => stay    emits ["agent.message_received"] "nudge_count = 0; queued or steered";
        "D13" [Running] BroadcastReceived    => stay    emits ["agent.message_received"] "nudge_count = 0; queued";
        "D18" [Idle]    Hold                 => Stopped emits ["agent.drive_stopped"]  "reason = hold";
        "D19" [Idle]    TaskAssigned         => Running emits ["agent.drive_started"]  "reason = task";
        "D20" [Running] WorkerRecovered      => stay    emits ["agent.drive_recovered"] "counters rebuilt from the log";
        "D21" [Running] BudgetExhausted      => Stopped emits ["agent.budget_exhausted", "agent.drive_stopped"] "on_budget = stop; relaunch after replenishing";
        "D22" [Idle]    ExecutionError       => Errored emits ["agent.drive_errored"]  "background failure";
        "D23" [Idle Running] LifecycleTerminated => Stopped via "agent.terminated"     "frozen; account released";
        "D24" [Idle Running Stopped] LifecycleFailed => Errored via "agent.failed"     "frozen; last_error = init error";
        "D25" [Idle]    AgentMessageReceived => Running emits ["agent.message", "agent.drive_started"] "direct and allowed by the topology; nudge_count kept";
        "D26" [Running] AgentMessageReceived => stay    emits ["agent.message"]        "queued; nudge_count kept";
        "D27" [Idle Running Stopped Errored] Delete => Deleted emits ["agent.deleted"] "its lifecycle is ended first";
    }
    ignores {
        "D16" [Idle Stopped Errored] Stop;
        "D17" [Stopped] ExecutionError;
        "D17" [Stopped] NudgeLimitReached;
        "D20" [Idle Stopped Errored] WorkerRecovered;
        "D23" [Stopped Errored] LifecycleTerminated;
        "D24" [Errored] LifecycleFailed;
    }
    refuses {
        "D12" [Running] Start             "it is already running";
        "D14" [Stopped] MessageReceived   "the agent is stopped: relaunch it with start, then send again";
        "D14" [Stopped] BroadcastReceived "the agent is stopped: relaunch it with start to have it take part";
        "D15" [Errored] MessageReceived   "the agent is errored: look at last_error, relaunch it with start, then send again";
        "D15" [Errored] BroadcastReceived "the agent is errored: look at last_error, relaunch it with start to have it take part";
    }
    rules {
        "D11" "the transition writer: a write that fails changes nothing and the caller gets the error";
    }
}
