//! What the end of one agent's turn means for those around it.
//!
//! A hint only, made by whoever ended the turn: what it misses, a sweep of the scheduler finds.

use crate::flow::{self, FlowError};
use crate::hub::Hub;
use crate::wake::Ready;
use instar_core::id::{AgentId, SessionId};
use instar_core::rune::Actor;
use instar_store::{Answer, Kin, StoreError};

#[derive(Debug, thiserror::Error)]
pub enum FamilyError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Flow(#[from] FlowError),
}

/// A child that stays in the making until there is a place for it.
fn waits(kin: &Kin) -> bool {
    kin.agent.lifecycle == "spawning"
}

impl Hub {
    /// An agent that `parent` made has nothing to do any more.
    pub fn child_rests(&self, parent: AgentId, at_work_max: u32) {
        let hub = self.clone();
        tokio::spawn(async move {
            let released = hub.release_children(parent, at_work_max).await;
            if let Err(error) = released.and(hub.wake_waiting(parent).await) {
                tracing::debug!(%parent, %error, "nobody was told that a child rests; a sweep will find it");
            }
        });
    }

    /// An agent has ended, or its turn: should another one wait for it, its call is looked at.
    pub fn ended(&self, agent: AgentId) {
        let hub = self.clone();
        tokio::spawn(async move {
            let woken = async {
                match hub.store().agent(agent).await?.and_then(|agent| agent.parent_id) {
                    Some(parent) => hub.wake_waiting(parent.into()).await,
                    None => Ok(()),
                }
            };
            if let Err(error) = woken.await {
                tracing::debug!(%agent, %error, "nobody was told that it ended; a sweep will find it");
            }
        });
    }

    /// Has the runners look at the calls of an agent that wait for others.
    async fn wake_waiting(&self, agent: AgentId) -> Result<(), FamilyError> {
        for call in self.store().waiting_calls(agent).await? {
            self.wake_call_row(&call, true);
        }
        Ok(())
    }

    /// Lets children begin whose tasks waited, as long as fewer than `at_work_max` of `parent`'s work.
    pub async fn release_children(&self, parent: AgentId, at_work_max: u32) -> Result<(), FamilyError> {
        let children = self.store().live_children(parent).await?;
        if !children.iter().any(waits) {
            return Ok(());
        }
        let mut at_work = children.iter().filter(|kin| kin.busy && !waits(kin)).count();
        let Some(parent) = self.store().agent(parent).await? else { return Ok(()) };
        for kin in children.iter().filter(|kin| waits(kin)) {
            if at_work >= at_work_max as usize {
                return Ok(());
            }
            let child = &kin.agent;
            let task = if kin.busy { None } else { self.store().first_waiting(child.id).await? };
            let (commit, turn) = flow::finish_child(&parent, child, task.as_ref(), Actor::system("family"))?;
            if let Answer::Moved(_) = self.commit(commit).await? {
                let turn = match turn {
                    Some(turn) => Some(turn),
                    None => self.store().last_turn(child.id).await?.map(|turn| turn.id.into()),
                };
                let (session, agent) = (SessionId::from(child.session_id), AgentId::from(child.id));
                if let Some(turn) = turn {
                    let ready = Ready { session, agent, turn, epoch: child.epoch, reason: "queued", news: None };
                    self.wake_turn(ready, child.owner, None);
                }
            }
            at_work += 1;
        }
        Ok(())
    }
}
