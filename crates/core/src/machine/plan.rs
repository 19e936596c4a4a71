//! Plan: how agents carry a goal out, as a graph of tasks with an independent critic.

super::machine! {
    name: "plan", prefix: "P",
    doc: "How agents carry out a goal: decomposed into a task graph, executed, reviewed by a critic.";
    states {
        GoalReceived "goal_received" Live     "a goal without tasks";
        Planning     "planning"      Live     "an orchestrator decomposes it, or a person decides on the draft";
        Executing    "executing"     Live     "tasks are assigned and run";
        Reviewing    "reviewing"     Live     "the critic judges the result";
        Blocked      "blocked"       Live     "nothing runs and nothing can start";
        GoalMet      "goal_met"      Terminal "the critic passed it";
        Stopped      "stopped"       Terminal "ended without its goal";
    }
    events {
        GoalReceived         "goal_received"          [User Agent]   "somebody sets a goal";
        DecomposeGoal        "decompose_goal"         [Agent System] "the orchestrator begins";
        PlanDrafted          "plan_drafted"           [Agent]        "the first task graph";
        PlanRevised          "plan_revised"           [Agent]        "a changed task graph";
        PlanApproved         "plan_approved"          [User Policy]  "a person lets it run";
        AutoStart            "auto_start"             [System]       "policy lets it run";
        PlanRejected         "plan_rejected"          [User]         "a person wants another plan";
        TaskCompleted        "task_completed"         [System]       "a task is done and others are not";
        TaskFailed           "task_failed"            [System]       "a task failed and stop_on_first_failure is set";
        AllTasksTerminal     "all_tasks_terminal"     [System]       "no task is left to run";
        AllRunnableBlocked   "all_runnable_blocked"   [System]       "nothing runs and nothing can start";
        DependencyResolved   "dependency_resolved"    [System User]  "a blocked task became runnable";
        Unresolvable         "unresolvable"           [System Agent] "every blocker is beyond retry";
        CritiqueFoundIssues  "critique_found_issues"  [Agent]        "the critic wants tasks retried or added";
        CritiquePassed       "critique_passed"        [Agent]        "the critic found no error";
        NeedsReplan          "needs_replan"           [Agent]        "the critic wants another plan";
        MaxIterationsReached "max_iterations_reached" [System]       "no iteration is left";
        BudgetExhausted      "budget_exhausted"       [System]       "a plan-scoped limit is spent";
        UserCancel           "user_cancel"            [User System]  "a person cancels it, or its session closes";
    }
    rows {
        "P1"  []             GoalReceived         => GoalReceived emits ["plan.goal_received"]    "session active";
        "P2"  [GoalReceived] DecomposeGoal        => Planning     emits ["plan.planning_started"] "orchestrator has a turn";
        "P3"  [Planning]     PlanDrafted          => stay         emits ["plan.created"]          "graph acyclic; dependencies exist; at least one task";
        "P3"  [Planning]     PlanRevised          => stay         emits ["plan.updated"]          "graph acyclic; dependencies exist; at least one task";
        "P4"  [Planning]     PlanApproved         => Executing    emits ["plan.approved"]         "a plan exists";
        "P5"  [Planning]     AutoStart            => Executing    emits ["plan.approved"]         "approver = policy";
        "P6"  [Planning]     PlanRejected         => GoalReceived emits ["plan.rejected"]         "feedback";
        "P7"  [Planning]     UserCancel           => Stopped      emits ["plan.stopped"]          "";
        "P8"  [Executing]    TaskCompleted        => stay         via "plan.task_completed"       "more tasks not terminal";
        "P9"  [Executing]    AllTasksTerminal     => Reviewing    emits ["plan.review_started"]   "at least one task; all completed, failed or cancelled";
        "P10" [Executing]    AllRunnableBlocked   => Blocked      emits ["plan.blocked"]          "none assigned, running or runnable; one pending or blocked";
        "P11" [Executing]    BudgetExhausted      => Stopped      emits ["plan.stopped"]          "reason = budget";
        "P12" [Executing]    UserCancel           => Stopped      emits ["plan.stopped"]          "";
        "P13" [Reviewing]    CritiqueFoundIssues  => Executing    emits ["plan.critique", "plan.updated"] "iteration < max";
        "P14" [Reviewing]    CritiquePassed       => GoalMet      emits ["plan.critique", "plan.goal_met"] "no finding of severity error";
        "P15" [Reviewing]    NeedsReplan          => Planning     emits ["plan.critique", "plan.updated"] "iteration < max";
        "P16" [Blocked]      DependencyResolved   => Executing    emits ["plan.unblocked"]        "a blocked task became runnable";
        "P17" [Blocked]      Unresolvable         => Stopped      emits ["plan.stopped"]          "reason = unresolvable";
        "P18" [Blocked]      UserCancel           => Stopped      emits ["plan.stopped"]          "";
        "P19" [Reviewing]    UserCancel           => Stopped      emits ["plan.stopped"]          "";
        "P20" [GoalReceived] UserCancel           => Stopped      emits ["plan.stopped"]          "";
        "P21" [Reviewing]    MaxIterationsReached => Stopped      emits ["plan.stopped"]          "iteration >= max";
        "P22" [Executing]    TaskFailed           => Stopped      emits ["plan.stopped"]          "stop_on_first_failure";
        "P23" [Planning Reviewing Blocked] BudgetExhausted => Stopped emits ["plan.stopped"]      "reason = budget";
    }
    ignores {}
    refuses {}
    rules {
        "P24" "goal_met and stopped are declared terminal; the hop link is a cascade";
    }
}
