//! The configuration for people who debug: everything but what may be a secret.

use super::{Config, ModelConfig};
use serde_json::Value;
use std::fmt::{Debug, Formatter, Result};

/// Of entries that only another crate can read, their names.
struct Named<'a>(&'a [Value]);

impl Debug for Named<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let name = |entry: &Value| entry.get("name").and_then(Value::as_str).unwrap_or("?").to_owned();
        f.debug_list().entries(self.0.iter().map(name)).finish()
    }
}

impl Debug for Config {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Config { database, nats, api, auth, worker, runner, lease, health, drain, scheduler, .. } = self;
        let Config { telemetry, secrets, accounts, models, tools, mcp_servers, .. } = self;
        f.debug_struct("Config")
            .field("database", database)
            .field("nats", nats)
            .field("api", api)
            .field("auth", auth)
            .field("worker", worker)
            .field("runner", runner)
            .field("lease", lease)
            .field("health", health)
            .field("drain", drain)
            .field("scheduler", scheduler)
            .field("telemetry", telemetry)
            .field("secrets", secrets)
            .field("accounts", accounts)
            .field("models", models)
            .field("tools", &Named(tools))
            .field("mcp_servers", &Named(mcp_servers))
            .finish()
    }
}

impl Debug for ModelConfig {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let ModelConfig { name, provider, base_url, model, api_key_env, max_tokens, .. } = self;
        let ModelConfig { extra_body, headers, script, limits, .. } = self;
        f.debug_struct("ModelConfig")
            .field("name", name)
            .field("provider", provider)
            .field("base_url", base_url)
            .field("model", model)
            .field("api_key_env", api_key_env)
            .field("max_tokens", max_tokens)
            .field("extra_body", &extra_body.keys().collect::<Vec<_>>())
            .field("headers", &headers.keys().collect::<Vec<_>>())
            .field("script", script)
            .field("limits", limits)
            .finish()
    }
}
