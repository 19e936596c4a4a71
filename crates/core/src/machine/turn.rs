//! Turn: one request cycle of an agent, from its cause to exactly one end.

super::machine! {
    name: "turn", prefix: "T",
    doc: "One request cycle of an agent: it waits, streams the model, waits for tools, and ends once.";
    states {
        Queued        "queued"         Live     "waits in the database for a worker";
        Streaming     "streaming"      Live     "a worker streams the provider's answer";
        ToolExecuting "tool_executing" Live     "waits in the database for its tool calls; no process holds it";
        Completed     "completed"      Terminal "answered, or its limit of provider calls reached";
        Interrupted   "interrupted"    Terminal "ended by a person, a steer, a pause, a budget or a kill; partial output kept";
        Error         "error"          Terminal "ended by a failure";
    }
    events {
        QueueTurn            "queue_turn"             [User Agent System] "a message, nudge, task, steer or resume is a cause for a turn";
        StartTurn            "start_turn"             [User Agent System] "a worker claims it";
        AssistantDelta       "assistant_delta"        [Agent System]      "partial output is checkpointed";
        UsageReported        "usage_reported"         [Agent System]      "the provider reported usage";
        ToolCallsReceived    "tool_calls_received"    [Agent System]      "the answer asks for tools";
        ResponseDone         "response_done"          [Agent System]      "the answer asks for no tool";
        ToolsFinished        "tools_finished"         [System]            "every call has its result and the turn goes on";
        ToolsFinishedLast    "tools_finished_last"    [System]            "every call has its result and no provider call may follow";
        ToolsFinishedSteered "tools_finished_steered" [System]            "every call has its result and a steer was held back for it";
        RequestControl       "request_control"        [User Agent System] "an interrupt, steer or kill is recorded: whoever has the turn carries it out at once";
        PostMessage          "post_message"           [User]              "a message queues up behind the turn";
        Interrupt            "interrupt"              [User System]       "a person interrupts: an answer ends where it is";
        Steer                "steer"                  [User Agent System] "new input shall replace the rest of the turn";
        InterruptTimeout     "interrupt_timeout"      [System]            "its worker has not reacted within the grace, or its calls are not ended";
        StreamError          "stream_error"           [System]            "provider retries used up, or not retryable";
        ToolCrash            "tool_crash"             [System]            "tool execution failed beyond repair";
        SessionPaused        "session_paused"         [System]            "its session is paused with in_flight = interrupt";
        WatchdogTimeout      "watchdog_timeout"       [System]            "no activity for too long";
        TurnDeadline         "turn_deadline"          [System]            "older than its deadline by the database's clock";
        BudgetExhausted      "budget_exhausted"       [System]            "an agent or session limit is spent";
        Kill                 "kill"                   [User System]       "its agent is ended by force";
        WorkerLost           "worker_lost"            [System]            "the lease of its owner expired and attempts are left";
        RecoveryExhausted    "recovery_exhausted"     [System]            "the lease of its owner expired and no attempt is left";
    }
    rows {
        "T1"  [Queued]        StartTurn         => Streaming     emits ["turn.started"] "session active, drive running, agent idle";
        "T2"  [Streaming]     AssistantDelta    => stay          emits ["turn.assistant_delta"] "";
        "T3"  [Streaming]     ToolCallsReceived => ToolExecuting emits ["turn.tool_calls_received"] "at least one call";
        "T4"  [Streaming]     ResponseDone      => Completed     emits ["turn.assistant_final", "turn.completed"] "no tool call";
        "T5"  [Streaming]     Interrupt         => Interrupted   emits ["turn.interrupted"] "at once, at any chunk";
        "T6"  [Streaming]     Steer             => Interrupted   emits ["turn.interrupted"] "as T5; the steer text is the next turn's input, ahead of the queue";
        "T7"  [Streaming]     StreamError       => Error         emits ["turn.error"] "";
        "T8"  [ToolExecuting] ToolsFinished     => Streaming     emits ["turn.tools_finished"] "provider calls left, no control pending";
        "T9"  [ToolExecuting] ToolsFinishedLast => Completed     emits ["turn.tools_finished", "turn.completed"] "provider calls used up, or a tool declared the turn ended";
        "T10" [ToolExecuting] Interrupt         => Interrupted   emits ["turn.interrupted"] "open calls are cancelled with results first";
        "T11" [ToolExecuting] ToolCrash         => Error         emits ["turn.error"] "open calls get results first";
        "T15" [Streaming ToolExecuting] PostMessage => stay      via "agent.message_received" "mode = queue";
        "T16" [ToolExecuting] Steer             => stay          via "turn.control_requested" "held until the tools finish";
        "T16" [ToolExecuting] ToolsFinishedSteered => Interrupted emits ["turn.interrupted"] "results kept, no further provider call";
        "T17" [Streaming ToolExecuting] SessionPaused    => Interrupted emits ["turn.interrupted"] "in_flight = interrupt";
        "T18" [Streaming ToolExecuting] WatchdogTimeout  => Error       emits ["turn.error"] "silent for 300 s and no call awaits approval";
        "T19" [Streaming ToolExecuting] TurnDeadline     => Error       emits ["turn.error"] "waits for people, accounts and providers excluded";
        "T20" [Streaming ToolExecuting] BudgetExhausted  => Interrupted emits ["turn.interrupted"] "agent or session limit spent";
        "T21" [Streaming ToolExecuting] Kill             => Interrupted emits ["turn.interrupted"] "reason = killed";
        "T22" [Streaming ToolExecuting] InterruptTimeout => Interrupted emits ["turn.interrupted"] "forced; what its worker still writes does not land";
        "T23" [Streaming]     WorkerLost        => stay          emits ["turn.recovered"] "attempts left; the provider call is made again";
        "T24" [Streaming ToolExecuting] UsageReported    => stay        emits ["turn.usage"] "";
        "T25" [Streaming]     RecoveryExhausted => Error         emits ["turn.error"] "error_type = worker_lost";
        "T26" []              QueueTurn         => Queued        emits ["turn.queued"] "a cause exists";
        "T27" [Streaming ToolExecuting] RequestControl   => stay        emits ["turn.control_requested"] "added: a control is durable before it is carried out";
        "T28" [Queued]        Interrupt         => Interrupted   emits ["turn.interrupted"] "added: a turn that never started has an end too";
        "T28" [Queued]        Kill              => Interrupted   emits ["turn.interrupted"] "added: its agent ended before it started";
    }
    ignores {}
    refuses {}
    rules {
        "T12" "L6 of the same commit: finalising an interrupted turn is the agent's return to idle";
        "T13" "L5 of the same commit: finalising a completed turn is the agent's return to idle";
        "T14" "L7 of the same commit: finalising a failed turn is the agent's return to idle";
    }
}
