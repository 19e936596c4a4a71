//! A `[[models]]` entry as the file writes it.
//!
//! Must not know: providers. Crate `instar-model` reads the same fields from this value's JSON
//! ([`ModelConfig::to_json`]) and judges what they mean.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Its `Debug` leaves out the values of headers and of further fields, which may be keys after all.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelConfig {
    /// What agents call it. Needed, and used once only.
    pub name: String,
    /// `openai` (and everything compatible), `ollama`, `vllm`, `anthropic` or `scripted`. Needed.
    pub provider: String,
    /// Where the provider is, `http://` or `https://`. Default: the provider's own place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// What the provider calls the model. Needed except for `scripted`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The environment variable that holds the key. Default: none is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// The most tokens in an answer when a request does not say. Default: the provider's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Tokens that the model can read and write in one call, 1 024 or more. Default 128 000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u32>,
    /// What a million tokens cost: `{ input_per_mtok = "3", output_per_mtok = "15", cached_input_per_mtok = "0.30" }`, in
    /// any one currency. Default: none; then no limit on cost can be given to an agent of this model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<instar_core::budget::Price>,
    /// Further fields of each request's body. Default: none.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub extra_body: Map<String, Value>,
    /// Further headers of each request, not for keys. Default: none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The script file of a `scripted` model. Default: the built-in script.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// Times (`…_ms`), sizes (`…_bytes`) and retries of the connection. Default: `instar-model`'s.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub limits: Map<String, Value>,
}

/// A provider may be silent for this much of a turn's time: a request that is never answered is made again, and the
/// second try has its time too.
pub fn silence_ms_max(turn_deadline_ms: u64) -> u64 {
    turn_deadline_ms / 5 * 2
}

/// The limits that say how long a provider may be silent.
pub const SILENCES: [&str; 2] = ["first_event_timeout_ms", "idle_timeout_ms"];

impl ModelConfig {
    /// The entry as JSON, with only what was given.
    pub fn to_json(&self) -> Value {
        // No map here has a key that is not text, so this cannot fail.
        serde_json::to_value(self).unwrap_or_default()
    }
}
