//! From file, environment and flags to the sections. A key that cannot be read is a problem, and
//! the others are read all the same.

use super::problem::Found;
use super::{Config, Environment, FILE};
use config::{Map, Value, ValueKind};
use serde::de::DeserializeOwned;
use std::path::Path;

const PREFIX: &str = "INSTAR";
const SEPARATOR: &str = "__";

pub(super) fn read(file: Option<&Path>, environment: &Environment, overrides: &[(&str, &str)]) -> (Config, Found) {
    let mut found = Found::default();
    let mut root = merge(file, environment, overrides, &mut found);
    let config = Config {
        database: section(&mut root, "database", &mut found),
        nats: section(&mut root, "nats", &mut found),
        api: section(&mut root, "api", &mut found),
        auth: section(&mut root, "auth", &mut found),
        worker: section(&mut root, "worker", &mut found),
        runner: section(&mut root, "runner", &mut found),
        scheduler: section(&mut root, "scheduler", &mut found),
        agents: section(&mut root, "agents", &mut found),
        plans: section(&mut root, "plans", &mut found),
        archive: section(&mut root, "archive", &mut found),
        assets: section(&mut root, "assets", &mut found),
        lease: section(&mut root, "lease", &mut found),
        health: section(&mut root, "health", &mut found),
        drain: section(&mut root, "drain", &mut found),
        telemetry: section(&mut root, "telemetry", &mut found),
        secrets: section(&mut root, "secrets", &mut found),
        accounts: entries(&mut root, "accounts", "name and fields", &mut found),
        models: entries(&mut root, "models", "name and provider", &mut found),
        tools: list(&mut root, "tools", &mut found),
        mcp_servers: list(&mut root, "mcp_servers", &mut found),
    };
    for name in root.keys() {
        found.say(name, "is no section of the configuration; remove it or correct its name");
    }
    (config, found)
}

fn merge(file: Option<&Path>, env: &Environment, overrides: &[(&str, &str)], found: &mut Found) -> Map<String, Value> {
    let path = file.unwrap_or(Path::new(FILE));
    let mut text = String::new();
    match std::fs::read_to_string(path) {
        Ok(read) => text = read,
        Err(error) if file.is_none() && error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => found.say(path.display().to_string(), format!("cannot be read: {error}")),
    }
    // Parsed alone first: a broken file must not hide what is wrong in the environment.
    let parsed = config::Config::builder().add_source(config::File::from_str(&text, config::FileFormat::Toml)).build();
    let mut builder = config::Config::builder();
    match parsed {
        Ok(parsed) => builder = builder.add_source(parsed),
        Err(error) => found.say(path.display().to_string(), without_excerpt(&error.to_string())),
    }
    let source = env.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    builder = builder.add_source(
        config::Environment::with_prefix(PREFIX)
            .prefix_separator(SEPARATOR)
            .separator(SEPARATOR)
            // A chart that has nothing to say sets an empty variable.
            .ignore_empty(true)
            .source(Some(source)),
    );
    for (key, value) in overrides {
        match builder.clone().set_override(key, *value) {
            Ok(next) => builder = next,
            Err(error) => found.say(*key, format!("cannot be set: {error}")),
        }
    }
    match builder.build().map(|merged| merged.cache.kind) {
        Ok(ValueKind::Table(root)) => root,
        Ok(_) => Map::new(),
        Err(error) => {
            found.say("environment", error.to_string());
            Map::new()
        }
    }
}

/// The parser quotes the line it stumbled over, which may hold a password.
fn without_excerpt(error: &str) -> String {
    let excerpt = |line: &&str| !line.trim_start_matches(|c: char| c == ' ' || c.is_ascii_digit()).starts_with('|');
    error.lines().filter(excerpt).collect::<Vec<_>>().join(" ")
}

/// Text of the wrong type is quoted too, and it may be a key in the wrong place.
pub fn without_value(error: &str) -> String {
    match (error.find("string \""), error.rfind("\", expected")) {
        (Some(from), Some(to)) if from < to => format!("{}string{}", &error[..from], &error[to + 1..]),
        _ => error.to_owned(),
    }
}

fn section<T: DeserializeOwned + Default>(root: &mut Map<String, Value>, name: &str, found: &mut Found) -> T {
    let keys = match root.remove(name).map(|value| value.kind) {
        None => return T::default(),
        Some(ValueKind::Table(keys)) => keys,
        Some(_) => {
            let variable = name.to_uppercase();
            found.say(name, format!("holds keys: write [{name}] with keys below it, or {PREFIX}__{variable}__KEY"));
            return T::default();
        }
    };
    // Each key alone, since every one has a default: so all wrong ones are found, not the first.
    let mut good = Map::new();
    for (key, value) in keys {
        match table::<T>(Map::from_iter([(key.clone(), value.clone())])) {
            Ok(_) => drop(good.insert(key, value)),
            Err(error) => found.say(format!("{name}.{key}"), without_value(&error.to_string())),
        }
    }
    table(good).unwrap_or_default()
}

fn table<T: DeserializeOwned>(keys: Map<String, Value>) -> Result<T, config::ConfigError> {
    Value::new(None, ValueKind::Table(keys)).try_deserialize()
}

/// A list of tables; in a variable, where tables cannot be written, as JSON text.
fn list(root: &mut Map<String, Value>, name: &str, found: &mut Found) -> Vec<serde_json::Value> {
    let Some(value) = root.remove(name) else { return Vec::new() };
    let entries: Result<Vec<serde_json::Value>, String> = match value.kind {
        ValueKind::String(text) => serde_json::from_str(&text).map_err(|error| without_value(&error.to_string())),
        ValueKind::Array(_) => value.try_deserialize().map_err(|error| error.to_string()),
        _ => Err(format!("it is not; single entries cannot be set by {PREFIX}__ variables")),
    };
    entries.unwrap_or_else(|error| {
        found.say(name, format!("must be a list, [[{name}]] in the file or a JSON list in a variable: {error}"));
        Vec::new()
    })
}

/// A list of tables that are read here, each key alone.
fn entries<T: DeserializeOwned + Default>(
    root: &mut Map<String, Value>,
    name: &str,
    needs: &str,
    found: &mut Found,
) -> Vec<T> {
    let mut read = Vec::new();
    for (index, entry) in list(root, name, found).into_iter().enumerate() {
        let serde_json::Value::Object(keys) = entry else {
            found.say(format!("{name}[{index}]"), format!("must be a table with {needs}"));
            continue;
        };
        let mut good = serde_json::Map::new();
        for (key, value) in keys {
            let alone = serde_json::Map::from_iter([(key.clone(), value.clone())]);
            match serde_json::from_value::<T>(alone.into()) {
                Ok(_) => drop(good.insert(key, value)),
                Err(error) => found.say(format!("{name}[{index}].{key}"), without_value(&error.to_string())),
            }
        }
        read.push(serde_json::from_value(good.into()).unwrap_or_default());
    }
    read
}
