//! A broadcast that did not fit into one commit is brought to its end, by whoever has begun it or by the
//! scheduler. Nobody gets it twice, since an agent's message has one id however often it is delivered.

use crate::flow::{self, FlowError};
use crate::hub::Hub;
use instar_core::id::SessionId;
use instar_store::entity::broadcast;
use instar_store::{Addressee, Answer, StoreError};

/// How often it is looked who is left, because somebody wrote the same rows.
const LOOKS_MAX: usize = 64;

#[derive(Debug, thiserror::Error)]
pub enum BroadcastError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Flow(#[from] FlowError),
    #[error("others keep changing the same agents; it goes on later")]
    Contended,
}

impl Hub {
    /// Delivers a recorded broadcast to every agent it is for that has not got it and can take it.
    pub async fn finish_broadcast(&self, row: &broadcast::Model) -> Result<(), BroadcastError> {
        let mut size = flow::recipients_max(&row.content);
        for _ in 0..LOOKS_MAX {
            let left = self.unreached(row).await?;
            if left.is_empty() {
                return Ok(());
            }
            for some in left.chunks(size) {
                let some: Vec<&Addressee> = some.iter().collect();
                match self.commit(flow::broadcast_more(row, &some, None)?).await {
                    Ok(Answer::Moved(landed)) => self.follow(&landed.runes),
                    Ok(_) | Err(StoreError::Duplicate(_)) => {
                        // Fewer at once get in each other's way less.
                        size = (size / 2).max(1);
                        break;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Err(BroadcastError::Contended)
    }

    async fn unreached(&self, row: &broadcast::Model) -> Result<Vec<Addressee>, StoreError> {
        let mut left = self.store().audience(SessionId::from(row.session_id)).await?;
        // Agents that were made since find it standing.
        left.retain(|found| found.agent.created_at <= row.created_at && flow::skips(found).is_none());
        let ids: Vec<_> = left.iter().map(|found| flow::message_of(row.id, found.agent.id).uuid()).collect();
        let there = self.store().existing_messages(&ids).await?;
        left.retain(|found| !there.contains(&flow::message_of(row.id, found.agent.id).uuid()));
        Ok(left)
    }
}
