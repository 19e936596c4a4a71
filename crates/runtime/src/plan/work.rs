//! What a turn does for a plan, as its own row says: which tools it is given follows from that alone.

use instar_core::id::{PlanId, TaskId};
use instar_store::entity::{task, turn};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Where in `turns.input` it is kept.
const FIELD: &str = "work";

pub const PROPOSE_PLAN: &str = "propose_plan";
pub const COMPLETE_TASK: &str = "complete_task";
pub const FAIL_TASK: &str = "fail_task";
pub const BLOCK_TASK: &str = "block_task";
pub const SUBMIT_CRITIQUE: &str = "submit_critique";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// The orchestrator makes a plan of the goal.
    Plan,
    /// An agent begins a task.
    Task,
    /// It is asked once more for what came of it.
    Report,
    /// The critic judges what was done.
    Critique,
}

impl Purpose {
    pub const fn token(self) -> &'static str {
        match self {
            Purpose::Plan => "plan",
            Purpose::Task => "task",
            Purpose::Report => "report",
            Purpose::Critique => "critique",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    #[serde(rename = "plan_id")]
    pub plan: PlanId,
    #[serde(rename = "task_id", default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    pub purpose: Purpose,
    /// Of the task.
    #[serde(default)]
    pub attempt: i64,
}

impl Work {
    pub(crate) fn on(plan: PlanId, purpose: Purpose) -> Work {
        Work { plan, task: None, purpose, attempt: 0 }
    }

    pub(crate) fn on_task(task: &task::Model, purpose: Purpose) -> Work {
        Work { plan: task.plan_id.into(), task: Some(task.id.into()), purpose, attempt: task.attempt }
    }

    /// `None`: the turn works on no plan.
    pub fn of(turn: &turn::Model) -> Option<Work> {
        Work::deserialize(turn.input.get(FIELD)?).ok()
    }

    pub(crate) fn input(&self) -> Value {
        json!({FIELD: self})
    }

    /// Tools that the turn has besides those of its agent, whatever the agent's list says.
    pub const fn tools(&self) -> &'static [&'static str] {
        match self.purpose {
            Purpose::Plan => &[PROPOSE_PLAN],
            Purpose::Task | Purpose::Report => &[COMPLETE_TASK, FAIL_TASK, BLOCK_TASK],
            Purpose::Critique => &[SUBMIT_CRITIQUE],
        }
    }

    /// The same for any turn.
    pub fn tools_of(turn: &turn::Model) -> &'static [&'static str] {
        Work::of(turn).map_or(&[], |work| work.tools())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn a_turn_keeps_what_it_works_on_in_its_row() {
        let (plan, task) = (Uuid::from_u128(1).into(), Some(Uuid::from_u128(2).into()));
        let work = Work { plan, task, purpose: Purpose::Task, attempt: 2 };
        let kept = work.input();
        assert_eq!(Work::deserialize(&kept[FIELD]).expect("work"), work);
        assert_eq!(kept[FIELD]["purpose"], work.purpose.token());
    }
}
