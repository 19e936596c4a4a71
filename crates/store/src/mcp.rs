//! What tool-runners found at MCP servers, for those who offer and judge tools without speaking to any.
//!
//! These are findings, not states of a machine: each runner writes its own, and the last one to hear a
//! server is right about it.

use crate::clock;
use crate::connect::Store;
use crate::entity::{mcp_server, mcp_tool};
use crate::error::StoreError;
use instar_core::id::WorkerId;
use sea_orm::sea_query::{Expr, OnConflict};
use sea_orm::{
    ActiveModelTrait, ColumnTrait, ConnectionTrait, EntityTrait, ExprTrait, FromQueryResult, IntoActiveModel,
    QueryFilter, QueryOrder, Statement,
};

/// Numbers that change whenever a tool, or a server of a live runner, is not as it was.
pub type Edition = [i64; 7];

impl Store {
    /// Of the tools that are not of the configuration. Cheap: asked for before every look at the rest.
    pub async fn tools_edition(&self) -> Result<Edition, StoreError> {
        let (micros, live) = match self.is_postgres() {
            true => ("CAST(extract(epoch FROM max(s.changed_at)) * 1000000 AS BIGINT)", "clock_timestamp()"),
            false => ("CAST((julianday(max(s.changed_at)) - 2440587.5) * 86400000 AS BIGINT)", "$1"),
        };
        let sql = format!(
            "SELECT (SELECT count(*) FROM mcp_tools), \
             (SELECT CAST(coalesce(sum(version), 0) AS BIGINT) FROM mcp_tools), count(s.runner), \
             CAST(coalesce(sum(s.version), 0) AS BIGINT), coalesce({micros}, 0), \
             (SELECT count(*) FROM registered_tools), \
             (SELECT CAST(coalesce(sum(version), 0) AS BIGINT) FROM registered_tools) \
             FROM mcp_servers s JOIN workers w ON w.id = s.runner WHERE w.lease_until > {live}"
        );
        let values: Vec<sea_orm::Value> = if self.is_postgres() { vec![] } else { vec![clock::now().into()] };
        let row = self.db.query_one_raw(Statement::from_sql_and_values(self.backend(), sql, values)).await?;
        let row = row.ok_or_else(|| StoreError::Unavailable("the database returned no edition".into()))?;
        let number = |at: usize| row.try_get_by_index::<i64>(at);
        Ok([number(0)?, number(1)?, number(2)?, number(3)?, number(4)?, number(5)?, number(6)?])
    }

    /// Every tool that was ever heard of, by name.
    pub async fn mcp_tools(&self) -> Result<Vec<mcp_tool::Model>, StoreError> {
        Ok(mcp_tool::Entity::find().order_by_asc(mcp_tool::Column::Name).all(&self.db).await?)
    }

    /// Servers as the runners that live see them.
    pub async fn mcp_servers(&self) -> Result<Vec<mcp_server::Model>, StoreError> {
        let columns = "s.server, s.runner, s.standing, s.reason, s.protocol, s.about, s.tools, s.changed_at, s.version";
        let live = if self.is_postgres() { "clock_timestamp()" } else { "$1" };
        let sql = format!(
            "SELECT {columns} FROM mcp_servers s JOIN workers w ON w.id = s.runner WHERE w.lease_until > {live} \
             ORDER BY s.server, s.runner"
        );
        let values: Vec<sea_orm::Value> = if self.is_postgres() { vec![] } else { vec![clock::now().into()] };
        let rows = self.db.query_all_raw(Statement::from_sql_and_values(self.backend(), sql, values)).await?;
        Ok(rows.iter().map(|row| mcp_server::Model::from_query_result(row, "")).collect::<Result<_, _>>()?)
    }

    /// Writes how a runner sees a server.
    pub async fn hear_mcp_server(&self, row: mcp_server::Model) -> Result<(), StoreError> {
        use mcp_server::Column;
        let again =
            [Column::Standing, Column::Reason, Column::Protocol, Column::About, Column::Tools, Column::ChangedAt];
        let version = Expr::col((mcp_server::Entity, Column::Version)).add(1);
        let conflict = OnConflict::columns([Column::Server, Column::Runner])
            .update_columns(again)
            .value(Column::Version, version)
            .to_owned();
        let insert = mcp_server::Entity::insert(row.into_active_model()).on_conflict(conflict);
        insert.exec_without_returning(&self.db).await?;
        Ok(())
    }

    /// Forgets what a runner saw, and what runners saw that nobody knows any more.
    pub async fn forget_mcp_servers(&self, runner: WorkerId) -> Result<(), StoreError> {
        mcp_server::Entity::delete_many()
            .filter(
                mcp_server::Column::Runner.eq(runner.uuid()).or(Expr::cust("runner NOT IN (SELECT id FROM workers)")),
            )
            .exec(&self.db)
            .await?;
        Ok(())
    }

    /// Lets `decide` see the tools of a server as they are and write those that shall be otherwise; alone with
    /// them, whoever else hears the same server.
    pub async fn change_mcp_tools<F>(&self, server: &str, decide: F) -> Result<usize, StoreError>
    where
        F: FnOnce(&[mcp_tool::Model]) -> Vec<mcp_tool::Model> + Send + 'static,
    {
        let (server, postgres) = (server.to_owned(), self.is_postgres());
        self.transaction(move |t| {
            Box::pin(async move {
                if postgres {
                    t.execute_unprepared("LOCK TABLE mcp_tools IN SHARE ROW EXCLUSIVE MODE").await?;
                }
                let known = mcp_tool::Entity::find().filter(mcp_tool::Column::Server.eq(server)).all(t).await?;
                let changed = decide(&known);
                let count = changed.len();
                for row in changed {
                    let before = known.iter().find(|old| old.name == row.name);
                    let version = before.map_or(1, |old| old.version + 1);
                    let row = mcp_tool::Model { version, ..row }.into_active_model();
                    match before {
                        Some(_) => drop(mcp_tool::Entity::update(row.reset_all()).exec(t).await?),
                        None => drop(mcp_tool::Entity::insert(row).exec_without_returning(t).await?),
                    }
                }
                Ok(count)
            })
        })
        .await
    }

    pub async fn mcp_tool(&self, name: &str) -> Result<Option<mcp_tool::Model>, StoreError> {
        Ok(mcp_tool::Entity::find_by_id(name).one(&self.db).await?)
    }
}
