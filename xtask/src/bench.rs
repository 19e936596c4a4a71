//! `cargo xtask bench`, `faults` and `mcp`: builds of what is measured, struck or tried, then the program
//! of the crate instar-tests that does it.

use std::process::ExitCode;

use anyhow::Result;

use crate::cargo;
use crate::servers::Servers;

/// Tells a bench where the command `instar` is: without crash points, as it is shipped.
const COMMAND_VARIABLE: &str = "INSTAR_BIN";

pub(crate) async fn run(name: &str, durable: bool, extra: &[String]) -> Result<ExitCode> {
    let bench = format!("bench-{name}");
    // One after the other: built together, the bench's crash points would be in the command as well.
    let command = cargo::step(&["build", "--release", "-p", "instar", "--bin", "instar"]);
    let built = command.run()? && cargo::step(&["build", "--release", "-p", "instar-tests", "--bin", &bench]).run()?;
    if !built {
        return Ok(ExitCode::FAILURE);
    }
    let servers = Servers::start(durable).await?;
    let run = cargo::step(&["run", "--release", "-q", "-p", "instar-tests", "--bin", &bench, "--"]);
    run.args(extra).env(servers.env()).env([(COMMAND_VARIABLE, cargo::released("instar"))]).exit()
}

/// Nothing is written and nothing runs beside it: it needs neither servers nor the command.
pub(crate) fn engine(extra: &[String]) -> Result<ExitCode> {
    cargo::step(&["run", "--release", "-q", "-p", "instar-tests", "--bin", "bench-engine", "--"]).args(extra).exit()
}

/// It brings servers of its own, since it kills them.
pub(crate) fn faults(extra: &[String]) -> Result<ExitCode> {
    if !cargo::step(&["build", "--release", "-p", "instar-tests", "--bins"]).run()? {
        return Ok(ExitCode::FAILURE);
    }
    cargo::step(&["run", "--release", "-q", "-p", "instar-tests", "--bin", "faults", "--"]).args(extra).exit()
}

pub(crate) async fn real_servers() -> Result<ExitCode> {
    if !cargo::step(&["build", "-q", "-p", "instar-tests", "--bins"]).run()? {
        return Ok(ExitCode::FAILURE);
    }
    let servers = Servers::start(false).await?;
    cargo::step(&["run", "-q", "-p", "instar-tests", "--bin", "mcp-real"]).env(servers.env()).exit()
}
