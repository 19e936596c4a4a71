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
    #[serde(default)]
    pub available: Option<bool>,
    #[serde(default)]
    pub reason: Option<String>,
    /// The MCP server that has it.
    #[serde(default)]
    pub server: Option<String>,
    /// Of a definition that waits to be accepted.
    #[serde(default)]
    pub offered_hash: Option<String>,
    #[serde(flatten)]
    pub rest: Rest,
}

/// An MCP server as a tool-runner sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct McpServer {
    pub name: String,
    pub runner: String,
    pub status: String,
    #[serde(default)]
    pub reason: Option<String>,
    #[serde(default)]
    pub protocol: Option<String>,
    #[serde(default)]
    pub about: Option<String>,
    #[serde(default)]
    pub tools: u64,
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

    /// Removes a tool that was registered by a request.
    pub async fn remove_tool(&self, name: &str) -> Result<Tool, ClientError> {
        self.delete(&["v1", "tools", name]).await
    }

    /// Accepts the definition that the tool's MCP server offers now, if it is the one with this hash.
    pub async fn accept_tool(&self, name: &str, hash: Option<&str>) -> Result<Tool, ClientError> {
        self.post(&["v1", "tools", name, "accept"], &serde_json::json!({"hash": hash})).await
    }

    pub async fn mcp_servers(&self) -> Result<Page<McpServer>, ClientError> {
        self.get(&["v1", "mcp-servers"], &Query::new()).await
    }

    pub async fn models(&self, query: &Query) -> Result<Page<Model>, ClientError> {
        self.get(&["v1", "models"], query).await
    }
}
