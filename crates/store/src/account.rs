//! Accounts: claimed by one agent at a time, given back by what becomes of that agent or by time.
//!
//! Nobody has to remember to give one back. An account is free when nobody holds it, when its lease has
//! run out by the database's clock, or when its holder is in a state in which the account's policy takes
//! it back; the claim itself judges that, so that no crash can lose an account. It must not know what is
//! sealed in one.

use crate::connect::Store;
use crate::entity::{account, agent, session, tool_call};
use crate::error::StoreError;
use chrono::{DateTime, Utc};
use instar_core::id::AgentId;
use sea_orm::prelude::Json;
use sea_orm::sea_query::OnConflict;
use sea_orm::{
    ActiveValue::Set, ColumnTrait, ConnectionTrait, DbErr, EntityTrait, FromQueryResult, QueryFilter, QueryOrder,
    QuerySelect, SqlErr, Statement, Value,
};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use uuid::Uuid;

/// How often a claim looks again because another call of the same agent claimed at the same moment.
const LOOKS_MAX: usize = 4;

/// When an agent gives an account back before its lease is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    pub token: &'static str,
    /// Whether an account does so that does not say.
    pub default: bool,
    /// Of the holder's row `h`. A turn that is still being ended keeps it.
    state: &'static str,
}

pub const RELEASES: [Release; 5] = [
    Release { token: "stop", default: true, state: "h.drive = 'stopped' AND h.lifecycle IN ('idle', 'spawning')" },
    Release { token: "error", default: true, state: "h.drive = 'errored' AND h.lifecycle IN ('idle', 'spawning')" },
    Release { token: "terminate", default: true, state: "h.lifecycle IN ('terminated', 'failed')" },
    Release { token: "delete", default: true, state: "h.drive = 'deleted'" },
    Release { token: "idle", default: false, state: "h.drive = 'idle' AND h.lifecycle IN ('idle', 'spawning')" },
];

/// The account that an agent is to have: a certain one, or any of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wanted {
    Name(String),
    Pool(String),
}

impl Wanted {
    /// What an agent's configuration says.
    pub fn of(config: &Json) -> Option<Wanted> {
        serde_json::from_value(config.get("account")?.clone()).ok()
    }

    fn column(&self) -> (&'static str, &str) {
        match self {
            Wanted::Name(name) => ("name", name),
            Wanted::Pool(pool) => ("pool", pool),
        }
    }

    fn fits(&self, row: &account::Model) -> bool {
        match self {
            Wanted::Name(name) => row.name == *name,
            Wanted::Pool(pool) => row.pool == *pool,
        }
    }
}

impl std::fmt::Display for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Wanted::Name(name) => write!(f, "the account {name:?}"),
            Wanted::Pool(pool) => write!(f, "an account of the pool {pool:?}"),
        }
    }
}

/// What came of a claim.
#[derive(Clone, Debug, PartialEq)]
pub enum Claim {
    Held(Box<account::Model>),
    /// Others have all there are.
    Taken,
    /// There is none of that name or in that pool.
    Unknown,
}

/// An account to be stored.
#[derive(Clone, Debug)]
pub struct NewAccount {
    pub id: Uuid,
    pub namespace: String,
    pub name: String,
    pub pool: String,
    pub username: Option<String>,
    pub sealed: Option<Vec<u8>>,
    pub refs: Option<Json>,
    /// Words of [`RELEASES`].
    pub release_on: Vec<String>,
    pub origin: &'static str,
}

/// A call that waits for an account.
#[derive(Clone, Debug)]
pub struct Waiting {
    pub call: tool_call::Model,
    pub namespace: String,
    pub wanted: Option<Wanted>,
    /// How many of those it waits for are free, or its agent's.
    pub free: u64,
    /// It has waited as long as it may.
    pub late: bool,
}

