//! One struct per concern. A duration is in milliseconds (`…_ms`), a size in bytes (`…_bytes…`).

use super::Secret;
use serde::{Deserialize, Deserializer};
use std::net::{Ipv4Addr, SocketAddr};
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
    /// How long the writer waits for an answer before the connection counts as lost, ms. Default 15 000.
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
    /// How long a server may take to appear at start, ms. Default 10 000.
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
    /// How long an interrupt waits for a safe boundary before it cuts the answer off, ms. Default 10 000.
    pub interrupt_grace_ms: u64,
    /// How long a call waits for its approval, ms. Default 86 400 000 (a day); 0 for ever.
    pub approval_timeout_ms: u64,
    /// How often an answer that streams is kept, ms. Default 1 000.
    pub checkpoint_ms: u64,
    /// How long the record of a provider call's begin waits to be written with the answer, ms. Default 20; 0:
    /// it is written at once.
    pub fold_ms: u64,
    /// Messages that a provider call may see at most. Default 40.
    pub history_messages_max: u32,
}

/// `[runner]`
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunnerConfig {
    /// Tool calls in flight per tool-runner. Default 64.
    pub concurrency: u32,
    /// Where `http` and `http_fetch` tools may reach: `{ allow = [hosts], ports = [...] }`. Default: nowhere.
    pub egress: serde_json::Value,
    /// How `command` tools are confined. Default: as tightly as the kernel allows, or not at all started.
    pub sandbox: serde_json::Value,
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
    /// Address and port of `/livez`, `/readyz` and `/metrics`. Default: none of its own; the API
    /// answers them on `api.listen` in any case.
    #[serde(deserialize_with = "address_given")]
    pub listen: Option<SocketAddr>,
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
            connect_timeout_ms: 10_000,
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
        Self { listen, body_bytes_max: 1 << 20, request_timeout_ms: 30_000, streams_max: 1_024 }
    }
}

impl Default for WorkerConfig {
    fn default() -> Self {
        Self {
            concurrency: 256,
            turn_deadline_ms: 300_000,
            interrupt_grace_ms: 10_000,
            approval_timeout_ms: 24 * 3_600_000,
            checkpoint_ms: 1_000,
            fold_ms: 20,
            history_messages_max: 40,
        }
    }
}

impl Default for RunnerConfig {
    fn default() -> Self {
        Self { concurrency: 64, egress: serde_json::Value::Null, sandbox: serde_json::Value::Null }
    }
}

impl Default for LeaseConfig {
    fn default() -> Self {
        Self { ttl_ms: 3_000 }
    }
}

impl Default for HealthConfig {
    fn default() -> Self {
        Self { listen: None, check_timeout_ms: 2_000 }
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

fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    let wanted = "must be address:port with the address in numbers, such as 127.0.0.1:7700 or [::]:7700";
    String::deserialize(deserializer)?.parse().map_err(|_| serde::de::Error::custom(wanted))
}

fn address_given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    address(deserializer).map(Some)
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
