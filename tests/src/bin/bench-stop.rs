//! How soon a provider is left alone when somebody stops what it says.
//!
//! `bench-stop [streams]`: for each way to stop, that many answers are stopped in the middle, eight side by side; the
//! time from the answer to the request until the model's server saw that its connection was closed. `INSTAR_BIN` is the
//! command.

use anyhow::{Context, Result, ensure};
use futures::stream::{self, StreamExt, TryStreamExt};
use instar_testkit::model::{Reply, Script};
use instar_testkit::nats::Nats;
use instar_testkit::postgres::Postgres;
use instar_testkit::wait;
use instar_tests::fleet::{self, Fleet, Setup};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const AT_ONCE: usize = 8;
const WITHIN: Duration = Duration::from_secs(30);
const PROMISED_MS: f64 = 300.0;
const WAYS: [&str; 8] = ["interrupt", "message", "steer", "stop", "pause", "terminate", "force", "close"];

fn percentile(sorted: &[f64], share: f64) -> f64 {
    let at = (sorted.len() as f64 * share) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

#[tokio::main]
async fn main() -> Result<()> {
    let streams: usize = std::env::args().nth(1).map_or(Ok(200), |n| n.parse())?;
    let binary = std::env::var_os("INSTAR_BIN").map(PathBuf::from).map_or_else(|| fleet::binary("instar"), Ok)?;
    let (postgres, nats) = (Postgres::start().await?, Nats::start().await?);
    let talks = Script::function(|request| match request.user_text().starts_with("talk") {
        true => Reply::chunks((0..4_000).map(|n| format!("word{n} "))).slow(Duration::ZERO, Duration::from_millis(30)),
        false => Reply::text("Done."),
    });
    let database = postgres.create_database().await?;
    let fleet = Fleet::start(Setup::new(binary, &database, nats.url(), talks)).await?;
    let http = reqwest::Client::builder().no_proxy().build()?;
    let mut slowest: f64 = 0.0;
    for way in WAYS {
        let stops = (0..streams).map(|n| stop(&fleet, &http, way, n));
        let mut times: Vec<f64> = stream::iter(stops).buffer_unordered(AT_ONCE).try_collect().await?;
        times.sort_by(f64::total_cmp);
        let (p50, p99) = (percentile(&times, 0.5), percentile(&times, 0.99));
        let most = times.last().copied().unwrap_or_default();
        println!("{way:>10}: p50 {p50:.1} ms, p99 {p99:.1} ms, at most {most:.1} ms ({} streams)", times.len());
        slowest = slowest.max(p99);
    }
    println!("slowest p99 {slowest:.1} ms; promised {PROMISED_MS} ms");
    ensure!(slowest <= PROMISED_MS, "a provider was paid for too long");
    Ok(())
}

/// How long a provider spoke after the request to stop it was answered, in milliseconds.
async fn stop(fleet: &Fleet, http: &reqwest::Client, way: &str, n: usize) -> Result<f64> {
    let (session, agents) = fleet.agents(1, &[]).await?;
    let (agent, said) = (&agents[0], format!("talk {way} {n}"));
    let turn = fleet.client.send_message(agent, &said, Default::default()).await?.turn_id.context("a turn")?;
    let request = wait::until_ok(WITHIN, || async {
        let found = fleet.model.requests().into_iter().find(|request| request.user_text() == said);
        Ok(found.context("it was not asked")?.number)
    })
    .await?;
    // In the middle of its answer.
    tokio::time::sleep(Duration::from_millis(200 + 37 * (n as u64 % 20))).await;
    let (path, body) = match way {
        "interrupt" => (format!("turns/{turn}/interrupt"), json!({})),
        "message" => (format!("agents/{agent}/messages"), json!({"content": "and now?", "mode": "interrupt"})),
        "steer" => (format!("turns/{turn}/steer"), json!({"content": "and now?"})),
        "stop" => (format!("agents/{agent}/stop"), json!({})),
        "pause" => (format!("sessions/{session}/pause"), json!({"in_flight": "interrupt"})),
        "terminate" => (format!("agents/{agent}/terminate"), json!({})),
        "force" => (format!("agents/{agent}/terminate"), json!({"force": true})),
        _ => (format!("sessions/{session}/close"), json!({})),
    };
    let answer = http.post(format!("http://127.0.0.1:{}/v1/{path}", fleet.port())).bearer_auth(fleet.key());
    let answer = answer.json(&body).send().await?;
    let (status, told) = (answer.status(), answer.json::<Value>().await?);
    let answered = Instant::now();
    ensure!(status.is_success(), "{way}: {told}");
    let gone = wait::until_ok(WITHIN, || async {
        let gone = fleet.model.given_up();
        Ok(gone.iter().find(|one| one.request == request).context("the provider still speaks")?.at)
    })
    .await?;
    Ok(gone.saturating_duration_since(answered).as_secs_f64() * 1e3)
}
