//! A server as the operator configures it.

use crate::sandbox::Mode;
use crate::secret;
use crate::spec::Problem;
use instar_core::decide::Approval;
use reqwest::header::{HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Room for a dot and a tool's own name within a name's 64 characters.
const NAME_BYTES_MAX: usize = 32;
const TOOLS_MAX: usize = 2_000;
const HOUR_MS: u64 = 3_600_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// A program that is spoken to on its standard input and output.
    Stdio,
    /// Streamable HTTP.
    Http,
}

/// Which definitions count as accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pin {
    /// The first list that the server ever gave; what differs from it waits for a person's word.
    #[default]
    First,
    /// Those whose hash is in `pins`, and no other.
    Given,
    /// Whatever the server says now: for servers that are your own.
    None,
}

/// The operator's word on one tool, which counts more than the server's.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Override {
    pub side_effects: Option<bool>,
    pub idempotent: Option<bool>,
    pub requires_approval: Option<Approval>,
    pub timeout_ms: Option<u64>,
    pub max_output_bytes: Option<usize>,
    pub parallel_safe: Option<bool>,
    /// Arguments, texts by their names, that the model may give as `secret://account/FIELD`.
    pub secret_arguments: Vec<String>,
}

/// Its `Debug` shows no value that may hold a secret.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerConfig {
    /// What its tools' names begin with.
    pub name: String,
    pub transport: Transport,

    /// stdio: the argument vector. No shell reads it.
    #[serde(default)]
    pub command: Vec<String>,
    /// Names of variables that the server gets from the runner's environment besides PATH, HOME, LANG, TZ,
    /// TMPDIR and USER.
    #[serde(default)]
    pub env: Vec<String>,
    /// Further variables; a value may contain references such as `secret://name`.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Where it runs; a fresh empty folder if absent.
    #[serde(default)]
    pub folder: Option<PathBuf>,
    /// `required`: behind the walls of command tools, with `folder` to write to and `read_paths` to read.
    #[serde(default = "off")]
    pub sandbox: Mode,
    #[serde(default)]
    pub read_paths: Vec<PathBuf>,
    /// Whether it may open internet sockets behind those walls.
    #[serde(default = "yes")]
    pub network: bool,
    /// Processes that it may have at once.
    #[serde(default = "processes_max")]
    pub processes_max: u64,

    /// http: where it is. It and the headers may contain references to secrets.
    #[serde(default)]
    pub url: Option<String>,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,

    #[serde(default = "yes")]
    pub enabled: bool,
    /// Names of its tools, as the server has them, `*` at the end standing for any rest. Empty: all.
    #[serde(default)]
    pub allow: Vec<String>,
    /// Those left out of what is allowed.
    #[serde(default)]
    pub deny: Vec<String>,
    /// Whether readOnlyHint, idempotentHint and destructiveHint are believed.
    #[serde(default)]
    pub trust_annotations: bool,
    #[serde(default)]
    pub requires_approval: Approval,
    #[serde(default)]
    pub pin: Pin,
    /// Hashes by the tools' names as the server has them, for `pin = "given"`.
    #[serde(default)]
    pub pins: BTreeMap<String, String>,
    /// By the tools' names as the server has them.
    #[serde(default)]
    pub overrides: BTreeMap<String, Override>,

    /// How long a call may take.
    #[serde(default = "timeout_ms")]
    pub timeout_ms: u64,
    /// How long the server may take until it has said what it offers.
    #[serde(default = "start_timeout_ms")]
    pub start_timeout_ms: u64,
    /// How often it is asked for its tools without having said that they changed.
    #[serde(default = "refresh_ms")]
    pub refresh_ms: u64,
    #[serde(default = "max_output_bytes")]
    pub max_output_bytes: usize,
    /// Calls in flight at once.
    #[serde(default = "concurrency")]
    pub concurrency: usize,
    /// Tools that it may offer.
    #[serde(default = "tools_max")]
    pub tools_max: usize,
    /// The largest message that is read from it.
    #[serde(default = "message_bytes_max")]
    pub message_bytes_max: usize,
}

const fn yes() -> bool {
    true
}
const fn off() -> Mode {
    Mode::Off
}
const fn processes_max() -> u64 {
    256
}
const fn timeout_ms() -> u64 {
    120_000
}
const fn start_timeout_ms() -> u64 {
    30_000
}
const fn refresh_ms() -> u64 {
    60_000
}
const fn max_output_bytes() -> usize {
    100_000
}
const fn concurrency() -> usize {
    16
}
const fn tools_max() -> usize {
    256
}
const fn message_bytes_max() -> usize {
    8 << 20
}

