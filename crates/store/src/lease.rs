//! Leases of processes, by database time: no process's clock decides who is alive.
//!
//! One statement per backend, side by side. SQLite is used by one process only, whose clock then
//! is the database's.

use crate::clock;
use crate::connect::Store;
use crate::entity::worker;
use crate::error::StoreError;
use chrono::{DateTime, Utc};
use instar_core::id::WorkerId;
use sea_orm::{ColumnTrait, ConnectionTrait, DbBackend, EntityTrait, QueryFilter, Statement, Value};
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// A lease that was won or renewed. The holder may rely on it until `trusted_until`, which is
/// earlier than the database's own end of it by a margin.
#[derive(Clone, Copy, Debug)]
pub struct Lease {
    pub until: DateTime<Utc>,
    pub trusted_until: Instant,
}

fn margin(ttl: Duration) -> Duration {
    ttl / 5
}

impl Store {
    /// Registers a process and starts its lease.
    pub async fn register_worker(
        &self,
        id: WorkerId,
        service: &str,
        ttl: Duration,
        info: serde_json::Value,
    ) -> Result<Lease, StoreError> {
        let (pg, lite) = (
            "INSERT INTO workers (id, service, lease_until, started_at, info) \
             VALUES ($1, $2, clock_timestamp() + $3 * interval '1 millisecond', clock_timestamp(), $4) \
             RETURNING lease_until",
            "INSERT INTO workers (id, service, lease_until, started_at, info) VALUES ($1, $2, $5, $6, $4) RETURNING lease_until",
        );
        let values: Vec<Value> = vec![id.uuid().into(), service.into(), (ttl.as_millis() as i64).into(), info.into()];
        let lease = self.lease(pg, lite, values, ttl).await?;
        lease.ok_or_else(|| StoreError::Unavailable("the database returned no lease".into()))
    }

    /// `None`: the lease had run out. The holder must stop what it does and register anew.
    pub async fn renew_lease(&self, id: WorkerId, ttl: Duration) -> Result<Option<Lease>, StoreError> {
        let (pg, lite) = (
            "UPDATE workers SET lease_until = clock_timestamp() + $2 * interval '1 millisecond' \
             WHERE id = $1 AND lease_until > clock_timestamp() RETURNING lease_until",
            "UPDATE workers SET lease_until = $3 WHERE id = $1 AND lease_until > $4 AND $2 > 0 RETURNING lease_until",
        );
        self.lease(pg, lite, vec![id.uuid().into(), (ttl.as_millis() as i64).into()], ttl).await
    }

    /// Ends a lease at once: what a process does when it drains.
    pub async fn release_lease(&self, id: WorkerId) -> Result<(), StoreError> {
        worker::Entity::delete_by_id(id.uuid()).exec(&self.vital).await?;
        Ok(())
    }

    /// Processes whose lease has run out, by the database's clock.
    pub async fn expired_workers(&self, limit: u64) -> Result<Vec<WorkerId>, StoreError> {
        let (pg, lite) = (
            "SELECT id FROM workers WHERE lease_until <= clock_timestamp() ORDER BY lease_until LIMIT $1",
            "SELECT id FROM workers WHERE lease_until <= $2 ORDER BY lease_until LIMIT $1",
        );
        let limit = Value::from(limit.min(i64::MAX as u64) as i64);
        let statement = match self.is_postgres() {
            true => Statement::from_sql_and_values(DbBackend::Postgres, pg, [limit]),
            false => Statement::from_sql_and_values(DbBackend::Sqlite, lite, [limit, clock::now().into()]),
        };
        let rows = self.db.query_all_raw(statement).await?;
        rows.iter().map(|r| Ok(WorkerId::from(r.try_get_by_index::<uuid::Uuid>(0)?))).collect()
    }

    /// Instances of a service that hold a valid lease.
    pub async fn live_workers(&self, service: &str) -> Result<Vec<WorkerId>, StoreError> {
        let (pg, lite) = (
            "SELECT id FROM workers WHERE service = $1 AND lease_until > clock_timestamp()",
            "SELECT id FROM workers WHERE service = $1 AND lease_until > $2",
        );
        let statement = match self.is_postgres() {
            true => Statement::from_sql_and_values(DbBackend::Postgres, pg, [service.into()]),
            false => Statement::from_sql_and_values(DbBackend::Sqlite, lite, [service.into(), clock::now().into()]),
        };
        let rows = self.db.query_all_raw(statement).await?;
        rows.iter().map(|r| Ok(WorkerId::from(r.try_get_by_index::<uuid::Uuid>(0)?))).collect()
    }

    /// Whether a process holds a valid lease.
    pub async fn is_alive(&self, id: WorkerId) -> Result<bool, StoreError> {
        let now = self.now().await?;
        let row =
            worker::Entity::find_by_id(id.uuid()).filter(worker::Column::LeaseUntil.gt(now)).one(&self.db).await?;
        Ok(row.is_some())
    }

    /// Which of these processes hold a valid lease.
    pub async fn alive_among(&self, ids: &[uuid::Uuid]) -> Result<HashSet<uuid::Uuid>, StoreError> {
        if ids.is_empty() {
            return Ok(HashSet::new());
        }
        let alive = worker::Entity::find()
            .filter(worker::Column::Id.is_in(ids.iter().copied()))
            .filter(worker::Column::LeaseUntil.gt(self.now().await?));
        Ok(alive.all(&self.db).await?.into_iter().map(|row| row.id).collect())
    }

    async fn lease(
        &self,
        postgres: &str,
        sqlite: &str,
        mut values: Vec<Value>,
        ttl: Duration,
    ) -> Result<Option<Lease>, StoreError> {
        // Counted from before the attempt: the answer may have been long on its way.
        let asked = Instant::now();
        let statement = if self.is_postgres() {
            Statement::from_sql_and_values(DbBackend::Postgres, postgres, values)
        } else {
            let now = clock::now();
            let until = now + chrono::Duration::from_std(ttl).unwrap_or(chrono::Duration::MAX);
            values.extend([until.into(), now.into()]);
            Statement::from_sql_and_values(DbBackend::Sqlite, sqlite, values)
        };
        let row = self.vital.query_one_raw(statement).await?;
        let until = row.map(|r| r.try_get_by_index(0)).transpose()?;
        Ok(until.map(|until| Lease { until, trusted_until: asked + (ttl - margin(ttl)) }))
    }
}
