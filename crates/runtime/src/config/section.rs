//! One struct per concern. A duration is in milliseconds (`…_ms`), a size in bytes (`…_bytes…`).

use super::Secret;
use instar_core::budget::Cost;
use instar_core::decide::PROVIDER_CALLS_MAX;
use serde::{Deserialize, Deserializer};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// `[database]`
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DatabaseConfig {
    /// `postgres://…`, or `sqlite://path` for one process only. Default: none; `instar dev` then
    /// keeps a SQLite file in its data folder.
    pub url: Option<Secret>,
    /// Connections for reading; the writer has its own. Default 8.
    pub readers_max: u32,
    /// Lanes of the transition writer; SQLite always has one. Default 1: a second would halve the batches.
    pub writers: u32,
    /// How long a query waits for a connection, ms. Default 3 000.
    pub acquire_timeout_ms: u64,
    /// How long an answer may take before the connection counts as lost, ms; a query that takes longer is ended.
    /// Default 15 000.
    pub round_trip_max_ms: u64,
}

/// `[nats]`
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NatsConfig {
    /// `nats://…` or `tls://…`, several separated by commas. Default: none, the bus inside the
    /// process, for `instar dev` only.
    pub url: Option<Secret>,
    /// First token of every subject and stream; two installations on one server differ here. Default `instar`.
    pub prefix: String,
    /// How long a start waits for a server, ms; then it goes on without. Default 2000.
    pub connect_timeout_ms: u64,
    /// A NATS credentials file. Default: none.
    pub credentials_file: Option<PathBuf>,
    /// A root certificate besides the system's. Default: none.
    pub root_certificate_file: Option<PathBuf>,
    /// Client certificate; needs `key_file`. Default: none.
    pub certificate_file: Option<PathBuf>,
    /// Key of the client certificate. Default: none.
    pub key_file: Option<PathBuf>,
    /// How long a publish may wait for its receipt, ms. Default 5 000.
    pub publish_timeout_ms: u64,
    /// The largest message, bytes. Default 524 288; the server's own limit holds as well.
    pub payload_bytes_max: u32,
}

/// `[api]`
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ApiConfig {
    /// Address and port. Default `127.0.0.1:7700`.
    #[serde(deserialize_with = "address")]
    pub listen: SocketAddr,
    /// The largest request body, bytes. Default 1 048 576.
    pub body_bytes_max: u32,
    /// How long a request other than a stream may take, ms. Default 30 000.
    pub request_timeout_ms: u64,
    /// Event streams open at once. Default 1 024.
    pub streams_max: u32,
    /// Requests of one key per second and process, as many at once. Default 0: any number.
    pub requests_per_second_max: u32,
    /// Requests with keys that open nothing, of one address per minute and process. Default 100; 0: any number.
    pub failed_keys_per_minute_max: u32,
}

/// `[auth]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuthConfig {
    /// The environment variable that holds an admin key, stored hashed at first start. Default:
    /// none; distributed services then refuse to start.
    pub bootstrap_key_env: Option<String>,
}

/// `[worker]`
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerConfig {
    /// Turns in flight per agent-worker. Default 256.
    pub concurrency: u32,
    /// How long a turn may take, waits for people excluded, ms. Default 300 000.
    pub turn_deadline_ms: u64,
    /// How long a worker that does not react is waited for when a turn that hears its provider was asked to end; then
    /// the turn is ended without it, ms. Default 2 000.
    pub interrupt_grace_ms: u64,
    /// The same of a turn whose tools run and are not ended, ms. Default 5 000.
    pub stop_grace_ms: u64,
    /// How long a call waits for its approval, ms. Default 86 400 000 (a day); 0 for ever.
    pub approval_timeout_ms: u64,
    /// How often an answer that streams is kept, ms. Default 1 000.
    pub checkpoint_ms: u64,
    /// How long the record of a provider call's begin waits to be written with the answer, ms. Default 20; 0:
    /// it is written at once.
    pub fold_ms: u64,
    /// Messages that a provider call may see at most. Default 40.
    pub history_messages_max: u32,
    /// What is older than that is summarised, by an extra provider call for every half as many messages. Default true;
    /// false: it is forgotten.
    pub history_summaries: bool,
    /// How often the same call, with the same arguments, is made in a row. Then the model is told, and a turn that
    /// goes on all the same ends. Default 5; 0: any number.
    pub repeated_calls_max: u32,
    /// Provider calls of one turn, unless its agent says otherwise; it then ends with what it has. Default 10.
    pub provider_calls_max: u32,
}

