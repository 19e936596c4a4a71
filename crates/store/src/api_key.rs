//! Keys to the API: made, found by their hash, revoked.
//!
//! It must not know what a role may do, nor ever see a key itself.

use crate::clock;
use crate::connect::Store;
use crate::entity::api_key;
use crate::error::StoreError;
use chrono::{DateTime, Duration, SubsecRound, Utc};
use sea_orm::sea_query::{Expr, OnConflict};
use sea_orm::{ActiveValue::Set, ColumnTrait, Condition, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use uuid::Uuid;

/// How exactly the time of last use is kept.
const USED_EVERY: Duration = Duration::minutes(1);

/// A key to be stored.
#[derive(Clone, Debug)]
pub struct NewKey<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub role: &'a str,
    pub hash: [u8; 32],
    pub expires_at: Option<DateTime<Utc>>,
}

impl Store {
    /// Stores a key, or finds the one with the same hash: that one stays as it is.
    pub async fn add_key(&self, new: &NewKey<'_>) -> Result<api_key::Model, StoreError> {
        let row = api_key::ActiveModel {
            id: Set(Uuid::now_v7()),
            namespace: Set(new.namespace.to_owned()),
            name: Set(new.name.to_owned()),
            role: Set(new.role.to_owned()),
            hash: Set(new.hash.to_vec()),
            created_at: Set(clock::now()),
            last_used_at: Set(None),
            revoked_at: Set(None),
            expires_at: Set(new.expires_at.map(|at| at.trunc_subsecs(6))),
        };
        let keep = OnConflict::column(api_key::Column::Hash).do_nothing().to_owned();
        api_key::Entity::insert(row).on_conflict(keep).exec_without_returning(&self.db).await?;
        let found = self.key_by_hash(&new.hash).await?;
        found.ok_or_else(|| StoreError::Unusable("a key that was just stored is not there".into()))
    }

    /// Also one that is revoked or has expired.
    pub async fn key_by_hash(&self, hash: &[u8; 32]) -> Result<Option<api_key::Model>, StoreError> {
        let found = api_key::Entity::find().filter(api_key::Column::Hash.eq(hash.to_vec())).one(&self.db).await?;
        Ok(found)
    }

    /// Newest first, those before `before`.
    pub async fn keys(
        &self,
        namespace: &str,
        before: Option<Uuid>,
        limit: u64,
    ) -> Result<Vec<api_key::Model>, StoreError> {
        let mut query = api_key::Entity::find().filter(api_key::Column::Namespace.eq(namespace));
        if let Some(before) = before {
            query = query.filter(api_key::Column::Id.lt(before));
        }
        Ok(query.order_by_desc(api_key::Column::Id).limit(limit).all(&self.db).await?)
    }

    /// `None`: there is no such key. Revoking once more changes nothing.
    pub async fn revoke_key(&self, namespace: &str, id: Uuid) -> Result<Option<api_key::Model>, StoreError> {
        let own = |query: sea_orm::Condition| {
            query.add(api_key::Column::Id.eq(id)).add(api_key::Column::Namespace.eq(namespace))
        };
        api_key::Entity::update_many()
            .col_expr(api_key::Column::RevokedAt, Expr::value(clock::now()))
            .filter(own(Condition::all()).add(api_key::Column::RevokedAt.is_null()))
            .exec(&self.db)
            .await?;
        Ok(api_key::Entity::find().filter(own(Condition::all())).one(&self.db).await?)
    }

    /// Notes the use of a key, seldom enough not to be a write per request.
    pub async fn note_key_use(&self, id: Uuid, at: DateTime<Utc>) -> Result<(), StoreError> {
        let stale = Condition::any()
            .add(api_key::Column::LastUsedAt.is_null())
            .add(api_key::Column::LastUsedAt.lt(at - USED_EVERY));
        api_key::Entity::update_many()
            .col_expr(api_key::Column::LastUsedAt, Expr::value(at))
            .filter(api_key::Column::Id.eq(id))
            .filter(stale)
            .exec(&self.db)
            .await?;
        Ok(())
    }
}
