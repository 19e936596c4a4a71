//! Hop: one leg of a mission, planned, implemented as tool steps, approved and executed.

super::machine! {
    name: "hop", prefix: "H",
    doc: "One leg of a mission: planned, implemented as tool steps, approved by people, executed.";
    states {
        PlanStarted  "HOP_PLAN_STARTED"  Live     "an agent works on the plan";
        PlanProposed "HOP_PLAN_PROPOSED" Live     "the plan waits for a decision";
        PlanReady    "HOP_PLAN_READY"    Live     "the plan is accepted";
        ImplStarted  "HOP_IMPL_STARTED"  Live     "an agent works on the tool steps";
        ImplProposed "HOP_IMPL_PROPOSED" Live     "the tool steps wait for a decision";
        ImplReady    "HOP_IMPL_READY"    Live     "the tool steps are accepted and may be executed";
        Executing    "EXECUTING"         Live     "its steps run one after another";
        Completed    "COMPLETED"         Terminal "its steps are done, or a person said so";
        Failed       "FAILED"            Rest     "a phase failed; it may be fixed, retried or replanned";
        Cancelled    "CANCELLED"         Rest     "cancelled; it may be reset or deleted";
        Deleted      "deleted"           Terminal "removed from view";
    }
    events {
        StartHopPlan           "start_hop_plan"          [Agent System] "an agent begins to plan";
        CreateHopManually      "create_hop_manually"     [User]         "a person writes the plan";
        ProposeHopPlan         "propose_hop_plan"        [Agent]        "the plan is ready for a decision";
        ApproveHopPlan         "approve_hop_plan"        [User Policy]  "the plan is accepted";
        RejectHopPlan          "reject_hop_plan"         [User]         "the plan is turned down with feedback";
        DiscardHop             "discard_hop"             [User]         "the proposal is thrown away";
        EditHopPlan            "edit_hop_plan"           [User Agent]   "a new revision of the plan";
        HopPlanFailed          "hop_plan_failed"         [Agent System] "no plan could be made";
        StartHopImpl           "start_hop_impl"          [Agent System] "an agent begins to choose tools";
        RequestHopChanges      "request_hop_changes"     [User]         "a person takes an acceptance back";
        ToolResolutionFailed   "tool_resolution_failed"  [System]       "no usable tool or resource";
        ProposeHopImpl         "propose_hop_impl"        [Agent System] "the tool steps are ready for a decision; a plan needs none";
        ImplValidationFailed   "impl_validation_failed"  [System]       "the tool chain has errors";
        HopImplFailed          "hop_impl_failed"         [Agent System] "no implementation could be made";
        ApproveHopImpl         "approve_hop_impl"        [User Policy]  "the tool steps are accepted";
        RejectHopImpl          "reject_hop_impl"         [User]         "the tool steps are turned down with feedback";
        EditHopImpl            "edit_hop_impl"           [User Agent]   "a new revision of the tool steps";
        ValidationFailed       "validation_failed"       [System]       "an asset, tool or resource was lost; repairable";
        ValidationUnrepairable "validation_unrepairable" [System]       "an asset, tool or resource was lost for good";
        ExecuteHop             "execute_hop"             [User Policy]  "run it";
        AllStepsCompleted      "all_steps_completed"     [System]       "every live step is COMPLETED";
        StepFailed             "step_failed"             [System]       "a step failed for good";
        StopHop                "stop_hop"                [User]         "a person stops the execution";
        CancelHop              "cancel_hop"              [User System]  "a person cancels it, or its mission was completed early";
        MissionCancelled       "mission_cancelled"       [System]       "its mission was cancelled";
        MissionFailed          "mission_failed"          [System]       "its mission failed";
        MarkHopCompleted       "mark_hop_completed"      [User]         "a person completes it by hand";
        FixHop                 "fix_hop"                 [User]         "reopen the implementation";
        FixHopResolve          "fix_hop_resolve"         [User]         "reopen the choice of tools";
        RetryHop               "retry_hop"               [User Policy]  "execute again from the failed step";
        ReplanHop              "replan_hop"              [User Agent]   "plan again";
        DeleteHop              "delete_hop"              [User]         "remove it";
        ResetHop               "reset_hop"               [User]         "propose a cancelled hop again";
        ArchiveHop             "archive_hop"             [User System]  "flag it as archived";
        SessionPaused          "session_paused"          [System]       "its session is paused";
    }
    rows {
        "H1"  []             StartHopPlan         => PlanStarted  emits ["hop.plan_started"]  "mission IN_PROGRESS, not stopped by a person; no current hop";
        "H2"  []             CreateHopManually    => PlanProposed emits ["hop.plan_proposed"] "as H1, and after a stop too; author = user";
        "H3"  [PlanStarted]  ProposeHopPlan       => PlanProposed emits ["hop.plan_proposed"] "inputs are mission assets; output is new or existing";
        "H4"  [PlanProposed] ApproveHopPlan       => PlanReady    emits ["hop.plan_approved"] "revision matches; plan_accepted_once := true";
        "H5"  [PlanProposed] RejectHopPlan        => PlanStarted  emits ["hop.plan_rejected"] "feedback given";
        "H6"  [PlanProposed] DiscardHop           => Deleted      emits ["hop.deleted"]       "current_hop := none";
        "H7"  [PlanProposed] EditHopPlan          => stay         emits ["hop.plan_revised"]  "expected revision matches";
        "H8"  [PlanStarted]  HopPlanFailed        => Failed       emits ["hop.failed"]        "phase = plan";
        "H9"  [PlanReady]    StartHopImpl         => ImplStarted  emits ["hop.impl_started"]  "mission IN_PROGRESS";
        "H10" [PlanReady ImplStarted] RequestHopChanges => PlanStarted emits ["hop.plan_rejected"] "after_accept = true";
        "H11" [PlanReady]    ToolResolutionFailed => Failed       emits ["hop.failed"]        "phase = resolve";
        "H12" [ImplStarted]  ProposeHopImpl       => ImplProposed emits ["hop.impl_proposed"] "tool chain valid";
        "H13" [ImplStarted]  ImplValidationFailed => stay         emits ["hop.impl_invalid"]  "the errors go to the agent as a turn";
        "H14" [ImplStarted]  HopImplFailed        => Failed       emits ["hop.failed"]        "phase = impl";
        "H15" [ImplProposed] ApproveHopImpl       => ImplReady    emits ["hop.impl_approved"] "revision matches; every live step READY_TO_EXECUTE";
        "H16" [ImplProposed] RejectHopImpl        => ImplStarted  emits ["hop.impl_rejected"] "feedback given";
        "H17" [ImplProposed] EditHopImpl          => stay         emits ["hop.impl_revised"]  "expected revision matches; chain valid again";
        "H18" [ImplProposed ImplReady] ValidationFailed => ImplStarted emits ["hop.impl_invalid"] "repairable";
        "H19" [ImplReady]    RequestHopChanges    => ImplStarted  emits ["hop.impl_rejected"] "after_accept = true";
        "H20" [ImplReady]    ExecuteHop           => Executing    emits ["hop.execution_started"] "live steps ready or completed; session active; inputs READY";
        "H21" [Executing]    AllStepsCompleted    => Completed    emits ["hop.completed"]     "every live step COMPLETED";
        "H22" [Executing]    StepFailed           => Failed       emits ["hop.failed"]        "phase = execute";
        "H23" [Executing]    StopHop              => Cancelled    emits ["hop.cancelled"]     "reason = stopped";
        "H24" [PlanStarted PlanProposed PlanReady ImplStarted ImplProposed ImplReady] CancelHop => Cancelled emits ["hop.cancelled"] "";
        "H25" [PlanStarted PlanProposed PlanReady ImplStarted ImplProposed ImplReady Executing] MissionCancelled => Cancelled emits ["hop.cancelled"] "reason = mission";
        "H26" [PlanStarted PlanProposed PlanReady ImplStarted ImplProposed ImplReady Executing] MissionFailed => Failed emits ["hop.failed"] "reason = mission; phase it was in";
        "H27" [ImplReady Executing Failed] MarkHopCompleted => Completed emits ["hop.completed"] "reason given; outputs READY or supplied; manual = true";
        "H28" [Failed]       FixHop               => ImplStarted  emits ["hop.fixed"]         "phase impl or execute";
        "H28" [Failed]       FixHopResolve        => PlanReady    emits ["hop.fixed"]         "phase resolve";
        "H29" [Failed]       RetryHop             => ImplReady    emits ["hop.retried"]       "phase = execute; attempts left";
        "H30" [Failed]       ReplanHop            => PlanStarted  emits ["hop.retried"]       "phase plan or resolve";
        "H31" [Failed]       CancelHop            => Cancelled    emits ["hop.cancelled"]     "";
        "H32" [Failed]       DeleteHop            => Deleted      emits ["hop.deleted"]       "current_hop := none";
        "H33" [Cancelled]    DeleteHop            => Deleted      emits ["hop.deleted"]       "";
        "H34" [Cancelled]    ResetHop             => PlanProposed emits ["hop.reset"]         "mission IN_PROGRESS; no current hop; it had a plan";
        "H35" [Completed]    ArchiveHop           => stay         emits ["hop.archived"]      "";
        "H36" [ImplProposed ImplReady] ValidationUnrepairable => Failed emits ["hop.failed"]  "phase = impl";
        "H37" [Executing]    SessionPaused        => stay         via "session.paused"        "the next step waits for the resume";
    }
    ignores {}
    refuses {}
    rules {}
}
