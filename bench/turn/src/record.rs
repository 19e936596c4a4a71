//! Samples of where a product's processes spend their time, by `perf`.

use crate::candidate::Candidate;
use anyhow::{Context, Result};
use instar_testkit::process;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PER_SECOND: &str = "499";

/// One file for each process, as `perf report -i FILE` reads it.
pub(crate) fn start(folder: &Path, name: &str, candidate: &Candidate, time: Duration) -> Result<Vec<Child>> {
    let mut recorders = Vec::new();
    for (process, pid) in candidate.processes() {
        let mut record = Command::new("perf");
        record.args(["record", "-q", "-g", "-F", PER_SECOND, "-p", &pid.to_string(), "-o"]);
        record.arg(folder.join(format!("{name}-{process}.data")));
        record.args(["--", "sleep", &time.as_secs_f64().to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
        recorders.push(process::spawn(record).context("perf is not on PATH: install it, or leave --record out")?);
    }
    Ok(recorders)
}

pub(crate) fn end(recorders: Vec<Child>) -> Result<()> {
    for mut recorder in recorders {
        let ended = recorder.wait()?;
        anyhow::ensure!(ended.success(), "perf ended with {ended}: may it look at other processes here?");
    }
    Ok(())
}
