//! `cargo xtask test`: everything that must hold before a change goes in.
//!
//! It must not know single tests.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;

use crate::cargo;
use crate::servers::Servers;

/// All steps run even if one fails, so that one run tells everything.
pub(crate) async fn run(lint: bool, extra: &[String]) -> Result<ExitCode> {
    let started = Instant::now();
    let mut outcomes: Vec<(&str, bool)> = Vec::new();
    if lint {
        linted("fmt", &["fmt", "--check"], &mut outcomes)?;
        let clippy = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
        linted("clippy", &clippy, &mut outcomes)?;
    }
    outcomes.push(("tests", tests(extra).await?));

    let told: Vec<String> =
        outcomes.iter().map(|(name, good)| format!("{name} {}", if *good { "ok" } else { "FAILED" })).collect();
    let good = outcomes.iter().all(|(_, good)| *good);
    println!("xtask test: {} in {:.0} s", told.join(", "), started.elapsed().as_secs_f64());
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn linted(name: &'static str, arguments: &[&str], outcomes: &mut Vec<(&'static str, bool)>) -> Result<()> {
    if !cargo::has(name) {
        println!("xtask test: cargo {name} is not installed, left out");
        return Ok(());
    }
    outcomes.push((name, cargo::step(arguments).run()?));
    Ok(())
}

async fn tests(extra: &[String]) -> Result<bool> {
    let chosen = extra.iter().take_while(|argument| *argument != "--");
    let chosen = chosen.into_iter().any(|argument| argument.starts_with("-p") || argument.starts_with("--package"));
    let arguments: &[&str] = if chosen { &["test"] } else { &["test", "--workspace", "--no-fail-fast"] };
    let servers = Servers::start(false).await?;
    println!("xtask test: Postgres and NATS are up");
    cargo::step(arguments).args(extra).env(servers.env()).run()
}
