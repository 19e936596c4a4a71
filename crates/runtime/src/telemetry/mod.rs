//! Logs to standard error, spans to a collector if one is named.
//!
//! Must not know: content. Prompts, arguments and tool output have no place in logs or spans; they
//! are in the database, under its rights.

mod context;
mod export;
pub mod name;

pub use context::{LinkKind, link, set_parent, traceparent_of};

use crate::config::{LogFormat, TelemetryConfig};
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use std::io::IsTerminal;
use std::sync::mpsc;
use std::time::Duration;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// Of the MCP library only what went wrong: at `debug` it shows what tools say. Of migrations too: the store says how
/// many there were.
const FILTER: &str = "info,rmcp=warn,sea_orm_migration=warn";
/// Sent by the exporter itself: traced, each export would cause the next.
const OWN_TRAFFIC: [&str; 5] = ["opentelemetry", "reqwest", "hyper", "hyper_util", "h2"];

#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error("the log filter cannot be read: {0}")]
    Filter(#[from] ParseError),
    #[error("spans cannot be exported: {0}")]
    Exporter(String),
    #[error("telemetry was already set up in this process")]
    Twice,
}

/// Sets up logs and spans for the whole process. `service` is a role's name, such as `api`. Keep the guard until the end of `main`, or the last spans are lost.
pub fn init(service: &str, config: &TelemetryConfig) -> Result<Guard, TelemetryError> {
    // The exporter's client has no TLS provider of its own. One may be there already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let fallback = || std::env::var("RUST_LOG").ok().filter(|text| !text.trim().is_empty());
    let wanted = config.log_filter.clone().or_else(fallback).unwrap_or_else(|| FILTER.into());
    let provider = export::provider(service, config)?;
    opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());

    let log = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal());
    let log = match config.log_format {
        LogFormat::Text => log.boxed(),
        LogFormat::Json => log.json().flatten_event(true).with_current_span(true).with_span_list(false).boxed(),
    };
    let spans = match &provider {
        // Their own filter: turning the log down must not turn tracing off.
        Some(provider) => Some(
            tracing_opentelemetry::layer()
                .with_tracer(provider.tracer("instar"))
                .with_threads(false)
                .with_location(false)
                .with_filter(span_filter()?),
        ),
        None => None,
    };
    let installed = tracing_subscriber::registry().with(log.with_filter(log_filter(&wanted)?)).with(spans).try_init();
    installed.map_err(|_| TelemetryError::Twice)?;
    Ok(Guard { provider, limit: Duration::from_millis(config.flush_timeout_ms) })
}

/// What a server of tools says goes into the log as its supervisor puts it, without secrets; the library that reads it
/// repeats it as it came.
fn log_filter(wanted: &str) -> Result<EnvFilter, ParseError> {
    filter(&format!("{wanted},rmcp=off"))
}

pub(crate) fn filter(text: &str) -> Result<EnvFilter, ParseError> {
    EnvFilter::builder().parse(text)
}

fn span_filter() -> Result<EnvFilter, ParseError> {
    let quiet: String = OWN_TRAFFIC.iter().map(|target| format!(",{target}=off")).collect();
    filter(&format!("{FILTER}{quiet}"))
}

/// Holds the exporter; when it goes, the spans that still wait are sent, within a time limit.
#[derive(Debug)]
pub struct Guard {
    provider: Option<SdkTracerProvider>,
    limit: Duration,
}

impl Guard {
    /// Whether spans are exported.
    pub fn exports(&self) -> bool {
        self.provider.is_some()
    }

    /// Sends what waits and ends the export. False if the time did not suffice or the collector
    /// refused: the rest is lost. Does not hold up the async runtime, as dropping the guard would.
    pub async fn shutdown(mut self) -> bool {
        let Some((done, limit)) = self.begin() else { return true };
        let outcome = tokio::task::spawn_blocking(move || done.recv_timeout(limit).unwrap_or(false));
        outcome.await.unwrap_or(false)
    }

    /// On a thread that nobody joins: with a collector that hangs, the SDK may stay in its retries
    /// for longer than we want to live.
    fn begin(&mut self) -> Option<(mpsc::Receiver<bool>, Duration)> {
        let (provider, limit) = (self.provider.take()?, self.limit);
        let (tell, done) = mpsc::sync_channel(1);
        let run = move || {
            let sent = provider.shutdown_with_timeout(limit).is_ok();
            // Nobody listens any more when the time was over.
            let _ = tell.send(sent);
        };
        match std::thread::Builder::new().name("telemetry-flush".into()).spawn(run) {
            Ok(_) => Some((done, limit)),
            Err(_) => None,
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some((done, limit)) = self.begin() {
            let _ = done.recv_timeout(limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry::trace::Tracer;
    use std::time::Instant;

    #[tokio::test]
    async fn a_collector_that_never_answers_delays_the_end_only_up_to_the_limit() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        // Connections are accepted by the kernel and never read.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", silent.local_addr().unwrap());
        let config = TelemetryConfig { otlp_endpoint: Some(endpoint), ..TelemetryConfig::default() };
        for by_drop in [false, true] {
            let provider = export::provider("test", &config).unwrap();
            provider.as_ref().unwrap().tracer("test").start("lost");
            let guard = Guard { provider, limit: Duration::from_millis(200) };
            let started = Instant::now();
            if by_drop {
                drop(guard)
            } else {
                assert!(!guard.shutdown().await)
            }
            assert!(started.elapsed() < Duration::from_secs(2), "took {:?}", started.elapsed());
        }
    }

    #[tokio::test]
    async fn without_an_endpoint_nothing_is_exported() {
        if std::env::var_os("OTEL_EXPORTER_OTLP_ENDPOINT").is_none() {
            let guard = Guard {
                provider: export::provider("test", &TelemetryConfig::default()).unwrap(),
                limit: Duration::ZERO,
            };
            assert!(!guard.exports());
            assert!(guard.shutdown().await);
        }
    }

    #[test]
    fn the_traffic_of_the_exporter_is_not_traced() {
        let shown = span_filter().unwrap().to_string();
        assert!(shown.contains("reqwest=off") && shown.contains("info"), "{shown}");
    }
}
