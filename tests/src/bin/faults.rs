//! The kill matrix: `cargo xtask faults [-- rounds]`. Every fault under load, what must be true
//! afterwards, and how long it took. Ends with 1 if anything was not.

use anyhow::Result;
use instar_tests::fault::{self, Fault, Ground};
use instar_tests::fleet;
use std::process::ExitCode;

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    let rounds: u32 = arguments.next().map_or(Ok(1), |n| n.parse())?;
    let only = arguments.next();
    let mut ground = Ground::prepare(fleet::binary("instar-armed")?).await?;
    println!("fault | runs | turns before | turns | violations | recovery s (max)\n---|---:|---:|---:|---:|---:");
    let (mut struck, mut void, mut bad) = (0, 0, 0);
    for fault in fault::all() {
        if only.as_deref().is_some_and(|only| !fault.to_string().contains(only)) {
            continue;
        }
        let (mut runs, mut before, mut turns, mut slowest) = (0, 0, 0, 0.0f64);
        let mut violations = Vec::new();
        for round in 0..rounds {
            let report = match ground.strike(&nth(&fault, round)).await {
                Ok(report) => report,
                Err(error) => {
                    violations.push(format!("{error:#}"));
                    ground = Ground::prepare(fleet::binary("instar-armed")?).await?;
                    continue;
                }
            };
            if report.void {
                void += 1;
                continue;
            }
            runs += 1;
            before += report.before;
            turns += report.turns;
            slowest = slowest.max(report.recovery.as_secs_f64());
            violations.extend(report.violations);
        }
        struck += runs;
        bad += violations.len();
        println!("{fault} | {runs} | {before} | {turns} | {} | {slowest:.2}", violations.len());
        for violation in &violations {
            println!("    {violation}");
        }
    }
    println!("\n{struck} faults under load, {void} void, {bad} violations");
    Ok(if bad == 0 && struck > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The same point at another pass in each round.
fn nth(fault: &Fault, round: u32) -> Fault {
    match fault {
        Fault::Crash { service, point, nth } => Fault::Crash { service, point, nth: nth + round * 5 },
        other => other.clone(),
    }
}
