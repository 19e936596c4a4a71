//! A lane: one connection, one batch at a time, and what to do when a batch gets no verdicts.

use super::batch::Queue;
use super::{Engine, Failure, Job, Mode, Verdict, WriterStats};
use crate::commit::Sealed;
use crate::error::StoreError;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

/// Commits that a lane looks at when it puts a batch together; the others wait in its channel.
const LOOK_MAX: usize = 1_024;
/// How long a lane waits for as many commits as its last batch had. Each statement has a price of its own, so
/// that two small batches cost more than one.
const GATHER_MAX: Duration = Duration::from_millis(1);
/// How long a lane tries to reach the database again before it tells its callers.
const OUTAGE_MAX: Duration = Duration::from_secs(20);
/// Tries of a batch that the database turned away for a passing reason.
const TRIES_MAX: u32 = 8;
/// Tries of a single commit whose session somebody else holds; each waits for the lock timeout.
const LOCKED_TRIES_MAX: u32 = 3;
/// Connections that a single commit may take down before it is given up.
const LOSSES_MAX: u32 = 3;

/// Commits that run together, and how.
struct Batch {
    jobs: Vec<Job>,
    mode: Mode,
    tries: u32,
}

impl Batch {
    fn new(jobs: Vec<Job>) -> Batch {
        Batch { jobs, mode: Mode::Plain, tries: 0 }
    }

    fn fail(self, error: impl Fn() -> StoreError) {
        self.jobs.into_iter().for_each(|job| job.fail(error()));
    }

    /// The halves run on their own, the first one first.
    fn split(mut self, pending: &mut Vec<Batch>) {
        let right = self.jobs.split_off(self.jobs.len().div_ceil(2));
        let mode = self.mode;
        pending.push(Batch { jobs: right, mode, tries: 0 });
        pending.push(Batch { jobs: self.jobs, mode, tries: 0 });
    }
}

pub(super) struct Lane<E> {
    engine: E,
    receiver: mpsc::Receiver<Job>,
    stats: Arc<WriterStats>,
    queue: Queue<Job>,
    /// The database could not be reached for so long that callers were told: until it can be,
    /// newcomers are told at once.
    given_up: bool,
}

impl<E: Engine> Lane<E> {
    pub(super) fn new(engine: E, receiver: mpsc::Receiver<Job>, stats: Arc<WriterStats>) -> Lane<E> {
        Lane { engine, receiver, stats, queue: Queue::default(), given_up: false }
    }

    pub(super) async fn serve(mut self) {
        loop {
            if self.queue.is_empty() {
                match self.receiver.recv().await {
                    Some(job) => self.queue.push(job),
                    None => return,
                }
            }
            self.hear();
            let batch = self.queue.take(|job| &job.commit);
            let size = batch.len();
            self.run(Batch::new(batch)).await;
            if size > 1 {
                self.gather(size).await;
            }
        }
    }

    /// Takes in what has been asked for.
    fn hear(&mut self) {
        while self.queue.len() < LOOK_MAX
            && let Ok(job) = self.receiver.try_recv()
        {
            self.queue.push(job);
        }
    }

    /// Callers that were just answered often come back at once, and where many came others follow: the next batch
    /// waits a moment until it has as many as the last one. Where fewer come it shrinks, so that a single caller
    /// is not kept waiting for anybody.
    async fn gather(&mut self, expected: usize) {
        let over = sleep(GATHER_MAX);
        tokio::pin!(over);
        loop {
            self.hear();
            if self.queue.len() >= expected {
                return;
            }
            tokio::select! {
                job = self.receiver.recv() => match job {
                    Some(job) => self.queue.push(job),
                    None => return,
                },
                () = &mut over => return,
            }
        }
    }

