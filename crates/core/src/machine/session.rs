//! Session: the unit of order, isolation and archiving.

super::machine! {
    name: "session", prefix: "S",
    doc: "A conversation's container: it owns agents, turns, missions, plans and the runelog.";
    states {
        Created   "created"   Live     "the log is open; nothing has been said yet";
        Active    "active"    Live     "turns may start";
        Paused    "paused"    Live     "a person holds it: input queues up, no turn starts";
        Suspended "suspended" Live     "a budget is spent or errors piled up: messages are refused";
        Closing   "closing"   Live     "ordered shutdown: results, then turns, then agents";
        Closed    "closed"    Rest     "sealed; the log has had its last rune";
        Archived  "archived"  Terminal "segments are in cold storage, metadata stays listed";
    }
    events {
        CreateSession     "create_session"     [User]        "a session is asked for";
        FirstMessage      "first_message"      [User]        "the first message arrives";
        AgentReady        "agent_ready"        [System]      "the root agent is ready";
        NewTurn           "new_turn"           [System]      "a turn starts";
        TurnCompleted     "turn_completed"     [System]      "a turn is completed";
        PauseRequested    "pause_requested"    [User]        "a person asks to hold it";
        ResumeRequested   "resume_requested"   [User]        "a person asks to go on";
        BudgetExhausted   "budget_exhausted"   [System]      "a session-scoped limit is spent";
        BudgetReplenished "budget_replenished" [User]        "limits were raised above use";
        ErrorThreshold    "error_threshold"    [System]      "too many drive-fatal errors in the window";
        Reset             "reset"              [User]        "a person clears the error window";
        CloseRequested    "close_requested"    [User]        "a person asks to close it";
        CleanupComplete   "cleanup_complete"   [System]      "no agent, turn or call is left open";
        CleanupTimeout    "cleanup_timeout"    [System]      "the closing grace is over";
        ArchiveRequested  "archive_requested"  [User System] "its segments shall go to cold storage";
    }
    rows {
        "S1"  []          CreateSession     => Created   emits ["session.created"]     "quota for the tenant left";
        "S2"  [Created]   FirstMessage      => Active    emits ["session.activated"]   "the message is queued for the root agent";
        "S3"  [Created]   AgentReady        => Active    emits ["session.activated"]   "the agent is the root agent";
        "S4"  [Active]    NewTurn           => stay      via "turn.started"            "";
        "S5"  [Active]    TurnCompleted     => stay      via "turn.completed"          "";
        "S6"  [Active]    PauseRequested    => Paused    emits ["session.paused"]      "in_flight = complete or interrupt decides running turns";
        "S7"  [Active]    BudgetExhausted   => Suspended emits ["session.suspended"]   "a session-scoped limit is spent";
        "S8"  [Active]    ErrorThreshold    => Suspended emits ["session.suspended"]   "N drive-fatal errors within the window";
        "S9"  [Active]    CloseRequested    => Closing   emits ["session.closing"]     "";
        "S10" [Paused]    ResumeRequested   => Active    emits ["session.resumed"]     "approval clocks restart; queued input starts turns";
        "S11" [Paused]    CloseRequested    => Closing   emits ["session.closing"]     "";
        "S12" [Suspended] BudgetReplenished => Active    emits ["session.unsuspended"] "limits raised above use";
        "S13" [Suspended] Reset             => Active    emits ["session.unsuspended"] "error window emptied; errored agents stay errored";
        "S14" [Suspended] CloseRequested    => Closing   emits ["session.closing"]     "";
        "S15" [Created]   CloseRequested    => Closing   emits ["session.closing"]     "";
        "S16" [Closing]   CleanupComplete   => Closed    emits ["session.closed"]      "every agent ended, no open call, no live turn; last rune of the log";
        "S17" [Closed]    ArchiveRequested  => Archived  emits ["session.archived"]    "the rune goes to the catalogue log";
        "S18" [Paused]    BudgetExhausted   => Suspended emits ["session.suspended"]   "an in-flight turn spent the session limit";
        "S19" [Closing]   CleanupTimeout    => Closed    emits ["session.closed"]      "grace over: what is left is ended by force first";
    }
    ignores {}
    refuses {}
    rules {
        "S20" "archived is declared terminal";
    }
}
