//! The configuration: a file, then the environment, then flags; checked as a whole before anything
//! starts.
//!
//! Must not know: what the sections are used for. Tools and MCP servers stay JSON, since only the
//! crate that runs them can read them.

mod account;
mod check;
mod load;
mod model;
mod problem;
mod role;
mod section;
mod show;

pub use account::{AccountConfig, is_word};
pub use load::without_value;
pub use model::{ModelConfig, SILENCES, silence_ms_max};
pub use problem::{Invalid, Problem};
pub use role::Role;
pub use section::{
    AgentsConfig, ApiConfig, ArchiveConfig, AssetsConfig, AuthConfig, DatabaseConfig, DrainConfig, HealthConfig,
    LeaseConfig, LogFormat, NatsConfig, PlansConfig, RunnerConfig, SchedulerConfig, SecretsConfig, TelemetryConfig,
    WorkerConfig,
};

pub use instar_core::secret::Secret;

use std::collections::BTreeMap;
use std::path::Path;

/// Read when no file is named; may be absent then.
pub const FILE: &str = "instar.toml";

/// Variable names and values; a map, so that tests need not touch the real environment.
pub type Environment = BTreeMap<String, String>;

/// Its `Debug` shows no secret, and of lists that may hold one only the names.
#[derive(Clone, Default)]
pub struct Config {
    pub database: DatabaseConfig,
    pub nats: NatsConfig,
    pub api: ApiConfig,
    pub auth: AuthConfig,
    pub worker: WorkerConfig,
    pub runner: RunnerConfig,
    pub scheduler: SchedulerConfig,
    pub agents: AgentsConfig,
    pub plans: PlansConfig,
    pub archive: ArchiveConfig,
    pub assets: AssetsConfig,
    pub lease: LeaseConfig,
    pub health: HealthConfig,
    pub drain: DrainConfig,
    pub telemetry: TelemetryConfig,
    pub secrets: SecretsConfig,
    /// `[[accounts]]`. Default: none.
    pub accounts: Vec<AccountConfig>,
    /// `[[models]]`. Default: none.
    pub models: Vec<ModelConfig>,
    /// `[[tools]]`, each an object with a unique `name`. Default: none.
    pub tools: Vec<serde_json::Value>,
    /// `[[mcp_servers]]`, each an object with a unique `name`. Default: none.
    pub mcp_servers: Vec<serde_json::Value>,
}

impl Config {
    /// Reads `file` (else `instar.toml` if there is one), the environment and `overrides`, pairs such
    /// as `("api.listen", "127.0.0.1:0")` from flags. The error names every problem at once.
    pub fn load(role: Role, file: Option<&Path>, overrides: &[(&str, &str)]) -> Result<Config, Invalid> {
        // Names and values that are not text cannot be ours.
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self::load_from(role, file, &std::env::vars_os().filter_map(text).collect(), overrides)
    }

    /// [`Config::load`] with an environment of the caller's.
    pub fn load_from(
        role: Role,
        file: Option<&Path>,
        environment: &Environment,
        overrides: &[(&str, &str)],
    ) -> Result<Config, Invalid> {
        let (config, found) = load::read(file, environment, overrides);
        let problems = found.followed_by(config.problems(role, environment));
        if problems.is_empty() { Ok(config) } else { Err(Invalid { problems }) }
    }

    /// What keeps `role` from starting with these values.
    pub fn problems(&self, role: Role, environment: &Environment) -> Vec<Problem> {
        check::problems(self, role, environment)
    }

    /// The admin key for the first start, if its variable is set.
    pub fn bootstrap_key(&self, environment: impl Fn(&str) -> Option<String>) -> Option<Secret> {
        Secret::new(environment(self.auth.bootstrap_key_env.as_deref()?)?)
    }
}
