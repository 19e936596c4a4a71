//! The peer DBOS for Rust: engine and load are one process.

use super::{Candidate, Ground, program};
use anyhow::Result;
use bench_drive::child::{Child, command};
use bench_drive::load::Entry;

pub(super) async fn start(ground: &Ground) -> Result<Candidate> {
    let mut peer = Candidate::new()?;
    let database = peer.with_database(ground).await?;
    let mut command = command(&program("bench-dbos")?);
    command.env("DATABASE_URL", database).env("MODEL_URL", &ground.model);
    let child = Child::ready("dbos", command, peer.folder()).await?;
    peer.servers.insert(0, (child.name.clone(), child.pid()));
    peer.entry = Entry::Library(child);
    Ok(peer)
}
