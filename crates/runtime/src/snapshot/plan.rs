//! The plans of a session in the picture: how they and their tasks hang together, and what their transitions say.

use super::{Snapshot, entities};
use chrono::{DateTime, Utc};
use instar_core::cascade::{Entry, Planned, Reach};
use instar_core::decide::Tries;
use instar_core::id::{Entity, HopId, Kind, TaskId};
use instar_core::machine::Phase;
use instar_store::entity::{plan, task};
use instar_store::{Change, Store, StoreError};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder};
use serde_json::{Value, json};
use uuid::Uuid;

/// Plans that have not ended, with all of their tasks.
#[derive(Default)]
pub(crate) struct Plans {
    pub(crate) plans: Vec<plan::Model>,
    /// In order of age.
    pub(crate) tasks: Vec<task::Model>,
}

impl Plans {
    pub(super) async fn load(store: &Store, session: Uuid) -> Result<Plans, StoreError> {
        let live = plan::Entity::find()
            .filter(plan::Column::SessionId.eq(session))
            .filter(plan::Column::EndedAt.is_null())
            .order_by_asc(plan::Column::Id);
        let plans = live.all(store.db()).await?;
        let tasks = Plans::tasks_of(store, plans.iter().map(|plan| plan.id)).await?;
        Ok(Plans { plans, tasks })
    }

    async fn tasks_of(store: &Store, plans: impl Iterator<Item = Uuid>) -> Result<Vec<task::Model>, StoreError> {
        let plans: Vec<Uuid> = plans.collect();
        if plans.is_empty() {
            return Ok(Vec::new());
        }
        let tasks = task::Entity::find().filter(task::Column::PlanId.is_in(plans)).order_by_asc(task::Column::Id);
        Ok(tasks.all(store.db()).await?)
    }

    /// One that has ended, or a task of one: a command may still be about it.
    pub(crate) async fn add(&mut self, store: &Store, entity: Entity) -> Result<(), StoreError> {
        let plan = match entity.kind {
            Kind::Plan => Some(entity.id),
            Kind::Task => task::Entity::find_by_id(entity.id).one(store.db()).await?.map(|task| task.plan_id),
            _ => None,
        };
        let Some(plan) = plan.filter(|id| self.plan(*id).is_none()) else { return Ok(()) };
        self.plans.extend(plan::Entity::find_by_id(plan).one(store.db()).await?);
        self.tasks.extend(Plans::tasks_of(store, std::iter::once(plan)).await?);
        Ok(())
    }

    /// Hops that plans carry out.
    pub(super) fn hops(&self) -> Vec<Uuid> {
        self.plans.iter().filter_map(|plan| plan.hop_id).collect()
    }

    pub(crate) fn plan(&self, id: Uuid) -> Option<&plan::Model> {
        self.plans.iter().find(|plan| plan.id == id)
    }

    pub(crate) fn task(&self, id: Uuid) -> Option<&task::Model> {
        self.tasks.iter().find(|task| task.id == id)
    }

    pub(super) fn tries(&self, task: Uuid) -> Option<Tries> {
        let number = |n: i64| u32::try_from(n).unwrap_or(u32::MAX);
        self.task(task).map(|task| Tries { made: number(task.attempt), max: number(task.attempts_max) })
    }

    pub(super) fn stops_on_first_failure(&self, plan: Uuid) -> bool {
        self.plan(plan).is_some_and(|plan| plan.config["stop_on_first_failure"] == true)
    }

    fn is_lost(&self, task: Uuid) -> bool {
        self.task(task).is_some_and(|task| ["failed", "cancelled"].contains(&task.status.as_str()))
    }

