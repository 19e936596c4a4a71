//! Tools and their limits as the operator's configuration has them.

use anyhow::{Context as _, Result, bail};
use instar_runtime::config::{Config, Secret, is_word, without_value};
use instar_tools::{Kind, Native, Origin, Registry, Secrets, Settings, Spec, egress, sandbox};
use std::path::Path;

/// The built-in tools and those of `[[tools]]`; the error has every entry that is wrong.
pub fn registry(config: &Config) -> Result<Registry> {
    let registry = Registry::with_builtins();
    let mut problems = Vec::new();
    for (at, entry) in config.tools.iter().enumerate() {
        match serde_json::from_value::<Spec>(entry.clone()) {
            Ok(spec) => {
                if spec.kind == Kind::Native && Native::named(&spec.name).is_some() {
                    registry.unregister(&spec.name);
                }
                if let Err(refused) = registry.register(spec, Origin::Operator) {
                    problems.push(format!("tools[{at}]: {refused}"));
                }
            }
            Err(error) => problems.push(format!("tools[{at}]: {}", without_value(&error.to_string()))),
        }
    }
    if !problems.is_empty() {
        bail!("{}", problems.join("\n"));
    }
    Ok(registry)
}

/// Sandbox, egress and secrets of a runner.
pub fn settings(config: &Config) -> Result<Settings> {
    let egress: egress::Config = match &config.runner.egress {
        serde_json::Value::Null => egress::Config::default(),
        given => serde_json::from_value(given.clone()).context("runner.egress")?,
    };
    let egress = egress.policy().map_err(|problems| anyhow::anyhow!("runner.egress: {}", problems.join("; ")))?;
    let sandbox: sandbox::Settings = match &config.runner.sandbox {
        serde_json::Value::Null => sandbox::Settings::default(),
        given => serde_json::from_value(given.clone()).context("runner.sandbox")?,
    };
    // A secret is a variable of the runner's own environment, and only one that is meant as such.
    let allowed = config.secrets.env.clone();
    let folder = config.secrets.folder.clone();
    let secrets = Secrets::new(move |name| {
        if let Some(file) = name.strip_prefix("file/") {
            return from_file(folder.as_deref()?, file);
        }
        let variable = match name.strip_prefix("env/") {
            Some(variable) => allowed.iter().find(|allowed| *allowed == variable)?.clone(),
            None => format!("INSTAR_SECRET_{}", name.to_ascii_uppercase().replace(['-', '.'], "_")),
        };
        std::env::var(variable).ok().and_then(Secret::new)
    });
    Ok(Settings { sandbox, egress, secrets, ..Settings::default() })
}

/// Read at each use, so that a secret that was replaced counts from then on.
fn from_file(folder: &Path, name: &str) -> Option<Secret> {
    // The name is the model's at no point, but it must not lead out of the folder all the same.
    let file = is_word(name).then(|| folder.join(name))?;
    std::fs::read_to_string(file).ok().and_then(Secret::new)
}