/// That nobody may keep another agent from the account `alias`; `$1` is the database's time. A subquery and
/// no join, so that it is judged again where the row changed while the claim waited for it.
fn free(alias: &str) -> String {
    let released: Vec<String> = RELEASES
        .iter()
        .map(|release| format!("({alias}.release_on LIKE '%{}%' AND {})", release.token, release.state))
        .collect();
    format!(
        "({alias}.holder IS NULL OR {alias}.held_until <= $1 OR NOT EXISTS (SELECT 1 FROM agents h \
         WHERE h.id = {alias}.holder AND NOT ({})))",
        released.join(" OR ")
    )
}

impl Store {
    /// Stores an account; [`StoreError::Duplicate`] if its name is taken.
    pub async fn add_account(&self, new: NewAccount) -> Result<account::Model, StoreError> {
        let (id, name) = (new.id, new.name.clone());
        let insert = account::Entity::insert(row(new, self.now().await?));
        insert.exec_without_returning(&self.db).await.map_err(|error| match error.sql_err() {
            Some(SqlErr::UniqueConstraintViolation(_)) => StoreError::Duplicate(format!("the account {name:?}")),
            _ => error.into(),
        })?;
        let stored = account::Entity::find_by_id(id).one(&self.db).await?;
        stored.ok_or_else(|| StoreError::Unavailable("the account that was stored is gone".into()))
    }

    /// Stores an account of the operator's configuration, or brings the one of that name up to date; whoever
    /// holds it keeps it. False if the name belongs to one that came by a request: that one stays as it is.
    pub async fn declare_account(&self, new: NewAccount) -> Result<bool, StoreError> {
        let (namespace, name) = (new.namespace.clone(), new.name.clone());
        let update = [
            account::Column::Pool,
            account::Column::Username,
            account::Column::Refs,
            account::Column::ReleaseOn,
            account::Column::UpdatedAt,
        ];
        let mut ours = OnConflict::columns([account::Column::Namespace, account::Column::Name]);
        ours.update_columns(update).action_and_where(account::Column::Origin.eq(new.origin));
        let origin = new.origin;
        account::Entity::insert(row(new, self.now().await?)).on_conflict(ours).exec_without_returning(&self.db).await?;
        Ok(self.account(&namespace, &name).await?.is_some_and(|row| row.origin == origin))
    }

    pub async fn account(&self, namespace: &str, name: &str) -> Result<Option<account::Model>, StoreError> {
        let named = account::Entity::find().filter(account::Column::Namespace.eq(namespace));
        Ok(named.filter(account::Column::Name.eq(name)).one(&self.db).await?)
    }

    /// Newest first.
    pub async fn accounts(
        &self,
        namespace: &str,
        pool: Option<&str>,
        before: Option<Uuid>,
        limit: u64,
    ) -> Result<Vec<account::Model>, StoreError> {
        let mut query = account::Entity::find().filter(account::Column::Namespace.eq(namespace));
        if let Some(pool) = pool {
            query = query.filter(account::Column::Pool.eq(pool));
        }
        if let Some(before) = before {
            query = query.filter(account::Column::Id.lt(before));
        }
        Ok(query.order_by_desc(account::Column::Id).limit(limit).all(&self.db).await?)
    }

    /// Removes an account; its holder claims another when it next needs one. The row as it was.
    pub async fn remove_account(&self, row: account::Model) -> Result<Option<account::Model>, StoreError> {
        let gone = account::Entity::delete_by_id(row.id).exec(&self.db).await?;
        Ok((gone.rows_affected > 0).then_some(row))
    }

    /// What the agent holds now.
    pub async fn account_of(&self, agent: AgentId) -> Result<Option<account::Model>, StoreError> {
        Ok(account::Entity::find().filter(account::Column::Holder.eq(agent.uuid())).one(&self.db).await?)
    }

    /// An agent with the namespace of its session.
    pub async fn agent_in(&self, id: AgentId) -> Result<Option<(agent::Model, String)>, StoreError> {
        let Some(agent) = self.agent(id).await? else { return Ok(None) };
        let namespace = session::Entity::find_by_id(agent.session_id).select_only().column(session::Column::Namespace);
        let namespace: Option<String> = namespace.into_tuple().one(&self.db).await?;
        Ok(namespace.map(|namespace| (agent, namespace)))
    }

