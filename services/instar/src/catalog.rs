//! The models and tools of a configuration, ready for use.

use instar_model::{Kind, ModelConfig, Models};
use instar_runtime::config::{Config, SILENCES, silence_ms_max};
use instar_tools::{Builtin, Kind as ToolKind, Native, Origin, Registry, Spec};
use std::sync::Arc;

#[derive(Clone)]
pub(crate) struct Catalog {
    pub(crate) models: Arc<Models>,
    pub(crate) tools: Arc<Registry>,
}

impl Catalog {
    /// The error has every problem of both.
    pub(crate) fn build(config: &Config) -> Result<Catalog, Vec<String>> {
        match (models(config), tools(config), instar_tools::mcp::read(&config.mcp_servers)) {
            (Ok(models), Ok(tools), Ok(servers)) => {
                tools.expect_servers(servers.into_iter().map(|server| server.name));
                Ok(Catalog { models: Arc::new(models), tools: Arc::new(tools) })
            }
            (models, tools, servers) => {
                let problems = models.err().into_iter().chain(tools.err()).chain(servers.err());
                Err(problems.flatten().collect())
            }
        }
    }
}

pub(crate) fn models(config: &Config) -> Result<Models, Vec<String>> {
    let (mut models, mut problems) = (Vec::new(), Vec::new());
    for (index, entry) in config.models.iter().enumerate() {
        match serde_json::from_value::<ModelConfig>(entry.to_json()) {
            Ok(model) => models.push(fitted(model, entry, config.worker.turn_deadline_ms)),
            Err(error) => problems.push(format!("models[{index}]: {error}")),
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    Models::from_config(&models).map_err(|error| error.problems)
}

/// What the file does not say of how long the provider may be silent is short enough for two tries within a turn.
fn fitted(mut model: ModelConfig, entry: &instar_runtime::config::ModelConfig, turn_deadline_ms: u64) -> ModelConfig {
    let most = silence_ms_max(turn_deadline_ms).max(1);
    let limits = &mut model.limits;
    let values = [&mut limits.first_event_timeout_ms, &mut limits.idle_timeout_ms];
    for (key, value) in SILENCES.into_iter().zip(values) {
        if !entry.limits.contains_key(key) {
            *value = most.min(*value);
        }
    }
    model
}

/// What `instar dev` runs on when nothing is configured.
pub(crate) fn scripted() -> instar_runtime::config::ModelConfig {
    let provider = Kind::Scripted.as_str().into();
    instar_runtime::config::ModelConfig { name: "default".into(), provider, ..Default::default() }
}

/// The built-in tools and those of the file, which may give a built-in other limits.
pub(crate) fn tools(config: &Config) -> Result<Registry, Vec<String>> {
    let registry = Registry::with_builtins();
    let mut problems = Vec::new();
    for (index, entry) in config.tools.iter().enumerate() {
        let spec: Spec = match serde_json::from_value(entry.clone()) {
            Ok(spec) => spec,
            Err(error) => {
                problems.push(format!("tools[{index}]: {error}"));
                continue;
            }
        };
        let ours = match spec.kind {
            ToolKind::Builtin => Builtin::named(&spec.name).is_some(),
            ToolKind::Native => Native::named(&spec.name).is_some(),
            _ => false,
        };
        if ours {
            registry.unregister(&spec.name);
        }
        if let Err(refused) = registry.register(spec, Origin::Operator) {
            problems.push(format!("tools[{index}]: {refused}"));
        }
    }
    if problems.is_empty() { Ok(registry) } else { Err(problems) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_problem_of_models_and_tools_is_said() {
        let odd = json!({"name": "x", "kind": "command", "timeout": 5});
        let config = Config {
            models: vec![scripted(), instar_runtime::config::ModelConfig::default()],
            tools: vec![odd, json!({"name": "echo", "kind": "builtin", "timeout_ms": 0})],
            ..Config::default()
        };
        let problems = Catalog::build(&config).err().unwrap();
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(problems[0].starts_with("models[1]") && problems[1].starts_with("tools[0]"), "{problems:?}");
    }

    #[test]
    fn a_builtin_may_be_given_other_limits() {
        let config = Config {
            models: vec![scripted()],
            tools: vec![json!({"name": "echo", "kind": "builtin", "timeout_ms": 7})],
            ..Config::default()
        };
        let catalog = Catalog::build(&config).ok().unwrap();
        assert_eq!(catalog.tools.get("echo").unwrap().spec().timeout_ms, 7);
        assert_eq!(catalog.models.names().collect::<Vec<_>>(), ["default"]);
    }
}
