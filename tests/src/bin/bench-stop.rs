//! How soon a provider is left alone when somebody stops what it says.
//!
//! `bench-stop [streams]`: for each way to stop, that many answers are stopped in the middle, eight side by side, once a
//! follower has heard some words of each; the time from the answer to the request until the model's server saw that its
//! connection was closed. `INSTAR_BIN` is the command.

use anyhow::{Result, ensure};
use futures::stream::{self, StreamExt, TryStreamExt};
use instar_testkit::model::Script;
use instar_testkit::nats::Nats;
use instar_testkit::postgres::Postgres;
use instar_tests::fleet::{self, Fleet, Setup};
use instar_tests::stopping::{self, Talk, WAYS};
use std::path::PathBuf;

const AT_ONCE: usize = 8;
const PROMISED_MS: f64 = 300.0;

fn percentile(sorted: &[f64], share: f64) -> f64 {
    let at = (sorted.len() as f64 * share) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

#[tokio::main]
async fn main() -> Result<()> {
    let streams: usize = std::env::args().nth(1).map_or(Ok(200), |n| n.parse())?;
    let binary = std::env::var_os("INSTAR_BIN").map(PathBuf::from).map_or_else(|| fleet::binary("instar"), Ok)?;
    let (postgres, nats) = (Postgres::start().await?, Nats::start().await?);
    let database = postgres.create_database().await?;
    let fleet = Fleet::start(Setup::new(binary, &database, nats.url(), Script::function(stopping::talks))).await?;
    let http = reqwest::Client::builder().no_proxy().build()?;
    let mut slowest: f64 = 0.0;
    for way in WAYS {
        let stops = (0..streams).map(|n| stop(&fleet, &http, way, n));
        let mut times: Vec<f64> = stream::iter(stops).buffer_unordered(AT_ONCE).try_collect().await?;
        times.sort_by(f64::total_cmp);
        let (p50, p99) = (percentile(&times, 0.5), percentile(&times, 0.99));
        let most = times.last().copied().unwrap_or_default();
        println!("{way:>16}: p50 {p50:.1} ms, p99 {p99:.1} ms, at most {most:.1} ms ({} streams)", times.len());
        slowest = slowest.max(p99);
    }
    println!("slowest p99 {slowest:.1} ms; promised {PROMISED_MS} ms");
    ensure!(slowest <= PROMISED_MS, "a provider was paid for too long");
    Ok(())
}

/// How long a provider spoke after the request to stop it was answered, in milliseconds.
async fn stop(fleet: &Fleet, http: &reqwest::Client, way: &'static str, n: usize) -> Result<f64> {
    let talk = Talk::begin(fleet, way, n, 2 + n % 20).await?;
    let answered = talk.stop(fleet, http).await?;
    Ok(talk.given_up(fleet).await?.saturating_duration_since(answered).as_secs_f64() * 1e3)
}
