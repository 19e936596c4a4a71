//! Plans: from a goal to its end, step by step, by what the rows say.
//!
//! Nothing here remembers anything: [`Hub::settle_plan`] looks at a plan and takes whatever step its rows ask for,
//! in any process, as often as anybody likes. Whoever has done something for a plan gives a hint that it be looked
//! at; what a hint misses, a sweep of the scheduler finds.

pub(crate) mod hop;
mod prompt;
mod scene;
mod settle;
mod step;
mod work;

pub use hop::{Delivery, HOP_TERMS};
pub use settle::PlanError;
pub use work::{BLOCK_TASK, COMPLETE_TASK, FAIL_TASK, PROPOSE_PLAN, Purpose, SUBMIT_CRITIQUE, Work};

use crate::config::Config;
use crate::hub::Hub;
use instar_core::id::{PlanId, SessionId};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What a plan may take for itself where it does not say so.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Agents of one role in a session up to which more are made for tasks that wait.
    pub workers_max: u32,
    /// Agents of a session that have not ended; 0: any number.
    pub session_max: u32,
    /// How long an agent may take to begin a task.
    pub start_timeout: Duration,
    /// The model of an agent that is made, by its role.
    pub models: BTreeMap<String, String>,
    /// The model of one where nothing else says which.
    pub model: String,
}

impl Default for Policy {
    fn default() -> Self {
        let start_timeout = Duration::from_secs(60);
        Policy { workers_max: 4, session_max: 0, start_timeout, models: BTreeMap::new(), model: "default".into() }
    }
}

impl Policy {
    pub fn of(config: &Config) -> Policy {
        let first = config.models.first().map(|model| model.name.clone());
        Policy {
            workers_max: config.plans.workers_max,
            session_max: config.agents.session_max,
            start_timeout: Duration::from_millis(config.plans.start_timeout_ms),
            models: config.agents.models.clone(),
            model: first.unwrap_or_else(|| "default".into()),
        }
    }
}

/// How plans are dealt with in this process.
#[derive(Clone, Default)]
pub(crate) struct Planning {
    pub(crate) policy: Arc<Policy>,
    /// Plans that are being looked at here, and whether to look once more after that.
    looking: Arc<Mutex<HashMap<PlanId, bool>>>,
}

impl Planning {
    pub(crate) fn new(policy: Policy) -> Planning {
        Planning { policy: Arc::new(policy), looking: Default::default() }
    }

    /// False if somebody looks already: it will look once more.
    fn begin(&self, plan: PlanId) -> bool {
        let mut looking = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        match looking.get_mut(&plan) {
            Some(again) => {
                *again = true;
                false
            }
            None => looking.insert(plan, false).is_none(),
        }
    }

    /// True if somebody asked for another look meanwhile.
    fn end(&self, plan: PlanId) -> bool {
        let mut looking = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        match looking.get_mut(&plan) {
            Some(again) if *again => {
                *again = false;
                true
            }
            _ => {
                looking.remove(&plan);
                false
            }
        }
    }
}

impl Hub {
    /// Something was done for a plan: it is looked at soon, by this process.
    pub fn hint_plan(&self, plan: PlanId) {
        let hub = self.clone();
        tokio::spawn(async move { hub.look_after(plan).await });
    }

    /// Something happened in a session that may concern its plans.
    pub fn hint_plans(&self, session: SessionId) {
        let hub = self.clone();
        tokio::spawn(async move {
            match hub.store().live_plans(session).await {
                Ok(plans) => {
                    for plan in plans {
                        hub.look_after(plan).await;
                    }
                }
                Err(error) => tracing::debug!(%session, %error, "its plans were not looked at; a sweep will"),
            }
        });
    }

    async fn look_after(&self, plan: PlanId) {
        if !self.planning().begin(plan) {
            return;
        }
        loop {
            if let Err(error) = self.settle_plan(plan).await {
                tracing::debug!(%plan, %error, "the plan was not looked at; a sweep will");
            }
            if !self.planning().end(plan) {
                return;
            }
        }
    }
}
