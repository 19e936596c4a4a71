//! A model as the configuration describes it.
//!
//! Must not know: files and environment; the registry is handed both.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::options::Limits;
use instar_core::budget::Price;

/// One `[[models]]` entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// What agents call it.
    pub name: String,
    pub provider: Kind,
    /// Where the provider is, up to and with `/v1` for OpenAI and those alike.
    #[serde(default)]
    pub base_url: Option<String>,
    /// What the provider calls it.
    #[serde(default)]
    pub model: Option<String>,
    /// The environment variable that holds the key: keys have no place in files.
    #[serde(default)]
    pub api_key_env: Option<String>,
    /// The most tokens to answer with when a request does not say.
    #[serde(default)]
    pub max_tokens: Option<u32>,
    /// Tokens that the model can read and write in one call; 128 000 if absent. What does not fit is left
    /// out or summarised before the provider has to refuse it.
    #[serde(default)]
    pub context_window: Option<u32>,
    /// What a million tokens cost. Needed where what agents may cost is limited.
    #[serde(default)]
    pub price: Option<Price>,
    /// Further fields for each request, such as `reasoning_effort` or `thinking`.
    #[serde(default)]
    pub extra_body: Map<String, Value>,
    /// Further headers for each request, such as `anthropic-beta`. Not for keys.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The script of a scripted model, TOML or JSON; the built-in one if absent.
    #[serde(default)]
    pub script: Option<PathBuf>,
    #[serde(default)]
    pub limits: Limits,
}

impl ModelConfig {
    pub fn new(name: impl Into<String>, provider: Kind) -> Self {
        Self {
            name: name.into(),
            provider,
            base_url: None,
            model: None,
            api_key_env: None,
            max_tokens: None,
            context_window: None,
            price: None,
            extra_body: Map::new(),
            headers: BTreeMap::new(),
            script: None,
            limits: Limits::default(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Chat Completions, and everything compatible.
    OpenAi,
    /// As `openai`, at home on this machine, with a warning when it cuts the prompt.
    Ollama,
    /// As `openai`, at home on this machine.
    Vllm,
    Anthropic,
    /// Offline: follows a script.
    Scripted,
}

impl Kind {
    /// As OpenTelemetry's `gen_ai.provider.name` has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Ollama => "ollama",
            Self::Vllm => "vllm",
            Self::Anthropic => "anthropic",
            Self::Scripted => "scripted",
        }
    }

    pub(crate) fn base_url(self) -> &'static str {
        match self {
            Self::OpenAi => "https://api.openai.com/v1",
            Self::Ollama => "http://localhost:11434/v1",
            Self::Vllm => "http://localhost:8000/v1",
            Self::Anthropic => "https://api.anthropic.com",
            Self::Scripted => "",
        }
    }
}

/// Everything that is wrong with the configured models, at once.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the models are not usable as configured: {}", .problems.join("; "))]
pub struct ConfigError {
    pub problems: Vec<String>,
}