impl fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerConfig").field("name", &self.name).field("transport", &self.transport).finish()
    }
}

impl ServerConfig {
    pub(crate) fn start_timeout(&self) -> Duration {
        Duration::from_millis(self.start_timeout_ms)
    }

    /// Whether the server's tool of this name is wanted at all.
    pub(crate) fn wants(&self, tool: &str) -> bool {
        let listed = |list: &[String]| list.iter().any(|pattern| matches(pattern, tool));
        (self.allow.is_empty() || listed(&self.allow)) && !listed(&self.deny)
    }

    /// Every problem at once.
    pub fn problems(&self) -> Vec<Problem> {
        let mut found = Vec::new();
        let mut say = |field: &str, message: String| found.push(Problem { field: field.to_owned(), message });
        let plain = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        if self.name.is_empty() || self.name.len() > NAME_BYTES_MAX || !plain(&self.name) {
            say("name", format!("must be letters, digits, _ and -, at most {NAME_BYTES_MAX} characters"));
        }
        match self.transport {
            Transport::Stdio => stdio(self, &mut say),
            Transport::Http => http(self, &mut say),
        }
        let values = self.environment.iter().map(|(name, value)| (format!("environment.{name}"), value));
        let values = values.chain(self.headers.iter().map(|(name, value)| (format!("headers.{name}"), value)));
        for (field, value) in values.chain(self.url.iter().map(|url| ("url".to_owned(), url))) {
            match secret::references(value) {
                Err(message) => say(&field, message.to_owned()),
                Ok(found) if found.iter().any(secret::Reference::is_accounts) => {
                    say(&field, "cannot have an account's secret: all agents share the server".to_owned());
                }
                Ok(_) => {}
            }
        }
        for pattern in self.allow.iter().chain(&self.deny) {
            if pattern.is_empty() || pattern.trim_end_matches('*').contains('*') {
                say("allow", format!("{pattern:?}: a * may only stand at the end"));
            }
        }
        if (self.pin == Pin::Given) == self.pins.is_empty() {
            say("pins", "go with pin = \"given\": give both or neither".to_owned());
        }
        let mut range = |field: &str, value: u64, low: u64, high: u64| {
            if !(low..=high).contains(&value) {
                say(field, format!("is {value}; allowed is {low} to {high}"));
            }
        };
        range("timeout_ms", self.timeout_ms, 1, HOUR_MS);
        range("start_timeout_ms", self.start_timeout_ms, 100, HOUR_MS);
        range("refresh_ms", self.refresh_ms, 100, 24 * HOUR_MS);
        range("max_output_bytes", self.max_output_bytes as u64, 256, 10 << 20);
        range("concurrency", self.concurrency as u64, 1, 10_000);
        range("tools_max", self.tools_max as u64, 1, TOOLS_MAX as u64);
        range("message_bytes_max", self.message_bytes_max as u64, 1 << 10, 256 << 20);
        range("processes_max", self.processes_max, 1, 4_000);
        found
    }
}

fn stdio(server: &ServerConfig, say: &mut impl FnMut(&str, String)) {
    if server.command.first().is_none_or(String::is_empty) {
        say("command", "is needed for transport stdio: the program and its arguments".to_owned());
    }
    if server.command.iter().chain(server.environment.values()).any(|word| word.contains('\0')) {
        say("command", "and environment must not contain NUL".to_owned());
    }
    for name in server.env.iter().chain(server.environment.keys()) {
        let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if name.is_empty() || !plain || name.as_bytes()[0].is_ascii_digit() {
            say("env", format!("{name:?} is not a variable's name"));
        } else if name.starts_with("LD_") || name.starts_with("INSTAR_") {
            say("env", format!("{name} may not be passed on"));
        }
    }
    if server.url.is_some() || !server.headers.is_empty() {
        say("url", "and headers are only for transport http".to_owned());
    }
}

