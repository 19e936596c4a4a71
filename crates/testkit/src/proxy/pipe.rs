//! The connections of the proxy: bytes taken on one side and given on the other, as the faults of
//! the moment allow.
//!
//! It must not know how faults are switched.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::try_join;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::{Counters, Direction, Faults, Path};

const CHUNK_BYTES: usize = 16 << 10;
/// Chunks under way in one direction of one connection; then the sender has to wait.
const CHUNKS_MAX: usize = 1024;

pub(super) async fn accept(
    listener: TcpListener,
    address: SocketAddr,
    mut faults: watch::Receiver<Faults>,
    counters: Arc<Counters>,
) {
    let mut listener = Some(listener);
    let mut connections = JoinSet::new();
    loop {
        // Only a closed listener makes the kernel refuse.
        if faults.borrow_and_update().refuse {
            listener = None;
        } else if listener.is_none() {
            listener = TcpListener::bind(address).await.ok();
        }
        let Some(open) = &listener else {
            tokio::select! {
                changed = faults.changed() => if changed.is_err() { return },
                () = sleep(Duration::from_millis(20)) => {}
            }
            continue;
        };
        tokio::select! {
            accepted = open.accept() => if let Ok((client, _)) = accepted {
                counters.connections.fetch_add(1, Ordering::Relaxed);
                connections.spawn(connect(client, faults.clone(), counters.clone()));
            },
            changed = faults.changed() => if changed.is_err() { return },
            _ = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

/// A connection ends before both sides have closed it.
struct Reset;

impl From<std::io::Error> for Reset {
    fn from(_: std::io::Error) -> Self {
        // One side failed: the other must see a failure too, not an orderly end.
        Reset
    }
}

async fn connect(mut client: TcpStream, faults: watch::Receiver<Faults>, counters: Arc<Counters>) {
    let target = faults.borrow().target;
    let Ok(mut server) = TcpStream::connect(target).await else {
        let _ = client.set_zero_linger();
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let ended = {
        let (client_in, client_out) = client.split();
        let (server_in, server_out) = server.split();
        let mute = AtomicBool::new(false);
        let pipe = |direction| Pipe { direction, faults: faults.clone(), counters: &counters, mute: &mute };
        let (up, down) = (pipe(Direction::Up), pipe(Direction::Down));
        let (up, down) = (up.run(client_in, server_out), down.run(server_in, client_out));
        tokio::select! {
            ended = try_join(up, down) => ended.map(|_| ()),
            () = outdated(faults) => Err(Reset),
        }
    };
    if ended.is_err() {
        counters.cuts.fetch_add(1, Ordering::Relaxed);
        // The server gets an orderly end: a reset could overtake bytes that count as delivered.
        let _ = client.set_zero_linger();
    }
}

/// Ends when connections of this generation are to be reset.
async fn outdated(mut faults: watch::Receiver<Faults>) {
    let mine = faults.borrow().generation;
    let _ = faults.wait_for(|faults| faults.generation != mine).await;
}

type Chunk = (Instant, Vec<u8>);

struct Pipe<'a> {
    direction: Direction,
    faults: watch::Receiver<Faults>,
    counters: &'a Counters,
    /// The connection is stranded, in both directions.
    mute: &'a AtomicBool,
}

impl Pipe<'_> {
    async fn run(self, from: ReadHalf<'_>, to: WriteHalf<'_>) -> Result<(), Reset> {
        let (sender, receiver) = mpsc::channel(CHUNKS_MAX);
        try_join(self.take(from, sender), self.give(to, receiver)).await.map(|_| ())
    }

    fn path(&self) -> Path {
        self.faults.borrow().paths[self.direction as usize].clone()
    }

    /// Whether what was just read is lost, with all that follows.
    fn stranded(&self) -> bool {
        let hole = self.faults.borrow().strand && self.path().hole;
        if hole && !self.mute.swap(true, Ordering::Relaxed) {
            self.counters.stranded.fetch_add(1, Ordering::Relaxed);
        }
        self.mute.load(Ordering::Relaxed)
    }

    /// Reads at once, and notes when each chunk is due, so that delay does not thin the pipe.
    async fn take(&self, mut from: ReadHalf<'_>, to: mpsc::Sender<Chunk>) -> Result<(), Reset> {
        let (mut lost, mut due) = (false, Instant::now());
        loop {
            let mut chunk = vec![0; CHUNK_BYTES];
            let mut faults = self.faults.clone();
            let place = self.direction as usize;
            let count = tokio::select! {
                count = from.read(&mut chunk) => count?,
                _ = faults.wait_for(|faults| !faults.paths[place].hole), if lost => return Err(Reset),
            };
            if self.stranded() {
                if count == 0 {
                    // Nobody hears that this side has given up.
                    std::future::pending::<()>().await;
                }
                continue;
            }
            if self.path().hole {
                lost = true;
                if count == 0 {
                    // The end is swallowed too.
                    let _ = faults.wait_for(|faults| !faults.paths[place].hole).await;
                    return Err(Reset);
                }
                continue;
            }
            let (delay, jitter) = (faults.borrow().delay, faults.borrow().jitter);
            due = due.max(Instant::now() + jittered(delay, jitter));
            chunk.truncate(count);
            // An empty chunk stands for the end.
            if to.send((due, chunk)).await.is_err() || count == 0 {
                return Ok(());
            }
        }
    }

    async fn give(&self, mut to: WriteHalf<'_>, mut from: mpsc::Receiver<Chunk>) -> Result<(), Reset> {
        let place = self.direction as usize;
        while let Some((due, chunk)) = from.recv().await {
            if due > Instant::now() {
                sleep_until(due).await;
            }
            let _ = self.faults.clone().wait_for(|faults| !faults.paths[place].frozen).await;
            if chunk.is_empty() {
                to.shutdown().await?;
                break;
            }
            let mut rest = chunk.as_slice();
            while !rest.is_empty() {
                let rate = self.faults.borrow().bytes_per_second;
                let total = self.counters.bytes[place].load(Ordering::Relaxed);
                let left = self.path().cut_at.map_or(u64::MAX, |at| at.saturating_sub(total));
                let size = (rest.len() as u64).min(left).min(rate.map_or(u64::MAX, |rate| (rate / 20).max(1)));
                let (now, later) = rest.split_at(size as usize);
                if let Some(rate) = rate {
                    sleep(Duration::from_secs_f64(size as f64 / rate as f64)).await;
                }
                to.write_all(now).await?;
                self.counters.bytes[place].fetch_add(size, Ordering::Relaxed);
                rest = later;
                if left <= size {
                    return Err(Reset);
                }
            }
            let needle = self.path().cut_on;
            if needle.is_some_and(|needle| chunk.windows(needle.len().max(1)).any(|part| part == &*needle)) {
                return Err(Reset);
            }
        }
        Ok(())
    }
}

fn jittered(delay: Duration, jitter: Duration) -> Duration {
    if jitter.is_zero() {
        return delay;
    }
    // The last 32 bits of a version 7 id are random.
    let random = f64::from(uuid::Uuid::now_v7().as_u128() as u32) / f64::from(u32::MAX);
    (delay + jitter.mul_f64(2.0 * random)).saturating_sub(jitter)
}
