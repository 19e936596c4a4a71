//! A runner dies at every point of a step's way: the hop still ends, and no effect that must not be repeated is.

use anyhow::{Context, Result, ensure};
use instar_core::id::CallId;
use instar_runtime::Hub;
use instar_store::{Options, Store};
use instar_testkit::wait;
use instar_tests::fleet::{Fleet, Setup};
use instar_tests::stage;
use instar_tests::voyage::{Plan, Voyage, plainly};
use instar_tests::{audit, puppet};
use serde_json::json;
use std::time::Duration;

const WITHIN: Duration = Duration::from_secs(60);
/// Set: every point with both tools.
const ALL: &str = "INSTAR_EVERY_FAULT";

/// Reads, then acts, then reads what came of it.
fn plan(tool: &'static str) -> [Plan; 3] {
    [
        ("echo", json!({"text": "input"}), json!({"output": "middle"})),
        (tool, json!({"token": "middle"}), json!({})),
        ("echo", json!({"text": "middle"}), json!({"output": "output"})),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runner_that_dies_in_a_step_repeats_no_effect_that_must_not_be() -> Result<()> {
    let (database, nats) = (instar_testkit::postgres::shared().await?, instar_testkit::nats::shared().await?);
    let binary = env!("CARGO_BIN_EXE_instar-armed").into();
    let mut fleet = Fleet::start(Setup::new(binary, &database, &nats, puppet::script())).await?;
    let store = Store::open(Options::new(&database)).await?;
    // Commands go to the same database; nobody hears their hints, which sweeps make good.
    let hub = Hub::new(store.clone(), stage::deaf()?);
    fleet.node("tool-runner")?.terminate(WITHIN).await?;
    let passed = |point: &&&str| {
        let by_runner = ["runner.step", "runner.effect", "runner.ack", "store.", "runtime."];
        by_runner.iter().any(|area| point.starts_with(area))
    };
    let points: Vec<&str> = instar_crashpoint::POINTS.iter().filter(passed).copied().collect();
    ensure!(points.len() == 10, "{points:?}");
    // One may be repeated, the other not; by turns, since each takes a runner's lease.
    let tools = ["put", "charge"];
    let each = if std::env::var_os(ALL).is_some() { 2 } else { 1 };
    for (nth, point) in points.into_iter().enumerate() {
        for tool in tools.into_iter().cycle().skip(nth).take(each) {
            let voyage = Voyage::ready(&hub, plainly, &plan(tool)).await?;
            voyage.provide(voyage.input, json!(format!("{point} {tool}"))).await?;
            let mut armed = fleet.spawn("tool-runner", &[(instar_crashpoint::VARIABLE, point)]).await?;
            voyage.execute().await?;
            wait::until_ok(WITHIN, || {
                let ended = armed.ended();
                async move {
                    ensure!(ended?.is_some(), "it lives");
                    Ok(())
                }
            })
            .await
            .with_context(|| format!("{point} was not reached"))?;
            let mut next = fleet.spawn("tool-runner", &[]).await?;
            let hop = voyage.hop_is(&["COMPLETED", "FAILED"]).await.with_context(|| format!("{point} {tool}"))?;
            let step = voyage.step(1).await?;
            let keys: Vec<String> =
                voyage.calls(1).await?.iter().map(|call| CallId::from(call.id).to_string()).collect();
            let effects = fleet.tool.ledger().effects();
            let ours: Vec<_> =
                effects.iter().filter(|effect| effect.key.as_ref().is_some_and(|key| keys.contains(key))).collect();
            match tool {
                "put" => ensure!(hop.status == "COMPLETED", "{point}: {:?}", hop.error),
                // Whether it took effect may not be known; twice it did not.
                _ => ensure!(ours.len() <= 1 && keys.len() <= 1, "{point}: {ours:?}"),
            }
            ensure!(step.status != "COMPLETED" || !ours.is_empty(), "{point}: done without an effect");
            let wrong = audit::log(&store, voyage.session).await?.1;
            ensure!(wrong.is_empty(), "{point} {tool}: {wrong:#?}");
            next.terminate(WITHIN).await?;
        }
    }
    Ok(())
}
