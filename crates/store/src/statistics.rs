//! What a session comes to when it ends.

use crate::connect::Store;
use crate::error::StoreError;
use instar_core::id::SessionId;
use sea_orm::prelude::Json;
use sea_orm::{ConnectionTrait, QueryResult, Statement};
use serde_json::{Map, json};

impl Store {
    /// Agents, turns and tool calls by how they ended, and tokens. Goes by the agents, for which there are
    /// indexes, so that the cost is that of the session alone.
    pub async fn statistics(&self, session: SessionId) -> Result<Json, StoreError> {
        let agents = self.counted("SELECT lifecycle, count(*) FROM agents WHERE session_id = $1 GROUP BY 1", session);
        let calls = "SELECT coalesce(c.result_status, 'none'), count(*) FROM agents a JOIN turns t ON t.agent_id = a.id \
                     JOIN tool_calls c ON c.turn_id = t.id WHERE a.session_id = $1 GROUP BY 1";
        let tokens = |name: &str| format!("CAST(coalesce(sum(CAST(t.usage->>'{name}' AS BIGINT)), 0) AS BIGINT)");
        let turns = format!(
            "SELECT t.status, count(*), {}, {} FROM agents a JOIN turns t ON t.agent_id = a.id \
             WHERE a.session_id = $1 GROUP BY 1",
            tokens("input_tokens"),
            tokens("output_tokens"),
        );
        let (agents, calls) = (counts(&agents.await?)?, counts(&self.counted(calls, session).await?)?);
        let rows = self.counted(&turns, session).await?;
        let sum = |at: usize| rows.iter().map(|row| row.try_get_by_index::<i64>(at)).sum::<Result<i64, _>>();
        let usage = json!({"input_tokens": sum(2)?, "output_tokens": sum(3)?});
        Ok(json!({"agents": agents, "turns": counts(&rows)?, "tool_calls": calls, "usage": usage}))
    }

    async fn counted(&self, sql: &str, session: SessionId) -> Result<Vec<QueryResult>, StoreError> {
        let statement = Statement::from_sql_and_values(self.backend(), sql, [session.uuid().into()]);
        Ok(self.db.query_all_raw(statement).await?)
    }
}

fn counts(rows: &[QueryResult]) -> Result<Json, StoreError> {
    let mut counts = Map::new();
    for row in rows {
        counts.insert(row.try_get_by_index::<String>(0)?, row.try_get_by_index::<i64>(1)?.into());
    }
    Ok(counts.into())
}
