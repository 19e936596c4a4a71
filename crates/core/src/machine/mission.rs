//! Mission: the contract with a person.

super::machine! {
    name: "mission", prefix: "M",
    doc: "The contract with a person: a goal, its output assets, and the hops that lead there.";
    states {
        AwaitingApproval "AWAITING_APPROVAL" Live     "proposed; a person or a policy decides";
        InProgress       "IN_PROGRESS"       Live     "hops are planned and executed one after another";
        Completed        "COMPLETED"         Terminal "its output assets are ready";
        Failed           "FAILED"            Rest     "a failure ended it; it may be retried or cancelled";
        Cancelled        "CANCELLED"         Terminal "rejected or cancelled";
    }
    events {
        ProposeMission        "propose_mission"         [Agent User]        "an agent or a person proposes it";
        ApproveMission        "approve_mission"         [User Policy]       "the proposal is accepted";
        RequestMissionChanges "request_mission_changes" [User]              "a person wants it changed";
        ReviseMission         "revise_mission"          [Agent User]        "a new revision of the proposal";
        RejectMission         "reject_mission"          [User]              "a person turns it down";
        FinalHopCompleted     "final_hop_completed"     [System]            "the final hop is done and every output is ready";
        FinalHopIncomplete    "final_hop_incomplete"    [System]            "the final hop is done but an output is missing";
        HopCompleted          "hop_completed"           [System]            "a hop that is not the final one is done";
        GoalAchievedEarly     "goal_achieved_early"     [User Policy]       "every output is ready before the final hop";
        HopFailedCritically   "hop_failed_critically"   [System]            "a hop failed for good";
        HopDesignFailed       "hop_design_failed"       [System]            "planning or implementing a hop failed for good";
        HopFailedRecoverable  "hop_failed_recoverable"  [System]            "a hop failed and can be retried";
        HopCancelled          "hop_cancelled"           [System]            "its hop was cancelled";
        SystemError           "system_error"            [System]            "an unrecoverable error of the system";
        CancelMission         "cancel_mission"          [User]              "a person cancels it";
        RetryMission          "retry_mission"           [User]              "a person wants its failed hop tried again";
        ResetMission          "reset_mission"           [User]              "start it over as a new instance";
        ResumeMission         "resume_mission"          [User]              "a person lets it go on after its hop was stopped";
        SessionClosing        "session_closing"         [System]            "its session closes";
    }
    rows {
        "M1"  []                 ProposeMission        => AwaitingApproval emits ["mission.proposed"] "session active; at least one output asset; valid schemas";
        "M2"  [AwaitingApproval] ApproveMission        => InProgress       emits ["mission.approved"] "no current hop; revision matches";
        "M3"  [AwaitingApproval] RequestMissionChanges => stay             emits ["mission.changes_requested"] "feedback given";
        "M4"  [AwaitingApproval] ReviseMission         => stay             emits ["mission.revised"] "expected revision matches";
        "M5"  [AwaitingApproval] RejectMission         => Cancelled        emits ["mission.cancelled"] "reason = rejected";
        "M6"  [InProgress]       FinalHopCompleted     => Completed        emits ["mission.completed"] "hop.is_final and every output asset READY";
        "M7"  [InProgress]       HopCompleted          => stay             via "hop.completed" "not is_final; current_hop := none";
        "M8"  [InProgress]       GoalAchievedEarly     => Completed        emits ["mission.completed"] "every output asset READY; no hop EXECUTING";
        "M9"  [InProgress]       HopFailedCritically   => Failed           emits ["mission.failed"] "fatal class, or attempts used up and on_hop_failure = fail";
        "M10" [InProgress]       HopDesignFailed       => Failed           emits ["mission.failed"] "H8, H11, H14 or H36 with a fatal class";
        "M11" [AwaitingApproval InProgress] SystemError => Failed          emits ["mission.failed"] "reason = system";
        "M12" [AwaitingApproval InProgress] CancelMission => Cancelled     emits ["mission.cancelled"] "";
        "M13" [Failed]           CancelMission         => Cancelled        emits ["mission.cancelled"] "";
        "M14" [Failed]           RetryMission          => InProgress       emits ["mission.retried"] "current hop FAILED and retryable";
        "M15" [Completed Failed Cancelled] ResetMission => stay            emits ["mission.reset"] "a new instance is proposed in the same commit";
        "M16" [InProgress]       HopFailedRecoverable  => stay             emits ["mission.attention"] "recoverable class or attempts left";
        "M17" [InProgress]       HopCancelled          => stay             via "hop.cancelled" "current_hop := none; by a person: attention = stopped_by_person";
        "M18" [InProgress]       FinalHopIncomplete    => stay             emits ["mission.attention"] "reason = outputs_missing; another hop needed";
        "M19" [AwaitingApproval InProgress] SessionClosing => Cancelled    emits ["mission.cancelled"] "reason = session_closed; not detached";
        "M20" [InProgress]       ResumeMission         => stay             emits ["mission.resumed"] "attention = stopped_by_person";
    }
    ignores {}
    refuses {}
    rules {}
}