/// `[runner]`
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunnerConfig {
    /// Tool calls in flight per tool-runner. Default 64.
    pub concurrency: u32,
    /// Where `http` and `http_fetch` tools may reach: `{ allow = [hosts], ports = [...] }`. Default: nowhere.
    pub egress: serde_json::Value,
    /// How long a start waits for MCP servers to say what they offer, ms; slower ones come later. Default 15 000.
    pub settle_ms: u64,
    /// How `command` tools are confined. Default: as tightly as the kernel allows, or not at all started.
    pub sandbox: serde_json::Value,
    /// Where sessions have the folders that `command` tools with a `workspace` work in; all tool-runners must see the
    /// same. Default: none; `instar dev` has one in its data folder.
    pub workspaces: Option<PathBuf>,
}

/// `[scheduler]`
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SchedulerConfig {
    /// How many agents' drives may fail in the window before their session is suspended. Default 5; 0: any number.
    pub error_threshold: u32,
    /// For how long such an error counts, ms. Default 600 000.
    pub error_window_ms: u64,
    /// A turn that streams and of which nothing was heard for this long is ended, ms. Default 300 000.
    pub watchdog_ms: u64,
    /// How long an autonomous agent rests between two turns, ms. Default 2 000.
    pub nudge_pause_ms: u64,
    /// How long what a closing session contains may take to end by itself, ms; then it is ended. Default 30 000.
    pub close_grace_ms: u64,
}

/// `[agents]`: agents that agents make.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentsConfig {
    /// Children of one agent that work at the same time; the tasks of others wait. Default 10.
    pub children_at_work_max: u32,
    /// Children of one agent that live at the same time. Default 20.
    pub children_max: u32,
    /// Generations below an agent that a person made. Default 3.
    pub depth_max: u32,
    /// Turns in a row that letters of other agents may cause before a person says something; then the agent rests.
    /// Default 50; 0: any number.
    pub letter_turns_max: u32,
    /// Agents of one session that have not ended. Default 0: any number.
    pub session_max: u32,
    /// Turns of an agent in a day (UTC) that nobody asked for, or that only messages of other agents did; then it rests
    /// until the day is over, or until an approver raises its own ceiling. Default 2 000; 0: any number.
    pub turns_per_day_max: u32,
    /// What such turns may cost, as an amount such as "2.50" in the currency of the models' prices. Default: any amount.
    pub cost_per_day_max: Option<Cost>,
    /// The model of a child by its role, where the call names none. Default: none, the parent's.
    pub models: std::collections::BTreeMap<String, String>,
}

impl Default for AgentsConfig {
    fn default() -> Self {
        Self {
            children_at_work_max: 10,
            children_max: 20,
            depth_max: 3,
            letter_turns_max: 50,
            session_max: 0,
            turns_per_day_max: 2_000,
            cost_per_day_max: None,
            models: Default::default(),
        }
    }
}

/// `[assets]`
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AssetsConfig {
    /// A folder, `file:///folder` or `s3://bucket/prefix` for content that is too large for a row. Default: where
    /// archives are kept, if anywhere.
    pub url: Option<String>,
    /// Content up to this size stays in its row, bytes. Default 65536.
    pub inline_bytes_max: u32,
    /// The largest content of an asset, bytes. Default 67108864.
    pub bytes_max: u32,
}

/// `[plans]`: goals that agents carry out.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlansConfig {
    /// Agents of one role in a session up to which more are made for tasks that wait, where the plan does not say.
    /// Default 4; 0: none are made.
    pub workers_max: u32,
    /// How long an agent may take to begin a task before another one gets it, ms. Default 60 000.
    pub start_timeout_ms: u64,
}

