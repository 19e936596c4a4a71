//! What there is besides sessions: machines, tools, models.

use crate::Rest;
use crate::client::Client;
use crate::error::ClientError;
use crate::page::{Page, Query};
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub name: String,
    #[serde(flatten)]
    pub rest: Rest,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    pub name: String,
    #[serde(default)]
    pub kind: Option<String>,
    #[serde(default)]
    pub description: Option<String>,
    #[serde(default)]
    pub side_effects: Option<bool>,
    #[serde(default)]
    pub idempotent: Option<bool>,
    #[serde(default)]
    pub requires_approval: Option<String>,
    #[serde(flatten)]
    pub rest: Rest,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Model {
    pub name: String,
    #[serde(default)]
    pub provider: Option<String>,
    #[serde(default)]
    pub model: Option<String>,
    #[serde(flatten)]
    pub rest: Rest,
}

impl Client {
    pub async fn machines(&self) -> Result<Page<Machine>, ClientError> {
        self.get(&["v1", "machines"], &Query::new()).await
    }

    pub async fn machine(&self, name: &str) -> Result<Machine, ClientError> {
        self.get(&["v1", "machines", name], &Query::new()).await
    }

    pub async fn tools(&self, query: &Query) -> Result<Page<Tool>, ClientError> {
        self.get(&["v1", "tools"], query).await
    }

    pub async fn register_tool(&self, spec: &Value) -> Result<Tool, ClientError> {
        self.post(&["v1", "tools"], spec).await
    }

    pub async fn models(&self, query: &Query) -> Result<Page<Model>, ClientError> {
        self.get(&["v1", "models"], query).await
    }
}
