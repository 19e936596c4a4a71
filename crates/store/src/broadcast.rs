//! Broadcasts of a session, and the agents that one is for.

use crate::addressee::{self, Addressee};
use crate::connect::Store;
use crate::entity::{agent, broadcast, message};
use crate::error::StoreError;
use chrono::{DateTime, Utc};
use instar_core::id::{AgentId, BroadcastId, MessageId, SessionId, TurnId};
use sea_orm::{
    ColumnTrait, Condition, ConnectionTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect, Select, Statement,
};
use std::collections::HashSet;
use uuid::Uuid;

/// Agents or messages asked for in one query.
const KEYS_MAX: usize = 256;

/// Broadcasts that have not expired, newest first: by the index over a session's.
fn unexpired(session: SessionId, now: DateTime<Utc>) -> Select<broadcast::Entity> {
    let (none, later) = (broadcast::Column::ExpiresAt.is_null(), broadcast::Column::ExpiresAt.gt(now));
    broadcast::Entity::find()
        .filter(broadcast::Column::SessionId.eq(session.uuid()))
        .filter(Condition::any().add(none).add(later))
        .order_by_desc(broadcast::Column::Id)
}

fn standing(session: SessionId, now: DateTime<Utc>) -> Select<broadcast::Entity> {
    // As the partial index has it.
    unexpired(session, now).filter(sea_orm::sea_query::Expr::cust("standing"))
}

impl Store {
    pub async fn broadcast(&self, id: BroadcastId) -> Result<Option<broadcast::Model>, StoreError> {
        Ok(broadcast::Entity::find_by_id(id.uuid()).one(&self.db).await?)
    }

    /// The newest broadcast that has not expired, whether agents that are made later get it or not.
    pub async fn latest_broadcast(
        &self,
        session: SessionId,
        now: DateTime<Utc>,
    ) -> Result<Option<broadcast::Model>, StoreError> {
        Ok(unexpired(session, now).limit(1).one(&self.db).await?)
    }

    /// The newest broadcast that agents get which are made later.
    pub async fn standing_broadcast(
        &self,
        session: SessionId,
        now: DateTime<Utc>,
    ) -> Result<Option<broadcast::Model>, StoreError> {
        Ok(standing(session, now).limit(1).one(&self.db).await?)
    }

    /// The newest broadcasts that still stand, newest first.
    pub async fn standing_broadcasts(
        &self,
        session: SessionId,
        now: DateTime<Utc>,
        limit: u64,
    ) -> Result<Vec<broadcast::Model>, StoreError> {
        Ok(standing(session, now).limit(limit).all(&self.db).await?)
    }

    /// Every agent of a session that was not deleted, as a message would find it, oldest first.
    pub async fn audience(&self, session: SessionId) -> Result<Vec<Addressee>, StoreError> {
        let ids: Vec<Uuid> = agent::Entity::find()
            .filter(agent::Column::SessionId.eq(session.uuid()))
            .filter(agent::Column::Drive.ne("deleted"))
            .order_by_asc(agent::Column::Id)
            .select_only()
            .column(agent::Column::Id)
            .into_tuple()
            .all(&self.db)
            .await?;
        let mut audience = Vec::with_capacity(ids.len());
        for some in ids.chunks(KEYS_MAX) {
            let mut found = addressee::find(&self.db, some.to_vec()).await?;
            audience.extend(some.iter().filter_map(|id| found.remove(id)));
        }
        Ok(audience)
    }

    /// How many agents of a session have not ended; counted up to `most`.
    pub async fn count_agents(&self, session: SessionId, most: u64) -> Result<u64, StoreError> {
        let living = agent::Entity::find()
            .filter(agent::Column::SessionId.eq(session.uuid()))
            .filter(agent::Column::Drive.ne("deleted"))
            .filter(agent::Column::Lifecycle.is_not_in(["terminated", "failed"]))
            .select_only()
            .column(agent::Column::Id)
            .limit(most);
        Ok(living.into_tuple::<Uuid>().all(&self.db).await?.len() as u64)
    }

    /// Whether one of these messages is not from another agent.
    pub async fn any_from_people(&self, ids: &[MessageId]) -> Result<bool, StoreError> {
        let ids: Vec<Uuid> = ids.iter().map(|id| id.uuid()).collect();
        let found = message::Entity::find().filter(message::Column::Id.is_in(ids));
        let found = found.filter(message::Column::Source.ne("agent")).select_only().column(message::Column::Id);
        Ok(found.limit(1).into_tuple::<Uuid>().one(&self.db).await?.is_some())
    }

    /// Whether messages of other agents have caused a turn, and nobody else's: among the newest of its agent, which may
    /// have any number.
    pub async fn is_of_agents_alone(&self, agent: AgentId, turn: TurnId) -> Result<bool, StoreError> {
        let sql = "SELECT m.source FROM (SELECT turn_id, role, source FROM messages WHERE agent_id = $1 \
                   ORDER BY id DESC LIMIT 1000) m WHERE m.turn_id = $2 AND m.role = 'user' AND m.source <> 'summary'";
        let query = Statement::from_sql_and_values(self.backend(), sql, [agent.uuid().into(), turn.uuid().into()]);
        let rows = self.db.query_all_raw(query).await?;
        let mut others = 0;
        for row in &rows {
            others += usize::from(row.try_get_by_index::<String>(0)? != "agent");
        }
        Ok(!rows.is_empty() && others == 0)
    }

    /// Those of these messages that are there.
    pub async fn existing_messages(&self, ids: &[Uuid]) -> Result<HashSet<Uuid>, StoreError> {
        let mut there = HashSet::new();
        for some in ids.chunks(KEYS_MAX) {
            let found = message::Entity::find().filter(message::Column::Id.is_in(some.iter().copied()));
            let found = found.select_only().column(message::Column::Id).into_tuple::<Uuid>();
            there.extend(found.all(&self.db).await?);
        }
        Ok(there)
    }
}
