//! The kill matrix: `cargo xtask faults [-- rounds [part of a name] [--tally FILE] [--until N] [--shard i/n]]`. Every
//! fault under load, and those in the midst of plays; what must be true afterwards, and how long it took. Ends with 1
//! if anything was not. `-- nobus [seconds]` is life without NATS, and ends with 1 also where it is slower than promised.
//!
//! `--tally` keeps a line per fault that was struck, and goes on where it was; `--until` goes on, round after round,
//! until so many have struck; `--shard` takes a part of them, for several runs side by side with one tally.

use anyhow::{Context, Result, bail};
use instar_tests::fault::{self, Fault, Ground, Report};
use instar_tests::fleet;
use instar_tests::nobus::Terms;
use instar_tests::play::Play;
use instar_tests::tally::{Line, Shard, Tally, build_of};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

struct Asked {
    rounds: u32,
    only: Option<String>,
    tally: Option<PathBuf>,
    until: Option<usize>,
    shard: Shard,
}

fn asked(mut arguments: impl Iterator<Item = String>) -> Result<Asked> {
    let mut asked = Asked { rounds: 1, only: None, tally: None, until: None, shard: Shard::ALL };
    let mut place = 0;
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().with_context(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--tally" => asked.tally = Some(value()?.into()),
            "--until" => asked.until = Some(value()?.parse().context("--until: give a number of faults")?),
            "--shard" => asked.shard = value()?.parse()?,
            other if other.starts_with('-') => bail!("there is no {other}: --tally FILE, --until N, --shard i/n"),
            _ if place == 0 => {
                place = 1;
                asked.rounds = argument.parse().context("first comes the number of rounds, then a part of a name")?;
            }
            _ if place == 1 => {
                place = 2;
                asked.only = Some(argument);
            }
            other => bail!("{other:?} is too much: rounds, a part of a name, --tally, --until, --shard"),
        }
    }
    Ok(asked)
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.next_if(|first| first == "nobus").is_some() {
        return nobus(arguments.next().map_or(Ok(600), |n| n.parse())?).await;
    }
    let asked = asked(arguments)?;
    let program = fleet::binary("instar-armed")?;
    let build = build_of(&program)?;
    let mut tally = Tally::open(asked.tally.as_deref(), build.clone())?;
    let plain = fault::all().into_iter().map(|fault| Struck { play: None, fault });
    let lively = fault::lively().into_iter().map(|(play, fault)| Struck { play: Some(play), fault });
    let chosen = plain.chain(lively).filter(|fault| asked.only.as_ref().is_none_or(|o| fault.to_string().contains(o)));
    let chosen = chosen.enumerate().filter(|(place, _)| asked.shard.has(*place)).map(|(_, fault)| fault);
    let faults: Vec<Struck> = chosen.collect();
    let enough = |tally: &Tally| asked.until.is_some_and(|until| tally.struck() >= until);
    let mut ground = None;
    for round in 0.. {
        // Where a number is asked for, as many rounds as that takes, unless none of them strikes any more.
        let mut fruitless = true;
        if asked.until.is_none() && round >= asked.rounds {
            break;
        }
        for fault in &faults {
            tally.refresh()?;
            if enough(&tally) {
                break;
            }
            let name = fault.to_string();
            if tally.has(&name, round) {
                fruitless = false;
                continue;
            }
            let line = Line {
                build: build.clone(),
                fault: name,
                round,
                void: false,
                before: 0,
                turns: 0,
                recovery_s: 0.0,
                violations: Vec::new(),
            };
            if ground.is_none() {
                ground = Some(Ground::prepare(program.clone()).await?);
            }
            let Some(there) = &mut ground else { bail!("there are no servers to strike") };
            let line = match fault.strike(there, round).await {
                Ok(report) => Line {
                    void: report.void,
                    before: report.before,
                    turns: report.turns as u64,
                    recovery_s: report.recovery.as_secs_f64(),
                    violations: report.violations,
                    ..line
                },
                Err(error) => {
                    // Nothing can be said of what comes after it on the same servers.
                    ground = None;
                    Line { violations: vec![format!("{error:#}")], ..line }
                }
            };
            fruitless &= line.void;
            println!("{}", told(&line));
            tally.add(line)?;
        }
        if enough(&tally) || (asked.until.is_some() && fruitless) {
            break;
        }
    }
    tally.refresh()?;
    println!("\n{}", tally.table());
    Ok(if tally.violations() == 0 && tally.struck() > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn told(line: &Line) -> String {
    let outcome = match (line.void, line.violations.as_slice()) {
        (_, [_, ..]) => format!("VIOLATED: {}", line.violations.join("; ")),
        (true, _) => "did not strike".to_owned(),
        _ => format!("{} of {} turns before, recovered in {:.2} s", line.before, line.turns, line.recovery_s),
    };
    format!("round {}: {}: {outcome}", line.round, line.fault)
}

/// So many seconds without NATS, with a worker killed every 20 of them; what is promised for that time is judged.
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
    let broken = life.broken();
    for wrong in life.violations.iter().chain(&broken) {
        println!("    {wrong}");
    }
    Ok(if life.violations.is_empty() && broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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
