//! What the values mean together. Says what to do, and never repeats a URL: it may hold a password.

use super::problem::Found;
use super::{Config, Environment, Problem, Role, Secret, is_word};
use super::{SILENCES, silence_ms_max};
use instar_core::decide::PROVIDER_CALLS_LIMIT;
use instar_store::RELEASES;
use serde_json::Value;
use std::collections::BTreeSet;

/// Renewed every third: below this one slow round trip loses the lease.
const LEASE_MS_MIN: u64 = 500;
/// Work of a dead process waits this long for a new owner.
const LEASE_MS_MAX: u64 = 600_000;
const CONCURRENCY_MAX: u32 = 100_000;
/// More would not fit into the one commit that ends a parent with all it made.
const CHILDREN_MAX: u32 = 100;
const DEPTH_MAX: u32 = 10;
const HOUR_MS: u64 = 3_600_000;
const PROVIDERS: [&str; 5] = ["openai", "ollama", "vllm", "anthropic", "scripted"];

pub(super) fn problems(config: &Config, role: Role, environment: &Environment) -> Vec<Problem> {
    let mut found = Found::default();
    backends(config, role, &mut found);
    auth(config, role, environment, &mut found);
    agents(config, &mut found);
    limits(config, role, &mut found);
    telemetry(config, &mut found);
    secrets(config, role, environment, &mut found);
    accounts(config, &mut found);
    models(config, role, environment, &mut found);
    names("tools", &config.tools, &mut found);
    workspaces(config, role, &mut found);
    names("mcp_servers", &config.mcp_servers, &mut found);
    found.into_sorted()
}

fn backends(config: &Config, role: Role, found: &mut Found) {
    let database = config.database.url.as_ref().map(Secret::expose);
    let nats = config.nats.url.as_ref().map(Secret::expose);
    let is_sqlite = database.is_some_and(|url| url.starts_with("sqlite:"));
    match database {
        None if role != Role::Dev => {
            found.say("database.url", format!("is needed by {role}: postgres://user@host/database"));
        }
        Some(url) if !has_scheme(url, &["postgres", "postgresql", "sqlite"]) => {
            found.say("database.url", "must begin with postgres:// or sqlite:// and go on");
        }
        Some(_) if is_sqlite && role.is_distributed() => {
            found.say("database.url", format!("is SQLite, which is for `instar dev` only: give {role} postgres://…"));
        }
        _ => {}
    }
    match nats {
        None if role.is_distributed() => {
            found.say("nats.url", format!("is needed by {role}: nats://host:4222 (without it only `instar dev` runs)"));
        }
        Some(urls) if !urls.split(',').all(|url| has_scheme(url.trim(), &["nats", "tls"])) => {
            found.say("nats.url", "must begin with nats:// or tls:// and name a host, each if there are several");
        }
        Some(_) if role == Role::Dev && (is_sqlite || database.is_none()) => {
            found.say("nats.url", "does not go with SQLite: remove it, or set database.url to postgres://…");
        }
        _ => {}
    }
    let prefix = &config.nats.prefix;
    if prefix.is_empty() || !prefix.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-') {
        found.say("nats.prefix", "must be letters, digits, _ and -");
    }
    if config.nats.certificate_file.is_some() != config.nats.key_file.is_some() {
        found.say("nats.certificate_file", "goes with nats.key_file: give both or neither");
    }
}

fn auth(config: &Config, role: Role, environment: &Environment, found: &mut Found) {
    match config.auth.bootstrap_key_env.as_deref() {
        None if role.is_distributed() => {
            let example = "name the variable that holds an admin key, such as INSTAR_BOOTSTRAP_KEY";
            found.say("auth.bootstrap_key_env", format!("authentication is not configured: {example}"));
        }
        Some(name) if role == Role::Api => variable("auth.bootstrap_key_env", name, environment, found),
        _ => {}
    }
}

