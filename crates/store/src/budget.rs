//! Limits, by whom they limit.

use crate::connect::Store;
use crate::entity::budget;
use crate::error::StoreError;
use instar_core::id::SessionId;
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, ConnectionTrait, EntityTrait, ExprTrait, QueryFilter, QueryOrder, Statement};
use serde_json::Value as Json;
use uuid::Uuid;

impl Store {
    /// The limits of these sessions and agents, those of the first ones first.
    pub async fn budgets(&self, scopes: &[Uuid]) -> Result<Vec<budget::Model>, StoreError> {
        if scopes.is_empty() {
            return Ok(Vec::new());
        }
        let found = budget::Entity::find().filter(budget::Column::ScopeId.is_in(scopes.iter().copied()));
        let mut rows = found.order_by_asc(budget::Column::Id).all(&self.db).await?;
        rows.sort_by_key(|row| scopes.iter().position(|scope| *scope == row.scope_id));
        Ok(rows)
    }

    /// What the agents of a session have used in turns that have ended.
    pub async fn usage_of(&self, session: SessionId) -> Result<Json, StoreError> {
        let fields = ["input_tokens", "output_tokens", "tool_calls", "turns"];
        let sum =
            |field: &str| format!("CAST(coalesce(sum(CAST(usage->>'{field}' AS BIGINT)), 0) AS BIGINT) AS {field}");
        let sums = fields.map(sum).join(", ");
        let sql = format!("SELECT {sums} FROM agents WHERE session_id = $1");
        let statement = Statement::from_sql_and_values(self.backend(), sql, [session.uuid().into()]);
        let Some(row) = self.db.query_one_raw(statement).await? else { return Ok(Json::Null) };
        let read = |field: &str| Ok::<_, StoreError>((field.to_owned(), Json::from(row.try_get::<i64>("", field)?)));
        Ok(Json::Object(fields.into_iter().map(read).collect::<Result<_, _>>()?))
    }

    /// A clock has run out: it stands at what it counted. False, and nothing is written, if its limit is another by
    /// now or it stood already.
    pub async fn stop_clock(&self, row: &budget::Model, used: i64) -> Result<bool, StoreError> {
        let stands = budget::Entity::update_many()
            .col_expr(budget::Column::Used, used.into())
            .col_expr(budget::Column::Since, Expr::value(None::<chrono::DateTime<chrono::Utc>>))
            // Whoever sets a limit goes by what was used.
            .col_expr(budget::Column::Version, Expr::col(budget::Column::Version).add(1))
            .filter(budget::Column::Id.eq(row.id))
            .filter(budget::Column::Cap.eq(row.cap))
            .filter(budget::Column::Since.is_not_null());
        Ok(stands.exec(&self.db).await?.rows_affected > 0)
    }

    pub async fn budget(&self, id: Uuid) -> Result<Option<budget::Model>, StoreError> {
        Ok(budget::Entity::find_by_id(id).one(&self.db).await?)
    }
}
