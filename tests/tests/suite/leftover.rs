//! A test run that is killed in the midst of its work leaves no process behind: no server, no service, nothing that a
//! tool has started.

use anyhow::{Context, Result, ensure};
use instar_client::Mode;
use instar_testkit::process::{self, Seen};
use instar_testkit::{Nats, Postgres, nats, postgres, wait};
use instar_tests::fleet::{Fleet, Setup, tool_turn};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const VICTIM: &str = "INSTAR_LEFTOVER_VICTIM";
const WITHIN: Duration = Duration::from_secs(60);
const NAP: &str = "[[tools]]\nname = \"nap\"\nkind = \"command\"\nparameters = { type = \"object\" }\n\
                   command = [\"/bin/sh\", \"-c\", \"sleep 1000; echo {}\"]\n";

/// Not a test by itself: what the next test kills. Everything that a run can start, with a tool at work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "started by the test that kills it"]
async fn victim() -> Result<()> {
    let Ok(how) = std::env::var(VICTIM) else { return Ok(()) };
    let binary = Path::new(env!("CARGO_BIN_EXE_instar-armed")).to_path_buf();
    let mut setup = Setup::new(binary, "", "", tool_turn());
    setup.config = NAP.into();
    let (_postgres, _nats, fleet);
    if how == "embedded" {
        fleet = Fleet::embedded(setup).await?;
    } else {
        let servers = (Postgres::start_fast().await?, Nats::start().await?);
        setup.database = servers.0.create_database().await?;
        setup.nats = servers.1.url().to_owned();
        (_postgres, _nats) = servers;
        fleet = Fleet::start(setup).await?;
    }
    let (_, agents) = fleet.agents(1, &["nap"]).await?;
    fleet.client.send_message(&agents[0], "nap", Mode::Queue).await?;
    wait::until_ok(WITHIN, || async {
        let found = process::descendants(std::process::id());
        ensure!(found.iter().any(|seen| seen.name == "sleep"), "no tool is at work: {found:?}");
        Ok(())
    })
    .await?;
    println!("\nready");
    std::future::pending().await
}

/// `signal` goes to who runs the tests alone, or, as a terminal's interrupt, to everything in the group.
async fn nothing_is_left(how: &str, signal: &str, group: bool) -> Result<()> {
    let folder = tempfile::tempdir()?;
    // Postgres may have to run as somebody else.
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let cargo = folder.path().join("cargo");
    std::os::unix::fs::symlink("/bin/sh", &cargo)?;
    let mut command = Command::new(&cargo);
    command.args(["-c", "\"$@\"; true", "cargo"]).arg(std::env::current_exe()?);
    command.args(["leftover::victim", "--exact", "--ignored", "--nocapture"]);
    command.env(VICTIM, how).env("TMPDIR", folder.path()).stdout(Stdio::piped());
    command.env_remove(postgres::URL_VARIABLE).env_remove(nats::URL_VARIABLE);
    process::bind(&mut command);
    command.process_group(0);
    let mut cargo = command.spawn()?;
    let lines = BufReader::new(cargo.stdout.take().context("standard output")?).lines();
    let ready = lines.map_while(Result::ok).any(|line| line == "ready");
    let started = process::descendants(cargo.id());
    let whom = if group { format!("-{}", cargo.id()) } else { cargo.id().to_string() };
    ensure!(Command::new("kill").args(["-s", signal, "--", &whom]).status()?.success(), "it has ended by itself");
    cargo.wait()?;
    ensure!(ready, "it never had everything at work");
    let least = if how == "embedded" { 3 } else { 8 };
    ensure!(started.len() > least, "too few to say anything: {started:?}");
    wait::until_ok(WITHIN, || async {
        let left: Vec<&Seen> = started.iter().filter(|seen| seen.lives()).collect();
        ensure!(left.is_empty(), "{left:?} are left of {started:?}");
        let inside = process::inside(folder.path());
        ensure!(inside.is_empty(), "{inside:?} work in its folder");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_of_four_processes_that_is_killed_leaves_none() -> Result<()> {
    nothing_is_left("distributed", "KILL", false).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_embedded_run_that_is_terminated_or_interrupted_leaves_no_process() -> Result<()> {
    nothing_is_left("embedded", "TERM", false).await?;
    nothing_is_left("embedded", "INT", true).await
}
