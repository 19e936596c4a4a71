//! A text among what an agent was told and has said.
//!
//! Its cost is bounded: only the newest [`SEARCHED_MAX`] messages of the agent are looked at, found by
//! the index, and only an excerpt of each match leaves the database.

use crate::connect::Store;
use crate::error::StoreError;
use chrono::{DateTime, Utc};
use instar_core::id::AgentId;
use sea_orm::{ConnectionTrait, QueryResult, Statement, Value};

/// How many of an agent's newest messages a search looks at.
pub const SEARCHED_MAX: i64 = 5_000;
/// What is given of a match, in characters, and how many of them stand before the first hit.
pub const EXCERPT_CHARS_MAX: i64 = 1_000;
const LEAD_CHARS: i64 = 200;

/// What is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Messages,
    Reasoning,
    Broadcasts,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Match {
    pub role: String,
    pub source: String,
    /// The text around the first hit.
    pub excerpt: String,
    /// How long the whole text is.
    pub chars: i64,
    pub at: DateTime<Utc>,
}

impl Store {
    /// The newest matches, oldest first. Letters A to Z match in either case, all others as they are: that is
    /// what both databases do alike.
    pub async fn search(&self, agent: AgentId, place: Place, text: &str, limit: u64) -> Result<Vec<Match>, StoreError> {
        let searched = if place == Place::Reasoning { "data->>'reasoning'" } else { "content" };
        let only = if place == Place::Broadcasts { " AND source = 'broadcast'" } else { "" };
        let (hit, most) = match self.is_postgres() {
            true => ("strpos(lower(said COLLATE \"C\"), $2)", "greatest"),
            false => ("instr(lower(said), $2)", "max"),
        };
        // Ordered by both columns of the index, so that no plan goes through everybody's newest messages.
        let sql = format!(
            "SELECT role, source, created_at, length(said) AS chars, \
             substr(said, {most}(1, hit - {LEAD_CHARS}), {EXCERPT_CHARS_MAX}) AS excerpt FROM \
             (SELECT newest.*, {hit} AS hit FROM \
             (SELECT id, role, source, created_at, {searched} AS said FROM messages WHERE agent_id = $1 \
             ORDER BY agent_id DESC, id DESC LIMIT {SEARCHED_MAX}) newest) looked \
             WHERE hit > 0{only} ORDER BY id DESC LIMIT $3"
        );
        let text = text.to_ascii_lowercase();
        let values: [Value; 3] = [agent.uuid().into(), text.into(), (limit as i64).into()];
        let rows = self.db.query_all_raw(Statement::from_sql_and_values(self.backend(), sql, values)).await?;
        rows.iter().rev().map(read).collect()
    }
}

impl Match {
    /// A text that is no message of the agent's, if the words are in it; alike in what counts as a match.
    pub fn within(said: &str, words: &str, source: &str, at: DateTime<Utc>) -> Option<Match> {
        let hit = said.to_ascii_lowercase().find(&words.to_ascii_lowercase())?;
        let before = said[..hit].chars().count();
        let lead = usize::try_from(LEAD_CHARS).unwrap_or_default();
        let most = usize::try_from(EXCERPT_CHARS_MAX).unwrap_or_default();
        let excerpt = said.chars().skip(before.saturating_sub(lead)).take(most).collect();
        let chars = i64::try_from(said.chars().count()).unwrap_or(i64::MAX);
        Some(Match { role: "user".into(), source: source.into(), excerpt, chars, at })
    }
}

fn read(row: &QueryResult) -> Result<Match, StoreError> {
    // A length is a 4-byte number to one database and an 8-byte one to the other.
    let chars = row.try_get::<i32>("", "chars").map(i64::from).or_else(|_| row.try_get("", "chars"))?;
    Ok(Match {
        role: row.try_get("", "role")?,
        source: row.try_get("", "source")?,
        excerpt: row.try_get("", "excerpt")?,
        chars,
        at: row.try_get("", "created_at")?,
    })
}