impl Default for PlansConfig {
    fn default() -> Self {
        Self { workers_max: 4, start_timeout_ms: 60_000 }
    }
}

/// `[archive]`
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ArchiveConfig {
    /// Where logs of closed sessions go: a folder, `file:///folder` or `s3://bucket/prefix`, the same for api and
    /// scheduler. Default: nowhere; `instar dev` has a folder beside its database.
    pub url: Option<String>,
    /// Of a server that speaks S3 and is not Amazon's. Default: Amazon's. Credentials come from the
    /// environment (`AWS_ACCESS_KEY_ID`, …).
    pub endpoint: Option<String>,
    /// The bucket's region. Default: that of the environment.
    pub region: Option<String>,
    /// A session that was closed for this long is archived by itself, ms. Default 0: only when asked to.
    pub after_ms: u64,
    /// The largest log that can be brought in, bytes as they are sent. Default 67 108 864.
    pub import_bytes_max: u32,
}

/// `[lease]`
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LeaseConfig {
    /// How long a silent process keeps its work, ms; renewed every third of it. Default 3 000.
    pub ttl_ms: u64,
}

/// `[health]`
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HealthConfig {
    /// Address and port of `/livez`, `/readyz` and `/metrics`. Default: `host` and a port for each service; the
    /// API answers them on `api.listen` in any case.
    #[serde(deserialize_with = "address_given")]
    pub listen: Option<SocketAddr>,
    /// The address for the ports of each service, so that all can share a configuration. Default `127.0.0.1`.
    pub host: IpAddr,
    /// How long one readiness check may take, ms. Default 2 000.
    pub check_timeout_ms: u64,
}

/// `[drain]`
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DrainConfig {
    /// How long work in flight may go on after SIGTERM, ms. Default 25 000: Kubernetes kills after 30 s.
    pub grace_ms: u64,
}

/// `[secrets]`
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SecretsConfig {
    /// The environment variable that holds the key under which the secrets of accounts are stored: 64
    /// hexadecimal digits. Default: none; no account can be stored then, unless `key_file` is given.
    pub key_env: Option<String>,
    /// A file that holds it instead, readable by its owner only. Default: none; `instar dev` makes one.
    pub key_file: Option<PathBuf>,
    /// Environment variables of the tool-runner that tools may name as `secret://env/NAME`. Default: none.
    #[serde(deserialize_with = "words")]
    pub env: Vec<String>,
    /// A folder whose files tools and accounts may name as `secret://file/NAME`, such as one that an
    /// orchestrator mounts. Default: none.
    pub folder: Option<PathBuf>,
    /// How long an agent keeps an account that it does not use, ms. Default 86 400 000 (a day).
    pub account_lease_ms: u64,
    /// How long a call may wait for an account, ms. Default 3 600 000 (an hour).
    pub account_wait_ms: u64,
}

