//! What can be wrong with a spec. All of it is said at once.

use super::{Kind, Method, Spec, Workspace};
use crate::builtin::Builtin;
use crate::native::Native;
use crate::{canonical, secret, tool};
use reqwest::header::{HeaderName, HeaderValue};
use std::str::FromStr;

const NAME_BYTES_MAX: usize = 64;
const DESCRIPTION_BYTES_MAX: usize = 16 << 10;
const PARAMETERS_BYTES_MAX: usize = 64 << 10;
const TIMEOUT_MS_MAX: u64 = 3_600_000;
const OUTPUT_BYTES_MAX: usize = 10 << 20;
/// Less could not even hold the words that say how much was left out.
const OUTPUT_BYTES_MIN: usize = 256;
const ARGV_BYTES_MAX: usize = 64 << 10;

/// Headers that the runner or the connection writes.
const RESERVED: [&str; 9] = [
    "idempotency-key",
    "instar-attempt",
    "traceparent",
    "host",
    "content-length",
    "content-type",
    "transfer-encoding",
    "connection",
    "upgrade",
];

/// One thing that is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct Problem {
    pub field: String,
    pub message: String,
}

struct Found(Vec<Problem>);

impl Found {
    fn say(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.0.push(Problem { field: field.into(), message: message.into() });
    }

    fn range<T: PartialOrd + std::fmt::Display>(&mut self, field: &str, value: T, low: T, high: T) {
        if value < low || value > high {
            self.say(field, format!("is {value}; allowed is {low} to {high}"));
        }
    }
}

pub(super) fn problems(spec: &Spec) -> Vec<Problem> {
    let mut found = Found(Vec::new());
    name(spec, &mut found);
    found.range("description bytes", spec.description.len(), 0, DESCRIPTION_BYTES_MAX);
    found.range("timeout_ms", spec.timeout_ms, 1, TIMEOUT_MS_MAX);
    found.range("max_output_bytes", spec.max_output_bytes, OUTPUT_BYTES_MIN, OUTPUT_BYTES_MAX);
    found.range("parameters bytes", canonical::text(&spec.parameters).len(), 0, PARAMETERS_BYTES_MAX);
    if let Err(message) = tool::compile(spec) {
        found.say("parameters", message);
    }
    found.range("results bytes", canonical::text(&spec.results).len(), 0, PARAMETERS_BYTES_MAX);
    let object = spec.results.is_object() && spec.results.get("type").is_none_or(|kind| kind == "object");
    if !spec.results.is_null() && !object {
        found.say("results", "must be a JSON Schema that describes an object: {\"type\": \"object\", …}");
    }
    match spec.kind {
        Kind::Builtin if Builtin::named(&spec.name).is_none() => {
            found.say("name", format!("is no built-in tool; there are {}", Builtin::names().join(", ")));
        }
        Kind::Native if Native::named(&spec.name).is_none() => {
            found.say("name", format!("is no native tool; there are {}", Native::names().join(", ")));
        }
        Kind::Builtin | Kind::Native => {}
        Kind::Http => http(spec, &mut found),
        Kind::Command => command(spec, &mut found),
        Kind::Mcp if spec.mcp.is_none() => found.say("kind", "mcp tools come from [[mcp_servers]]"),
        Kind::Mcp => {}
    }
    secrets(spec, &mut found);
    strangers(spec, &mut found);
    found.0
}

fn name(spec: &Spec, found: &mut Found) {
    let part =
        |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if spec.name.len() > NAME_BYTES_MAX || !spec.name.split('.').all(part) {
        let rule = "must be letters, digits, _ and -, in parts joined by dots";
        found.say("name", format!("{rule}, at most {NAME_BYTES_MAX} characters"));
    }
}

fn http(spec: &Spec, found: &mut Found) {
    match spec.url.as_deref().map(reqwest::Url::parse) {
        None => found.say("url", "is needed for kind http"),
        Some(Err(error)) => found.say("url", format!("is not a URL: {error}")),
        Some(Ok(url)) => {
            if !matches!(url.scheme(), "http" | "https") {
                found.say("url", "must begin with http:// or https://");
            }
            if !url.username().is_empty() || url.password().is_some() {
                found.say("url", "must not contain a user or password; use headers with secret://name");
            }
            if url.fragment().is_some() {
                found.say("url", "must not contain a #fragment: it is never sent");
            }
        }
    }
    for (name, value) in &spec.headers {
        let field = format!("headers.{name}");
        match HeaderName::from_str(name) {
            Err(_) => found.say(&field, "is not a header name"),
            Ok(known) if RESERVED.contains(&known.as_str()) => found.say(&field, "is set by the runner"),
            Ok(_) => {}
        }
        if HeaderValue::from_str(value).is_err() {
            found.say(&field, "has a value that cannot be sent");
        }
    }
    if !spec.body.is_empty() && spec.method == Some(Method::Get) {
        found.say("body", "is not sent by GET: put it into the url or a header");
    }
}

