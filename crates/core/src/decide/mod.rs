//! Where a guard chooses between rows of one trigger, these functions choose the event.
//!
//! They read plain facts and answer with an event of the machine's own type; they know no row, no
//! store and no clock. Whether the event is legal in the present state is the table's answer.

mod agent;
mod awaits;
mod call;
mod gate;
mod hop;
mod mission;
mod plan;
mod scope;
mod step;
mod turn;

pub use agent::{AgentEvent, NUDGES_MAX, OnBudget, budget_exhausted, kill};
pub use awaits::{Awaits, GatePolicy, Gates, Standing};
pub use call::{Effect, LostCall, call_worker_lost};
pub use gate::{Approval, Call, Gated, Mode, gate};
pub use hop::{HopPhase, fix_hop, validation_failed};
pub use mission::{FailedHop, FailureClass, OnHopFailure, STOPPED_BY_PERSON, hop_failed, hop_finished};
pub use plan::{Ended, Tasks, plan_progress, task_owner_lost};
pub use scope::Scope;
pub use step::{Attempt, Chosen, back_off_ms, step_attempt};
pub use turn::{
    Control, FinishedTools, LATE_MAX, PROVIDER_CALLS_LIMIT, PROVIDER_CALLS_MAX, Pending, Repeated, TURN_ATTEMPTS_MAX,
    repeated, tools_finished, turn_worker_lost,
};

/// How often something was tried so far, the try that just failed included, and how often it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tries {
    pub made: u32,
    pub max: u32,
}

impl Tries {
    pub const fn left(self) -> bool {
        self.made < self.max
    }
}

/// A command that no event stands for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{advice}")]
pub struct NotNow {
    pub advice: &'static str,
}

#[cfg(test)]
mod tests {
    use crate::machine::{Answer, By, Table, apply, hop, mission, plan, task, tool_call, tool_step, turn};

    #[test]
    fn every_event_decided_on_takes_the_row_it_stands_for() {
        let rows: &[(&'static Table, &str, &str, &str)] = &[
            (&turn::TABLE, "tool_executing", turn::Event::ToolsFinished.token(), "T8"),
            (&turn::TABLE, "tool_executing", turn::Event::ToolsFinishedLast.token(), "T9"),
            (&turn::TABLE, "tool_executing", turn::Event::Interrupt.token(), "T10"),
            (&turn::TABLE, "tool_executing", turn::Event::ToolsFinishedSteered.token(), "T16"),
            (&turn::TABLE, "tool_executing", turn::Event::SessionPaused.token(), "T17"),
            (&turn::TABLE, "streaming", turn::Event::WorkerLost.token(), "T23"),
            (&turn::TABLE, "streaming", turn::Event::RecoveryExhausted.token(), "T25"),
            (&tool_call::TABLE, "pending_call", tool_call::Event::RequiresApproval.token(), "C2"),
            (&tool_call::TABLE, "pending_call", tool_call::Event::AutoApproved.token(), "C3"),
            (&tool_call::TABLE, "pending_call", tool_call::Event::NoApprovalNeeded.token(), "C4"),
            (&tool_call::TABLE, "pending_call", tool_call::Event::PolicyDenied.token(), "C13"),
            (&tool_call::TABLE, "pending_call", tool_call::Event::InvalidCall.token(), "C14"),
            (&tool_call::TABLE, "pending_call", tool_call::Event::SandboxViolation.token(), "C15"),
            (&tool_call::TABLE, "executing", tool_call::Event::WorkerLost.token(), "C16"),
            (&tool_call::TABLE, "executing", tool_call::Event::Reclaimed.token(), "C21"),
            (&mission::TABLE, "IN_PROGRESS", mission::Event::FinalHopCompleted.token(), "M6"),
            (&mission::TABLE, "IN_PROGRESS", mission::Event::HopCompleted.token(), "M7"),
            (&mission::TABLE, "IN_PROGRESS", mission::Event::HopFailedCritically.token(), "M9"),
            (&mission::TABLE, "IN_PROGRESS", mission::Event::HopDesignFailed.token(), "M10"),
            (&mission::TABLE, "IN_PROGRESS", mission::Event::HopFailedRecoverable.token(), "M16"),
            (&mission::TABLE, "IN_PROGRESS", mission::Event::FinalHopIncomplete.token(), "M18"),
            (&hop::TABLE, "HOP_IMPL_READY", hop::Event::ValidationFailed.token(), "H18"),
            (&hop::TABLE, "HOP_IMPL_READY", hop::Event::ValidationUnrepairable.token(), "H36"),
            (&tool_step::TABLE, "EXECUTING", tool_step::Event::StepSucceeded.token(), "ST6"),
            (&tool_step::TABLE, "EXECUTING", tool_step::Event::StepAttemptFailed.token(), "ST7"),
            (&tool_step::TABLE, "EXECUTING", tool_step::Event::StepFailed.token(), "ST8"),
            (&tool_step::TABLE, "EXECUTING", tool_step::Event::CancelStep.token(), "ST9"),
            (&plan::TABLE, "executing", plan::Event::TaskCompleted.token(), "P8"),
            (&plan::TABLE, "executing", plan::Event::AllTasksTerminal.token(), "P9"),
            (&plan::TABLE, "executing", plan::Event::AllRunnableBlocked.token(), "P10"),
            (&plan::TABLE, "executing", plan::Event::TaskFailed.token(), "P22"),
            (&task::TABLE, "running", task::Event::Fail.token(), "K5"),
            (&task::TABLE, "assigned", task::Event::AgentLost.token(), "K9"),
            (&task::TABLE, "running", task::Event::AgentLost.token(), "K10"),
        ];
        for (table, from, event, row) in rows {
            let answer = apply(table, Some(from), event, By::System);
            let Answer::Moves(mv) = answer else { panic!("{event}: {answer:?}") };
            assert_eq!(mv.row(), *row, "{event}");
        }
    }
}
