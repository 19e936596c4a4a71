//! A private Postgres in a temporary folder, on the loopback interface, open to any local user.
//!
//! It must not know the product's tables, nor any client library: databases are made with psql.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, bail};
use tokio::sync::OnceCell;

use crate::account::Account;
use crate::binary::{self, PostgresBin};
use crate::process::Guard;
use crate::server::{Kind, Server, blocking, lock};

/// Names the server of a whole test run, started by `cargo xtask test`. Databases made there are
/// not dropped: it is taken to be disposable.
pub const URL_VARIABLE: &str = "INSTAR_TEST_POSTGRES_URL";

const CONNECTIONS_MAX: u32 = 300;
/// A socket's path has room for 107 bytes, of which ".s.PGSQL.12345.lock" needs some.
const SOCKET_DIR_BYTES_MAX: usize = 85;

struct Options {
    install: PostgresBin,
    account: Account,
    durable: bool,
}

impl Kind for Options {
    const NAME: &'static str = "Postgres";
    // "Immediate shutdown": ends all backends and gives the shared memory back, which KILL would
    // not.
    const ON_DEATH: i32 = libc::SIGQUIT;
    const ON_DEATH_NAME: &'static str = "QUIT";
    // "Fast shutdown": does not wait for clients to leave.
    const ON_STOP: i32 = libc::SIGINT;

    fn command(&self, dir: &Path, port: u16) -> Command {
        let mut command = self.account.command(&self.install.bin.join("postgres"), dir);
        let sockets = dir.to_str().filter(|path| path.len() <= SOCKET_DIR_BYTES_MAX).unwrap_or("");
        let switch = if self.durable { "on" } else { "off" };
        command.arg("-D").arg(dir.join("data"));
        for (name, value) in [
            ("listen_addresses", "127.0.0.1"),
            ("port", port.to_string().as_str()),
            ("unix_socket_directories", sockets),
            ("max_connections", CONNECTIONS_MAX.to_string().as_str()),
            ("fsync", switch),
            ("synchronous_commit", switch),
            ("full_page_writes", switch),
            // Files in the data folder instead of /dev/shm, where a killed server would leave them.
            ("dynamic_shared_memory_type", "mmap"),
        ] {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        command
    }

    /// The server writes its own state into its pid file, so a stranger on the port is not mistaken
    /// for ours. A killed server leaves the file as it was: hence the look at the pid.
    fn ready(&self, dir: &Path, port: u16, pid: u32) -> bool {
        let Ok(text) = std::fs::read_to_string(dir.join("data/postmaster.pid")) else {
            return false;
        };
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let holds = |line: usize, wanted: &str| lines.get(line) == Some(&wanted);
        holds(0, &pid.to_string()) && holds(3, &port.to_string()) && holds(7, "ready")
    }
}

/// A running server. Clones are the same server; it ends with the last of them, or with our
/// process.
#[derive(Clone)]
pub struct Postgres {
    server: Arc<Mutex<Server<Options>>>,
    install: PostgresBin,
    url: Arc<str>,
}

impl Postgres {
    /// A server that keeps what it has committed, also through [`Postgres::kill9`] and power loss.
    pub async fn start() -> Result<Self> {
        blocking(|| Self::launch(binary::postgres()?, true)).await
    }

    /// A server that does not wait for the disk: for tests whose subject is not durability. It
    /// survives [`Postgres::kill9`] only by luck.
    pub async fn start_fast() -> Result<Self> {
        blocking(|| Self::launch(binary::postgres()?, false)).await
    }

    /// As [`Postgres::start`], with a given installation.
    pub async fn start_with(install: PostgresBin) -> Result<Self> {
        blocking(|| Self::launch(install, true)).await
    }

    fn launch(install: PostgresBin, durable: bool) -> Result<Self> {
        let account = Account::for_postgres()?;
        let dir = account.folder("instar-pg-")?;
        let guard = Guard::over(&dir, Options::ON_DEATH_NAME)?;
        let install = account.readable(&install, &dir)?;
        let output = account
            .command(&install.bin.join("initdb"), &dir)
            .arg("-D")
            .arg(dir.join("data"))
            .args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"])
            .output()
            .context("initdb could not be executed")?;
        succeeded("initdb", output)?;
        let options = Options { install: install.clone(), account, durable };
        let server = Server::start(options, &dir, guard)?;
        let url = format!("postgres://postgres@127.0.0.1:{}/postgres", server.port());
        Ok(Self { server: Arc::new(Mutex::new(server)), install, url: url.into() })
    }

    /// The address of its maintenance database.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The process that all others descend from, if the server runs.
    pub fn pid(&self) -> Option<u32> {
        lock(&self.server).pid()
    }

    /// The folder that holds its data and its log.
    pub fn dir(&self) -> PathBuf {
        lock(&self.server).dir().to_owned()
    }

    /// A program of the installation, such as `psql` or `pgbench`, if there is one.
    pub fn bin(&self, name: &str) -> Option<PathBuf> {
        self.install.program(name)
    }

    /// Makes a database with a name of its own and gives its address.
    pub async fn create_database(&self) -> Result<String> {
        let (psql, url) = (self.bin("psql"), self.url.clone());
        blocking(move || create_database(psql, &url)).await
    }

    /// Kills every process of the server at once.
    pub async fn kill9(&self) -> Result<()> {
        self.with(|server| server.kill9()).await
    }

    /// Stops it in an orderly way, without waiting for clients to leave.
    pub async fn stop(&self) -> Result<()> {
        self.with(|server| server.stop()).await
    }

    /// Brings it back on the same port with the same data, stopping it first if it runs.
    pub async fn restart(&self) -> Result<()> {
        self.with(|server| {
            server.stop()?;
            server.launch()
        })
        .await
    }

    async fn with(&self, act: impl FnOnce(&mut Server<Options>) -> Result<()> + Send + 'static) -> Result<()> {
        let server = self.server.clone();
        blocking(move || act(&mut lock(&server))).await
    }
}

/// The address of a fresh database on a server that all tests of the run share: the one named by
/// `INSTAR_TEST_POSTGRES_URL`, or else one (without durability) that is started for this process.
pub async fn shared() -> Result<String> {
    static SHARED: OnceCell<Postgres> = OnceCell::const_new();
    // Looking for it runs several programs: once per process is enough.
    static PSQL: OnceCell<Option<PathBuf>> = OnceCell::const_new();
    if let Ok(url) = std::env::var(URL_VARIABLE) {
        let find = || blocking(|| Ok(binary::postgres()?.program("psql")));
        let psql = PSQL.get_or_try_init(find).await?.clone();
        return blocking(move || create_database(psql, &url)).await;
    }
    SHARED.get_or_try_init(Postgres::start_fast).await?.create_database().await
}

fn create_database(psql: Option<PathBuf>, url: &str) -> Result<String> {
    let psql = psql.context("psql is not there: install the Postgres client programs")?;
    let name = format!("t_{}", uuid::Uuid::now_v7().simple());
    let (server, settings) = url.split_once('?').unwrap_or((url, ""));
    let (server, _) = server.rsplit_once('/').context("a Postgres address ends in /database")?;
    let statement = format!("create database {name}");
    let output = Command::new(psql)
        .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", url, "-c", &statement])
        .output()
        .context("psql could not be executed")?;
    succeeded("create database", output)?;
    let settings = if settings.is_empty() { String::new() } else { format!("?{settings}") };
    Ok(format!("{server}/{name}{settings}"))
}

fn succeeded(what: &str, output: Output) -> Result<()> {
    if !output.status.success() {
        bail!("{what} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
