//! What can be measured: each is started anew, on a database and a broker of its own, and ends when dropped.

mod dbos;
mod floor;
pub(crate) mod product;
mod restate;

use anyhow::{Context, Result};
use bench_drive::child::Child;
use bench_drive::load::Entry;
use instar_testkit::{Nats, Postgres};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tokio::task::spawn_local;
use tokio_postgres::{Client, NoTls};

pub(crate) use product::Product;

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// A build of this product, in four processes.
    Product(Product),
    /// The same in one process, on SQLite.
    Embedded(Product),
    Floor,
    /// With its server.
    Restate(PathBuf),
    Dbos,
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

/// What every candidate stands on.
pub(crate) struct Ground {
    pub(crate) postgres: Postgres,
    pub(crate) model: String,
}

pub(crate) struct Candidate {
    pub(crate) entry: Entry,
    children: Vec<Child>,
    servers: Vec<(String, u32)>,
    pub(crate) database: Option<Client>,
    pub(crate) nats: Option<Nats>,
    /// Where services tell what they allocated: name and address.
    pub(crate) pages: Vec<(String, String)>,
    _folder: TempDir,
}

impl Candidate {
    /// Nothing yet.
    fn new() -> Result<Candidate> {
        let entry = Entry::Http { address: String::new(), requests: Vec::new() };
        let (children, servers, pages) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Candidate { entry, children, servers, database: None, nats: None, pages, _folder: tempfile::tempdir()? })
    }

    /// For the load, which gives it back.
    pub(crate) fn take_entry(&mut self) -> Entry {
        std::mem::replace(&mut self.entry, Entry::Http { address: String::new(), requests: Vec::new() })
    }

    fn folder(&self) -> &Path {
        self._folder.path()
    }

    /// Name and number of each, in the order in which they are shown.
    pub(crate) fn processes(&self) -> impl Iterator<Item = (String, u32)> {
        let children = self.children.iter().map(|child| (child.name.clone(), child.pid()));
        children.chain(self.servers.iter().cloned())
    }

    pub(crate) fn pid(&self, name: &str) -> Result<u32> {
        self.processes().find(|(own, _)| own == name).map(|(_, pid)| pid).with_context(|| format!("no process {name}"))
    }

    /// A database of its own on the common server; its address.
    async fn with_database(&mut self, ground: &Ground) -> Result<String> {
        let url = ground.postgres.create_database().await?;
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
        spawn_local(async move { drop(connection.await) });
        self.database = Some(client);
        self.servers.push(("postgres".into(), ground.postgres.pid().context("no PostgreSQL")?));
        Ok(url)
    }

    /// A broker of its own; its address.
    async fn with_nats(&mut self) -> Result<String> {
        let nats = Nats::start_monitored().await?;
        self.servers.push(("nats".into(), nats.pid().context("no NATS")?));
        Ok(self.nats.insert(nats).url().to_owned())
    }
}

impl Plan {
    /// Ready for turns of so many agents.
    pub(crate) async fn start(&self, ground: &Ground, agents: usize) -> Result<Candidate> {
        let started = match &self.kind {
            Kind::Product(product) => product.start(ground, agents).await,
            Kind::Embedded(product) => product.embedded(ground, agents).await,
            Kind::Floor => floor::start(ground, agents).await,
            Kind::Restate(server) => restate::start(ground, server, agents).await,
            Kind::Dbos => dbos::start(ground).await,
        };
        let candidate = started.with_context(|| format!("{} does not start", self.name))?;
        if let Some(database) = &candidate.database {
            // What came before is not written out in the middle of a round.
            database.batch_execute("CHECKPOINT").await?;
        }
        Ok(candidate)
    }

    pub(crate) fn is_product(&self) -> bool {
        matches!(self.kind, Kind::Product(_))
    }
}

/// A program of this workspace.
pub(crate) fn program(name: &str) -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(name);
    anyhow::ensure!(path.is_file(), "{} is not built", path.display());
    Ok(path)
}

pub(crate) use floor::listener;
pub(crate) use restate::server as restate_server;
