//! Sessions: the unit of order, and what may be asked of one.

use crate::Rest;
use crate::agent::NewAgent;
use crate::client::Client;
use crate::error::ClientError;
use crate::page::{Page, Query};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Session {
    pub id: String,
    #[serde(default)]
    pub name: Option<String>,
    pub status: String,
    #[serde(default)]
    pub config: Value,
    #[serde(default)]
    pub budget: Value,
    #[serde(default)]
    pub root_agent_id: Option<String>,
    /// Number of the newest rune.
    #[serde(default)]
    pub head_seq: i64,
    /// Hexadecimal: the chain over the whole log, when nothing can follow any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_hash: Option<String>,
    #[serde(default)]
    pub created_at: Option<DateTime<Utc>>,
    #[serde(default)]
    pub updated_at: Option<DateTime<Utc>>,
    #[serde(flatten)]
    pub rest: Rest,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NewSession {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_agent: Option<NewAgent>,
}

/// What a pause does to running turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InFlight {
    Complete,
    Interrupt,
}

impl Client {
    pub async fn create_session(&self, new: &NewSession) -> Result<Session, ClientError> {
        self.post(&["v1", "sessions"], new).await
    }

    pub async fn sessions(&self, query: &Query) -> Result<Page<Session>, ClientError> {
        self.get(&["v1", "sessions"], query).await
    }

    pub async fn session(&self, id: &str) -> Result<Session, ClientError> {
        self.get(&["v1", "sessions", id], &Query::new()).await
    }

    /// Its `name` and its `budget`, while it goes on.
    pub async fn configure_session(&self, id: &str, changes: &Value) -> Result<Session, ClientError> {
        self.patch(&["v1", "sessions", id], changes).await
    }

    pub async fn pause_session(&self, id: &str, in_flight: Option<InFlight>) -> Result<Session, ClientError> {
        let body = in_flight.map_or(json!({}), |in_flight| json!({"in_flight": in_flight}));
        self.act_on_session(id, "pause", &body).await
    }

    pub async fn resume_session(&self, id: &str) -> Result<Session, ClientError> {
        self.act_on_session(id, "resume", &json!({})).await
    }

    pub async fn replenish_session(&self, id: &str, budget: &Value) -> Result<Session, ClientError> {
        self.act_on_session(id, "replenish", &json!({"budget": budget})).await
    }

    pub async fn reset_session(&self, id: &str) -> Result<Session, ClientError> {
        self.act_on_session(id, "reset", &json!({})).await
    }

    pub async fn close_session(&self, id: &str) -> Result<Session, ClientError> {
        self.act_on_session(id, "close", &json!({})).await
    }

    pub async fn archive_session(&self, id: &str) -> Result<Session, ClientError> {
        self.act_on_session(id, "archive", &json!({})).await
    }

    /// Brings in the log of a session that ended elsewhere: a segment with all of its runes and seals.
    pub async fn import_session(&self, segment: Vec<u8>) -> Result<Session, ClientError> {
        self.post_bytes(&["v1", "sessions", "import"], segment).await
    }

    async fn act_on_session(&self, id: &str, action: &str, body: &Value) -> Result<Session, ClientError> {
        self.post(&["v1", "sessions", id, action], body).await
    }
}
