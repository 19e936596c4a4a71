//! Missions and hops: what is proposed to people, and what they say to it.

use crate::Rest;
use crate::client::Client;
use crate::error::ClientError;
use crate::page::{Page, Query};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mission {
    pub id: String,
    #[serde(default)]
    pub session_id: String,
    #[serde(default)]
    pub agent_id: Option<String>,
    pub status: String,
    /// The same in the older vocabulary.
    #[serde(default)]
    pub status_v1: Option<String>,
    #[serde(default)]
    pub revision: i64,
    /// Who has to act next.
    #[serde(default)]
    pub awaits: String,
    #[serde(default)]
    pub current_hop: Option<String>,
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub goal: String,
    #[serde(default)]
    pub attention: Value,
    #[serde(default)]
    pub question: Value,
    #[serde(default)]
    pub created_at: Option<DateTime<Utc>>,
    #[serde(flatten)]
    pub rest: Rest,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Hop {
    pub id: String,
    #[serde(default)]
    pub session_id: String,
    #[serde(default)]
    pub mission_id: String,
    #[serde(default)]
    pub sequence: i64,
    pub status: String,
    #[serde(default)]
    pub status_v1: Option<String>,
    #[serde(default)]
    pub revision: i64,
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub is_final: bool,
    #[serde(default)]
    pub created_at: Option<DateTime<Utc>>,
    #[serde(flatten)]
    pub rest: Rest,
}

impl Client {
    /// The body is the proposal with its terms; see the API's `NewMission`.
    pub async fn create_mission(&self, session: &str, new: &Value) -> Result<Mission, ClientError> {
        self.post(&["v1", "sessions", session, "missions"], new).await
    }

    /// Filters: `session`, `status`, `awaits`, `agent`.
    pub async fn missions(&self, query: &Query) -> Result<Page<Mission>, ClientError> {
        self.get(&["v1", "missions"], query).await
    }

    pub async fn mission(&self, id: &str) -> Result<Mission, ClientError> {
        self.get(&["v1", "missions", id], &Query::new()).await
    }

    /// `action` as the API calls it: approve, reject, request-changes, …
    pub async fn act_on_mission(&self, id: &str, action: &str, body: &Value) -> Result<Mission, ClientError> {
        self.post(&["v1", "missions", id, action], body).await
    }

    /// Lets one go on whose hop a person has stopped.
    pub async fn resume_mission(&self, id: &str, reason: Option<&str>) -> Result<Mission, ClientError> {
        let body = reason.map_or(json!({}), |reason| json!({"reason": reason}));
        self.post(&["v1", "missions", id, "resume"], &body).await
    }

    /// A plan that a person writes; see the API's `NewHop`.
    pub async fn create_hop(&self, mission: &str, plan: &Value) -> Result<Hop, ClientError> {
        self.post(&["v1", "missions", mission, "hops"], plan).await
    }

    /// Filters: `mission`, `session`, `status`.
    pub async fn hops(&self, query: &Query) -> Result<Page<Hop>, ClientError> {
        self.get(&["v1", "hops"], query).await
    }

    pub async fn hop(&self, id: &str) -> Result<Hop, ClientError> {
        self.get(&["v1", "hops", id], &Query::new()).await
    }

    /// `action` as the API calls it: approve-plan, reject-plan, edit-plan, …
    pub async fn act_on_hop(&self, id: &str, action: &str, body: &Value) -> Result<Hop, ClientError> {
        self.post(&["v1", "hops", id, action], body).await
    }

    pub async fn delete_hop(&self, id: &str) -> Result<Hop, ClientError> {
        self.delete(&["v1", "hops", id]).await
    }

    /// How it is run from now on: its agent, its gates, what becomes of it when a hop fails.
    pub async fn set_mission(&self, id: &str, changes: &Value) -> Result<Mission, ClientError> {
        self.patch(&["v1", "missions", id], changes).await
    }

    /// What the agent wanted to know.
    pub async fn answer_mission(&self, id: &str, content: &str) -> Result<Mission, ClientError> {
        self.post(&["v1", "missions", id, "answer"], &json!({"content": content})).await
    }
}