fn agents(config: &Config, found: &mut Found) {
    found.range("agents.children_max", config.agents.children_max, 1, CHILDREN_MAX);
    found.range("agents.children_at_work_max", config.agents.children_at_work_max, 1, CHILDREN_MAX);
    found.range("agents.depth_max", config.agents.depth_max, 0, DEPTH_MAX);
    let unpriced = config.models.iter().find(|model| model.price.is_none());
    if let (Some(_), Some(model)) = (config.agents.cost_per_day_max, unpriced) {
        let why = format!("cannot be counted: model {:?} has no price; give it one, or leave this out", model.name);
        found.say("agents.cost_per_day_max", why);
    }
    found.range("plans.workers_max", config.plans.workers_max, 0, CHILDREN_MAX);
    found.range("plans.start_timeout_ms", config.plans.start_timeout_ms, 100, HOUR_MS);
    for (role, model) in &config.agents.models {
        if !config.models.is_empty() && !config.models.iter().any(|known| known.name == *model) {
            found.say(format!("agents.models.{role}"), format!("there is no model {model:?} among [[models]]"));
        }
    }
}

fn limits(config: &Config, role: Role, found: &mut Found) {
    found.range("worker.concurrency", config.worker.concurrency, 1, CONCURRENCY_MAX);
    found.range("worker.provider_calls_max", config.worker.provider_calls_max, 1, PROVIDER_CALLS_LIMIT);
    found.range("runner.concurrency", config.runner.concurrency, 1, CONCURRENCY_MAX);
    found.range("runner.settle_ms", config.runner.settle_ms, 0, HOUR_MS);
    found.range("scheduler.watchdog_ms", config.scheduler.watchdog_ms, 100, HOUR_MS);
    found.range("scheduler.error_window_ms", config.scheduler.error_window_ms, 1, 24 * HOUR_MS);
    found.range("scheduler.nudge_pause_ms", config.scheduler.nudge_pause_ms, 0, HOUR_MS);
    found.range("scheduler.close_grace_ms", config.scheduler.close_grace_ms, 0, HOUR_MS);
    if config.archive.after_ms > 0 && config.archive.url.is_none() && role != Role::Dev {
        found.say("archive.after_ms", "needs archive.url: a folder, file:///folder or s3://bucket/prefix");
    }
    found.range("assets.inline_bytes_max", config.assets.inline_bytes_max, 0, 1 << 20);
    found.range("assets.bytes_max", config.assets.bytes_max, 1, 1 << 30);
    found.range("lease.ttl_ms", config.lease.ttl_ms, LEASE_MS_MIN, LEASE_MS_MAX);
    found.range("drain.grace_ms", config.drain.grace_ms, 0, HOUR_MS);
    found.range("health.check_timeout_ms", config.health.check_timeout_ms, 1, 60_000);
    found.range("database.readers_max", config.database.readers_max, 1, 1_000);
    found.range("database.writers", config.database.writers, 1, 64);
    found.range("database.acquire_timeout_ms", config.database.acquire_timeout_ms, 1, HOUR_MS);
    found.range("database.round_trip_max_ms", config.database.round_trip_max_ms, 100, HOUR_MS);
    found.range("nats.connect_timeout_ms", config.nats.connect_timeout_ms, 1, HOUR_MS);
    found.range("nats.publish_timeout_ms", config.nats.publish_timeout_ms, 1, HOUR_MS);
    found.range("nats.payload_bytes_max", config.nats.payload_bytes_max, 64 << 10, 64 << 20);
    found.range("api.body_bytes_max", config.api.body_bytes_max, 1 << 10, 64 << 20);
    found.range("api.request_timeout_ms", config.api.request_timeout_ms, 100, HOUR_MS);
    found.range("api.streams_max", config.api.streams_max, 1, 1_000_000);
    found.range("api.requests_per_second_max", config.api.requests_per_second_max, 0, 1_000_000);
    found.range("api.failed_keys_per_minute_max", config.api.failed_keys_per_minute_max, 0, 1_000_000);
    let (listen, health) = (config.api.listen, config.health.listen);
    if health == Some(listen) && listen.port() != 0 {
        found.say("health.listen", "is api.listen, where these pages are served anyway: remove it");
    }
}

