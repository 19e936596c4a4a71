//! Messages to an agent, and to all agents of a session.

use crate::Rest;
use crate::client::Client;
use crate::error::ClientError;
use crate::page::{Page, Query};
use crate::turn::Turn;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What a message does to a turn under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// It waits behind it.
    #[default]
    Queue,
    /// It takes the place of the turn's rest.
    Steer,
    /// It ends the turn and is answered next.
    Interrupt,
}

/// The server has it; the turn that answers is named unless one is under way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sent {
    pub message_id: String,
    #[serde(default)]
    pub turn_id: Option<String>,
    /// How that turn ended, if the request was to wait for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<Turn>,
    #[serde(flatten)]
    pub rest: Rest,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Message {
    pub id: String,
    #[serde(default)]
    pub agent_id: String,
    #[serde(default)]
    pub turn_id: Option<String>,
    #[serde(default)]
    pub role: String,
    #[serde(default)]
    pub content: Value,
    #[serde(default)]
    pub created_at: Option<DateTime<Utc>>,
    #[serde(flatten)]
    pub rest: Rest,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Broadcast {
    pub content: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standing: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<DateTime<Utc>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Delivered {
    #[serde(default)]
    pub broadcast_id: String,
    /// Agents that have it.
    #[serde(default)]
    pub delivered: Vec<String>,
    /// Agents that get it next, unless they cannot take it by then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<String>,
    #[serde(default)]
    pub skipped: Vec<Skipped>,
    #[serde(flatten)]
    pub rest: Rest,
}

/// A broadcast as it was sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Proclaimed {
    pub id: String,
    pub content: String,
    pub standing: bool,
    #[serde(default)]
    pub expires_at: Option<DateTime<Utc>>,
    #[serde(default)]
    pub sender: String,
    #[serde(default)]
    pub created_at: Option<DateTime<Utc>>,
    #[serde(flatten)]
    pub rest: Rest,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Skipped {
    pub agent: String,
    pub reason: String,
}

impl Client {
    pub async fn send_message(&self, agent: &str, content: &str, mode: Mode) -> Result<Sent, ClientError> {
        self.post(&["v1", "agents", agent, "messages"], &json!({"content": content, "mode": mode})).await
    }

    /// Sends and waits for the end of the turn that answers, so many seconds (25 at most): it is in the answer
    /// unless the message waits behind another, or the request was repeated.
    pub async fn send_and_wait(
        &self,
        agent: &str,
        content: &str,
        mode: Mode,
        seconds: f64,
    ) -> Result<Sent, ClientError> {
        let body = json!({"content": content, "mode": mode});
        self.post_asking(&["v1", "agents", agent, "messages"], &Query::new().with("wait", seconds), &body).await
    }

    /// Filter: `query`.
    pub async fn messages(&self, agent: &str, query: &Query) -> Result<Page<Message>, ClientError> {
        self.get(&["v1", "agents", agent, "messages"], query).await
    }

    pub async fn broadcast(&self, session: &str, broadcast: &Broadcast) -> Result<Delivered, ClientError> {
        self.post(&["v1", "sessions", session, "broadcasts"], broadcast).await
    }

    pub async fn broadcasts(&self, session: &str, query: &Query) -> Result<Page<Proclaimed>, ClientError> {
        self.get(&["v1", "sessions", session, "broadcasts"], query).await
    }
}
