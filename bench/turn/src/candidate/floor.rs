//! The floor: the least that does the same turn in the same processes.

use super::{Candidate, Ground, program};
use anyhow::{Result, ensure};
use bench_drive::child::{Child, command};
use bench_drive::load::Entry;
use bench_drive::wire::request;
use instar_testkit::wait::free_port;

pub(super) async fn start(ground: &Ground, agents: usize) -> Result<Candidate> {
    let mut floor = Candidate::new()?;
    let (database, nats) = (floor.with_database(ground).await?, floor.with_nats().await?);
    let (program, address) = (program("bench-floor")?, format!("127.0.0.1:{}", free_port()?));
    let told = |role: &str| {
        let mut command = command(&program);
        command.arg(role).env("DATABASE_URL", &database).env("NATS_URL", &nats);
        command.env("MODEL_URL", &ground.model).env("LISTEN", &address);
        command
    };
    let made = told("init").arg(agents.to_string()).output()?;
    ensure!(made.status.success(), "init: {}", String::from_utf8_lossy(&made.stderr));
    for role in ["api", "worker", "runner"] {
        let child = Child::ready(role, told(role), floor.folder()).await?;
        floor.children.push(child);
    }
    let body = "{\"content\":\"echo 7 for me please\"}";
    let requests = (0..agents).map(|agent| request("POST", &format!("/agents/{agent}/messages"), "", body)).collect();
    floor.entry = Entry::Http { address, requests };
    Ok(floor)
}

/// The least that listening to a model costs: so many streams read and parsed.
pub(crate) async fn listener(ground: &Ground, streams: usize) -> Result<Candidate> {
    let mut listener = Candidate::new()?;
    let mut command = command(&program("bench-floor")?);
    command.args(["listen", &streams.to_string()]).env("MODEL_URL", &ground.model);
    let child = Child::ready("listener", command, listener.folder()).await?;
    listener.children.push(child);
    Ok(listener)
}
