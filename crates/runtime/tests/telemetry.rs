//! A span really leaves the process: the exporter, its client and its thread work together.

use instar_runtime::config::{LogFormat, TelemetryConfig};
use instar_runtime::telemetry::{self, LinkKind, TelemetryError, link, set_parent, traceparent_of};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;
use std::time::Duration;

const CHILD: &str = "INSTAR_TELEMETRY_CHILD";
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const LINKED: &str = "00-1af7651916cd43dd8448eb211c80319c-c7ad6b7169203331-01";

/// Request line and body of every request, each answered with an empty success.
fn receiver() -> (String, mpsc::Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (tell, requests) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            let (mut first, mut length) = (String::new(), 0);
            reader.read_line(&mut first).unwrap();
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                if line.trim().is_empty() {
                    break;
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
            let _ = tell.send((first, body));
        }
    });
    (url, requests)
}

fn contains(body: &[u8], part: &[u8]) -> bool {
    body.windows(part.len()).any(|window| window == part)
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
}

#[tokio::test]
async fn a_span_arrives_at_the_collector_with_its_parent_link_and_resource() {
    let (endpoint, requests) = receiver();
    let config = TelemetryConfig {
        // The log is off: tracing must not depend on it.
        log_filter: Some("off".into()),
        log_format: LogFormat::Json,
        otlp_endpoint: Some(endpoint),
        ..TelemetryConfig::default()
    };
    let guard = telemetry::init("agent-worker", &config).unwrap();
    assert!(guard.exports());
    assert!(matches!(telemetry::init("again", &config), Err(TelemetryError::Twice)));

    let span = tracing::info_span!("a_span_to_arrive", instar.turn.id = "trn_1");
    assert!(set_parent(&span, PARENT));
    assert!(link(&span, LINKED, LinkKind::CreatedBy));
    let told = traceparent_of(&span).unwrap();
    drop(span);
    assert!(guard.shutdown().await);

    let (first, body) = requests.recv_timeout(Duration::from_secs(5)).unwrap();
    assert!(first.starts_with("POST /v1/traces "), "{first}");
    for text in ["a_span_to_arrive", "instar.turn.id", "service.version", "service.instance.id", "created_by"] {
        assert!(contains(&body, text.as_bytes()), "{text} is missing");
    }
    let parts: Vec<_> = told.split('-').collect();
    assert_eq!(parts[1], "0af7651916cd43dd8448eb211c80319c", "the trace is the parent's");
    for id in [parts[1], parts[2], "b7ad6b7169203331", "1af7651916cd43dd8448eb211c80319c"] {
        assert!(contains(&body, &bytes(id)), "id {id} is missing");
    }
}

/// Not a test by itself: the process that the next test starts, with nothing configured but the
/// log's format.
#[tokio::test]
async fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let config = TelemetryConfig { log_format: LogFormat::Json, ..TelemetryConfig::default() };
    let guard = telemetry::init("api", &config).unwrap();
    tracing::info_span!("a_span_by_environment").in_scope(|| tracing::info!(answer = 42, "a line for the log"));
    assert!(guard.shutdown().await);
}

#[test]
fn the_environment_alone_names_the_collector_and_the_log_goes_to_standard_error() {
    let (endpoint, requests) = receiver();
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(CHILD, "1")
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        .env_remove("RUST_LOG")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let (first, body) = requests.recv_timeout(Duration::from_secs(5)).unwrap();
    assert!(first.starts_with("POST /v1/traces "), "{first}");
    assert!(contains(&body, b"a_span_by_environment") && contains(&body, b"instar-api"));

    let log = String::from_utf8(output.stderr).unwrap();
    let line = log.lines().find(|line| line.contains("a line for the log")).unwrap_or_else(|| panic!("{log}"));
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!((&line["level"], &line["answer"]), (&"INFO".into(), &42.into()), "{line}");
    assert!(!contains(&output.stdout, b"a line for the log"));
}
