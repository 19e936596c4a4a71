//! The orderly end of a process: SIGTERM or SIGINT asks for it, a second signal ends it at once.
//!
//! Must not know: what the tasks do. Each watches [`Drain::draining`], takes no new work then, and
//! ends when what it has in hand is done.

use std::future::Future;
use std::io;
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// A handle on the end of the process; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Drain {
    begun: CancellationToken,
    tasks: TaskTracker,
}

/// How the wait for registered tasks went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    Clean,
    /// The grace was over with this many tasks still at work; others take over what they held.
    Cut {
        left: usize,
    },
}

impl Drained {
    /// 0 when all work ended, 1 when some was cut off.
    pub fn exit_code(self) -> ExitCode {
        match self {
            Drained::Clean => ExitCode::SUCCESS,
            Drained::Cut { .. } => ExitCode::FAILURE,
        }
    }
}

impl Drain {
    /// Begun by [`Drain::begin`] only: for tests and for parts of a process.
    pub fn new() -> Drain {
        Drain::default()
    }

    /// Begun by the first SIGTERM or SIGINT. From here on neither kills the process by itself.
    pub fn on_signal() -> io::Result<Drain> {
        let drain = Drain::new();
        let begun = drain.begun.clone();
        let (tell, ready) = std::sync::mpsc::sync_channel(1);
        // A runtime of its own: the second signal is sent just when the main one hangs.
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(tell.send(Err(error))),
            };
            runtime.block_on(async {
                match Signals::listen() {
                    Ok(signals) => {
                        let _ = tell.send(Ok(()));
                        signals.serve(begun).await;
                    }
                    Err(error) => drop(tell.send(Err(error))),
                }
            });
        })?;
        ready.recv().map_err(|_| io::Error::other("the signal thread ended at once"))??;
        Ok(drain)
    }

    /// Asks everybody to finish, as a signal does.
    pub fn begin(&self) {
        self.begun.cancel();
    }

    pub fn is_draining(&self) -> bool {
        self.begun.is_cancelled()
    }

    /// Returns when the drain begins; at once if it has begun.
    pub async fn draining(&self) {
        self.begun.cancelled().await;
    }

    /// For what takes a token itself; cancelling it begins the drain.
    pub fn token(&self) -> CancellationToken {
        self.begun.clone()
    }

    /// Starts a task that [`Drain::wait_for`] waits for.
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.tasks.spawn(task)
    }

    /// Work that is no task of its own; it counts until the value is dropped.
    pub fn hold(&self) -> Hold {
        Hold { _token: self.tasks.token() }
    }

    /// Waits until the drain begins and then, for `grace` at most, until every registered task has
    /// ended. Tasks registered meanwhile count too.
    pub async fn wait_for(&self, grace: Duration) -> Drained {
        self.draining().await;
        self.tasks.close();
        match tokio::time::timeout(grace, self.tasks.wait()).await {
            Ok(()) => Drained::Clean,
            Err(_) => Drained::Cut { left: self.tasks.len() },
        }
    }
}

/// See [`Drain::hold`].
#[derive(Debug)]
#[must_use = "work counts only as long as this is kept"]
pub struct Hold {
    _token: TaskTrackerToken,
}

struct Signals {
    term: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> io::Result<Signals> {
        Ok(Signals { term: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn serve(mut self, begun: CancellationToken) {
        let first = self.next().await;
        tracing::info!(signal = first, "draining; a second signal ends the process at once");
        begun.cancel();
        let second = self.next().await;
        tracing::warn!(signal = second, "ended by a second signal");
        // As a shell reports a death by this signal.
        std::process::exit(128 + second);
    }

    async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.term.recv() => SignalKind::terminate().as_raw_value(),
            _ = self.interrupt.recv() => SignalKind::interrupt().as_raw_value(),
        }
    }
}
