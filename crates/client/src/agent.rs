//! Agents and what may be asked of one.

use crate::Rest;
use crate::client::Client;
use crate::error::ClientError;
use crate::page::{Page, Query};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Agent {
    pub id: String,
    #[serde(default)]
    pub session_id: String,
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub role: Option<String>,
    #[serde(default)]
    pub model: String,
    pub lifecycle: String,
    pub drive: String,
    /// Both in one word, for lists.
    #[serde(default)]
    pub badge: Option<String>,
    /// What it does now: `llm`, `tool`, `waiting` or `resting`. Not in answers to commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activity: Option<String>,
    #[serde(default)]
    pub owner: Option<String>,
    /// The agent that made it.
    #[serde(default)]
    pub parent_id: Option<String>,
    /// Agents that it made; not in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub children: Option<Vec<String>>,
    #[serde(default)]
    pub nudge_count: i64,
    /// Nothing more comes of it until a person looks at it.
    #[serde(default)]
    pub needs_attention: bool,
    /// Why: `error`, `daily_limit`, `nudge_limit` or `letter_limit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attention: Option<String>,
    #[serde(default)]
    pub last_error: Option<String>,
    #[serde(default)]
    pub usage: Value,
    #[serde(default)]
    pub created_at: Option<DateTime<Utc>>,
    #[serde(default)]
    pub updated_at: Option<DateTime<Utc>>,
    #[serde(flatten)]
    pub rest: Rest,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NewAgent {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    pub model: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// `reactive` or `autonomous`.
    #[serde(rename = "loop", default, skip_serializing_if = "Option::is_none")]
    pub drive_loop: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Value>,
    /// Provider calls of one turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_calls_max: Option<i64>,
    /// `full_access`, `auto` or `read_only`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_mode: Option<String>,
    /// The name of an account, or `{"pool": …}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<Value>,
}

/// What an agent is made of, apart from what has become of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Definition {
    #[serde(flatten)]
    pub agent: NewAgent,
    /// It takes up work as soon as it is loaded.
    #[serde(default)]
    pub auto_start: bool,
}

/// Definitions to be loaded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentImport {
    pub agents: Vec<Definition>,
    /// Where they come from, for the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
}

impl Client {
    pub async fn create_agent(&self, session: &str, new: &NewAgent) -> Result<Agent, ClientError> {
        self.post(&["v1", "sessions", session, "agents"], new).await
    }

    /// Filters: `session`, `lifecycle`, `drive`.
    pub async fn agents(&self, query: &Query) -> Result<Page<Agent>, ClientError> {
        self.get(&["v1", "agents"], query).await
    }

    pub async fn agent(&self, id: &str) -> Result<Agent, ClientError> {
        self.get(&["v1", "agents", id], &Query::new()).await
    }

    pub async fn configure_agent(&self, id: &str, changes: &Value) -> Result<Agent, ClientError> {
        self.patch(&["v1", "agents", id], changes).await
    }

    pub async fn start_agent(&self, id: &str) -> Result<Agent, ClientError> {
        self.post(&["v1", "agents", id, "start"], &json!({})).await
    }

    pub async fn stop_agent(&self, id: &str) -> Result<Agent, ClientError> {
        self.post(&["v1", "agents", id, "stop"], &json!({})).await
    }

    pub async fn hold_agent(&self, id: &str) -> Result<Agent, ClientError> {
        self.post(&["v1", "agents", id, "hold"], &json!({})).await
    }

    /// Loads agents from definitions, all of them or none.
    pub async fn import_agents(&self, session: &str, import: &AgentImport) -> Result<Vec<Agent>, ClientError> {
        #[derive(Deserialize)]
        struct Imported {
            agents: Vec<Agent>,
        }
        let imported: Imported = self.post(&["v1", "sessions", session, "agents", "import"], import).await?;
        Ok(imported.agents)
    }

    /// What it is made of, as [`Client::import_agents`] takes it.
    pub async fn agent_definition(&self, id: &str) -> Result<Definition, ClientError> {
        self.get(&["v1", "agents", id, "definition"], &Query::new()).await
    }

    pub async fn delete_agent(&self, id: &str) -> Result<Agent, ClientError> {
        self.delete(&["v1", "agents", id]).await
    }

    pub async fn terminate_agent(&self, id: &str, force: bool) -> Result<Agent, ClientError> {
        let body = if force { json!({"force": true}) } else { json!({}) };
        self.post(&["v1", "agents", id, "terminate"], &body).await
    }
}
