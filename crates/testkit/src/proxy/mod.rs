//! A TCP proxy whose network can be made bad while it runs: delay, loss of a direction, resets, a
//! thin pipe.
//!
//! It must not know the protocols that pass through it.

mod pipe;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Which way bytes go: up is from the client to the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Up,
    Down,
}

/// Faults of one direction.
#[derive(Clone, Default)]
struct Path {
    /// Bytes are taken and thrown away.
    hole: bool,
    /// Bytes are taken and kept back until healed.
    frozen: bool,
    /// Total count of bytes after which connections are reset.
    cut_at: Option<u64>,
    /// Connections are reset once a chunk with these bytes has been delivered.
    cut_on: Option<Arc<[u8]>>,
}

#[derive(Clone)]
struct Faults {
    target: SocketAddr,
    delay: Duration,
    jitter: Duration,
    refuse: bool,
    bytes_per_second: Option<u64>,
    paths: [Path; 2],
    /// Connections of an earlier generation are reset.
    generation: u64,
    /// A connection that loses a byte stays lost, and nobody is told.
    strand: bool,
}

impl Faults {
    fn none(target: SocketAddr, generation: u64) -> Self {
        let (delay, jitter, paths) = Default::default();
        Self { target, delay, jitter, refuse: false, bytes_per_second: None, paths, generation, strand: false }
    }
}

#[derive(Default)]
struct Counters {
    connections: AtomicU64,
    cuts: AtomicU64,
    stranded: AtomicU64,
    bytes: [AtomicU64; 2],
}

/// A running proxy; it ends, and closes its connections, when dropped.
pub struct Proxy {
    address: SocketAddr,
    faults: watch::Sender<Faults>,
    counters: Arc<Counters>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Listens on a free port of 127.0.0.1 and forwards to `target`, such as `127.0.0.1:5432`.
    pub async fn start(target: &str) -> Result<Self> {
        let target = resolve(target).await?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, crate::wait::free_port()?)).await?;
        let address = listener.local_addr()?;
        let (faults, seen) = watch::channel(Faults::none(target, 0));
        let counters = Arc::<Counters>::default();
        let task = tokio::spawn(pipe::accept(listener, address, seen, counters.clone()));
        Ok(Self { address, faults, counters, task })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `url` with the proxy's host and port in place of its own.
    pub fn instead_of(&self, url: &str) -> String {
        let start = url.find("://").map_or(0, |at| at + 3);
        let end = url[start..].find(['/', '?']).map_or(url.len(), |at| start + at);
        let start = url[start..end].rfind('@').map_or(start, |at| start + at + 1);
        format!("{}{}{}", &url[..start], self.address, &url[end..])
    }

    /// Every byte arrives so much later, give or take up to `jitter`; order is kept.
    pub fn delay(&self, delay: Duration, jitter: Duration) {
        self.faults.send_modify(|faults| (faults.delay, faults.jitter) = (delay, jitter));
    }

    pub fn bandwidth(&self, bytes_per_second: u64) {
        self.faults.send_modify(|faults| faults.bytes_per_second = Some(bytes_per_second.max(1)));
    }

    /// Resets the connections there are (RST); new ones are welcome.
    pub fn cut(&self) {
        self.faults.send_modify(|faults| faults.generation += 1);
    }

    /// Refuses new connections; those there are stay.
    pub fn refuse(&self) {
        self.faults.send_modify(|faults| faults.refuse = true);
    }

    /// Swallows what goes in a direction, ends included, so that the peer is half-open. A
    /// connection that lost bytes is reset when healed.
    pub fn black_hole(&self, direction: Direction) {
        self.faults.send_modify(|faults| faults.paths[direction as usize].hole = true);
    }

    /// Swallows what goes in both directions. A connection that lost bytes stays open and mute for good, as when
    /// something on its way has forgotten it; others go on when healed.
    pub fn strand(&self) {
        self.faults.send_modify(|faults| {
            faults.strand = true;
            faults.paths.iter_mut().for_each(|path| path.hole = true);
        });
    }

    /// Keeps back what goes in a direction and delivers it when healed: a partition shorter than
    /// TCP's patience.
    pub fn freeze(&self, direction: Direction) {
        self.faults.send_modify(|faults| faults.paths[direction as usize].frozen = true);
    }

    /// Resets the connection that carries the `bytes`-th byte from now in that direction; that byte
    /// is delivered.
    pub fn cut_after(&self, direction: Direction, bytes: u64) {
        let at = self.bytes(direction) + bytes;
        self.faults.send_modify(|faults| faults.paths[direction as usize].cut_at = Some(at));
    }

    /// Resets a connection towards its sender as soon as it has delivered a chunk with `needle` in
    /// it, as after a COMMIT whose answer nobody hears. Stays on until healed.
    pub fn cut_on(&self, direction: Direction, needle: &[u8]) {
        let needle = Some(needle.into());
        self.faults.send_modify(|faults| faults.paths[direction as usize].cut_on = needle);
    }

    /// Ends all faults.
    pub fn heal(&self) {
        self.faults.send_modify(|faults| *faults = Faults::none(faults.target, faults.generation));
    }

    /// New connections go to another target.
    pub async fn retarget(&self, target: &str) -> Result<()> {
        let target = resolve(target).await?;
        self.faults.send_modify(|faults| faults.target = target);
        Ok(())
    }

    /// Connections that were accepted so far.
    pub fn connections(&self) -> u64 {
        self.counters.connections.load(Ordering::Relaxed)
    }

    /// Connections that were reset so far.
    pub fn cuts(&self) -> u64 {
        self.counters.cuts.load(Ordering::Relaxed)
    }

    /// Connections that were stranded so far.
    pub fn stranded(&self) -> u64 {
        self.counters.stranded.load(Ordering::Relaxed)
    }

    /// Bytes delivered so far.
    pub fn bytes(&self, direction: Direction) -> u64 {
        self.counters.bytes[direction as usize].load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn resolve(target: &str) -> Result<SocketAddr> {
    let mut found = tokio::net::lookup_host(target).await?;
    found.next().with_context(|| format!("{target} is no address"))
}
