//! Turns: what an agent made of a message.

use crate::Rest;
use crate::client::Client;
use crate::error::ClientError;
use crate::page::{Page, Query};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    pub id: String,
    #[serde(default)]
    pub session_id: String,
    #[serde(default)]
    pub agent_id: String,
    pub status: String,
    #[serde(default)]
    pub input: Value,
    #[serde(default)]
    pub output: Option<String>,
    /// Why a completed turn is over: `stop`, or what cut its answer short.
    #[serde(default)]
    pub finish_reason: Option<String>,
    #[serde(default)]
    pub usage: Value,
    #[serde(default)]
    pub attempts: i64,
    /// Provider calls made.
    #[serde(default)]
    pub iterations: i64,
    /// Calls, approvals or times that it cannot go on without.
    #[serde(default)]
    pub waiting_for: Value,
    #[serde(default)]
    pub error: Value,
    #[serde(default)]
    pub created_at: Option<DateTime<Utc>>,
    #[serde(default)]
    pub ended_at: Option<DateTime<Utc>>,
    #[serde(flatten)]
    pub rest: Rest,
}

impl Turn {
    /// It has ended; nothing about it changes any more.
    pub fn is_over(&self) -> bool {
        matches!(self.status.as_str(), "completed" | "interrupted" | "error")
    }
}

impl Client {
    /// Filters: `agent`, `session`, `status`.
    pub async fn turns(&self, query: &Query) -> Result<Page<Turn>, ClientError> {
        self.get(&["v1", "turns"], query).await
    }

    pub async fn turn(&self, id: &str) -> Result<Turn, ClientError> {
        self.get(&["v1", "turns", id], &Query::new()).await
    }

    /// The turn when it has ended, or as it is after so many seconds (25 at most).
    pub async fn turn_within(&self, id: &str, seconds: f64) -> Result<Turn, ClientError> {
        self.get(&["v1", "turns", id], &Query::new().with("wait", seconds)).await
    }

    /// What the model was sent in a provider call of a turn; the latest if no number is given.
    pub async fn turn_context(&self, id: &str, iteration: Option<u64>) -> Result<Value, ClientError> {
        let query = Query::new().maybe("iteration", iteration.map(|n| n.to_string()));
        self.get(&["v1", "turns", id, "context"], &query).await
    }

    pub async fn interrupt_turn(&self, id: &str, reason: Option<&str>) -> Result<Turn, ClientError> {
        let body = reason.map_or(json!({}), |reason| json!({"reason": reason}));
        self.post(&["v1", "turns", id, "interrupt"], &body).await
    }

    /// The answer is the server's own: the turn, or what became of the words.
    pub async fn steer_turn(&self, id: &str, content: &str) -> Result<Value, ClientError> {
        self.post(&["v1", "turns", id, "steer"], &json!({"content": content})).await
    }
}
