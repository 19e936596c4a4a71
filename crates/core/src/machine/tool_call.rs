//! Tool call: from the model's wish to exactly one result.

super::machine! {
    name: "tool_call", prefix: "C",
    doc: "A tool call, from the model's wish through approval and execution to exactly one result.";
    states {
        PendingCall      "pending_call"      Live     "recorded; policy has not spoken yet";
        AwaitingApproval "awaiting_approval" Live     "waits for a person, in the database only";
        Executing        "executing"         Live     "may be started by a runner, or runs";
        Denied           "denied"            Terminal "refused by a person or by policy";
        CompletedResult  "completed_result"  Terminal "ran to its end; result status success";
        ErrorResult      "error_result"      Terminal "result status error, unknown or sandbox_violation";
        TimeoutResult    "timeout_result"    Terminal "the tool's time or the approval's time ran out";
        CancelledResult  "cancelled_result"  Terminal "cancelled before it had a result";
    }
    events {
        Call             "call"               [Agent System]  "the model asks for a tool";
        RequiresApproval "requires_approval"  [System]        "policy wants a person's word";
        AutoApproved     "auto_approved"      [System Policy] "policy or an override approves";
        NoApprovalNeeded "no_approval_needed" [System]        "the tool has no side effects";
        PolicyDenied     "policy_denied"      [System Policy] "policy forbids it";
        InvalidCall      "invalid_call"       [System]        "unknown or disabled tool, or arguments that break the schema";
        Approved         "approved"           [User]          "a person approves";
        Denied           "denied"             [User]          "a person denies";
        ApprovalTimeout  "approval_timeout"   [System]        "nobody decided in time";
        AttemptStarted   "attempt_started"    [System]        "a runner is about to cause the effect";
        ProgressUpdate   "progress_update"    [System]        "output so far";
        Success          "success"            [System]        "it ran to its end";
        ExecutionError   "execution_error"    [System]        "it failed";
        ExecutionTimeout "execution_timeout"  [System]        "it ran out of time";
        Cancelled        "cancelled"          [User System]   "interrupt, stop, kill, or the end of its hop or mission";
        SandboxViolation "sandbox_violation"  [System]        "a path or host outside the policy";
        WorkerLost       "worker_lost"        [System]        "its runner died, the outcome is unknown and must not be risked twice";
        Reclaimed        "reclaimed"          [System]        "its runner died and the tool may run again with the same key";
        LateResult       "late_result"        [System]        "a result for a call that already has one; it is answered already_completed";
        Resolve          "resolve"            [User]          "a person says what an unknown outcome was";
    }
    rows {
        "C1"  []                 Call             => PendingCall      emits ["tool.call"] "";
        "C2"  [PendingCall]      RequiresApproval => AwaitingApproval emits ["tool.approval_requested"] "the approval clock starts";
        "C3"  [PendingCall]      AutoApproved     => Executing        emits ["tool.approved"] "approver = policy";
        "C4"  [PendingCall]      NoApprovalNeeded => Executing        silent () "tool has no side effects";
        "C5"  [AwaitingApproval] Approved         => Executing        emits ["tool.approved"] "digest matches";
        "C6"  [AwaitingApproval] Denied           => Denied           emits ["tool.denied", "tool.result"] "result status denied, one batch";
        "C7"  [AwaitingApproval] ApprovalTimeout  => TimeoutResult    emits ["tool.result"] "clock ran out while the session was active";
        "C8"  [Executing]        ProgressUpdate   => stay             emits ["tool.progress"] "output kept up to its limit";
        "C9"  [Executing]        Success          => CompletedResult  emits ["tool.result"] "";
        "C10" [Executing]        ExecutionError   => ErrorResult      emits ["tool.result"] "";
        "C11" [Executing]        ExecutionTimeout => TimeoutResult    emits ["tool.result"] "tool timeout, 120 s by default";
        "C12" [Executing]        Cancelled        => CancelledResult  emits ["tool.result"] "";
        "C13" [PendingCall]      PolicyDenied     => Denied           emits ["tool.denied", "tool.result"] "read_only and side effects";
        "C14" [PendingCall]      InvalidCall      => ErrorResult      emits ["tool.result"] "the model sees what was wrong";
        "C15" [PendingCall Executing] SandboxViolation => ErrorResult emits ["tool.result"] "result status sandbox_violation";
        "C16" [Executing]        WorkerLost       => ErrorResult      emits ["tool.result"] "result status unknown; never run again by the machine";
        "C17" [PendingCall AwaitingApproval] Cancelled => CancelledResult emits ["tool.result"] "";
        "C18" [Denied CompletedResult ErrorResult TimeoutResult CancelledResult] LateResult => stay emits ["system.invariant_violation"] "the result is dropped and the caller answers already_completed: to him a refusal, recorded because an ended call must never get a second result";
        "C21" [Executing]        Reclaimed        => stay             emits ["tool.reclaimed"] "idempotent or read-only, attempts left";
        "C22" [Executing]        AttemptStarted   => stay             emits ["tool.started"] "added: durable before the effect";
        "C23" [ErrorResult]      Resolve          => stay             emits ["tool.resolved"] "added: only where the result status is unknown";
    }
    ignores {}
    refuses {}
    rules {
        "C19" "the transition writer answers that there is no such call; the runner drops the result and records system.invariant_violation on the session";
        "C20" "the five result states are declared terminal";
    }
}
