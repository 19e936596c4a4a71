//! `instar doctor`: what keeps Instar from running here, one line each. It changes nothing.

mod database;
mod mcp;
mod nats;

pub(crate) use database::schema;

use crate::failure::{FAILED, Failure};
use crate::output::{self, Column, Format};
use crate::{catalog, folder};
use clap::{Args, ValueEnum};
use instar_runtime::Vault;
use instar_runtime::config::{Config, Role};
use instar_tools::sandbox::{Kernel, Mode, Settings};
use serde::Serialize;
use serde_json::Value;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The configuration [default: instar.toml if there is one]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// What shall run here
    #[arg(long, value_enum, default_value_t)]
    pub(crate) role: Wanted,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Wanted {
    #[default]
    Dev,
    Api,
    Scheduler,
    AgentWorker,
    ToolRunner,
}

impl Wanted {
    fn role(self) -> Role {
        match self {
            Wanted::Dev => Role::Dev,
            Wanted::Api => Role::Api,
            Wanted::Scheduler => Role::Scheduler,
            Wanted::AgentWorker => Role::AgentWorker,
            Wanted::ToolRunner => Role::ToolRunner,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Ok,
    /// It runs, but not all of it.
    Warn,
    Fail,
}

/// A line of the report.
#[derive(Clone, Debug, Serialize)]
struct Finding {
    check: String,
    verdict: Verdict,
    message: String,
}

impl Finding {
    fn new(check: impl Into<String>, verdict: Verdict, message: impl Into<String>) -> Finding {
        Finding { check: check.into(), verdict, message: message.into() }
    }

    fn of(check: impl Into<String>, outcome: Result<String, String>) -> Finding {
        match outcome {
            Ok(message) => Finding::new(check, Verdict::Ok, message),
            Err(message) => Finding::new(check, Verdict::Fail, message),
        }
    }
}

const COLUMNS: &[Column<Finding>] = &[
    ("", |f| {
        match f.verdict {
            Verdict::Ok => "ok",
            Verdict::Warn => "warn",
            Verdict::Fail => "FAIL",
        }
        .to_owned()
    }),
    ("CHECK", |f| f.check.clone()),
    ("", |f| f.message.clone()),
];

impl Arguments {
    pub(crate) async fn run(self, format: Format) -> Result<ExitCode, Failure> {
        let findings = self.examine().await;
        output::list(format, &findings, COLUMNS)?;
        let failed = findings.iter().any(|finding| finding.verdict == Verdict::Fail);
        Ok(if failed { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
    }

    async fn examine(&self) -> Vec<Finding> {
        let role = self.role.role();
        let mut findings = Vec::new();
        match Config::load(role, self.config.as_deref(), &[]) {
            Ok(config) => {
                findings.push(Finding::new("config", Verdict::Ok, format!("good for {role}")));
                findings.push(Finding::of("database", database::check(&config, &folder::default()).await));
                findings.push(match nats::check(&config).await {
                    Ok(message) => Finding::new("nats", Verdict::Ok, message),
                    Err(nats::Trouble::Away(message)) => Finding::new("nats", Verdict::Warn, message),
                    Err(nats::Trouble::Unfit(message)) => Finding::new("nats", Verdict::Fail, message),
                });
                findings.extend(models(&config));
                findings.extend(tools(&config));
                findings.extend(secrets(&config, role));
                findings.extend(servers(&config, role).await);
                findings.push(sandbox(&config));
            }
            Err(bad) => {
                let problems =
                    bad.problems.iter().map(|problem| Finding::new("config", Verdict::Fail, problem.to_string()));
                findings.extend(problems);
                findings.push(sandbox(&Config::default()));
            }
        }
        findings
    }
}

/// Each model by itself, with its key.
fn models(config: &Config) -> Vec<Finding> {
    if config.models.is_empty() {
        return vec![Finding::new("models", Verdict::Warn, "none configured; `instar dev` then has the scripted one")];
    }
    let alone = |model: &instar_runtime::config::ModelConfig| {
        let config = Config { models: vec![model.clone()], ..Config::default() };
        let key = model.api_key_env.as_ref().map_or("no key".to_owned(), |name| format!("key in {name}"));
        let outcome = catalog::models(&config).map(|_| format!("{}, {key}", model.provider));
        Finding::of(format!("model {}", model.name), outcome.map_err(|problems| problems.join("; ")))
    };
    config.models.iter().map(alone).collect()
}

fn tools(config: &Config) -> Vec<Finding> {
    match catalog::tools(config) {
        Ok(tools) => vec![Finding::new("tools", Verdict::Ok, format!("{} registered", tools.list().len()))],
        Err(problems) => problems.into_iter().map(|problem| Finding::new("tools", Verdict::Fail, problem)).collect(),
    }
}

/// Of interest to those that see a secret.
fn secrets(config: &Config, role: Role) -> Option<Finding> {
    if !matches!(role, Role::Dev | Role::Api | Role::ToolRunner) {
        return None;
    }
    let none = "no key: accounts come from the configuration only; set secrets.key_env or secrets.key_file";
    Some(match Vault::load(&config.secrets, |name| std::env::var(name).ok()) {
        Ok(Some(_)) => Finding::new("secrets", Verdict::Ok, "a key to seal accounts with"),
        Ok(None) if role == Role::Dev => Finding::new("secrets", Verdict::Ok, "`instar dev` makes a key of its own"),
        Ok(None) => Finding::new("secrets", Verdict::Warn, none),
        Err(error) => Finding::new("secrets", Verdict::Fail, error.to_string()),
    })
}

/// Each MCP server by itself. Without one its tools are missing, and agents go on.
async fn servers(config: &Config, role: Role) -> Vec<Finding> {
    if !matches!(role, Role::Dev | Role::ToolRunner) {
        return Vec::new();
    }
    let found = match mcp::check(config).await {
        Ok(found) => found,
        Err(problems) => return problems.into_iter().map(|p| Finding::new("mcp", Verdict::Fail, p)).collect(),
    };
    let finding = |(name, outcome): (String, Result<String, String>)| match outcome {
        Ok(message) => Finding::new(format!("mcp {name}"), Verdict::Ok, message),
        Err(message) => Finding::new(format!("mcp {name}"), Verdict::Warn, message),
    };
    found.into_iter().map(finding).collect()
}

/// Only command tools need it.
fn sandbox(config: &Config) -> Finding {
    let kernel = Kernel::probe();
    let settings: Settings = match &config.runner.sandbox {
        Value::Null => Settings::default(),
        given => match serde_json::from_value(given.clone()) {
            Ok(settings) => settings,
            Err(error) => return Finding::new("sandbox", Verdict::Fail, format!("runner.sandbox: {error}")),
        },
    };
    match settings.check(kernel) {
        Ok(()) if settings.sandbox == Mode::Off => Finding::new("sandbox", Verdict::Warn, "switched off"),
        Ok(()) => {
            let message = format!("Landlock ABI {}, seccomp filters", kernel.landlock_abi);
            Finding::new("sandbox", Verdict::Ok, message)
        }
        Err(missing) => {
            let needed = config.tools.iter().any(|tool| tool["kind"] == "command");
            Finding::new("sandbox", if needed { Verdict::Fail } else { Verdict::Warn }, missing.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_model_is_judged_by_itself() {
        let mut good = catalog::scripted();
        good.name = "good".into();
        let bad = instar_runtime::config::ModelConfig {
            name: "bad".into(),
            provider: "openai".into(),
            model: Some("m".into()),
            api_key_env: Some("INSTAR_TEST_NO_SUCH_KEY".into()),
            ..Default::default()
        };
        let findings = models(&Config { models: vec![good, bad], ..Config::default() });
        assert_eq!(
            findings.iter().map(|f| f.verdict).collect::<Vec<_>>(),
            [Verdict::Ok, Verdict::Fail],
            "{findings:?}"
        );
        assert!(findings[1].message.contains("INSTAR_TEST_NO_SUCH_KEY"), "{findings:?}");
    }

    #[test]
    fn a_bad_tool_is_named() {
        let findings = tools(&Config { tools: vec![json!({"name": "x", "kind": "http"})], ..Config::default() });
        assert_eq!(findings[0].verdict, Verdict::Fail);
        assert!(findings[0].message.starts_with("tools[0]"), "{findings:?}");
    }
}