    /// Whether there is such an account at all, whoever has it.
    pub async fn has_account(&self, namespace: &str, wanted: &Wanted) -> Result<bool, StoreError> {
        let query = account::Entity::find().filter(account::Column::Namespace.eq(namespace));
        let query = match wanted {
            Wanted::Name(name) => query.filter(account::Column::Name.eq(name.as_str())),
            Wanted::Pool(pool) => query.filter(account::Column::Pool.eq(pool.as_str())),
        };
        Ok(query.limit(1).one(&self.db).await?.is_some())
    }

    /// Has the agent hold what it wants for `lease` from now: what it holds already, else the one that has
    /// been free for longest. One atomic statement takes it, so that two never get the same.
    pub async fn claim_account(
        &self,
        namespace: &str,
        agent: AgentId,
        wanted: &Wanted,
        lease: Duration,
    ) -> Result<Claim, StoreError> {
        for _ in 0..LOOKS_MAX {
            let now = self.now().await?;
            let until = now + chrono::Duration::from_std(lease).unwrap_or(chrono::Duration::MAX);
            if let Some(held) = self.account_of(agent).await? {
                // It wanted another one when it claimed this.
                let keep = held.namespace == namespace && wanted.fits(&held);
                if !self.hold(&held, agent, keep, now, until).await? {
                    continue;
                }
                if keep {
                    return Ok(Claim::Held(Box::new(account::Model { held_until: Some(until), ..held })));
                }
            }
            match self.take(namespace, agent, wanted, now, until).await {
                Ok(Some(row)) => return Ok(Claim::Held(Box::new(row))),
                Ok(None) if self.has_account(namespace, wanted).await? => return Ok(Claim::Taken),
                Ok(None) => return Ok(Claim::Unknown),
                // Another call of this agent has claimed one meanwhile.
                Err(error) if matches!(error.sql_err(), Some(SqlErr::UniqueConstraintViolation(_))) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Claim::Taken)
    }

    /// Renews what the agent holds, or gives it back. False if somebody else has it by now.
    async fn hold(
        &self,
        held: &account::Model,
        agent: AgentId,
        keep: bool,
        now: DateTime<Utc>,
        until: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        let mut change = account::Entity::update_many().col_expr(account::Column::UpdatedAt, now.into());
        change = match keep {
            true => change.col_expr(account::Column::HeldUntil, until.into()),
            false => change
                .col_expr(account::Column::Holder, None::<Uuid>.into())
                .col_expr(account::Column::ReleasedAt, now.into()),
        };
        let ours = change.filter(account::Column::Id.eq(held.id)).filter(account::Column::Holder.eq(agent.uuid()));
        Ok(ours.exec(&self.db).await?.rows_affected > 0)
    }

    /// Accounts `c` to be locked, and how. On PostgreSQL a row that changed before it could be locked is judged again
    /// as it is then, but its holder as it was before: somebody who gave it back, went on and claimed it anew would
    /// lose it. `o` is the row as it was, so that one that changed is left alone.
    fn unchanged(&self) -> (&'static str, &'static str) {
        match self.is_postgres() {
            true => (
                "accounts c JOIN accounts o ON o.id = c.id AND o.updated_at = c.updated_at \
                 AND o.holder IS NOT DISTINCT FROM c.holder AND o.held_until IS NOT DISTINCT FROM c.held_until",
                " FOR UPDATE OF c SKIP LOCKED",
            ),
            false => ("accounts c", ""),
        }
    }

    async fn take(
        &self,
        namespace: &str,
        agent: AgentId,
        wanted: &Wanted,
        now: DateTime<Utc>,
        until: DateTime<Utc>,
    ) -> Result<Option<account::Model>, DbErr> {
        let (column, word) = wanted.column();
        let (from, lock) = self.unchanged();
        // An agent that is being stopped takes none: it would have to give it back at once.
        let sql = format!(
            "WITH chosen AS MATERIALIZED (SELECT c.id FROM {from} WHERE c.namespace = $2 AND c.{column} = $3 \
             AND {} AND EXISTS (SELECT 1 FROM agents a WHERE a.id = $4 AND a.drive IN ('idle', 'running') \
             AND a.lifecycle NOT IN ('terminated', 'failed')) \
             ORDER BY coalesce(c.released_at, c.created_at), c.id LIMIT 1{lock}) \
             UPDATE accounts SET holder = $4, held_until = $5, updated_at = $1 \
             WHERE id IN (SELECT id FROM chosen) RETURNING *",
            free("c")
        );
        let values: [Value; 5] = [now.into(), namespace.into(), word.into(), agent.uuid().into(), until.into()];
        let found = self.db.query_one_raw(Statement::from_sql_and_values(self.backend(), sql, values)).await?;
        found.map(|row| account::Model::from_query_result(&row, "")).transpose()
    }

    /// Writes down that accounts are free which their holders no longer may keep. Says how many.
    pub async fn return_accounts(&self, limit: u64) -> Result<u64, StoreError> {
        let (from, lock) = self.unchanged();
        let sql = format!(
            "WITH returned AS MATERIALIZED (SELECT c.id FROM {from} WHERE c.holder IS NOT NULL AND {} \
             ORDER BY c.held_until LIMIT $2{lock}) \
             UPDATE accounts SET holder = NULL, held_until = NULL, released_at = $1, updated_at = $1 \
             WHERE id IN (SELECT id FROM returned)",
            free("c")
        );
        let values: [Value; 2] = [self.now().await?.into(), (limit as i64).into()];
        let done = self.db.execute_raw(Statement::from_sql_and_values(self.backend(), sql, values)).await?;
        Ok(done.rows_affected())
    }

    /// Calls that wait for an account and need wait no longer, oldest first: some of what they wait for is
    /// free, or they have waited as long as they may.
    pub async fn account_waits(&self, limit: u64) -> Result<Vec<Waiting>, StoreError> {
        let wanted = "x.namespace = s.namespace AND (x.name = c.waits_for->'account'->>'name' \
                      OR x.pool = c.waits_for->'account'->>'pool')";
        let sql = format!(
            "SELECT w.* FROM (SELECT c.*, s.namespace AS namespace, (SELECT count(*) FROM accounts x WHERE {wanted} \
             AND (x.holder = c.agent_id OR {})) AS free FROM tool_calls c JOIN sessions s ON s.id = c.session_id \
             WHERE c.waits_for IS NOT NULL AND c.ended_at IS NULL AND c.owner IS NULL \
             AND c.waits_for->'account' IS NOT NULL) w WHERE w.free > 0 OR w.expires_at <= $1 ORDER BY w.id LIMIT $2",
            free("x")
        );
        let now = self.now().await?;
        let values: [Value; 2] = [now.into(), (limit as i64).into()];
        let rows = self.db.query_all_raw(Statement::from_sql_and_values(self.backend(), sql, values)).await?;
        let read = |row: &sea_orm::QueryResult| {
            let call = tool_call::Model::from_query_result(row, "")?;
            let wanted = call.waits_for.as_ref().and_then(Wanted::of);
            let late = call.expires_at.is_some_and(|until| until <= now);
            let free: i64 = row.try_get("", "free")?;
            Ok(Waiting { namespace: row.try_get("", "namespace")?, wanted, free: free as u64, late, call })
        };
        rows.iter().map(read).collect()
    }
}

fn row(new: NewAccount, now: DateTime<Utc>) -> account::ActiveModel {
    account::ActiveModel {
        id: Set(new.id),
        namespace: Set(new.namespace),
        name: Set(new.name),
        pool: Set(new.pool),
        username: Set(new.username),
        sealed: Set(new.sealed),
        refs: Set(new.refs),
        release_on: Set(new.release_on.join(",")),
        origin: Set(new.origin.to_owned()),
        holder: Set(None),
        held_until: Set(None),
        released_at: Set(None),
        created_at: Set(now),
        updated_at: Set(now),
    }
}
