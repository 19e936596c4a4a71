//! What an agent does now: a reading of its turn and its calls, stored nowhere.

use instar_store::entity::{agent, tool_call};
use sea_orm::sea_query::Expr;
use sea_orm::{DbErr, FromQueryResult, QueryResult, QuerySelect, Select};

pub(crate) const ACTIVITIES: &[&str] = &["llm", "tool", "waiting", "resting"];

/// The state of the agent's turn that has begun, or else of the next one.
const LIVE_TURN: &str = "(SELECT t.status FROM turns t WHERE t.session_id = agents.session_id \
                         AND t.agent_id = agents.id AND t.ended_at IS NULL \
                         ORDER BY CASE WHEN t.status = 'queued' THEN 1 ELSE 0 END, t.id LIMIT 1)";
/// As [`is_at_tool`] says it of a call.
const AT_TOOL: &str = "EXISTS (SELECT 1 FROM turns t JOIN tool_calls c ON c.turn_id = t.id \
                       WHERE t.session_id = agents.session_id AND t.agent_id = agents.id AND t.ended_at IS NULL \
                       AND c.ended_at IS NULL AND c.status = 'executing' \
                       AND (c.owner IS NOT NULL OR c.waits_for IS NULL))";

/// By its turn that has begun and not ended, or else the one that is to begin. `owned`: a worker has it. `at_tool`: a
/// call of it runs, or may as soon as a runner takes it.
pub(crate) fn activity(turn: Option<&str>, owned: bool, at_tool: bool) -> &'static str {
    match turn {
        None => "resting",
        // One that was handed back, or whose provider is waited for, is nobody's.
        Some("streaming") if owned => "llm",
        Some("tool_executing") if at_tool => "tool",
        Some(_) => "waiting",
    }
}

/// Whether nobody and nothing has to act before this call goes on, but who runs it.
pub(crate) fn is_at_tool(call: &tool_call::Model) -> bool {
    call.ended_at.is_none() && call.status == "executing" && (call.owner.is_some() || call.waits_for.is_none())
}

/// An agent of a list, with what its activity is read from.
pub(crate) struct Seen {
    pub(crate) agent: agent::Model,
    pub(crate) live_turn: Option<String>,
    pub(crate) at_tool: bool,
}

/// Has a query read the activities of the agents that it finds along with them.
pub(crate) fn beside(query: Select<agent::Entity>) -> Select<agent::Entity> {
    query.column_as(Expr::cust(LIVE_TURN), "live_turn").column_as(Expr::cust(AT_TOOL), "at_tool")
}

impl FromQueryResult for Seen {
    fn from_query_result(row: &QueryResult, prefix: &str) -> Result<Seen, DbErr> {
        Ok(Seen {
            agent: agent::Model::from_query_result(row, prefix)?,
            live_turn: row.try_get(prefix, "live_turn")?,
            at_tool: row.try_get(prefix, "at_tool")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_works_on_waits() {
        assert_eq!(activity(None, true, false), "resting");
        assert_eq!(activity(Some("streaming"), true, false), "llm");
        assert_eq!(activity(Some("streaming"), false, false), "waiting");
        assert_eq!(activity(Some("tool_executing"), true, true), "tool");
        assert_eq!(activity(Some("tool_executing"), true, false), "waiting");
        assert_eq!(activity(Some("queued"), false, false), "waiting");
    }
}
