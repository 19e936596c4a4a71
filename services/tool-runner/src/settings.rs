//! Tools and their limits as the operator's configuration has them.

use anyhow::{Context as _, Result, bail};
use instar_runtime::config::Config;
use instar_tools::{Origin, Registry, Secret, Secrets, Settings, Spec, egress, sandbox};

/// The built-in tools and those of `[[tools]]`; the error has every entry that is wrong.
pub fn registry(config: &Config) -> Result<Registry> {
    let registry = Registry::with_builtins();
    let mut problems = Vec::new();
    for (at, entry) in config.tools.iter().enumerate() {
        match serde_json::from_value::<Spec>(entry.clone()) {
            Ok(spec) => {
                if let Err(refused) = registry.register(spec, Origin::Operator) {
                    problems.push(format!("tools[{at}]: {refused}"));
                }
            }
            Err(error) => problems.push(format!("tools[{at}]: {error}")),
        }
    }
    if !problems.is_empty() {
        bail!("{}", problems.join("\n"));
    }
    Ok(registry)
}

pub(crate) fn settings(config: &Config) -> Result<Settings> {
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
    let secrets = Secrets::new(|name| {
        let variable = format!("INSTAR_SECRET_{}", name.to_ascii_uppercase().replace(['-', '.'], "_"));
        std::env::var(variable).ok().map(Secret::new)
    });
    Ok(Settings { sandbox, egress, secrets, ..Settings::default() })
}
