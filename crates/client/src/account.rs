//! Accounts: named credentials that agents claim. Secrets are sent, never read.

use crate::Rest;
use crate::client::Client;
use crate::error::ClientError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Account {
    pub id: String,
    pub name: String,
    pub pool: String,
    #[serde(default)]
    pub username: Option<String>,
    #[serde(default)]
    pub fields: Vec<String>,
    #[serde(default)]
    pub release_on: Vec<String>,
    #[serde(default)]
    pub holder: Option<String>,
    #[serde(flatten)]
    pub rest: Rest,
}

/// Its `Debug` leaves out what is secret.
#[derive(Clone, Default, PartialEq, Serialize)]
pub struct NewAccount {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    pub fields: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release_on: Option<Vec<String>>,
}

impl std::fmt::Debug for NewAccount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let fields: Vec<_> = self.fields.keys().collect();
        f.debug_struct("NewAccount")
            .field("name", &self.name)
            .field("pool", &self.pool)
            .field("fields", &fields)
            .finish()
    }
}

impl Client {
    pub async fn create_account(&self, new: &NewAccount) -> Result<Account, ClientError> {
        self.post(&["v1", "accounts"], new).await
    }

    /// By its id or name.
    pub async fn remove_account(&self, account: &str) -> Result<Account, ClientError> {
        self.delete(&["v1", "accounts", account]).await
    }
}