    async fn run(&mut self, batch: Batch) {
        let mut pending = vec![batch];
        while let Some(mut batch) = pending.pop() {
            if batch.jobs.is_empty() {
                continue;
            }
            instar_crashpoint::crash_point!("store.commit.before");
            let refs: Vec<&Sealed> = batch.jobs.iter().map(|j| &j.commit).collect();
            let outcome = self.engine.run(&refs, batch.mode).await;
            self.stats.transactions.fetch_add(1, Relaxed);
            batch.tries += 1;
            let alone = batch.jobs.len() == 1;
            match outcome {
                Ok(verdicts) => {
                    instar_crashpoint::crash_point!("store.commit.after");
                    self.given_up = false;
                    pending.push(self.settle(batch.jobs, verdicts));
                }
                Err(Failure::Refused(error)) if alone => batch.jobs.into_iter().for_each(|job| job.fail(error.again())),
                // Find the one to blame, or the one that is locked.
                Err(Failure::Refused(_)) => batch.split(&mut pending),
                Err(Failure::Locked(_)) if !alone => batch.split(&mut pending),
                Err(Failure::Locked(_)) if batch.tries < LOCKED_TRIES_MAX => pending.push(batch),
                Err(Failure::Again(why)) if batch.tries < TRIES_MAX => {
                    tracing::warn!(error = %why, "a batch is tried again");
                    sleep(Duration::from_millis(10) * (1 << batch.tries)).await;
                    pending.push(batch);
                }
                Err(Failure::Locked(why) | Failure::Again(why)) => batch.fail(|| StoreError::Unavailable(why.clone())),
                Err(Failure::Down(why)) if self.given_up => batch.fail(|| StoreError::Unavailable(why.clone())),
                Err(Failure::Down(why)) => match self.reach().await {
                    Ok(()) => pending.push(batch),
                    Err(_) => batch.fail(|| StoreError::Unavailable(why.clone())),
                },
                Err(Failure::Lost(why)) => {
                    self.stats.ambiguous.fetch_add(batch.jobs.len() as u64, Relaxed);
                    tracing::warn!(error = %why, commits = batch.jobs.len(), "connection lost while committing");
                    self.recover(batch.jobs, why, &mut pending).await;
                }
            }
        }
    }

    /// Answers the callers. What another process overtook runs again with its sessions locked.
    fn settle(&self, jobs: Vec<Job>, verdicts: Vec<Verdict>) -> Batch {
        let mut again = Batch { jobs: Vec::new(), mode: Mode::Locked, tries: 0 };
        for (job, verdict) in jobs.into_iter().zip(verdicts) {
            match verdict {
                Verdict::Stale => {
                    self.stats.stale.fetch_add(1, Relaxed);
                    again.jobs.push(job);
                }
                verdict => {
                    self.stats.commits.fetch_add(1, Relaxed);
                    job.answer(verdict);
                }
            }
        }
        again
    }

    /// Reaches the database again, or gives up for all that wait.
    async fn reach(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + OUTAGE_MAX;
        let mut pause = Duration::from_millis(20);
        loop {
            match self.engine.reconnect().await {
                Ok(()) => return Ok(()),
                Err(why) if Instant::now() + pause > deadline => {
                    tracing::error!(error = %why, "the database is out of reach");
                    self.given_up = true;
                    self.queue.drain().for_each(|job| job.fail(StoreError::Unavailable(why.clone())));
                    return Err(why);
                }
                Err(_) => sleep(pause).await,
            }
            pause = (pause * 2).min(Duration::from_millis(500));
        }
    }

    /// After a lost connection: reach the database again, then ask it what landed. What did not is
    /// run again, each commit by itself, so that one that takes its connection down is found; and
    /// nothing is run twice.
    async fn recover(&mut self, jobs: Vec<Job>, why: String, pending: &mut Vec<Batch>) {
        let landed = match self.reach().await {
            Ok(()) => self.read_back(&jobs).await.map_err(|failure| format!("{failure:?}")),
            Err(refused) => Err(refused),
        };
        let landed = match landed {
            Ok(landed) => landed,
            Err(refused) => {
                tracing::error!(error = %refused, cause = %why, commits = jobs.len(), "it stays unknown what landed");
                return jobs.into_iter().for_each(|job| {
                    let id = job.commit.id;
                    job.fail(StoreError::Ambiguous(id));
                });
            }
        };
        // Taken from the end: the oldest must come first.
        for (mut job, verdict) in jobs.into_iter().zip(landed).rev() {
            job.losses += 1;
            match verdict {
                Some(verdict) => {
                    self.stats.read_back.fetch_add(1, Relaxed);
                    job.answer(verdict);
                }
                None if job.losses >= LOSSES_MAX => {
                    let why = format!("the connection broke {LOSSES_MAX} times while it was under way: {why}");
                    job.fail(StoreError::Unavailable(why));
                }
                None => pending.push(Batch::new(vec![job])),
            }
        }
    }

    async fn read_back(&mut self, jobs: &[Job]) -> Result<Vec<Option<Verdict>>, Failure> {
        let mut landed = Vec::with_capacity(jobs.len());
        for job in jobs {
            landed.push(self.engine.read_back(&job.commit).await?);
        }
        Ok(landed)
    }
}
