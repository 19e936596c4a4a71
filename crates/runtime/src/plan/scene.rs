//! What is read before it is decided how a plan goes on.

use super::prompt;
use chrono::{DateTime, Utc};
use instar_core::id::{PlanId, RuneId, SessionId};
use instar_core::plan::{Limits, Used};
use instar_store::entity::{agent, critique, plan, session, task, turn};
use instar_store::{Store, StoreError};
use std::collections::HashMap;
use uuid::Uuid;

pub(super) struct Scene {
    pub(super) session: session::Model,
    pub(super) plan: plan::Model,
    /// In the order in which they were added.
    pub(super) tasks: Vec<task::Model>,
    /// In which somebody works on the plan or one of its tasks, ended or not.
    pub(super) turns: HashMap<Uuid, turn::Model>,
    /// Of tasks that somebody has.
    pub(super) owners: HashMap<Uuid, agent::Model>,
    /// Oldest first; read only while it is planned anew.
    pub(super) critiques: Vec<critique::Model>,
    /// What the results are borne out by, in its own words; read only while they are judged.
    pub(super) evidence: HashMap<RuneId, (String, String)>,
    pub(super) used: Used,
    pub(super) now: DateTime<Utc>,
}

/// Somebody has it.
pub(super) fn is_held(task: &task::Model) -> bool {
    ["assigned", "running"].contains(&task.status.as_str())
}

impl Scene {
    /// `None`: there is no such plan, or it has ended.
    pub(super) async fn load(store: &Store, id: PlanId) -> Result<Option<Scene>, StoreError> {
        let Some(plan) = store.plan(id).await?.filter(|plan| plan.ended_at.is_none()) else { return Ok(None) };
        let Some(session) = store.session(SessionId::from(plan.session_id)).await? else { return Ok(None) };
        let tasks = store.tasks_of(id).await?;
        let held = || tasks.iter().filter(|task| is_held(task));
        let turns = held().filter_map(|task| task.turn_id).chain(plan.turn_id).collect();
        let turns = store.turns_by_id(turns).await?.into_iter().map(|turn| (turn.id, turn)).collect();
        let mut owners = HashMap::new();
        let ids: Vec<Uuid> = held().filter_map(|task| task.owner_id).collect();
        if !ids.is_empty() {
            owners.extend(store.kin_of(&ids).await?.into_iter().map(|kin| (kin.agent.id, kin.agent)));
        }
        let critiques = match plan.status.as_str() {
            "planning" => store.critiques_of(id).await?,
            _ => Vec::new(),
        };
        let quoted = match plan.status.as_str() {
            "reviewing" => prompt::quoted(&tasks),
            _ => Vec::new(),
        };
        let chars = prompt::evidence_chars(quoted.len());
        let evidence = store.rune_texts(SessionId::from(plan.session_id), &quoted, chars + 1).await?;
        let now = store.now().await?;
        let mut used =
            Used { wall_time_ms: (now - plan.created_at).num_milliseconds().max(0) as u64, ..Used::default() };
        let limits = limits(&plan);
        if limits.max_tokens.is_some() || limits.max_tool_calls.is_some() {
            (used.tokens, used.tool_calls) = store.plan_usage(id).await?;
        }
        Ok(Some(Scene { session, plan, tasks, turns, owners, critiques, evidence, used, now }))
    }

    pub(super) fn task(&self, id: Uuid) -> Option<&task::Model> {
        self.tasks.iter().find(|task| task.id == id)
    }

    /// Whether the turn is over, or was never there.
    pub(super) fn is_over(&self, turn: Option<Uuid>) -> bool {
        turn.and_then(|id| self.turns.get(&id)).is_none_or(|turn| turn.ended_at.is_some())
    }

    /// Whether it was said that nobody is there for it; of a blocked plan something else is said there.
    pub(super) fn is_short(&self) -> bool {
        self.plan.reason.is_some() && self.plan.status != "blocked"
    }

    /// Whether somebody works on it, or has just got something to do.
    pub(super) fn is_under_way(&self) -> bool {
        self.tasks.iter().any(is_held) || !self.is_over(self.plan.turn_id)
    }

    pub(super) fn id(&self) -> PlanId {
        PlanId::from(self.plan.id)
    }
}

pub(super) fn limits(plan: &plan::Model) -> Limits {
    serde_json::from_value(plan.budget.clone()).unwrap_or_default()
}
