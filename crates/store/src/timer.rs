//! Timers: set and deleted inside commits, claimed by whichever scheduler comes first.

use crate::connect::Store;
use crate::entity::timer;
use crate::error::StoreError;
use chrono::{DateTime, Utc};
use sea_orm::prelude::Json;
use sea_orm::sea_query::OnConflict;
use sea_orm::{
    ActiveValue::Set, ColumnTrait, ConnectionTrait, DbBackend, DbErr, EntityTrait, FromQueryResult, IntoActiveModel,
    QueryFilter, Statement, Value,
};
use std::time::Duration;
use uuid::Uuid;

impl Store {
    /// Takes up to `limit` due timers for `hold`. Whoever fires one deletes it in the commit that
    /// does what it was set for; one whose holder dies comes up again when the hold is over.
    pub async fn claim_timers(&self, hold: Duration, limit: u64) -> Result<Vec<timer::Model>, StoreError> {
        let now = self.now().await?;
        let until = now + chrono::Duration::from_std(hold).unwrap_or(chrono::Duration::MAX);
        let claimable = "SELECT id FROM timers WHERE due_at <= $1 AND (claimed_until IS NULL OR claimed_until <= $1) \
                         ORDER BY due_at LIMIT $3";
        let (backend, lock) = match self.is_postgres() {
            true => (DbBackend::Postgres, " FOR UPDATE SKIP LOCKED"),
            false => (DbBackend::Sqlite, ""),
        };
        // Materialised, so that the limit is applied once however the plan comes out.
        let sql = format!(
            "WITH due AS MATERIALIZED ({claimable}{lock}) \
             UPDATE timers SET claimed_until = $2 WHERE id IN (SELECT id FROM due) RETURNING *"
        );
        let values: [Value; 3] = [now.into(), until.into(), (limit.min(10_000) as i64).into()];
        let rows = self.db.query_all_raw(Statement::from_sql_and_values(backend, sql, values)).await?;
        let timers: Result<Vec<_>, _> = rows.iter().map(|row| timer::Model::from_query_result(row, "")).collect();
        Ok(timers?)
    }

    /// Sets a timer beside any commit. One of the same id that is set already stays as it is.
    pub async fn set_timer(&self, timer: timer::Model) -> Result<(), StoreError> {
        let keep = OnConflict::column(timer::Column::Id).do_nothing().to_owned();
        let set = timer::Entity::insert(timer.into_active_model()).on_conflict(keep);
        set.exec_without_returning(&self.db).await?;
        Ok(())
    }

    /// Lets a timer come up again at another time, with what is to be remembered of it.
    pub async fn put_off(&self, timer: Uuid, due_at: DateTime<Utc>, payload: Json) -> Result<(), StoreError> {
        let later = timer::ActiveModel {
            id: Set(timer),
            due_at: Set(due_at),
            claimed_until: Set(None),
            payload: Set(Some(payload)),
            ..Default::default()
        };
        match timer::Entity::update(later).exec(&self.db).await {
            // Somebody else has carried it out.
            Err(DbErr::RecordNotUpdated) => Ok(()),
            other => Ok(other.map(drop)?),
        }
    }

    /// Forgets timers whose work is done.
    pub async fn forget_timers(&self, timers: Vec<Uuid>) -> Result<(), StoreError> {
        timer::Entity::delete_many().filter(timer::Column::Id.is_in(timers)).exec(&self.db).await?;
        Ok(())
    }
}
