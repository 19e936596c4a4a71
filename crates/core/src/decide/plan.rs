//! Where a plan stands after one of its tasks moved, and what becomes of a task without its agent.

use super::Tries;
use crate::machine::{plan, task};

/// A plan's tasks, counted after the move that asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tasks {
    /// Pending with every dependency completed.
    pub runnable: u32,
    /// Pending behind a dependency.
    pub waiting: u32,
    pub assigned: u32,
    pub running: u32,
    pub blocked: u32,
    pub completed: u32,
    pub failed: u32,
    pub cancelled: u32,
}

/// How the task that asks left the running ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Completed,
    Failed,
    Blocked,
    Cancelled,
}

/// `None`: the plan goes on and nothing has to be said about it.
pub fn plan_progress(tasks: Tasks, ended: Ended, stop_on_first_failure: bool) -> Option<plan::Event> {
    if ended == Ended::Failed && stop_on_first_failure {
        return Some(plan::Event::TaskFailed);
    }
    let live = tasks.assigned + tasks.running + tasks.runnable;
    let stuck = tasks.waiting + tasks.blocked;
    let done = tasks.completed + tasks.failed + tasks.cancelled;
    match (live, stuck) {
        (0, 0) => (done > 0).then_some(plan::Event::AllTasksTerminal),
        (0, _) => Some(plan::Event::AllRunnableBlocked),
        _ => (ended == Ended::Completed).then_some(plan::Event::TaskCompleted),
    }
}

/// The owner of an assigned or running task ended, stopped or erred.
pub fn task_owner_lost(started: bool, attempts: Tries) -> task::Event {
    // An assigned task has used up nothing yet.
    if !started || attempts.left() { task::Event::AgentLost } else { task::Event::Fail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_goes_on_is_reviewed_is_blocked_or_stops() {
        use plan::Event::*;
        let none = Tasks::default();
        let cases = [
            (Tasks { completed: 1, runnable: 1, ..none }, Ended::Completed, false, Some(TaskCompleted)),
            (Tasks { completed: 1, running: 1, ..none }, Ended::Completed, false, Some(TaskCompleted)),
            (Tasks { completed: 1, assigned: 1, blocked: 1, ..none }, Ended::Completed, false, Some(TaskCompleted)),
            (Tasks { failed: 1, running: 1, ..none }, Ended::Failed, false, None),
            (Tasks { blocked: 1, running: 1, ..none }, Ended::Blocked, false, None),
            (Tasks { cancelled: 1, runnable: 1, ..none }, Ended::Cancelled, false, None),
            (Tasks { completed: 2, ..none }, Ended::Completed, false, Some(AllTasksTerminal)),
            (Tasks { completed: 1, failed: 1, ..none }, Ended::Failed, false, Some(AllTasksTerminal)),
            (Tasks { cancelled: 1, ..none }, Ended::Cancelled, false, Some(AllTasksTerminal)),
            (Tasks { failed: 1, waiting: 1, ..none }, Ended::Failed, false, Some(AllRunnableBlocked)),
            (Tasks { completed: 1, blocked: 1, ..none }, Ended::Completed, false, Some(AllRunnableBlocked)),
            (Tasks { blocked: 1, ..none }, Ended::Blocked, false, Some(AllRunnableBlocked)),
            (Tasks { failed: 1, running: 1, ..none }, Ended::Failed, true, Some(TaskFailed)),
            (Tasks { failed: 1, ..none }, Ended::Failed, true, Some(TaskFailed)),
            (Tasks { completed: 1, running: 1, ..none }, Ended::Completed, true, Some(TaskCompleted)),
            (none, Ended::Cancelled, false, None),
        ];
        for (tasks, ended, stop, expected) in cases {
            assert_eq!(plan_progress(tasks, ended, stop), expected, "{tasks:?} {ended:?}");
        }
    }

    #[test]
    fn a_task_that_lost_its_agent_waits_again_until_its_attempts_are_used_up() {
        let cases = [
            (false, 1, task::Event::AgentLost),
            (false, 3, task::Event::AgentLost),
            (true, 1, task::Event::AgentLost),
            (true, 3, task::Event::Fail),
        ];
        for (started, made, expected) in cases {
            assert_eq!(task_owner_lost(started, Tries { made, max: 3 }), expected, "{started} {made}");
        }
    }
}