    /// `None`: the relation is none of plans.
    pub(super) fn related(&self, of: Entity, reach: Reach) -> Option<Vec<Entity>> {
        let tasks = |which: &dyn Fn(&task::Model) -> bool| {
            entities(Kind::Task, self.tasks.iter().filter(|task| which(task)).map(|task| task.id))
        };
        let held = |task: &task::Model| ["assigned", "running"].contains(&task.status.as_str());
        let of_task = |kind: Kind, id: fn(&task::Model) -> Option<Uuid>| {
            entities(kind, self.task(of.id).and_then(id).into_iter())
        };
        Some(match reach {
            Reach::PlansOfSession => entities(Kind::Plan, self.plans.iter().map(|plan| plan.id)),
            Reach::PlanOfTask => of_task(Kind::Plan, |task| Some(task.plan_id)),
            Reach::PlanOfHop => {
                let carrying = self.plans.iter().filter(|plan| plan.hop_id == Some(of.id));
                entities(Kind::Plan, carrying.map(|plan| plan.id))
            }
            Reach::HopOfPlan => entities(Kind::Hop, self.plan(of.id).and_then(|plan| plan.hop_id).into_iter()),
            Reach::TurnOfPlan | Reach::QueuedTurnOfPlan => {
                entities(Kind::Turn, self.plan(of.id).and_then(|plan| plan.turn_id).into_iter())
            }
            Reach::TasksOfPlan => tasks(&|task| task.plan_id == of.id),
            Reach::ResolvedTasksOfPlan => tasks(&|task| {
                task.plan_id == of.id && task.status == "blocked" && !task.deps().iter().any(|dep| self.is_lost(*dep))
            }),
            Reach::TaskOfAgent => tasks(&|task| task.owner_id == Some(of.id) && held(task)),
            Reach::TaskOfTurn => tasks(&|task| task.turn_id == Some(of.id) && held(task)),
            Reach::DependantsOfTask => tasks(&|task| task.deps().contains(&of.id)),
            Reach::DependenciesOfTask => {
                entities(Kind::Task, self.task(of.id).map(task::Model::deps).unwrap_or_default().into_iter())
            }
            Reach::DriveOfTask => of_task(Kind::Agent, |task| task.owner_id),
            Reach::TurnOfTask | Reach::QueuedTurnOfTask => of_task(Kind::Turn, |task| task.turn_id),
            _ => return None,
        })
    }

    /// The columns besides its state that a transition of a plan or task sets.
    pub(crate) fn dress(&self, change: Change, planned: &Planned, reason: &str, at: DateTime<Utc>) -> Change {
        let mv = &planned.mv;
        let ends = mv.table().phase(mv.to()) != Some(Phase::Live) && mv.changes_state();
        match (mv.machine(), mv.to()) {
            ("plan", "stopped") => change.set(plan::Column::EndedAt, at).set(plan::Column::Reason, reason.to_owned()),
            ("plan", _) if ends => change.set(plan::Column::EndedAt, at),
            ("plan", "goal_received") => waiting(change).set(plan::Column::Feedback, reason.to_owned()),
            ("plan", "planning") if mv.changes_state() => {
                let iteration = self.plan(planned.entity.id).map_or(1, |plan| plan.iteration);
                waiting(change).set(plan::Column::Iteration, iteration + 1)
            }
            ("plan", "reviewing") => waiting(change),
            ("plan", "blocked") => change.set(plan::Column::Reason, "every task left waits for one that cannot go on"),
            ("plan", "executing") if mv.changes_state() => {
                change.set(plan::Column::Drafted, false).set(plan::Column::Reason, None::<String>)
            }
            ("task", "failed") => change.set(task::Column::EndedAt, at).set(task::Column::Error, reason.to_owned()),
            ("task", _) if ends => change.set(task::Column::EndedAt, at),
            ("task", "blocked") => free(change).set(task::Column::Error, self.obstacle(planned, reason)),
            ("task", "pending") => {
                let change = free(change).set(task::Column::EndedAt, None::<DateTime<Utc>>);
                let change = match mv.row() {
                    "K10" => change.set(task::Column::Error, reason.to_owned()),
                    _ => change,
                };
                match self.task(planned.entity.id) {
                    Some(task) if tries_again(mv.row()) => change.set(task::Column::Attempt, task.attempt + 1),
                    _ => change,
                }
            }
            _ => change,
        }
    }

