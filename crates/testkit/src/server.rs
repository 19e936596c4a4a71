//! The life of one private server: start on a free port, crash, stop, come back on the same port.
//!
//! It must not know the server's protocol or options: these come from [`Kind`].

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use crate::process::{self, Guard};
use crate::wait;

const READY_WITHIN: Duration = Duration::from_secs(30);
const STOPPED_WITHIN: Duration = Duration::from_secs(15);
const PORTS_TRIED: u32 = 5;

/// What differs between servers.
pub(crate) trait Kind: Send + 'static {
    const NAME: &'static str;
    /// Sent by the kernel when our process dies, and by the watcher (by name) before it kills.
    const ON_DEATH: i32;
    const ON_DEATH_NAME: &'static str;
    /// Stops the server in an orderly way.
    const ON_STOP: i32;

    fn command(&self, dir: &Path, port: u16) -> Command;
    /// Whether the server that *we* started (not whoever took its port) answers.
    fn ready(&self, dir: &Path, port: u16, pid: u32) -> bool;
}

pub(crate) struct Server<K: Kind> {
    kind: K,
    dir: PathBuf,
    port: u16,
    child: Option<Child>,
    guard: Guard,
}

impl<K: Kind> Server<K> {
    /// `dir` must exist and be ours alone: it is removed at the end.
    pub(crate) fn start(kind: K, dir: &Path, guard: Guard) -> Result<Self> {
        let mut server = Self { kind, dir: dir.to_owned(), port: 0, child: None, guard };
        let mut refusal = anyhow!("no port was tried");
        for _ in 0..PORTS_TRIED {
            server.port = wait::free_port()?;
            match server.launch() {
                Ok(()) => return Ok(server),
                // Most often somebody else took the port in between.
                Err(error) => refusal = error,
            }
            server.kill9()?;
        }
        Err(refusal)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Starts on the port and folder it already has.
    pub(crate) fn launch(&mut self) -> Result<()> {
        if self.child.is_some() {
            bail!("{} already runs", K::NAME);
        }
        let log = File::options().create(true).append(true).open(self.log())?;
        let mut command = self.kind.command(&self.dir, self.port);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child =
            process::spawn_bound(command, K::ON_DEATH).with_context(|| format!("{} could not be executed", K::NAME))?;
        self.guard.tell(Some(child.id()))?;
        self.child = Some(child);
        self.wait_until_ready()
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let started = Instant::now();
        loop {
            let Some(child) = &mut self.child else {
                bail!("{} was stopped while it started", K::NAME);
            };
            if self.kind.ready(&self.dir, self.port, child.id()) {
                return Ok(());
            }
            if let Some(status) = child.try_wait()? {
                self.forget()?;
                bail!("{} ended at once ({status}); its last words:\n{}", K::NAME, self.words());
            }
            if started.elapsed() > READY_WITHIN {
                bail!("{} not ready after {READY_WITHIN:?}:\n{}", K::NAME, self.words());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends every process of the server the way a power cut would, and waits until they are gone.
    pub(crate) fn kill9(&mut self) -> Result<()> {
        if let Some(child) = &mut self.child {
            child.kill()?;
            child.wait()?;
        }
        self.forget()?;
        let started = Instant::now();
        loop {
            let left = process::inside(&self.dir);
            if left.is_empty() {
                return Ok(());
            }
            for pid in left {
                let _ = process::kill9(pid);
            }
            if started.elapsed() > STOPPED_WITHIN {
                bail!("{} still has processes after kill -9", K::NAME);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub(crate) fn stop(&mut self) -> Result<()> {
        if let Some(child) = &mut self.child {
            process::signal(child.id(), K::ON_STOP)?;
            if !process::ended_within(child, STOPPED_WITHIN)? {
                bail!("{} did not stop within {STOPPED_WITHIN:?}:\n{}", K::NAME, self.words());
            }
        }
        self.forget()
    }

    fn forget(&mut self) -> Result<()> {
        self.child = None;
        self.guard.tell(None)
    }

    fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    fn words(&self) -> String {
        let text = std::fs::read(self.log()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl<K: Kind> Drop for Server<K> {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // Reaped here so that the watcher, which runs when `guard` drops, finds nobody to wait
            // for.
            let _ = process::signal(child.id(), K::ON_DEATH);
            if !process::ended_within(child, Duration::from_secs(3)).unwrap_or(false) {
                let _ = child.kill();
                let _ = child.wait();
            }
            let _ = self.forget();
        }
    }
}

/// A test that failed while it held a server has poisoned the lock, not the server.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs what blocks aside from the asynchronous threads.
pub(crate) async fn blocking<T: Send + 'static>(act: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(act).await.context("the server task was cut short")?
}
