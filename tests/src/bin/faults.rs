//! The kill matrix: `cargo xtask faults [-- rounds [part of a name]]`; `-- nobus [seconds]` is life without NATS. Every fault under load, and those in the midst
//! of plays; what must be true afterwards, and how long it took. Ends with 1 if anything was not.

use anyhow::Result;
use instar_tests::fault::{self, Fault, Ground, Report};
use instar_tests::fleet;
use instar_tests::nobus::Terms;
use instar_tests::play::Play;
use std::process::ExitCode;
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.next_if(|first| first == "nobus").is_some() {
        return nobus(arguments.next().map_or(Ok(600), |n| n.parse())?).await;
    }
    let rounds: u32 = arguments.next().map_or(Ok(1), |n| n.parse())?;
    let only = arguments.next();
    let mut ground = Ground::prepare(fleet::binary("instar-armed")?).await?;
    println!("fault | runs | turns before | turns | violations | recovery s (max)\n---|---:|---:|---:|---:|---:");
    let (mut struck, mut void, mut bad) = (0, 0, 0);
    let plain = fault::all().into_iter().map(|fault| Struck { play: None, fault });
    let lively = fault::lively().into_iter().map(|(play, fault)| Struck { play: Some(play), fault });
    for fault in plain.chain(lively) {
        if only.as_deref().is_some_and(|only| !fault.to_string().contains(only)) {
            continue;
        }
        let (mut runs, mut before, mut turns, mut slowest) = (0, 0, 0, 0.0f64);
        let mut violations = Vec::new();
        for round in 0..rounds {
            let report = match fault.strike(&mut ground, round).await {
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

/// So many seconds without NATS, with a worker killed every 20 of them.
async fn nobus(seconds: u64) -> Result<ExitCode> {
    let mut ground = Ground::prepare(fleet::binary("instar-armed")?).await?;
    let life = ground
        .live_without_nats(Terms {
            normal: Duration::from_secs(20),
            away: Duration::from_secs(seconds),
            kill_every: Some(Duration::from_secs(20)),
            restart: false,
            plays: &[Play::Words, Play::Accounts, Play::Children, Play::Missions, Play::Plans],
            rounds: 8,
        })
        .await?;
    println!("{life}");
    for violation in &life.violations {
        println!("    {violation}");
    }
    Ok(if life.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A fault, and what goes on when it strikes.
struct Struck {
    /// None: the load of plain turns.
    play: Option<Play>,
    fault: Fault,
}

impl std::fmt::Display for Struck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.play {
            Some(play) => write!(f, "{play}: {}", self.fault),
            None => write!(f, "{}", self.fault),
        }
    }
}

impl Struck {
    async fn strike(&self, ground: &mut Ground, round: u32) -> Result<Report> {
        let fault = nth(&self.fault, round);
        match self.play {
            Some(play) => ground.perform(play, &fault).await,
            None => ground.strike(&fault).await,
        }
    }
}

/// The same point at another pass in each round.
fn nth(fault: &Fault, round: u32) -> Fault {
    match fault {
        Fault::Crash { service, point, nth } => Fault::Crash { service, point, nth: nth + round * 5 },
        other => other.clone(),
    }
}
