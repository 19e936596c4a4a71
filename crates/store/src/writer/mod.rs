//! The one transition writer: every status, and every rune, goes through here.
//!
//! Callers hand over a checked commit and wait. A lane is a task with a connection of its own; it
//! takes every commit that waits at the moment into one transaction, so that many callers share
//! one fsync, and a single caller waits for nobody. A commit that loses its compare-and-set drops
//! out alone. A caller that goes away cancels nothing: the lane owns the transaction.

mod batch;
mod postgres;
mod sqlite;

use crate::commit::{Answer, Found, Landed, Sealed};
use crate::error::StoreError;
use batch::Queue;
use instar_core::id::SessionId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

pub(crate) use postgres::Engine as Postgres;
pub(crate) use sqlite::Engine as Sqlite;

/// Commits that may wait in one lane.
const WAITING_MAX: usize = 8_192;
/// How long a lane tries to reach the database again before it tells its callers.
const OUTAGE_MAX: Duration = Duration::from_secs(20);

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
    /// The database refused its content: one commit of the batch is to blame.
    Refused(StoreError),
    /// Chosen as the victim of a deadlock or a serialisation conflict: nothing was written.
    Again(String),
    /// The connection broke: it may have been written or not.
    Lost(String),
}

pub(crate) trait Engine: Send + 'static {
    fn run(&mut self, batch: &[&Sealed]) -> impl Future<Output = Result<Vec<Verdict>, Failure>> + Send;

    /// A new connection, once whatever the old one was doing has surely ended.
    fn reconnect(&mut self) -> impl Future<Output = Result<(), String>> + Send;

    /// The number before a commit's first rune, if it landed.
    fn read_back(&mut self, commit: &Sealed) -> impl Future<Output = Result<Option<Verdict>, Failure>> + Send;
}

struct Job {
    commit: Sealed,
    reply: oneshot::Sender<Result<Answer, StoreError>>,
}

impl Job {
    fn answer(self, verdict: Verdict) {
        let Job { commit, reply } = self;
        let answer = match verdict {
            Verdict::Moved { base, counters } => {
                let mut runes = commit.runes;
                for (rune, seq) in runes.iter_mut().zip(base + 1..) {
                    rune.seq = seq;
                }
                Answer::Moved(Landed { runes, counters })
            }
            Verdict::Found(found) => Answer::Found(found),
            Verdict::Absent { table, id } => Answer::Absent { table, id },
            Verdict::Stale => return drop(reply.send(Err(StoreError::Busy))),
        };
        // A caller that went away does not want to know.
        drop(reply.send(Ok(answer)));
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
                tokio::spawn(Lane { engine, receiver, stats: stats.clone(), queue: Queue::default() }.serve());
                sender
            })
            .collect();
        Writer { lanes, stats }
    }

    pub(crate) async fn commit(&self, commit: Sealed) -> Result<Answer, StoreError> {
        let (reply, answer) = oneshot::channel();
        let lane = self.lane(commit.session);
        lane.try_send(Job { commit, reply }).map_err(|e| match e {
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

struct Lane<E> {
    engine: E,
    receiver: mpsc::Receiver<Job>,
    stats: Arc<WriterStats>,
    queue: Queue<Job>,
}

impl<E: Engine> Lane<E> {
    async fn serve(mut self) {
        loop {
            if self.queue.is_empty() {
                match self.receiver.recv().await {
                    Some(job) => self.queue.push(job),
                    None => return,
                }
            }
            while let Ok(job) = self.receiver.try_recv() {
                self.queue.push(job);
            }
            let batch = self.queue.take(|job| &job.commit);
            self.run(batch).await;
        }
    }

    async fn run(&mut self, batch: Vec<Job>) {
        let mut pending = vec![batch];
        let mut tries = 0;
        while let Some(jobs) = pending.pop() {
            if jobs.is_empty() {
                continue;
            }
            instar_crashpoint::crash_point!("store.commit.before");
            let refs: Vec<&Sealed> = jobs.iter().map(|j| &j.commit).collect();
            let outcome = self.engine.run(&refs).await;
            self.stats.transactions.fetch_add(1, Ordering::Relaxed);
            match outcome {
                Ok(verdicts) => {
                    instar_crashpoint::crash_point!("store.commit.after");
                    pending.push(self.settle(jobs, verdicts));
                }
                // Find the one to blame: the halves run on their own, the first one first.
                Err(Failure::Refused(error)) => {
                    let mut left = jobs;
                    let right = left.split_off(left.len().div_ceil(2));
                    match (left.pop(), right.is_empty() && left.is_empty()) {
                        (Some(job), true) => job.fail(error),
                        (last, _) => {
                            left.extend(last);
                            pending.push(right);
                            pending.push(left);
                        }
                    }
                }
                Err(Failure::Again(why)) => {
                    tries += 1;
                    if tries > 10 {
                        jobs.into_iter().for_each(|job| job.fail(StoreError::Unavailable(why.clone())));
                    } else {
                        pending.push(jobs);
                    }
                }
                Err(Failure::Lost(why)) => {
                    self.stats.ambiguous.fetch_add(jobs.len() as u64, Ordering::Relaxed);
                    tracing::warn!(error = %why, commits = jobs.len(), "connection lost while committing");
                    pending.push(self.recover(jobs, why).await);
                }
            }
        }
    }

    /// Answers the callers; what was stale comes back to be run again.
    fn settle(&self, jobs: Vec<Job>, verdicts: Vec<Verdict>) -> Vec<Job> {
        let mut again = Vec::new();
        for (job, verdict) in jobs.into_iter().zip(verdicts) {
            match verdict {
                Verdict::Stale => {
                    self.stats.stale.fetch_add(1, Ordering::Relaxed);
                    again.push(job);
                }
                verdict => {
                    self.stats.commits.fetch_add(1, Ordering::Relaxed);
                    job.answer(verdict);
                }
            }
        }
        again
    }

    /// After a lost connection: reach the database again, then ask it what landed. What did not
    /// land comes back to be run again; nothing is run twice.
    async fn recover(&mut self, jobs: Vec<Job>, why: String) -> Vec<Job> {
        let deadline = tokio::time::Instant::now() + OUTAGE_MAX;
        let mut pause = Duration::from_millis(20);
        loop {
            let refused = match self.engine.reconnect().await {
                Ok(()) => match self.read_back(&jobs).await {
                    Ok(landed) => return self.sort_out(jobs, landed),
                    Err(failure) => format!("{failure:?}"),
                },
                Err(refused) => refused,
            };
            if tokio::time::Instant::now() + pause > deadline {
                tracing::error!(error = %refused, cause = %why, commits = jobs.len(), "database out of reach");
                for job in jobs {
                    let id = job.commit.id;
                    job.fail(StoreError::Ambiguous(id));
                }
                return Vec::new();
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(500));
        }
    }

    async fn read_back(&mut self, jobs: &[Job]) -> Result<Vec<Option<Verdict>>, Failure> {
        let mut landed = Vec::with_capacity(jobs.len());
        for job in jobs {
            landed.push(self.engine.read_back(&job.commit).await?);
        }
        Ok(landed)
    }

    fn sort_out(&self, jobs: Vec<Job>, landed: Vec<Option<Verdict>>) -> Vec<Job> {
        let mut again = Vec::new();
        for (job, verdict) in jobs.into_iter().zip(landed) {
            match verdict {
                Some(verdict) => {
                    self.stats.read_back.fetch_add(1, Ordering::Relaxed);
                    job.answer(verdict);
                }
                None => again.push(job),
            }
        }
        again
    }
}