/// Where secrets are put, and by whom.
fn secrets(spec: &Spec, found: &mut Found) {
    for (field, value) in spec.referring() {
        match secret::references(value) {
            Err(message) => found.say(field, message),
            Ok(references) if field == "url" => {
                // Whoever chose the host would be told the secret by its own name server.
                let path = value.find("://").and_then(|at| Some(at + 3 + value[at + 3..].find(['/', '?'])?));
                if references.iter().any(|reference| path.is_none_or(|path| reference.start <= path)) {
                    found.say(field, "must not have a secret in its host; path and query may");
                }
            }
            Ok(_) => {}
        }
    }
    let properties = spec.parameters.get("properties");
    for name in &spec.secret_arguments {
        if properties.and_then(|properties| properties.get(name)).is_none() {
            found.say("secret_arguments", format!("{name:?} is no property of parameters"));
        }
    }
    if !spec.secret_arguments.is_empty() && !matches!(spec.kind, Kind::Http | Kind::Command | Kind::Mcp) {
        found.say("secret_arguments", "is only for kinds http, command and mcp");
    }
}

fn command(spec: &Spec, found: &mut Found) {
    if spec.command.first().is_none_or(String::is_empty) {
        found.say("command", "is needed for kind command: the program and its arguments");
    }
    if spec.command.iter().any(|word| word.contains('\0')) {
        found.say("command", "must not contain NUL");
    }
    found.range("command bytes", spec.command.iter().map(String::len).sum(), 0, ARGV_BYTES_MAX);
    for name in spec.env.iter().chain(spec.environment.keys()) {
        let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if name.is_empty() || !plain || name.as_bytes()[0].is_ascii_digit() {
            found.say("env", format!("{name:?} is not a variable's name"));
        } else if name.starts_with("LD_") || name.starts_with("INSTAR_") {
            found.say("env", format!("{name} may not be passed on"));
        }
    }
    if spec.environment.values().any(|value| value.contains('\0')) {
        found.say("environment", "must not contain NUL");
    }
}

/// Fields of another kind do nothing: whoever wrote them expects otherwise.
fn strangers(spec: &Spec, found: &mut Found) {
    let fields = [
        ("method", Kind::Http, spec.method.is_some()),
        ("url", Kind::Http, spec.url.is_some()),
        ("headers", Kind::Http, !spec.headers.is_empty()),
        ("command", Kind::Command, !spec.command.is_empty()),
        ("body", Kind::Http, !spec.body.is_empty()),
        ("env", Kind::Command, !spec.env.is_empty()),
        ("environment", Kind::Command, !spec.environment.is_empty()),
        ("network", Kind::Command, spec.network),
        ("workspace", Kind::Command, spec.workspace != Workspace::None),
        ("mcp", Kind::Mcp, spec.mcp.is_some()),
    ];
    for (field, kind, given) in fields {
        if given && kind != spec.kind {
            let kind = match kind {
                Kind::Http => "http",
                Kind::Mcp => "mcp",
                _ => "command",
            };
            found.say(field, format!("is only for kind {kind}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields(spec: &Spec) -> Vec<String> {
        problems(spec).into_iter().map(|problem| problem.field).collect()
    }

    #[test]
    fn every_problem_is_reported_at_once() {
        let spec: Spec = serde_json::from_value(json!({
            "name": "no spaces!", "kind": "http", "url": "ftp://user:pass@host/#x", "timeout_ms": 0,
            "max_output_bytes": 1, "parameters": {"type": "objekt"}, "command": ["sh"], "network": true,
            "headers": {"Idempotency-Key": "mine", "bad name": "x", "x-key": "secret://"},
        }))
        .unwrap();
        let expected = [
            "name",
            "timeout_ms",
            "max_output_bytes",
            "parameters",
            "url",
            "url",
            "url",
            "headers.Idempotency-Key",
            "headers.bad name",
            "headers.x-key",
            "command",
            "network",
        ];
        assert_eq!(fields(&spec), expected);
    }

    #[test]
    fn each_kind_asks_for_what_it_cannot_run_without() {
        assert_eq!(fields(&Spec::new("x", Kind::Http)), ["url"]);
        assert_eq!(fields(&Spec::new("x", Kind::Command)), ["command"]);
        assert_eq!(fields(&Spec::new("x", Kind::Builtin)), ["name"]);
        assert!(fields(&Spec::new("echo", Kind::Builtin)).is_empty());
    }

    #[test]
    fn names_are_parts_joined_by_dots_and_the_environment_has_names_that_may_not_pass() {
        for name in ["", ".", "a.", ".a", "a..b", "a b", "é", "a>b", "a*", &"x".repeat(65)] {
            let spec = Spec { command: vec!["true".into()], ..Spec::new(name, Kind::Command) };
            assert_eq!(fields(&spec), ["name"], "{name:?}");
        }
        for name in ["", "A B", "A=B", "1A", "LD_PRELOAD", "INSTAR_CALL_ID"] {
            let env = vec![name.to_owned()];
            let spec = Spec { command: vec!["true".into()], env, ..Spec::new("clock.now-1_x", Kind::Command) };
            assert_eq!(fields(&spec), ["env"], "{name:?}");
        }
    }
}
