//! Plans: goals that agents carry out, and their tasks.

use crate::Rest;
use crate::client::Client;
use crate::error::ClientError;
use crate::page::{Page, Query};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub id: String,
    #[serde(default)]
    pub session_id: String,
    #[serde(default)]
    pub goal: String,
    pub status: String,
    #[serde(default)]
    pub iteration: i64,
    #[serde(default)]
    pub reason: Option<String>,
    #[serde(default)]
    pub summary: Option<String>,
    /// Of a person.
    #[serde(default)]
    pub waiting_for: Option<String>,
    /// Only of one that was asked for by itself.
    #[serde(default)]
    pub tasks: Vec<Task>,
    #[serde(default)]
    pub created_at: Option<DateTime<Utc>>,
    #[serde(flatten)]
    pub rest: Rest,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Task {
    pub id: String,
    /// The id that the plan gives it; tasks of another iteration may have the same.
    #[serde(default)]
    pub key: String,
    #[serde(default)]
    pub iteration: i64,
    #[serde(default)]
    pub title: String,
    pub status: String,
    #[serde(default)]
    pub priority: String,
    #[serde(default)]
    pub role: String,
    /// By id.
    #[serde(default)]
    pub deps: Vec<String>,
    #[serde(default)]
    pub attempt: i64,
    #[serde(default)]
    pub owner_id: Option<String>,
    #[serde(default)]
    pub error: Option<String>,
    #[serde(flatten)]
    pub rest: Rest,
}

impl Client {
    /// `new`: goal, and whatever else the API takes.
    pub async fn create_plan(&self, session: &str, new: &Value) -> Result<Plan, ClientError> {
        self.post(&["v1", "sessions", session, "plans"], new).await
    }

    /// Filters: `session`, `status`. Without their tasks.
    pub async fn plans(&self, query: &Query) -> Result<Page<Plan>, ClientError> {
        self.get(&["v1", "plans"], query).await
    }

    pub async fn plan(&self, id: &str) -> Result<Plan, ClientError> {
        self.get(&["v1", "plans", id], &Query::new()).await
    }

    /// `revision`: the draft that was looked at; any, if there is none.
    pub async fn approve_plan(&self, id: &str, revision: Option<i64>) -> Result<Plan, ClientError> {
        self.post(&["v1", "plans", id, "approve"], &json!({"revision": revision})).await
    }

    pub async fn reject_plan(&self, id: &str, feedback: &str, revision: Option<i64>) -> Result<Plan, ClientError> {
        self.post(&["v1", "plans", id, "reject"], &json!({"feedback": feedback, "revision": revision})).await
    }

    pub async fn cancel_plan(&self, id: &str, reason: Option<&str>) -> Result<Plan, ClientError> {
        self.post(&["v1", "plans", id, "cancel"], &reason.map_or(json!({}), |reason| json!({"reason": reason}))).await
    }

    pub async fn unblock_plan(&self, id: &str, note: Option<&str>) -> Result<Plan, ClientError> {
        self.post(&["v1", "plans", id, "unblock"], &note.map_or(json!({}), |note| json!({"note": note}))).await
    }
}
