//! Agent lifecycle: whether an agent exists and whether it is in a turn. The other half is its drive.

super::machine! {
    name: "agent_lifecycle", prefix: "L",
    doc: "Whether an agent exists and is in a turn; orthogonal to its drive.";
    states {
        Spawning    "spawning"     Live     "role, model, tools and budget are being bound";
        Idle        "idle"         Live     "ready, no turn under way";
        RunningTurn "running_turn" Live     "exactly one live turn";
        Terminated  "terminated"   Terminal "ended by a person, its parent, its budget or its session";
        Failed      "failed"       Terminal "could not be brought up";
    }
    events {
        Spawn             "spawn"              [User Agent System] "an agent is asked for";
        InitComplete      "init_complete"      [System]            "everything it needs is bound";
        InitError         "init_error"         [System]            "binding failed";
        TurnAssigned      "turn_assigned"      [System]            "a worker claims it together with its turn";
        TurnCompleted     "turn_completed"     [System]            "its turn completed";
        TurnInterrupted   "turn_interrupted"   [System]            "its turn was interrupted";
        TurnError         "turn_error"         [System]            "its turn failed";
        Kill              "kill"               [User Agent System] "end it, letting a running turn reach its end first";
        KillForced        "kill_forced"        [User System]       "end it now";
        ParentClosed      "parent_closed"      [System]            "its parent ended";
        BudgetExhausted   "budget_exhausted"   [System]            "an agent-scoped limit is spent";
        WorkerLost        "worker_lost"        [System]            "the lease of its owner expired";
        RecoveryExhausted "recovery_exhausted" [System]            "its turn has killed too many workers";
        SessionClosing    "session_closing"    [System]            "its session closes";
    }
    rows {
        "L1"  []            Spawn             => Spawning    emits ["agent.spawning"]   "session open; children below the hard limit";
        "L2"  [Spawning]    InitComplete      => Idle        emits ["agent.ready"]      "role, model, tools, budget bound";
        "L3"  [Spawning]    InitError         => Failed      emits ["agent.failed"]     "";
        "L4"  [Idle]        TurnAssigned      => RunningTurn via "turn.started"         "session active, drive running, no live turn, budget left";
        "L5"  [RunningTurn] TurnCompleted     => Idle        via "turn.completed"       "";
        "L6"  [RunningTurn] TurnInterrupted   => Idle        via "turn.interrupted"     "";
        "L7"  [RunningTurn] TurnError         => Idle        via "turn.error"           "drive-fatal classes also stop the drive";
        "L8"  [RunningTurn] KillForced        => Terminated  emits ["agent.terminated"] "open calls and the turn are ended first";
        "L9"  [Idle]        Kill              => Terminated  emits ["agent.terminated"] "";
        "L9"  [Idle]        KillForced        => Terminated  emits ["agent.terminated"] "";
        "L10" [Idle]        ParentClosed      => Terminated  emits ["agent.terminated"] "reason = parent_closed";
        "L11" [Idle]        BudgetExhausted   => Terminated  emits ["agent.budget_exhausted", "agent.terminated"] "on_budget = terminate";
        "L12" [Spawning]    Kill by [User System] => Terminated  emits ["agent.terminated"] "";
        "L12" [Spawning]    KillForced        => Terminated  emits ["agent.terminated"] "";
        "L12" [Spawning]    ParentClosed      => Terminated  emits ["agent.terminated"] "";
        "L13" [RunningTurn] Kill by [User System] => stay        via "turn.control_requested" "interrupt requested on the turn; L9 follows its end";
        "L14" [RunningTurn] ParentClosed      => stay        via "turn.control_requested" "interrupt requested on the turn; L10 follows its end";
        "L15" [RunningTurn] BudgetExhausted   => stay        emits ["agent.budget_exhausted"] "found after a provider response; the turn is interrupted, then L11 or D21";
        "L16" [RunningTurn] WorkerLost        => stay        via "turn.recovered"       "a new owner with a higher epoch goes on";
        "L17" [Spawning Idle RunningTurn] SessionClosing => Terminated emits ["agent.terminated"] "reason = session_closed; a running turn is ended first";
        "L19" [RunningTurn] RecoveryExhausted => Idle        via "turn.error"           "error_type = worker_lost";
    }
    ignores {}
    refuses {}
    rules {
        "L18" "terminated and failed are declared terminal";
    }
}