fn http(server: &ServerConfig, say: &mut impl FnMut(&str, String)) {
    match server.url.as_deref().map(reqwest::Url::parse) {
        None => say("url", "is needed for transport http".to_owned()),
        Some(Err(error)) => say("url", format!("is not a URL: {error}")),
        Some(Ok(url)) if !matches!(url.scheme(), "http" | "https") => {
            say("url", "must begin with http:// or https://".to_owned());
        }
        Some(Ok(url)) if !url.username().is_empty() || url.password().is_some() => {
            say("url", "must not contain a user or password; use headers with secret://name".to_owned());
        }
        Some(Ok(_)) => {}
    }
    for (name, value) in &server.headers {
        let known = HeaderName::from_str(name).ok();
        let ours = |name: &HeaderName| name.as_str().starts_with("mcp-") || name == "accept" || name == "host";
        match known {
            None => say(&format!("headers.{name}"), "is not a header name".to_owned()),
            Some(name) if ours(&name) => say(&format!("headers.{name}"), "is set by the runner".to_owned()),
            Some(_) if HeaderValue::from_str(value).is_err() => {
                say(&format!("headers.{name}"), "has a value that cannot be sent".to_owned());
            }
            Some(_) => {}
        }
    }
    if !server.command.is_empty() || !server.env.is_empty() || !server.environment.is_empty() {
        say("command", "and its environment are only for transport stdio".to_owned());
    }
}

fn matches(pattern: &str, tool: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == tool, |begin| tool.starts_with(begin))
}

/// The entries of `[[mcp_servers]]`; the error has every one that is wrong.
pub fn read(entries: &[Value]) -> Result<Vec<ServerConfig>, Vec<String>> {
    let (mut servers, mut problems, mut names) = (Vec::new(), Vec::new(), BTreeSet::new());
    for (at, entry) in entries.iter().enumerate() {
        match ServerConfig::deserialize(entry) {
            Ok(server) => {
                problems.extend(server.problems().iter().map(|problem| format!("mcp_servers[{at}]: {problem}")));
                if !names.insert(server.name.replace('-', "_").to_ascii_lowercase()) {
                    problems.push(format!("mcp_servers[{at}]: name: is too like an earlier server's"));
                }
                servers.push(server);
            }
            // What was written is not repeated: it may be a key in the wrong place.
            Err(error) => problems.push(format!("mcp_servers[{at}]: {}", without_text(&error.to_string()))),
        }
    }
    if problems.is_empty() { Ok(servers) } else { Err(problems) }
}

fn without_text(error: &str) -> String {
    match (error.find("string \""), error.rfind("\", expected")) {
        (Some(from), Some(to)) if from < to => format!("{}string{}", &error[..from], &error[to + 1..]),
        _ => error.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_the_public_contract_shows_is_enough() {
        let entry = json!({"name": "clock", "transport": "stdio", "command": ["mcp-server-time"]});
        let servers = read(&[entry]).unwrap();
        assert_eq!((servers[0].timeout_ms, servers[0].pin, servers[0].trust_annotations), (120_000, Pin::First, false));
        assert!(servers[0].wants("anything"));
    }

    #[test]
    fn every_problem_of_every_server_is_told_at_once_and_no_value_is_repeated() {
        let problems = read(&[
            json!({"name": "a.b", "transport": "stdio", "url": "http://h/", "env": ["LD_PRELOAD"]}),
            json!({"name": "web", "transport": "http", "url": "ftp://h/", "command": ["x"], "timeout_ms": 0}),
            json!({"name": "odd", "transport": "sse"}),
            json!({"name": "key", "transport": "http", "url": "http://h/", "headers": "s3cr3t-value"}),
            json!({"name": "acc", "transport": "http", "url": "http://h/", "headers": {"a": "secret://account/x"}}),
            json!({"name": "pin", "transport": "http", "url": "http://h/", "pin": "given"}),
        ])
        .unwrap_err();
        let with = |words: &str| problems.iter().filter(|problem| problem.contains(words)).count();
        assert_eq!(with("mcp_servers[0]"), 4, "{problems:#?}");
        assert_eq!(with("mcp_servers[1]"), 3, "{problems:#?}");
        for at in 2..6 {
            assert_eq!(with(&format!("mcp_servers[{at}]")), 1, "{problems:#?}");
        }
        assert_eq!(with("s3cr3t"), 0, "{problems:#?}");
    }

    #[test]
    fn a_tool_is_wanted_if_it_is_allowed_and_not_denied() {
        let entry = json!({"name": "files", "transport": "stdio", "command": ["x"], "allow": ["read_*", "list"],
            "deny": ["read_secret"]});
        let server = &read(&[entry]).unwrap()[0];
        assert!(server.wants("read_file") && server.wants("list"));
        assert!(!server.wants("read_secret") && !server.wants("write") && !server.wants("lists"));
    }
}
