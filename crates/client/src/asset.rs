//! Assets and steps: what missions promise, and what makes it.

use crate::Rest;
use crate::client::Client;
use crate::error::ClientError;
use crate::page::{Page, Query};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Asset {
    pub id: String,
    #[serde(default)]
    pub mission_id: String,
    #[serde(default)]
    pub hop_id: Option<String>,
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub role: String,
    #[serde(rename = "type", default)]
    pub kind: String,
    pub status: String,
    /// The newest version that has content; 0 before the first.
    #[serde(default)]
    pub version: i64,
    #[serde(default)]
    pub summary: Option<String>,
    #[serde(default)]
    pub created_at: Option<DateTime<Utc>>,
    #[serde(flatten)]
    pub rest: Rest,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Step {
    pub id: String,
    #[serde(default)]
    pub hop_id: String,
    #[serde(default)]
    pub sequence: i64,
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub tool_id: Option<String>,
    pub status: String,
    #[serde(default)]
    pub attempts: i64,
    #[serde(flatten)]
    pub rest: Rest,
}

impl Client {
    /// Filters: `mission`, `hop`, `session`, `status`, `role`.
    pub async fn assets(&self, query: &Query) -> Result<Page<Asset>, ClientError> {
        self.get(&["v1", "assets"], query).await
    }

    pub async fn asset(&self, id: &str) -> Result<Asset, ClientError> {
        self.get(&["v1", "assets", id], &Query::new()).await
    }

    /// With a `value` it is READY at once, else it waits for approval.
    pub async fn create_asset(&self, mission: &str, asset: &Value) -> Result<Asset, ClientError> {
        self.post(&["v1", "missions", mission, "assets"], asset).await
    }

    /// A value as content of a type other than JSON.
    pub async fn provide_asset(&self, id: &str, content: Vec<u8>, media_type: &str) -> Result<Asset, ClientError> {
        self.post_content(&["v1", "assets", id, "provide"], content, media_type).await
    }

    pub async fn provide_value(&self, id: &str, value: &Value) -> Result<Asset, ClientError> {
        self.post(&["v1", "assets", id, "provide"], &json!({"value": value})).await
    }

    /// accept, reject, reprocess, cancel, fix or refresh.
    pub async fn act_on_asset(&self, id: &str, verb: &str, reason: Option<&str>) -> Result<Asset, ClientError> {
        self.post(&["v1", "assets", id, verb], &why(reason)).await
    }

    /// Another revision of a proposed asset; see the API's `EditAsset`.
    pub async fn edit_asset(&self, id: &str, changes: &Value) -> Result<Asset, ClientError> {
        self.patch(&["v1", "assets", id], changes).await
    }

    pub async fn delete_asset(&self, id: &str) -> Result<Asset, ClientError> {
        self.delete(&["v1", "assets", id]).await
    }

    /// The content of a version, the newest unless told.
    pub async fn asset_content(&self, id: &str, version: Option<i64>) -> Result<Vec<u8>, ClientError> {
        self.get_bytes(&["v1", "assets", id, "content"], &Query::new().maybe("version", version)).await
    }

    pub async fn asset_versions(&self, id: &str, query: &Query) -> Result<Page<Value>, ClientError> {
        self.get(&["v1", "assets", id, "versions"], query).await
    }

    /// `down`: what was made from it, in place of what it was made from.
    pub async fn asset_lineage(&self, id: &str, version: Option<i64>, down: bool) -> Result<Value, ClientError> {
        let query = Query::new().maybe("version", version).maybe("direction", down.then_some("down"));
        self.get(&["v1", "assets", id, "lineage"], &query).await
    }

    /// In the order in which they run.
    pub async fn steps(&self, hop: &str) -> Result<Page<Step>, ClientError> {
        self.get(&["v1", "hops", hop, "steps"], &Query::new()).await
    }

    pub async fn step(&self, id: &str) -> Result<Step, ClientError> {
        self.get(&["v1", "steps", id], &Query::new()).await
    }

    /// By hand: a value for every mapped result.
    pub async fn complete_step(&self, id: &str, outputs: &Map<String, Value>) -> Result<Step, ClientError> {
        self.post(&["v1", "steps", id, "complete"], &json!({"outputs": outputs})).await
    }

    /// cancel, request-changes or reset.
    pub async fn act_on_step(&self, id: &str, verb: &str, reason: Option<&str>) -> Result<Step, ClientError> {
        self.post(&["v1", "steps", id, verb], &why(reason)).await
    }

    pub async fn delete_step(&self, id: &str) -> Result<Step, ClientError> {
        self.delete(&["v1", "steps", id]).await
    }
}

fn why(reason: Option<&str>) -> Value {
    reason.map_or(json!({}), |reason| json!({"reason": reason}))
}
