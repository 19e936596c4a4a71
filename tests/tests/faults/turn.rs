//! The short kill matrix: one fault of each sort, under load. `cargo xtask faults` strikes them all.

use anyhow::{Context, Result, ensure};
use instar_tests::fault::{Cut, Fault, Ground};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_fault_loses_a_turn_or_repeats_an_effect() -> Result<()> {
    let crash = |service, point| Fault::Crash { service, point, nth: 3 };
    let faults = [
        Fault::Kill { service: "agent-worker" },
        Fault::Kill { service: "tool-runner" },
        crash("tool-runner", "runner.effect.before"),
        crash("tool-runner", "runner.effect.after"),
        crash("agent-worker", "store.commit.after"),
        crash("api", "store.commit.after"),
        Fault::NatsWiped,
        Fault::PostgresKilled,
        Fault::Freeze { service: "agent-worker" },
        Fault::Cut { service: "api", server: "Postgres", how: Cut::Silent, seconds: 5 },
    ];
    let mut ground = Ground::prepare(env!("CARGO_BIN_EXE_instar-armed").into()).await.context("the ground")?;
    for fault in &faults {
        let report = ground.strike(fault).await?;
        println!("{}: {} turns, recovery {:.2} s", report.fault, report.turns, report.recovery.as_secs_f64());
        ensure!(!report.void, "{fault}: its point was not reached");
        ensure!(report.violations.is_empty(), "{fault}:\n{}", report.violations.join("\n"));
    }
    Ok(())
}
