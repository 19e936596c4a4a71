//! The recorder behind `/metrics`: one per process, whoever asks first.

use crate::telemetry::name::metric::*;
use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Samples wait in memory until then if nobody scrapes.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);
/// Seconds: the steps of the GenAI conventions, 0.01 · 2ⁿ, begun finer since a commit takes about a
/// millisecond.
const SECONDS: [f64; 18] = [
    0.000_625, 0.001_25, 0.002_5, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48,
    40.96, 81.92,
];
/// Tokens: the steps of the GenAI conventions, 4ⁿ.
const TOKENS: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1_024.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];

#[derive(Debug, thiserror::Error)]
#[error("metrics cannot be recorded: {0}")]
pub struct MetricError(String);

/// Installs the recorder, or gives the one installed before.
pub fn recorder() -> Result<PrometheusHandle, MetricError> {
    static INSTALLED: Mutex<Option<PrometheusHandle>> = Mutex::new(None);
    let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(handle) = installed.as_ref() {
        return Ok(handle.clone());
    }
    let handle = install().map_err(|error| MetricError(error.to_string()))?;
    describe();
    let kept = handle.clone();
    let upkeep = move || {
        loop {
            std::thread::sleep(UPKEEP_EVERY);
            kept.run_upkeep();
        }
    };
    let thread = std::thread::Builder::new().name("metrics".into()).spawn(upkeep);
    thread.map_err(|error| MetricError(error.to_string()))?;
    Ok(installed.insert(handle).clone())
}

fn install() -> Result<PrometheusHandle, metrics_exporter_prometheus::BuildError> {
    PrometheusBuilder::new()
        .set_buckets(&SECONDS)?
        .set_buckets_for_metric(Matcher::Full(TOKEN_USAGE.into()), &TOKENS)?
        .with_recommended_naming(true)
        .install_recorder()
}

/// Units become part of the names that Prometheus shows (`…_seconds`).
fn describe() {
    describe_histogram!(CHAT_DURATION, Unit::Seconds, "Calls of a model, from request to last byte");
    describe_histogram!(TIME_TO_FIRST_CHUNK, Unit::Seconds, "From request to the first piece of the answer");
    describe_histogram!(EXECUTE_TOOL_DURATION, Unit::Seconds, "Attempts of tool calls");
    describe_histogram!(HTTP_DURATION, Unit::Seconds, "Requests to the API");
    describe_histogram!(SCHEDULE_TO_START, Unit::Seconds, "From a turn's being ready to its claim");
    describe_histogram!(TURN_DURATION, Unit::Seconds, "Turns from their first claim to their end");
    describe_histogram!(COMMIT_DURATION, Unit::Seconds, "Commits of transitions");
    describe_histogram!(TOKEN_USAGE, "Tokens per call of a model");
    describe_counter!(TURNS, "Turns ended, by outcome");
    describe_counter!(BUDGET_EXHAUSTED, "Limits found used up, by scope and kind");
    describe_counter!(CALLS, "Tool calls ended, by outcome");
    describe_counter!(TRANSITIONS, "Transitions committed, by machine");
    describe_counter!(LEASE_EXPIRATIONS, "Leases that ran out instead of being released");
    describe_counter!(REDELIVERIES, "Messages delivered more than once");
    describe_counter!(RETRIES, "Calls of a model made again, by class of error");
    describe_counter!(REPUBLISHED, "Runes published again because nobody knew of their arrival");
    describe_gauge!(CIRCUIT_OPEN, "Whether a model is left alone because it failed too often, by model");
    describe_gauge!(TASKS, "Asynchronous tasks of this process, working or waiting");
    describe_gauge!(TURN_ACTIVE, "Turns in flight in this process");
    describe_gauge!(TURN_QUEUED, "Turns ready and not claimed");
    describe_gauge!(CALL_ACTIVE, "Tool calls in flight in this process");
    describe_gauge!(SLOT_LIMIT, "Pieces of work this process takes at once");
    describe_gauge!(PUBLISH_LAG, Unit::Seconds, "Age of the oldest rune not yet published");
    describe_gauge!(PUBLISH_PENDING, "Runes not yet published");
    describe_gauge!(APPROVAL_PENDING, "Tool calls that wait for a person");
}
