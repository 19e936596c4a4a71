//! The three pages over real HTTP.

use instar_runtime::drain::Drain;
use instar_runtime::health::{Health, recorder};
use instar_runtime::telemetry::name::metric;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const WITHIN: Duration = Duration::from_millis(200);

async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

#[tokio::test]
async fn readiness_names_the_checks_that_fail_and_keeps_the_reason() {
    let up = Arc::new(AtomicBool::new(false));
    let seen = up.clone();
    let health = Health::new(Drain::new(), WITHIN)
        .check("database", move || {
            let up = seen.load(Ordering::SeqCst);
            async move { if up { Ok(()) } else { Err("password of admin was refused") } }
        })
        .check("bus", || async { Ok::<(), String>(()) });
    let address = health.serve(loopback()).await.unwrap();

    assert_eq!(get(address, "/readyz").await, (503, r#"{"failing":["database"],"ready":false}"#.into()));
    assert_eq!(get(address, "/livez").await.0, 200, "a process is alive without its database");
    up.store(true, Ordering::SeqCst);
    assert_eq!(get(address, "/readyz").await, (200, r#"{"ready":true}"#.into()));
}

#[tokio::test]
async fn a_check_that_hangs_fails_in_time() {
    let health = Health::new(Drain::new(), WITHIN).check("bus", std::future::pending::<Result<(), String>>);
    let address = health.serve(loopback()).await.unwrap();
    let started = Instant::now();
    assert_eq!(get(address, "/readyz").await.0, 503);
    assert!(started.elapsed() < 10 * WITHIN, "took {:?}", started.elapsed());
}

#[tokio::test]
async fn a_draining_process_is_alive_and_not_ready() {
    let drain = Drain::new();
    let address = Health::new(drain.clone(), WITHIN).serve(loopback()).await.unwrap();
    assert_eq!(get(address, "/readyz").await.0, 200);
    drain.begin();
    assert_eq!(get(address, "/readyz").await, (503, r#"{"failing":["draining"],"ready":false}"#.into()));
    assert_eq!(get(address, "/livez").await.0, 200);
}

#[tokio::test]
async fn metrics_are_shown_as_prometheus_expects_with_units_and_buckets() {
    recorder().unwrap();
    metrics::counter!(metric::TURNS, "outcome" => "completed").increment(3);
    metrics::histogram!(metric::COMMIT_DURATION).record(0.003);
    metrics::histogram!(metric::TOKEN_USAGE).record(300.0);
    // Two services in one process, as in `instar dev`, show the same recorder.
    for _ in 0..2 {
        let address = Health::new(Drain::new(), WITHIN).serve(loopback()).await.unwrap();
        let (status, text) = get(address, "/metrics").await;
        assert_eq!(status, 200);
        for line in [
            r#"instar_turns_total{outcome="completed"} 3"#,
            r#"instar_commit_duration_seconds_bucket{le="0.005"} 1"#,
            r#"gen_ai_client_token_usage_bucket{le="1024"} 1"#,
            "# HELP instar_turns_total Turns ended, by outcome",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }
}

#[tokio::test]
async fn an_address_that_is_taken_is_an_error() {
    let address = Health::new(Drain::new(), WITHIN).serve(loopback()).await.unwrap();
    assert!(Health::new(Drain::new(), WITHIN).serve(address).await.is_err());
}
