//! The list. Read a line as: when one of these rows moves, this event is raised there.

use super::Fact::*;
use super::Reach::*;
use super::{Cascade, Order, Pick, Raise, Reach, When};

const fn before(causes: &'static str, reach: Reach, event: &'static str) -> Cascade {
    Cascade { causes, order: Order::Before, reach, raise: Raise::Event(event), when: When::Always }
}

const fn after(causes: &'static str, reach: Reach, event: &'static str) -> Cascade {
    Cascade { causes, order: Order::After, reach, raise: Raise::Event(event), when: When::Always }
}

const fn pick(causes: &'static str, reach: Reach, pick: Pick) -> Cascade {
    Cascade { causes, order: Order::After, reach, raise: Raise::Pick(pick), when: When::Always }
}

impl Cascade {
    const fn first(mut self) -> Cascade {
        self.order = Order::Before;
        self
    }

    const fn when(mut self, when: When) -> Cascade {
        self.when = when;
        self
    }
}

pub static LIST: &[Cascade] = &[
    // A session opens, holds and closes what it contains. Missions go before plans: a plan that is
    // cancelled would else stop its hop one by one.
    after("S1", NewRootOfSession, "spawn"),
    after("S6", LiveTurnsOfSession, "session_paused").when(When::Cause(InterruptInFlight)),
    after("S6", ExecutingHopsOfSession, "session_paused"),
    after("S7 S8 S18", LiveTurnsOfSession, "request_control"),
    after("S9 S11 S14 S15", AgentsOfSession, "session_closing"),
    after("S9 S11 S14 S15", MissionsOfSession, "session_closing").when(When::Target(Attached)),
    after("S9 S11 S14 S15", PlansOfSession, "user_cancel"),
    before("S19", AgentsOfSession, "kill_forced"),
    // An agent is born with its drive and ends with everything it holds.
    pick("L1", DriveOfAgent, Pick::DriveBirth),
    after("L2", SessionOfAgent, "agent_ready").when(When::Cause(Root)),
    before("L8 L17", LiveTurnOfAgent, "kill"),
    before("L3 L8 L9 L10 L11 L12 L17", QueuedTurnsOfAgent, "kill"),
    after("L8 L9 L10 L11 L12 L17", DriveOfAgent, "lifecycle_terminated"),
    after("L3", DriveOfAgent, "lifecycle_failed"),
    after("L3", DriveOfParent, "agent_message_received"),
    after("L3 L8 L9 L10 L11 L12 L17", ChildrenOfAgent, "parent_closed"),
    pick("L3 L8 L9 L10 L11 L12 L17", TaskOfAgent, Pick::TaskAfterOwner),
    after("L13 L14", LiveTurnOfAgent, "request_control"),
    after("L15", LiveTurnOfAgent, "budget_exhausted"),
    // A turn is over: what waited for that, then the next input.
    after("L7", DriveOfAgent, "execution_error").when(When::Cause(DriveFatal)),
    after("L5", DriveOfAgent, "nudge_turn_ended").when(When::Cause(Nudged)),
    after("L5 L6 L7 L19", DriveOfAgent, "budget_exhausted").when(When::Cause(BudgetStops)),
    pick("L5 L6 L7 L19", Same, Pick::AgentAfterTurn),
    pick("L5 L6 L7 L19", NewTurnOfAgent, Pick::NextTurn),
    after("L16", DriveOfAgent, "worker_recovered"),
    // A drive that takes work, and one that no longer does.
    after("D4 D13", SessionOfAgent, "first_message").when(When::Cause(Root)),
    after("D13", LiveTurnOfAgent, "post_message"),
    pick("D4 D13 D25 D26", NewTurnOfAgent, Pick::NextTurn),
    after("D8", Same, "nudge_limit_reached").when(When::Cause(NudgeLimit)),
    after("D6", LiveTurnOfAgent, "request_control"),
    before("D21", LiveTurnOfAgent, "budget_exhausted"),
    after("D7 D22", SessionOfAgent, "error_threshold").when(When::Target(ErrorThreshold)),
    pick("D6 D7 D18 D21 D22", TaskOfAgent, Pick::TaskAfterOwner),
    before("D27", LifecycleOfAgent, "kill_forced"),
    // A turn takes its agent along; its open calls get their results first.
    after("T1", AgentOfTurn, "turn_assigned"),
    after("T1", TaskOfTurn, "start"),
    after("T1", SessionOfTurn, "new_turn"),
    after("T3", NewCallsOfTurn, "call"),
    before("T10 T17 T19 T20 T21 T22", OpenCallsOfTurn, "cancelled"),
    pick("T11 T18", OpenCallsOfTurn, Pick::CallAfterCrash).first(),
    before("T20", AgentOfTurn, "budget_exhausted").when(When::Cause(AgentBudget)),
    after("T4 T9", AgentOfTurn, "turn_completed"),
    after("T4 T9", SessionOfTurn, "turn_completed"),
    after("T5 T6 T10 T16:tools_finished_steered T17 T20 T21 T22", AgentOfTurn, "turn_interrupted"),
    // As after L7, the drive errs before anything that waited for the end of the turn.
    after("T19", DriveOfTurn, "execution_error").when(When::Cause(LateTooOften)),
    after("T25", DriveOfTurn, "execution_error"),
    after("T7 T11 T18 T19", AgentOfTurn, "turn_error"),
    after("T25", AgentOfTurn, "recovery_exhausted"),
    after("T20", SessionOfTurn, "budget_exhausted").when(When::Cause(SessionBudget)),
    after("T16:steer", Same, "request_control"),
    after("T23", AgentOfTurn, "worker_lost"),
    // A call is judged when it is made; its result moves its step, and its turn if it was the last.
    pick("C1", Same, Pick::Gate),
    pick("C6 C7 C9 C10 C11 C12 C13 C14 C15 C16 C17", StepOfCall, Pick::StepAfterCall),
    pick("C6 C7 C9 C10 C11 C12 C13 C14 C15 C16 C17", TurnOfCall, Pick::TurnAfterCalls),
    // A mission with its assets and its current hop. A failed hop is no longer live enough for
    // mission_cancelled: it is cancelled by its own row.
    after("M1 M4", NewAssetsOfMission, "propose_asset"),
    after("M4", DroppedAssetsOfMission, "reject_asset"),
    after("M4", EditedAssetsOfMission, "edit_asset"),
    after("M2", AssetsOfMission, "accept_asset"),
    after("M11", CurrentHopOfMission, "mission_failed"),
    after("M12 M19", CurrentHopOfMission, "mission_cancelled"),
    after("M8 M12 M13 M19", CurrentHopOfMission, "cancel_hop"),
    after("M12 M19", AssetsOfMission, "cancel_processing"),
    after("M5 M12 M19", AssetsOfMission, "reject_asset"),
    pick("M14", CurrentHopOfMission, Pick::HopAfterRetry),
    after("M15", NewMissionOfMission, "propose_mission"),
    // A hop with its assets and steps, and what its end means for its mission.
    after("H2 H3 H7", NewAssetsOfHop, "propose_asset"),
    after("H7", DroppedAssetsOfHop, "reject_asset"),
    after("H7", EditedAssetsOfHop, "edit_asset"),
    after("H4", AssetsOfHop, "accept_asset"),
    after("H5 H6", AssetsOfHop, "reject_asset"),
    after("H12", SupersededStepsOfHop, "cancel_step"),
    after("H12", NewStepsOfHop, "create_step"),
    after("H17", EditedStepsOfHop, "validation_failed"),
    after("H17", EditedStepsOfHop, "complete_configuration"),
    after("H18", BrokenStepsOfHop, "validation_failed"),
    after("H16 H19", StepsOfHop, "hop_reopened"),
    after("H20", NextStep, "start_step").when(When::Target(Startable)),
    pick("H20", Same, Pick::HopAfterStep),
    // One that a plan carries out has its outputs in the making as long as that takes.
    after("H20", NewPlanOfHop, "goal_received").when(When::Cause(ByPlan)),
    after("H20", OutputsOfHop, "start_processing").when(When::Cause(ByPlan)),
    after("H20", OutputsOfHop, "reprocess").when(When::Cause(ByPlan)),
    after("H22 H26", OutputsOfHop, "processing_failed").when(When::Cause(ByPlan)),
    after("H23 H25", OutputsOfHop, "cancel_processing").when(When::Cause(ByPlan)),
    after("H21", OutputsOfHop, "promote"),
    after("H26", StepsOfHop, "step_failed"),
    after("H28:fix_hop", StepsOfHop, "fix_step"),
    after("H29", StepsOfHop, "retry_step"),
    after("H29", StepsOfHop, "restart_step").when(When::Cause(Restart)),
    after("H10 H23 H24 H25 H27 H31", StepsOfHop, "cancel_step"),
    after("H23 H25 H26 H27", PlanOfHop, "user_cancel"),
    // Supplied values count before the mission is asked whether it has all that it promises.
    after("H27", SuppliedOutputsOfHop, "refresh_asset"),
    after("H27", SuppliedOutputsOfHop, "start_processing"),
    after("H27", SuppliedOutputsOfHop, "reprocess"),
    after("H27", SuppliedOutputsOfHop, "processing_completed"),
    pick("H21 H27", MissionOfHop, Pick::MissionAfterHop),
    pick("H8 H11 H14 H22 H36", MissionOfHop, Pick::MissionAfterFailure),
    after("H23 H24 H31", MissionOfHop, "hop_cancelled"),
    after("H28 H29 H30", MissionOfHop, "retry_mission"),
    // A step runs as calls and makes assets; the hop goes on with the next one. Cancelling what a
    // running hop works on stops the hop.
    after("ST1", Same, "select_tool").when(When::Cause(ToolChosen)),
    after("ST2", Same, "complete_configuration").when(When::Cause(Configured)),
    pick("ST4", HopOfStep, Pick::HopAfterMisconfiguration),
    after("ST5", NewCallOfStep, "call"),
    after("ST5 ST20", OutputsOfStep, "start_processing"),
    after("ST5 ST20", OutputsOfStep, "reprocess"),
    before("ST8 ST9 ST18", OpenCallOfStep, "cancelled"),
    after("ST6 ST18 ST20", OutputsOfStep, "processing_completed"),
    after("ST6 ST18", NextStep, "start_step").when(When::Target(Startable)),
    pick("ST6 ST18", HopOfStep, Pick::HopAfterStep),
    after("ST8", OutputsOfStep, "processing_failed"),
    after("ST8", HopOfStep, "step_failed"),
    after("ST9", OutputsOfStep, "cancel_processing"),
    after("ST9", HopOfStep, "stop_hop"),
    after("ST11 ST12", OutputsOfStep, "fix_asset"),
    after("ST13", HopOfStep, "validation_failed").when(When::Alone),
    // An asset that is lost takes back the approval of what reads it.
    pick("AS7 AS8", HopsOfInput, Pick::HopAfterLoss),
    // A plan with its tasks, and the hop it carries out.
    after("P3 P13", NewTasksOfPlan, "add_task"),
    after("P3", DroppedTasksOfPlan, "cancel"),
    after("P13", FlaggedTasksOfPlan, "retry"),
    after("P16", ResolvedTasksOfPlan, "dependency_resolved"),
    after("P6 P7 P11 P12 P15 P17 P18 P19 P22 P23", TasksOfPlan, "cancel"),
    after("P6 P7 P11 P12 P17 P18 P19 P20 P21 P22 P23", TurnOfPlan, "request_control"),
    after("P6 P7 P11 P12 P17 P18 P19 P20 P21 P22 P23", QueuedTurnOfPlan, "kill"),
    after("P14", OutputsOfPlan, "processing_completed").when(When::Cause(Delivers)),
    pick("P14", HopOfPlan, Pick::HopAfterPlan),
    pick("P7 P12 P18 P19 P20", HopOfPlan, Pick::HopAfterStop),
    after("P11 P17 P21 P22 P23", HopOfPlan, "step_failed"),
    // A task with its agent, its dependants and its plan.
    after("K2", DriveOfTask, "task_assigned"),
    after("K2", NewTurnOfTask, "queue_turn"),
    after("K5 K12", DependantsOfTask, "dependency_failed"),
    pick("K4 K5 K6 K7 K12", PlanOfTask, Pick::PlanAfterTask),
    pick("K11", DependantsOfTask, Pick::TaskAfterRetry),
    after("K8", PlanOfTask, "dependency_resolved"),
    after("K12", TurnOfTask, "request_control"),
    after("K9 K12", QueuedTurnOfTask, "kill"),
];
