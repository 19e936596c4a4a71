//! A private NATS server with JetStream in a temporary folder.
//!
//! It must not know streams or subjects of the product, nor any client library.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::sync::OnceCell;

use crate::binary;
use crate::process::Guard;
use crate::server::{Kind, Server, blocking, lock};

/// Names the server of a whole test run, started by `cargo xtask test`.
pub const URL_VARIABLE: &str = "INSTAR_TEST_NATS_URL";

const CONFIG: &str = "nats.conf";
/// What streams may be promised together. Without it the server goes by what the disk has left, and a run with many
/// installations, each with streams of its own that stay nearly empty, is refused on a disk that is merely filled well.
const STORE_BYTES_MAX: u64 = 1 << 40;

/// The server chooses the port and leaves a file that says which.
const MONITORED: &str = "http: \"127.0.0.1:-1\"\nports_file_dir: \".\"\n";

struct Options {
    program: PathBuf,
    name: String,
    store: PathBuf,
}

impl Kind for Options {
    const NAME: &'static str = "nats-server";
    const ON_DEATH: i32 = libc::SIGKILL;
    const ON_DEATH_NAME: &'static str = "KILL";
    const ON_STOP: i32 = libc::SIGTERM;

    fn command(&self, dir: &Path, port: u16) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(dir).args(["--addr", "127.0.0.1", "--jetstream"]).arg("--config").arg(dir.join(CONFIG));
        command.args(["--port", &port.to_string(), "--name", &self.name]);
        command.arg("--store_dir").arg(&self.store);
        command
    }

    /// The greeting carries the name we gave, so a stranger on the port is not mistaken for ours.
    fn ready(&self, _: &Path, port: u16, _: u32) -> bool {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_secs(1)) else {
            return false;
        };
        let mut greeting = String::new();
        stream.set_read_timeout(Some(Duration::from_secs(1))).is_ok()
            && BufReader::new(stream).read_line(&mut greeting).is_ok()
            && greeting.contains(&self.name)
            && greeting.contains("\"jetstream\":true")
    }
}

/// A running server. Clones are the same server; it ends with the last of them, or with our
/// process.
#[derive(Clone)]
pub struct Nats {
    server: Arc<Mutex<Server<Options>>>,
    url: Arc<str>,
    store: Arc<Path>,
}

impl Nats {
    /// Starts a server whose data disappears with it.
    pub async fn start() -> Result<Self> {
        blocking(|| Self::launch(None, "")).await
    }

    /// As [`Nats::start`], with the server's own pages of figures, found by [`Nats::monitor`].
    pub async fn start_monitored() -> Result<Self> {
        blocking(|| Self::launch(None, MONITORED)).await
    }

    /// Starts a server that keeps its data in `dir`, which stays afterwards.
    pub async fn start_in(dir: impl Into<PathBuf>) -> Result<Self> {
        let dir = dir.into();
        blocking(move || Self::launch(Some(dir), "")).await
    }

    fn launch(store: Option<PathBuf>, further: &str) -> Result<Self> {
        let program = binary::nats_server()?;
        let dir = tempfile::Builder::new().prefix("instar-nats-").tempdir()?.keep();
        let dir = dir.canonicalize()?;
        let guard = Guard::over(&dir, Options::ON_DEATH_NAME)?;
        let config = format!("jetstream {{ max_file_store: {STORE_BYTES_MAX} }}\n{further}");
        std::fs::write(dir.join(CONFIG), config)?;
        let store = store.unwrap_or_else(|| dir.join("data"));
        std::fs::create_dir_all(&store)
            .with_context(|| format!("the data folder {} cannot be made", store.display()))?;
        let name = format!("test-{}", uuid::Uuid::now_v7().simple());
        let options = Options { program, name, store: store.canonicalize()? };
        let server = Server::start(options, &dir, guard)?;
        let url = format!("nats://127.0.0.1:{}", server.port());
        Ok(Self { server: Arc::new(Mutex::new(server)), url: url.into(), store: store.into() })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// The server's process, if it runs.
    pub fn pid(&self) -> Option<u32> {
        lock(&self.server).pid()
    }

    /// Where a monitored server answers `/varz` and its like, as `127.0.0.1:port`.
    pub fn monitor(&self) -> Result<String> {
        let server = lock(&self.server);
        let pid = server.pid().context("the server does not run")?;
        let file = server.dir().join(format!("nats-server_{pid}.ports"));
        let text = std::fs::read_to_string(&file).with_context(|| format!("no {}: not monitored", file.display()))?;
        let ports: serde_json::Value = serde_json::from_str(&text)?;
        let address = ports["monitoring"][0].as_str().and_then(|url| url.strip_prefix("http://"));
        Ok(address.with_context(|| format!("no port for figures in {text}"))?.to_owned())
    }

    /// Where the streams are stored.
    pub fn store(&self) -> &Path {
        &self.store
    }

    /// Kills the server; its files stay as they are.
    pub async fn kill9(&self) -> Result<()> {
        self.with(|server| server.kill9()).await
    }

    /// Stops it in an orderly way.
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

    /// Kills it, loses all its data, and brings an empty server back on the same port.
    pub async fn wipe_and_restart(&self) -> Result<()> {
        let store = self.store.clone();
        self.with(move |server| {
            server.kill9()?;
            std::fs::remove_dir_all(&store)?;
            std::fs::create_dir_all(&store)?;
            server.launch()
        })
        .await
    }

    async fn with(&self, act: impl FnOnce(&mut Server<Options>) -> Result<()> + Send + 'static) -> Result<()> {
        let server = self.server.clone();
        blocking(move || act(&mut lock(&server))).await
    }
}

/// The address of a server that all tests of the run share: choose your own stream prefix. It is
/// the one named by `INSTAR_TEST_NATS_URL`, or else one that is started for this process.
pub async fn shared() -> Result<String> {
    static SHARED: OnceCell<Nats> = OnceCell::const_new();
    if let Ok(url) = std::env::var(URL_VARIABLE) {
        return Ok(url);
    }
    Ok(SHARED.get_or_try_init(Nats::start).await?.url().to_owned())
}