/// `[telemetry]`
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetryConfig {
    /// Which log lines to write, as `RUST_LOG` spells it. Default: `RUST_LOG`, else `info`.
    pub log_filter: Option<String>,
    /// `text` or `json`, always to standard error. Default `text`.
    pub log_format: LogFormat,
    /// Where spans go, `http(s)://host:4318`. Default: `OTEL_EXPORTER_OTLP_ENDPOINT`, else nowhere.
    pub otlp_endpoint: Option<String>,
    /// The share of traces begun here that are kept, 0 to 1. Default: `OTEL_TRACES_SAMPLER`, else all.
    pub sample_ratio: Option<f64>,
    /// How long the last spans may take to leave when the process ends, ms. Default 3 000.
    pub flush_timeout_ms: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

impl Default for DatabaseConfig {
    fn default() -> Self {
        Self { url: None, readers_max: 8, writers: 1, acquire_timeout_ms: 3_000, round_trip_max_ms: 15_000 }
    }
}

impl Default for NatsConfig {
    fn default() -> Self {
        Self {
            url: None,
            prefix: "instar".into(),
            connect_timeout_ms: 2_000,
            credentials_file: None,
            root_certificate_file: None,
            certificate_file: None,
            key_file: None,
            publish_timeout_ms: 5_000,
            payload_bytes_max: 512 << 10,
        }
    }
}

impl Default for ApiConfig {
    fn default() -> Self {
        let listen = (Ipv4Addr::LOCALHOST, 7700).into();
        let (body_bytes_max, request_timeout_ms, streams_max) = (1 << 20, 30_000, 1_024);
        let (requests_per_second_max, failed_keys_per_minute_max) = (0, 100);
        Self {
            listen,
            body_bytes_max,
            request_timeout_ms,
            streams_max,
            requests_per_second_max,
            failed_keys_per_minute_max,
        }
    }
}

impl Default for WorkerConfig {
    fn default() -> Self {
        Self {
            concurrency: 256,
            turn_deadline_ms: 300_000,
            interrupt_grace_ms: 2_000,
            stop_grace_ms: 5_000,
            approval_timeout_ms: 24 * 3_600_000,
            checkpoint_ms: 1_000,
            fold_ms: 20,
            history_messages_max: 40,
            history_summaries: true,
            repeated_calls_max: 5,
            provider_calls_max: PROVIDER_CALLS_MAX,
        }
    }
}

impl Default for RunnerConfig {
    fn default() -> Self {
        let (egress, sandbox) = (serde_json::Value::Null, serde_json::Value::Null);
        Self { concurrency: 64, egress, settle_ms: 15_000, sandbox, workspaces: None }
    }
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self {
            error_threshold: 5,
            error_window_ms: 600_000,
            watchdog_ms: 300_000,
            nudge_pause_ms: 2_000,
            close_grace_ms: 30_000,
        }
    }
}

impl Default for SecretsConfig {
    fn default() -> Self {
        Self {
            key_env: None,
            key_file: None,
            env: Vec::new(),
            folder: None,
            account_lease_ms: 24 * 3_600_000,
            account_wait_ms: 3_600_000,
        }
    }
}

impl Default for ArchiveConfig {
    fn default() -> Self {
        Self { url: None, endpoint: None, region: None, after_ms: 0, import_bytes_max: 64 << 20 }
    }
}

impl Default for AssetsConfig {
    fn default() -> Self {
        Self { url: None, inline_bytes_max: 64 << 10, bytes_max: 64 << 20 }
    }
}

impl Default for LeaseConfig {
    fn default() -> Self {
        Self { ttl_ms: 3_000 }
    }
}

impl Default for HealthConfig {
    fn default() -> Self {
        Self { listen: None, host: Ipv4Addr::LOCALHOST.into(), check_timeout_ms: 2_000 }
    }
}

impl Default for DrainConfig {
    fn default() -> Self {
        Self { grace_ms: 25_000 }
    }
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self {
            log_filter: None,
            log_format: LogFormat::Text,
            otlp_endpoint: None,
            sample_ratio: None,
            flush_timeout_ms: 3_000,
        }
    }
}

/// A list; in a variable, where lists cannot be written, words with commas between them.
fn words<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Words {
        List(Vec<String>),
        Text(String),
    }
    Words::deserialize(deserializer).map(|words| match words {
        Words::List(list) => list,
        Words::Text(text) => text.split(',').map(|word| word.trim().to_owned()).filter(|w| !w.is_empty()).collect(),
    })
}

fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    let wanted = "must be address:port with the address in numbers, such as 127.0.0.1:7700 or [::]:7700";
    String::deserialize(deserializer)?.parse().map_err(|_| serde::de::Error::custom(wanted))
}

fn address_given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    address(deserializer).map(Some)
}

impl SchedulerConfig {
    pub fn nudge_pause(&self) -> Duration {
        Duration::from_millis(self.nudge_pause_ms)
    }
}

impl LeaseConfig {
    pub fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }
}

impl DrainConfig {
    pub fn grace(&self) -> Duration {
        Duration::from_millis(self.grace_ms)
    }
}
