//! An `[[accounts]]` entry as the file writes it.

use serde::Deserialize;
use std::collections::BTreeMap;

/// Its `Debug` leaves out the fields, which may hold a secret after all.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AccountConfig {
    /// What people call it. Needed, and used once in its namespace.
    pub name: String,
    /// Whose agents may have it. Default `default`, which is that of the bootstrap key.
    pub namespace: String,
    /// Accounts that serve the same purpose. Default `default`.
    pub pool: String,
    /// Who it is for the service behind it; no secret. Default: none.
    pub username: Option<String>,
    /// Names of its secrets, each with the reference `secret://…` under which a tool-runner finds it. Needed.
    pub fields: BTreeMap<String, String>,
    /// When its holder gives it back: stop, error, terminate, delete, idle. Default: all but idle.
    pub release_on: Vec<String>,
}

impl Default for AccountConfig {
    fn default() -> Self {
        let release_on = instar_store::RELEASES.iter().filter(|r| r.default).map(|r| r.token.to_owned()).collect();
        let (namespace, pool) = ("default".to_owned(), "default".to_owned());
        let (name, username, fields) = Default::default();
        Self { name, namespace, pool, username, fields, release_on }
    }
}

impl std::fmt::Debug for AccountConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let AccountConfig { name, namespace, pool, username, fields, release_on } = self;
        f.debug_struct("AccountConfig")
            .field("name", name)
            .field("namespace", namespace)
            .field("pool", pool)
            .field("username", username)
            .field("fields", &fields.keys().collect::<Vec<_>>())
            .field("release_on", release_on)
            .finish()
    }
}

/// A word for an account, a pool or a field: it stands in paths and references.
pub fn is_word(text: &str) -> bool {
    let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b));
    plain && !text.is_empty() && text.len() <= 100 && !text.starts_with('.')
}