fn telemetry(config: &Config, found: &mut Found) {
    let telemetry = &config.telemetry;
    if let Some(error) = telemetry.log_filter.as_deref().and_then(|text| crate::telemetry::filter(text).err()) {
        found.say("telemetry.log_filter", format!("is not of the form info,instar_store=debug: {error}"));
    }
    if telemetry.otlp_endpoint.as_deref().is_some_and(|url| !has_scheme(url, &["http", "https"])) {
        found.say("telemetry.otlp_endpoint", "must be http(s)://host:port, such as http://localhost:4318");
    }
    if telemetry.otlp_endpoint.as_deref().is_some_and(|url| url.contains('@')) {
        found.say("telemetry.otlp_endpoint", "must not hold a user or password: set OTEL_EXPORTER_OTLP_HEADERS");
    }
    if telemetry.sample_ratio.is_some_and(|ratio| !(0.0..=1.0).contains(&ratio)) {
        found.say("telemetry.sample_ratio", "must be between 0 and 1");
    }
    found.range("telemetry.flush_timeout_ms", telemetry.flush_timeout_ms, 0, 60_000);
}

fn secrets(config: &Config, role: Role, environment: &Environment, found: &mut Found) {
    let secrets = &config.secrets;
    // Only these two ever see a secret.
    let sees = matches!(role, Role::Dev | Role::Api | Role::ToolRunner);
    if let Some(name) = secrets.key_env.as_deref().filter(|_| sees) {
        variable("secrets.key_env", name, environment, found);
    }
    if secrets.key_env.is_some() && secrets.key_file.is_some() {
        found.say("secrets.key_file", "does not go with secrets.key_env: give one of them");
    }
    for name in &secrets.env {
        let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if name.is_empty() || !plain {
            found.say("secrets.env", "must be names of environment variables (letters, digits, _), not secrets");
        } else if name.starts_with("INSTAR_") {
            found.say("secrets.env", format!("{name} is ours, and not for tools: choose another name"));
        }
    }
    found.range("secrets.account_lease_ms", secrets.account_lease_ms, 1_000, 365 * 24 * HOUR_MS);
    found.range("secrets.account_wait_ms", secrets.account_wait_ms, 1, 365 * 24 * HOUR_MS);
}

/// Never repeats a field: what is no reference is most likely the secret itself.
fn accounts(config: &Config, found: &mut Found) {
    let mut seen = BTreeSet::new();
    for (index, account) in config.accounts.iter().enumerate() {
        let at = |key: &str| format!("accounts[{index}].{key}");
        for (key, word) in [("name", &account.name), ("pool", &account.pool), ("namespace", &account.namespace)] {
            if !is_word(word) {
                found.say(at(key), "is needed: up to 100 letters, digits, _, - and .");
            }
        }
        if !seen.insert((&account.namespace, &account.name)) {
            found.say(at("name"), format!("{:?} is taken by an earlier account: choose another", account.name));
        }
        if account.fields.is_empty() {
            found.say(at("fields"), "is needed: { password = \"secret://NAME\" }");
        }
        for (field, reference) in &account.fields {
            let rest = reference.strip_prefix("secret://").unwrap_or_default();
            let name = ["env/", "file/"].iter().find_map(|place| rest.strip_prefix(place)).unwrap_or(rest);
            if !is_word(field) {
                found.say(at("fields"), "have names of letters, digits, _, - and .");
            } else if !is_word(name) {
                let forms = "secret://NAME, secret://env/NAME or secret://file/NAME, never the secret itself";
                found.say(at(&format!("fields.{field}")), format!("must be {forms}"));
            }
        }
        if account.release_on.iter().any(|word| !RELEASES.iter().any(|release| release.token == word)) {
            let words = RELEASES.map(|release| release.token).join(", ");
            found.say(at("release_on"), format!("must be words of: {words}"));
        }
    }
}

