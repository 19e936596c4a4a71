//! Tool calls: what the model wants done, and the word of whoever may decide about it.

use crate::Rest;
use crate::client::Client;
use crate::error::ClientError;
use crate::page::{Page, Query};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    pub id: String,
    #[serde(default)]
    pub session_id: String,
    /// Empty for the call of a step that acts for nobody.
    #[serde(default, deserialize_with = "or_empty")]
    pub agent_id: String,
    #[serde(default)]
    pub turn_id: Option<String>,
    /// The tool's.
    #[serde(default, alias = "tool", alias = "tool_name")]
    pub name: String,
    pub status: String,
    #[serde(default)]
    pub arguments: Value,
    /// What an approval is bound to.
    #[serde(default)]
    pub digest: Option<String>,
    #[serde(default)]
    pub result: Value,
    #[serde(default)]
    pub attempts: i64,
    #[serde(default)]
    pub created_at: Option<DateTime<Utc>>,
    #[serde(default)]
    pub ended_at: Option<DateTime<Utc>>,
    #[serde(flatten)]
    pub rest: Rest,
}

fn or_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Option::<String>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// What an unknown outcome was, as a person found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resolution {
    Success,
    Error,
    /// It had no effect: the agent is asked to make it again.
    Retry,
}

impl Client {
    /// Filters: `status`, `session`, `agent`, `turn`.
    pub async fn calls(&self, query: &Query) -> Result<Page<ToolCall>, ClientError> {
        self.get(&["v1", "tool-calls"], query).await
    }

    pub async fn call(&self, id: &str) -> Result<ToolCall, ClientError> {
        self.get(&["v1", "tool-calls", id], &Query::new()).await
    }

    /// With a digest, only the call that was looked at is approved, and no other that took its place.
    pub async fn approve(&self, id: &str, digest: Option<&str>) -> Result<ToolCall, ClientError> {
        let body = digest.map_or(json!({}), |digest| json!({"digest": digest}));
        self.post(&["v1", "tool-calls", id, "approve"], &body).await
    }

    pub async fn deny(&self, id: &str, reason: &str) -> Result<ToolCall, ClientError> {
        self.post(&["v1", "tool-calls", id, "deny"], &json!({"reason": reason})).await
    }

    pub async fn cancel_call(&self, id: &str) -> Result<ToolCall, ClientError> {
        self.post(&["v1", "tool-calls", id, "cancel"], &json!({})).await
    }

    pub async fn resolve_call(
        &self,
        id: &str,
        outcome: Resolution,
        output: Option<&Value>,
    ) -> Result<ToolCall, ClientError> {
        let mut body = json!({"outcome": outcome});
        if let Some(output) = output {
            body["output"] = output.clone();
        }
        self.post(&["v1", "tool-calls", id, "resolve"], &body).await
    }
}
