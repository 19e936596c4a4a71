//! What a turn does for a plan, as its own row says: which tools it is given follows from that alone.

use crate::mission::mission_of;
use instar_core::id::{PlanId, TaskId};
use instar_store::entity::{plan, task, turn};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Where in `turns.input` it is kept.
const FIELD: &str = "work";

pub const PROPOSE_PLAN: &str = "propose_plan";
pub const COMPLETE_TASK: &str = "complete_task";
pub const FAIL_TASK: &str = "fail_task";
pub const BLOCK_TASK: &str = "block_task";
pub const SUBMIT_CRITIQUE: &str = "submit_critique";
const READ_ASSET: &str = "read_asset";

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
    /// The how manieth time it is gone about, by the count of whatever is gone about: see [`Work::goes_on_with`].
    #[serde(default)]
    pub attempt: i64,
    /// Whether the plan carries a hop out, whose mission has assets.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_hop: bool,
}

impl Work {
    /// Drafts before this one; each ends what was said about the one before.
    pub(crate) fn on_draft(plan: &plan::Model) -> Work {
        Work {
            plan: plan.id.into(),
            task: None,
            purpose: Purpose::Plan,
            attempt: plan.revision,
            of_hop: is_of_hop(plan),
        }
    }

    /// Between two verdicts of one iteration no task moves.
    pub(crate) fn on_verdict(plan: &plan::Model) -> Work {
        let (purpose, attempt) = (Purpose::Critique, plan.iteration);
        Work { plan: plan.id.into(), task: None, purpose, attempt, of_hop: is_of_hop(plan) }
    }

    pub(crate) fn on_task(plan: &plan::Model, task: &task::Model, purpose: Purpose) -> Work {
        let (task, attempt) = (Some(task.id.into()), task.attempt);
        Work { plan: plan.id.into(), task, purpose, attempt, of_hop: is_of_hop(plan) }
    }

    /// `None`: the turn works on no plan.
    pub fn of(turn: &turn::Model) -> Option<Work> {
        Work::deserialize(turn.input.get(FIELD)?).ok()
    }

    /// Whether what was said in the other still holds in this one. What a prompt says of a plan is so when it is
    /// written; a later one says all that is so then, and beside it an earlier one would be read as if it were, too.
    pub(crate) fn goes_on_with(&self, earlier: &Work) -> bool {
        (self.plan, self.task, self.attempt) == (earlier.plan, earlier.task, earlier.attempt)
            && (self.task.is_some() || self.purpose == earlier.purpose)
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

    /// Everything that a turn has besides the tools of its agent: those that report, and a look at assets where it
    /// works for a mission.
    pub fn granted(turn: &turn::Model) -> Vec<&'static str> {
        let work = Work::of(turn);
        let reads = work.is_some_and(|work| work.of_hop) || mission_of(turn).is_some();
        let reports = work.map_or(&[][..], |work| work.tools());
        reports.iter().copied().chain(reads.then_some(READ_ASSET)).collect()
    }
}

fn is_of_hop(plan: &plan::Model) -> bool {
    plan.hop_id.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn a_turn_keeps_what_it_works_on_in_its_row() {
        let (plan, task) = (Uuid::from_u128(1).into(), Some(Uuid::from_u128(2).into()));
        let work = Work { plan, task, purpose: Purpose::Task, attempt: 2, of_hop: true };
        let kept = work.input();
        assert_eq!(Work::deserialize(&kept[FIELD]).expect("work"), work);
        assert_eq!(kept[FIELD]["purpose"], work.purpose.token());
    }

    #[test]
    fn a_later_attempt_or_iteration_begins_anew() {
        let (plan, task) = (Uuid::from_u128(1).into(), Some(Uuid::from_u128(2).into()));
        let begun = Work { plan, task, purpose: Purpose::Task, attempt: 1, of_hop: false };
        assert!(Work { purpose: Purpose::Report, ..begun }.goes_on_with(&begun));
        assert!(!Work { attempt: 2, ..begun }.goes_on_with(&begun));
        assert!(!Work { task: Some(Uuid::from_u128(3).into()), ..begun }.goes_on_with(&begun));
        let judged = Work { plan, task: None, purpose: Purpose::Critique, attempt: 1, of_hop: false };
        assert!(judged.goes_on_with(&judged));
        assert!(!Work { attempt: 2, ..judged }.goes_on_with(&judged));
        assert!(!Work { purpose: Purpose::Plan, ..judged }.goes_on_with(&judged));
    }
}
