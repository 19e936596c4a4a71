//! Task: a node of a plan's graph.

super::machine! {
    name: "task", prefix: "K",
    doc: "A node of a plan's graph: assigned to an agent when its dependencies are done.";
    states {
        Pending   "pending"   Live     "waits for its dependencies or a free agent";
        Assigned  "assigned"  Live     "an agent has it, its turn has not begun";
        Running   "running"   Live     "its agent's turn works on it";
        Blocked   "blocked"   Live     "a dependency failed or an input is missing";
        Completed "completed" Terminal "done, with its evidence";
        Failed    "failed"    Rest     "failed; it may be retried";
        Cancelled "cancelled" Terminal "its plan was stopped, rejected or replanned";
    }
    events {
        AddTask            "add_task"            [Agent]             "the plan names it";
        Assign             "assign"              [System]            "the scheduler gives it to an agent";
        Start              "start"               [Agent System]      "the owner's turn began";
        Complete           "complete"            [Agent]             "the owner reports its result";
        Fail               "fail"                [Agent System]      "the owner gives up, or no attempt is left";
        Block              "block"               [Agent]             "it waits for an input it cannot get";
        DependencyFailed   "dependency_failed"   [System]            "a dependency failed or was cancelled";
        DependencyResolved "dependency_resolved" [System User]       "its dependencies can complete again, or the input came";
        AgentLost          "agent_lost"          [System]            "its owner ended, stopped or erred";
        StartTimeout       "start_timeout"       [System]            "its owner did not begin in time";
        Retry              "retry"               [System User]       "try it again";
        Cancel             "cancel"              [User System]       "its plan was stopped, rejected or replanned";
    }
    rows {
        "K1"  []         AddTask            => Pending   silent ()                        "ids unique; deps exist; no cycle; rides on plan.created or plan.updated";
        "K2"  [Pending]  Assign             => Assigned  emits ["plan.task_assigned"]     "plan executing; session active; deps completed; a free agent of the right role";
        "K3"  [Assigned] Start              => Running   emits ["plan.task_started"]      "";
        "K4"  [Running]  Complete           => Completed emits ["plan.task_completed"]    "result given; evidence if success criteria are set";
        "K5"  [Running]  Fail               => Failed    emits ["plan.task_failed"]       "";
        "K6"  [Pending]  DependencyFailed   => Blocked   emits ["plan.task_blocked"]      "a dependency is failed or cancelled";
        "K7"  [Running]  Block              => Blocked   emits ["plan.task_blocked"]      "owner released";
        "K8"  [Blocked]  DependencyResolved => Pending   emits ["plan.task_unblocked"]    "";
        "K9"  [Assigned] AgentLost          => Pending   emits ["plan.task_updated"]      "owner = null";
        "K9"  [Assigned] StartTimeout       => Pending   emits ["plan.task_updated"]      "owner = null; 60 s passed";
        "K10" [Running]  AgentLost          => Pending   emits ["plan.task_updated"]      "owner = null; attempt + 1; attempts left";
        "K11" [Failed]   Retry              => Pending   emits ["plan.task_updated"]      "attempt + 1; attempts left";
        "K12" [Pending Assigned Running Blocked] Cancel => Cancelled emits ["plan.task_cancelled"] "";
    }
    ignores {}
    refuses {}
    rules {
        "K13" "completed and cancelled are declared terminal";
    }
}
