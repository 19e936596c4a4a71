//! Tool step: one tool of a hop's implementation, with its mappings and attempts.

super::machine! {
    name: "tool_step", prefix: "ST",
    doc: "One tool of a hop's implementation: chosen, configured, then run as tool calls, one per attempt.";
    states {
        AwaitingConfiguration "AWAITING_CONFIGURATION" Live     "no tool chosen yet";
        ReadyToConfigure      "READY_TO_CONFIGURE"     Live     "tool chosen, mappings open";
        ReadyToExecute        "READY_TO_EXECUTE"       Live     "mappings valid";
        Executing             "EXECUTING"              Live     "an attempt runs or waits for its back-off";
        Completed             "COMPLETED"              Rest     "its outputs are written";
        Failed                "FAILED"                 Rest     "configuration or every attempt failed";
        Cancelled             "CANCELLED"              Rest     "cancelled or superseded";
        Deleted               "deleted"                Terminal "removed from view";
    }
    events {
        CreateStep            "create_step"            [Agent System]      "the implementation names it";
        SelectTool            "select_tool"            [Agent System]      "a tool is chosen";
        CompleteConfiguration "complete_configuration" [System]            "mappings and resources are valid";
        ConfigurationFailed   "configuration_failed"   [System]            "mappings or resources are not valid";
        StartStep             "start_step"             [System]            "its turn in the hop has come";
        StepSucceeded         "step_succeeded"         [System]            "its call succeeded and the outputs fit";
        StepAttemptFailed     "step_attempt_failed"    [System]            "an attempt failed and another may follow";
        StepFailed            "step_failed"            [System]            "no attempt is left, or none may follow";
        CancelStep            "cancel_step"            [User System]       "cancelled or superseded";
        RetryStep             "retry_step"             [User System]       "run it again";
        FixStep               "fix_step"               [User]              "configure it again";
        ValidationFailed      "validation_failed"      [System]            "an input, tool or resource was lost";
        RequestStepChanges    "request_step_changes"   [User]              "choose another tool";
        HopReopened           "hop_reopened"           [System]            "its hop's implementation was turned down";
        ResetStep             "reset_step"             [User]              "bring a cancelled step back";
        DeleteStep            "delete_step"            [User Agent]        "remove it";
        MarkStepCompleted     "mark_step_completed"    [User]              "a person supplies its outputs";
        AcceptResult          "accept_result"         [User]              "its call, whose outcome was not known, had succeeded";
        RestartStep           "restart_step"           [System]            "its hop is retried from the start";
    }
    rows {
        "ST1"  []                      CreateStep            => AwaitingConfiguration emits ["step.created"]  "hop HOP_IMPL_STARTED; sequence unique in hop";
        "ST2"  [AwaitingConfiguration] SelectTool            => ReadyToConfigure emits ["step.tool_selected"] "tool registered and enabled";
        "ST3"  [ReadyToConfigure]      CompleteConfiguration => ReadyToExecute   emits ["step.configured"]    "mappings and resources valid";
        // No service raises it: steps come into being with a proposal that was checked as a whole (H13), and what is found
        // out later, when they are approved, executed or lose an input, reopens them (ST13). The row is there for one that
        // configures steps one by one.
        "ST4"  [ReadyToConfigure]      ConfigurationFailed   => Failed           emits ["step.failed"]        "phase = configure";
        "ST5"  [ReadyToExecute]        StartStep             => Executing        emits ["step.started"]       "hop EXECUTING; earlier steps COMPLETED; inputs READY; session active";
        "ST6"  [Executing]             StepSucceeded         => Completed        emits ["step.completed"]     "outputs fit their schemas";
        "ST7"  [Executing]             StepAttemptFailed     => stay             emits ["step.attempt_failed"] "retryable; attempts left; idempotent or without side effects";
        "ST8"  [Executing]             StepFailed            => Failed           emits ["step.failed"]        "phase = execute";
        "ST9"  [AwaitingConfiguration ReadyToConfigure ReadyToExecute Executing] CancelStep => Cancelled emits ["step.cancelled"] "";
        "ST10" [Failed]                CancelStep            => Cancelled        emits ["step.cancelled"]     "";
        "ST11" [Failed]                RetryStep             => ReadyToExecute   emits ["step.retried"]       "H29";
        "ST12" [Failed]                FixStep               => ReadyToConfigure emits ["step.config_reopened"] "hop HOP_IMPL_STARTED";
        "ST13" [ReadyToExecute]        ValidationFailed      => ReadyToConfigure emits ["step.config_reopened"] "errors";
        "ST14" [ReadyToConfigure]      RequestStepChanges    => AwaitingConfiguration emits ["step.config_reopened"] "tool cleared; hop not EXECUTING";
        "ST15" [ReadyToExecute]        HopReopened           => ReadyToConfigure emits ["step.config_reopened"] "H16, H19";
        "ST16" [Cancelled]             ResetStep             => AwaitingConfiguration emits ["step.reset"]    "hop HOP_IMPL_STARTED";
        "ST17" [AwaitingConfiguration Failed Cancelled] DeleteStep => Deleted    emits ["step.deleted"]       "hop not EXECUTING";
        "ST18" [Executing]             MarkStepCompleted     => Completed        emits ["step.completed"]     "outputs supplied; manual = true";
        "ST19" [Completed]             RestartStep           => ReadyToExecute   emits ["step.retried"]       "H29 with restart = true";
        "ST20" [Failed]                AcceptResult          => Completed        emits ["step.completed"]     "added: C23 as a success of its last call; hop failed in its execution; outputs supplied; manual = true";
    }
    ignores {}
    refuses {}
    rules {}
}