fn models(config: &Config, role: Role, environment: &Environment, found: &mut Found) {
    let mut seen = BTreeSet::new();
    for (index, model) in config.models.iter().enumerate() {
        let at = |key: &str| format!("models[{index}].{key}");
        if model.name.is_empty() {
            found.say(at("name"), "is needed: what agents call the model");
        } else if !seen.insert(&model.name) {
            found.say(at("name"), format!("{:?} is taken by an earlier model: choose another", model.name));
        }
        if !PROVIDERS.contains(&model.provider.as_str()) {
            found.say(at("provider"), format!("must be one of {}", PROVIDERS.join(", ")));
        }
        if model.model.as_deref().is_none_or(str::is_empty) && model.provider != "scripted" {
            found.say(at("model"), "is needed: what the provider calls the model");
        }
        match model.base_url.as_deref() {
            Some(url) if !has_scheme(url, &["http", "https"]) => {
                found.say(at("base_url"), "must begin with http:// or https:// and name a host");
            }
            Some(url) if url.contains('@') => {
                found.say(at("base_url"), "must not hold a user or password: put the key in api_key_env's variable");
            }
            _ => {}
        }
        if model.context_window.is_some_and(|tokens| tokens < 1_024) {
            found.say(at("context_window"), "is below 1024 tokens: give what the model can read, or leave it out");
        }
        if model.max_tokens == Some(0) {
            found.say(at("max_tokens"), "is 0: give at least 1, or leave it out");
        }
        let (deadline, most) = (config.worker.turn_deadline_ms, silence_ms_max(config.worker.turn_deadline_ms));
        for key in SILENCES {
            if model.limits.get(key).and_then(Value::as_u64).is_some_and(|given| given > most) {
                let why = format!(
                    "leaves a turn of {deadline} ms (worker.turn_deadline_ms) no time to ask again when it is not \
                     answered: give {most} or less, leave it out, or raise worker.turn_deadline_ms"
                );
                found.say(at(&format!("limits.{key}")), why);
            }
        }
        if let Some(name) = model.api_key_env.as_deref().filter(|_| role.calls_models()) {
            variable(&at("api_key_env"), name, environment, found);
        }
    }
}

fn names(list: &str, entries: &[Value], found: &mut Found) {
    let mut seen = BTreeSet::new();
    for (index, entry) in entries.iter().enumerate() {
        match entry.get("name").and_then(Value::as_str).filter(|name| !name.is_empty()) {
            None => found.say(format!("{list}[{index}].name"), "is needed, as text"),
            Some(name) if !seen.insert(name) => {
                found.say(
                    format!("{list}[{index}].name"),
                    format!("{name:?} is taken by an earlier one: choose another"),
                );
            }
            Some(_) => {}
        }
    }
}

fn workspaces(config: &Config, role: Role, found: &mut Found) {
    let at = "runner.workspaces";
    match &config.runner.workspaces {
        Some(folder) if !folder.is_absolute() => found.say(at, "must be an absolute path: /var/lib/instar/workspaces"),
        None if role == Role::ToolRunner => {
            let works = |tool: &&Value| tool.get("workspace").is_some_and(|kind| kind != "none");
            if let Some(tool) = config.tools.iter().find(works) {
                let name = tool.get("name").and_then(Value::as_str).unwrap_or("a tool");
                found.say(
                    at,
                    format!(
                        "is needed by {name:?}, which works in a workspace: name a folder that all tool-runners share"
                    ),
                );
            }
        }
        _ => {}
    }
}

/// A name that is not one is most likely the key itself, so it is not repeated.
fn variable(at: &str, name: &str, environment: &Environment, found: &mut Found) {
    let plain = name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
    if name.is_empty() || !plain {
        found.say(at, "must be the name of an environment variable (capitals, digits, _), not the key itself");
    } else if environment.get(name).is_none_or(|value| value.trim().is_empty()) {
        found.say(at, format!("the environment variable {name} is not set: set it to the key"));
    }
}

/// One of these schemes, `://` and something after it.
fn has_scheme(url: &str, schemes: &[&str]) -> bool {
    url.split_once("://").is_some_and(|(scheme, rest)| schemes.contains(&scheme) && !rest.is_empty())
}
