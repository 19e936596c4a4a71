//! Where a guard decides which event follows: facts are gathered here, [`decide`] decides.

use super::Reach;
use super::view::{Fact, Seen};
use crate::decide::{self, HopPhase};
use crate::id::Entity;
use crate::machine::{Phase, agent_lifecycle, asset, hop, plan, task, tool_call, tool_step, turn};
use crate::rune::payload::ResultStatus;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// A new agent's drive: created or loaded.
    DriveBirth,
    /// An agent out of its turn: what waited for that, strongest first.
    AgentAfterTurn,
    /// Queued only for an agent that lives on.
    NextTurn,
    /// Policy's word on a new call.
    Gate,
    /// A call of a crashed turn: what runs may have had its effect.
    CallAfterCrash,
    /// A turn whose calls all have their results.
    TurnAfterCalls,
    StepAfterCall,
    HopAfterStep,
    HopAfterMisconfiguration,
    HopAfterLoss,
    /// Done, if what the plan made is what the hop has to make.
    HopAfterPlan,
    /// Stopped by whoever stopped its plan, or failed with it.
    HopAfterStop,
    /// The way back into work for the hop of a retried mission.
    HopAfterRetry,
    MissionAfterHop,
    MissionAfterFailure,
    TaskAfterOwner,
    /// A blocked task none of whose dependencies stands in its way any more.
    TaskAfterRetry,
    PlanAfterTask,
}

/// What a cascade asks about: the row that moved, its entity and the one that is reached.
pub(super) struct Asked<'a> {
    pub row: &'a str,
    pub cause: Entity,
    pub target: Entity,
}

impl Pick {
    /// Every event it may answer with.
    pub const fn options(self) -> &'static [&'static str] {
        match self {
            Pick::DriveBirth => &["create", "load"],
            Pick::AgentAfterTurn => &["kill", "parent_closed", "budget_exhausted"],
            Pick::NextTurn => &["queue_turn"],
            Pick::Gate => &[
                "requires_approval",
                "auto_approved",
                "no_approval_needed",
                "policy_denied",
                "invalid_call",
                "sandbox_violation",
            ],
            Pick::CallAfterCrash => &["worker_lost", "cancelled"],
            Pick::TurnAfterCalls => {
                &["tools_finished", "tools_finished_last", "tools_finished_steered", "interrupt", "session_paused"]
            }
            Pick::StepAfterCall => &["step_succeeded", "step_attempt_failed", "step_failed", "cancel_step"],
            Pick::HopAfterStep => &["all_steps_completed"],
            Pick::HopAfterMisconfiguration => &["impl_validation_failed", "hop_impl_failed", "validation_failed"],
            Pick::HopAfterLoss => &["validation_failed", "validation_unrepairable"],
            Pick::HopAfterPlan => &["all_steps_completed", "step_failed"],
            Pick::HopAfterStop => &["stop_hop", "step_failed"],
            Pick::HopAfterRetry => &["replan_hop", "fix_hop_resolve", "fix_hop", "retry_hop"],
            Pick::MissionAfterHop => &["final_hop_completed", "final_hop_incomplete", "hop_completed"],
            Pick::MissionAfterFailure => &["hop_failed_critically", "hop_design_failed", "hop_failed_recoverable"],
            Pick::TaskAfterOwner => &["agent_lost", "fail"],
            Pick::TaskAfterRetry => &["dependency_resolved"],
            Pick::PlanAfterTask => &["task_completed", "all_tasks_terminal", "all_runnable_blocked", "task_failed"],
        }
    }

    /// `None`: nothing follows.
    pub(super) fn choose(self, seen: &Seen<'_>, asked: &Asked<'_>) -> Option<&'static str> {
        let Asked { row, cause, target } = *asked;
        let view = seen.view;
        match self {
            Pick::DriveBirth => Some(if view.fact(cause, Fact::Loaded) { "load" } else { "create" }),
            Pick::AgentAfterTurn => [
                (Fact::KillPending, "kill"),
                (Fact::ParentEnded, "parent_closed"),
                (Fact::BudgetTerminates, "budget_exhausted"),
            ]
            .into_iter()
            .find_map(|(fact, event)| view.fact(target, fact).then_some(event)),
            Pick::NextTurn => agent_lives(seen, cause).then_some("queue_turn"),
            Pick::Gate => view.gate(target).map(|call| decide::gate(call).event.token()),
            Pick::CallAfterCrash => {
                let runs = seen.state(&tool_call::TABLE, target) == Some(tool_call::State::Executing.token());
                Some(if runs { "worker_lost" } else { "cancelled" })
            }
            Pick::TurnAfterCalls => turn_after_calls(seen, target),
            Pick::StepAfterCall => step_after_call(seen, row, cause, target),
            Pick::HopAfterStep => {
                let steps = seen.live_steps(target);
                let done = steps.iter().all(|(_, state)| *state == tool_step::State::Completed.token());
                // Without steps a plan carries the hop out, and says itself when it is done.
                (done && !steps.is_empty()).then_some("all_steps_completed")
            }
            Pick::HopAfterMisconfiguration => {
                let building = seen.state(&hop::TABLE, target) == Some(hop::State::ImplStarted.token());
                Some(match (building, view.tries(target).left()) {
                    (true, true) => "impl_validation_failed",
                    (true, false) => "hop_impl_failed",
                    (false, _) => "validation_failed",
                })
            }
            Pick::HopAfterLoss => {
                Some(decide::validation_failed(view.fact(target, Fact::Repairable), view.tries(target)).token())
            }
            Pick::HopAfterPlan if view.fact(cause, Fact::Delivers) => Some("all_steps_completed"),
            Pick::HopAfterStop if view.fact(cause, Fact::ByPerson) => Some("stop_hop"),
            Pick::HopAfterPlan | Pick::HopAfterStop => Some("step_failed"),
            Pick::HopAfterRetry => Some(match view.failed_hop(target).phase {
                HopPhase::Plan => "replan_hop",
                HopPhase::Resolve => "fix_hop_resolve",
                HopPhase::Impl => "fix_hop",
                HopPhase::Execute => "retry_hop",
            }),
            Pick::MissionAfterHop => {
                let outputs = seen.related(target, Reach::OutputsOfMission);
                let ready = |e: &Entity| seen.state(&asset::TABLE, *e) == Some(asset::State::Ready.token());
                Some(decide::hop_finished(view.fact(cause, Fact::Final), outputs.iter().all(ready)).token())
            }
            Pick::MissionAfterFailure => {
                let phase = failed_phase(row)?;
                Some(decide::hop_failed(decide::FailedHop { phase, ..view.failed_hop(cause) }).token())
            }
            Pick::TaskAfterOwner => {
                let started = seen.state(&task::TABLE, target) == Some(task::State::Running.token());
                Some(decide::task_owner_lost(started, view.tries(target)).token())
            }
            Pick::TaskAfterRetry => {
                let lost = [task::State::Failed.token(), task::State::Cancelled.token()];
                let free = seen
                    .related(target, Reach::DependenciesOfTask)
                    .into_iter()
                    .all(|dep| seen.state(&task::TABLE, dep).is_some_and(|state| !lost.contains(&state)));
                free.then_some("dependency_resolved")
            }
            Pick::PlanAfterTask => plan_after_task(seen, row, target).map(plan::Event::token),
        }
    }
}

