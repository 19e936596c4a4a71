//! The peer Restate: its server as its makers ship it, tuned, and a service of its SDK.

use super::{Candidate, Ground, program};
use anyhow::{Context, Result, ensure};
use bench_drive::child::{Child, command};
use bench_drive::load::Entry;
use bench_drive::wire::{self, request};
use instar_testkit::wait::{free_port, until_ok};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const VERSION: &str = "1.7.12";
const PACKAGE: &str = "@restatedev/restate-server-linux-x64";
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Its server: the one named, or that of the npm registry, fetched into `cache`.
pub(crate) fn server(named: Option<PathBuf>, cache: &Path) -> Result<PathBuf> {
    if let Some(server) = named {
        ensure!(server.is_file(), "{} is not there", server.display());
        return Ok(server);
    }
    let folder = cache.join(format!("restate-{VERSION}"));
    let server = folder.join("node_modules").join(PACKAGE).join("bin/restate-server");
    if !server.is_file() {
        let mut install = Command::new("npm");
        install.args(["install", "--no-save", "--prefix"]).arg(&folder).arg(format!("{PACKAGE}@{VERSION}"));
        let installed = install.output().context("npm is not on PATH")?;
        ensure!(installed.status.success(), "npm install: {}", String::from_utf8_lossy(&installed.stderr));
    }
    ensure!(server.is_file(), "the package has no {}", server.display());
    Ok(server)
}

pub(super) async fn start(ground: &Ground, server: &Path, agents: usize) -> Result<Candidate> {
    let mut peer = Candidate::new()?;
    let address = || Ok::<_, anyhow::Error>(format!("127.0.0.1:{}", free_port()?));
    let (ingress, admin, service, node) = (address()?, address()?, address()?, address()?);
    let config = peer.folder().join("restate.toml");
    std::fs::write(
        &config,
        format!(
            "base-dir = \"{}/data\"\nbind-address = \"{node}\"\nadvertised-address = \"http://{node}\"\n\
             default-num-partitions = 4\nauto-provision = true\nrocksdb-total-memory-size = \"2.0 GiB\"\n\
             [ingress]\nbind-address = \"{ingress}\"\n[admin]\nbind-address = \"{admin}\"\n",
            peer.folder().display()
        ),
    )?;
    let mut serve = command(server);
    serve.arg("--config-file").arg(config).args(["--node-name", "bench"]).env("DO_NOT_TRACK", "1");
    let server = Child::start("server", serve, peer.folder())?;
    peer.children.push(server);
    let mut work = command(&program("bench-restate")?);
    work.env("MODEL_URL", &ground.model).env("LISTEN", &service);
    let worker = Child::ready("service", work, peer.folder()).await?;
    peer.children.push(worker);
    let register = request("POST", "/deployments", "", &format!("{{\"uri\":\"http://{service}\"}}"));
    until_ok(READY_WITHIN, || wire::json(&admin, &register)).await.context("its server takes no service")?;
    let ask = |agent| request("POST", &format!("/Agent/{agent}/turn"), "", "\"echo 7 for me please\"");
    let requests: Vec<Vec<u8>> = (0..agents).map(ask).collect();
    // Registered is not yet known to the ingress.
    until_ok(READY_WITHIN, || async { wire::Line::connect(&ingress).await?.ask(&ask(agents)).await.map(drop) }).await?;
    peer.entry = Entry::Http { address: ingress, requests };
    Ok(peer)
}
