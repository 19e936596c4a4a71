//! The one transition writer: every status, and every rune, goes through here.
//!
//! Callers hand over a checked commit and wait. A lane is a task with a connection of its own; it
//! takes every commit that waits at the moment into one transaction, so that many callers share
//! one fsync, and a single caller waits for nobody. A commit that loses its compare-and-set drops
//! out alone. A caller that goes away cancels nothing: the lane owns the transaction.

mod batch;
mod lane;
mod postgres;
mod sqlite;

use crate::commit::{Answer, Found, Landed, Sealed};
use crate::error::StoreError;
use instar_core::id::SessionId;
use lane::Lane;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

pub(crate) use postgres::Engine as Postgres;
pub(crate) use sqlite::Engine as Sqlite;

/// Commits that may wait in one lane.
const WAITING_MAX: usize = 8_192;

/// What the database said of one commit of a batch.
#[derive(Debug)]
pub(crate) enum Verdict {
    Moved {
        base: i64,
        counters: Vec<(Uuid, i64)>,
    },
    Found(Vec<Found>),
    Absent {
        table: &'static str,
        id: Uuid,
    },
    /// Another process committed to the same session in between: run it again.
    Stale,
}

/// Why a whole batch got no verdicts.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The database refused its content: one commit of the batch is to blame. Nothing was written.
    Refused(StoreError),
    /// A session of the batch is locked by somebody who holds on to it. Nothing was written.
    Locked(String),
    /// Victim of a deadlock, no disk, no memory: it may work in a moment. Nothing was written.
    Again(String),
    /// There is no connection to be had. Nothing was sent.
    Down(String),
    /// The connection broke: it may have been written or not.
    Lost(String),
}

/// How a batch is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// One statement; what was overtaken by another process comes back as stale.
    Plain,
    /// The sessions are locked first, so that nothing can be stale: more round trips, sure to land.
    Locked,
}

pub(crate) trait Engine: Send + 'static {
    fn run(&mut self, batch: &[&Sealed], mode: Mode) -> impl Future<Output = Result<Vec<Verdict>, Failure>> + Send;

    /// A new connection, once whatever the old one was doing has surely ended.
    fn reconnect(&mut self) -> impl Future<Output = Result<(), String>> + Send;

    /// Whether a commit landed, and as what.
    fn read_back(&mut self, commit: &Sealed) -> impl Future<Output = Result<Option<Verdict>, Failure>> + Send;
}

struct Job {
    commit: Sealed,
    reply: oneshot::Sender<Result<Answer, StoreError>>,
    /// Connections that broke while it was under way.
    losses: u32,
}

impl Job {
    fn answer(self, verdict: Verdict) {
        let Job { commit, reply, .. } = self;
        let answer = match verdict {
            Verdict::Moved { base, counters } => {
                let mut runes = commit.runes;
                for (rune, seq) in runes.iter_mut().zip(base + 1..) {
                    rune.seq = seq;
                }
                Ok(Answer::Moved(Landed { runes, counters }))
            }
            Verdict::Found(found) => Ok(Answer::Found(found)),
            Verdict::Absent { table, id } => Ok(Answer::Absent { table, id }),
            Verdict::Stale => Err(StoreError::Busy),
        };
        // A caller that went away does not want to know.
        drop(reply.send(answer));
    }

    fn fail(self, error: StoreError) {
        drop(self.reply.send(Err(error)));
    }
}

/// Counts for benches and metrics.
#[derive(Debug, Default)]
pub struct WriterStats {
    pub commits: AtomicU64,
    pub transactions: AtomicU64,
    pub stale: AtomicU64,
    pub ambiguous: AtomicU64,
    pub read_back: AtomicU64,
}

#[derive(Clone)]
pub(crate) struct Writer {
    lanes: Arc<[mpsc::Sender<Job>]>,
    pub(crate) stats: Arc<WriterStats>,
}

impl Writer {
    pub(crate) fn start<E: Engine>(engines: Vec<E>) -> Writer {
        let stats = Arc::new(WriterStats::default());
        let lanes = engines
            .into_iter()
            .map(|engine| {
                let (sender, receiver) = mpsc::channel(WAITING_MAX);
                tokio::spawn(Lane::new(engine, receiver, stats.clone()).serve());
                sender
            })
            .collect();
        Writer { lanes, stats }
    }

    pub(crate) async fn commit(&self, commit: Sealed) -> Result<Answer, StoreError> {
        let (reply, answer) = oneshot::channel();
        let lane = self.lane(commit.session);
        lane.try_send(Job { commit, reply, losses: 0 }).map_err(|e| match e {
            mpsc::error::TrySendError::Full(_) => StoreError::Busy,
            mpsc::error::TrySendError::Closed(_) => StoreError::Closed,
        })?;
        answer.await.unwrap_or(Err(StoreError::Closed))
    }

    /// A session has one lane per process, so that its commits never wait for each other's locks.
    fn lane(&self, session: SessionId) -> &mpsc::Sender<Job> {
        // The random end of the id: its beginning is a time.
        let (_, low) = session.uuid().as_u64_pair();
        &self.lanes[(low % self.lanes.len() as u64) as usize]
    }
}