    /// What a task waits for from now on.
    fn obstacle(&self, planned: &Planned, reason: &str) -> String {
        match self.dependency(planned.entity.id).filter(|_| planned.mv.row() == "K6") {
            Some(dep) => {
                let own = self.tasks.iter().filter(|task| task.plan_id == dep.plan_id);
                format!("it waits for {}, which cannot be completed", dep.name_among(own))
            }
            None => reason.to_owned(),
        }
    }

    /// The first dependency that is not done.
    fn dependency(&self, task: Uuid) -> Option<&task::Model> {
        let deps = self.task(task)?.deps();
        deps.into_iter().filter_map(|dep| self.task(dep)).find(|dep| dep.status != "completed")
    }

    /// What a rune about a plan or a task says; `None`: it is about something else.
    pub(crate) fn tell(&self, entry: &Entry, reason: &str, actor: &str) -> Option<Value> {
        let row = entry.moves.iter().rfind(|m| m.entity == entry.entity).map_or("", |m| m.row.as_str());
        let attempt = |task: &task::Model| task.attempt + i64::from(tries_again(row));
        let attempt = self.task(entry.entity.id).map_or(0, attempt);
        let iteration = self.plan(entry.entity.id).map_or(1, |plan| plan.iteration);
        Some(match entry.kind {
            "plan.goal_received" => {
                let plan = self.plan(entry.entity.id)?;
                json!({"goal": plan.goal, "hop_id": plan.hop_id.map(HopId::from), "autonomy": plan.autonomy})
            }
            "plan.stopped" => json!({"reason": reason}),
            "plan.approved" => json!({"approver": if row == "P5" { "policy" } else { actor }}),
            "plan.rejected" => json!({"feedback": reason}),
            "plan.review_started" => json!({"iteration": iteration}),
            "plan.updated" => json!({"changes": {"replan": reason}, "iteration": iteration + 1}),
            "plan.task_failed" => json!({"error": reason, "attempt": attempt}),
            "plan.task_updated" => json!({"reason": reason, "attempt": attempt}),
            "plan.task_cancelled" | "plan.task_unblocked" | "plan.blocked" => json!({"reason": reason}),
            "plan.task_blocked" if row == "K6" => {
                json!({"dependency": self.dependency(entry.entity.id).map(|dep| TaskId::from(dep.id))})
            }
            "plan.task_blocked" => json!({"reason": reason}),
            _ => return None,
        })
    }

    /// Plans that have a task among the moved: whoever ends the last one must see what the others did, so that
    /// every move of a task is also written to its plan's row.
    pub(crate) fn of_moved<'a>(&'a self, moved: &'a [Entity]) -> impl Iterator<Item = &'a plan::Model> {
        let touched = |plan: &&plan::Model| {
            let own = |e: &Entity| e.kind == Kind::Task && self.task(e.id).is_some_and(|task| task.plan_id == plan.id);
            moved.iter().any(own) && !moved.contains(&Entity::new(Kind::Plan, plan.id))
        };
        self.plans.iter().filter(touched)
    }
}

fn tries_again(row: &str) -> bool {
    matches!(row, "K10" | "K11")
}

/// Nobody makes or judges it yet.
fn waiting(change: Change) -> Change {
    change.set(plan::Column::TurnId, None::<Uuid>).set(plan::Column::Asked, 0i64).set(plan::Column::Drafted, false)
}

/// Nobody has it.
fn free(change: Change) -> Change {
    change.set(task::Column::OwnerId, None::<Uuid>).set(task::Column::TurnId, None::<Uuid>)
}

impl Snapshot {
    pub fn plan(&self, id: Uuid) -> Option<&plan::Model> {
        self.plans.plan(id)
    }

    pub fn task(&self, id: Uuid) -> Option<&task::Model> {
        self.plans.task(id)
    }
}