fn agent_lives(seen: &Seen<'_>, agent: Entity) -> bool {
    let state = seen.state(&agent_lifecycle::TABLE, agent);
    state.and_then(|s| agent_lifecycle::TABLE.phase(s)) == Some(Phase::Live)
}

fn turn_after_calls(seen: &Seen<'_>, turn: Entity) -> Option<&'static str> {
    let waits = seen.state(&turn::TABLE, turn) == Some(turn::State::ToolExecuting.token());
    let open = seen.related(turn, Reach::OpenCallsOfTurn).into_iter().any(|call| {
        // A call that is allotted and not born yet counts as open.
        let state = seen.state(&tool_call::TABLE, call);
        state.and_then(|s| tool_call::TABLE.phase(s)) != Some(Phase::Terminal)
    });
    (waits && !open).then(|| decide::tools_finished(seen.view.finished_tools(turn)).token())
}

fn step_after_call(seen: &Seen<'_>, row: &str, call: Entity, step: Entity) -> Option<&'static str> {
    // A step that moved on already ended the call itself.
    if seen.state(&tool_step::TABLE, step) != Some(tool_step::State::Executing.token()) {
        return None;
    }
    let told = seen.view.attempt(call);
    let status = match row {
        "C6" | "C13" => ResultStatus::Denied,
        "C7" | "C11" => ResultStatus::Timeout,
        "C9" => ResultStatus::Success,
        "C10" | "C14" => ResultStatus::Error,
        "C12" | "C17" => ResultStatus::Cancelled,
        "C15" => ResultStatus::SandboxViolation,
        "C16" => ResultStatus::Unknown,
        _ => return None,
    };
    // The same invalid call would be made again.
    let retryable = told.retryable && row != "C14";
    Some(decide::step_attempt(decide::Attempt { status, retryable, ..told }).token())
}

fn failed_phase(row: &str) -> Option<HopPhase> {
    match row {
        "H8" => Some(HopPhase::Plan),
        "H11" => Some(HopPhase::Resolve),
        "H14" | "H36" => Some(HopPhase::Impl),
        "H22" => Some(HopPhase::Execute),
        _ => None,
    }
}

fn plan_after_task(seen: &Seen<'_>, row: &str, plan: Entity) -> Option<plan::Event> {
    let ended = match row {
        "K4" => decide::Ended::Completed,
        "K5" => decide::Ended::Failed,
        "K6" | "K7" => decide::Ended::Blocked,
        "K12" => decide::Ended::Cancelled,
        _ => return None,
    };
    let mut tasks = decide::Tasks::default();
    for task in seen.related(plan, Reach::TasksOfPlan) {
        let state = seen.state(&task::TABLE, task).and_then(task::State::parse);
        let count = match state {
            None => continue,
            Some(task::State::Pending) if runnable(seen, task) => &mut tasks.runnable,
            Some(task::State::Pending) => &mut tasks.waiting,
            Some(task::State::Assigned) => &mut tasks.assigned,
            Some(task::State::Running) => &mut tasks.running,
            Some(task::State::Blocked) => &mut tasks.blocked,
            Some(task::State::Completed) => &mut tasks.completed,
            Some(task::State::Failed) => &mut tasks.failed,
            Some(task::State::Cancelled) => &mut tasks.cancelled,
        };
        *count += 1;
    }
    decide::plan_progress(tasks, ended, seen.view.fact(plan, Fact::StopOnFirstFailure))
}

fn runnable(seen: &Seen<'_>, task: Entity) -> bool {
    let done = task::State::Completed.token();
    let deps = seen.related(task, Reach::DependenciesOfTask);
    deps.into_iter().all(|dep| seen.state(&task::TABLE, dep) == Some(done))
}
