//! The short kill matrix of agents that live: one fault in the midst of each play. `cargo xtask faults` strikes them
//! all.

use anyhow::{Context, Result, ensure};
use instar_tests::fault::{Fault, Ground};
use instar_tests::play::Play;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_fault_loses_or_repeats_what_agents_do_by_themselves() -> Result<()> {
    let crash = |service, point| Fault::Crash { service, point, nth: 2 };
    let faults = [
        (Play::Nudges, crash("scheduler", "store.commit.after")),
        (Play::Broadcasts, crash("api", "store.commit.after")),
        (Play::Summaries, crash("agent-worker", "worker.summary.after")),
        (Play::Children, crash("tool-runner", "runner.native.after")),
        (Play::Accounts, crash("tool-runner", "runner.account.after")),
        (Play::Endings, crash("scheduler", "store.commit.after")),
        (Play::Missions, crash("tool-runner", "runner.step.after")),
        (Play::Plans, crash("tool-runner", "runner.native.after")),
        (Play::Words, crash("api", "store.commit.after")),
    ];
    let mut ground = Ground::prepare(env!("CARGO_BIN_EXE_instar-armed").into()).await.context("the ground")?;
    for (play, fault) in &faults {
        let report = ground.perform(*play, fault).await?;
        println!("{}: {} rounds, recovery {:.2} s", report.fault, report.turns, report.recovery.as_secs_f64());
        ensure!(!report.void, "{}: its point was not reached", report.fault);
        ensure!(report.violations.is_empty(), "{}:\n{}", report.fault, report.violations.join("\n"));
    }
    Ok(())
}
