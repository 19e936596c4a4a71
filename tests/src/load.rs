//! Load: agents that get message after message, each sent when the turn before is over.

use crate::fleet::Fleet;
use anyhow::{Context, Result, bail};
use instar_client::{Client, ClientError, Mode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// A turn that takes longer than this has been lost.
const TURN_WITHIN: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(15);

#[derive(Clone, Debug)]
pub struct Finished {
    pub turn: String,
    pub status: String,
    pub began: Instant,
    pub ended: Instant,
}

/// Drivers at work; stopped and awaited by [`Load::stop`].
pub struct Load {
    stop: Arc<AtomicBool>,
    pub done: Arc<AtomicU64>,
    drivers: JoinSet<Result<Vec<Finished>>>,
}

impl Load {
    /// One driver per agent; the tools take turns.
    pub fn start(fleet: &Fleet, agents: &[String], tools: &[&str]) -> Load {
        Load::start_as(fleet.client.clone(), agents, tools)
    }

    pub fn start_as(client: Client, agents: &[String], tools: &[&str]) -> Load {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let tools: Arc<Vec<String>> = Arc::new(tools.iter().map(|t| (*t).to_owned()).collect());
        let mut drivers = JoinSet::new();
        for (n, agent) in agents.iter().enumerate() {
            let (client, agent, tools) = (client.clone(), agent.clone(), tools.clone());
            let (stop, done) = (stop.clone(), done.clone());
            drivers.spawn(async move {
                let mut finished = Vec::new();
                for i in n.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let text = format!("{} {agent}-{i}", tools[i % tools.len()]);
                    finished.push(turn(&client, &agent, &text).await?);
                    done.fetch_add(1, Ordering::Relaxed);
                }
                Ok(finished)
            });
        }
        Load { stop, done, drivers }
    }

    pub fn finished(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Waits for so many more turns.
    pub async fn more(&mut self, turns: u64, within: Duration) -> Result<()> {
        let (goal, end) = (self.finished() + turns, Instant::now() + within);
        while self.finished() < goal {
            if Instant::now() > end {
                bail!("{} of {turns} turns in {within:?}", turns - (goal - self.finished()));
            }
            if let Some(ended) = self.drivers.try_join_next() {
                ended.context("a driver")??;
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// Lets every driver finish its turn.
    pub async fn stop(mut self) -> Result<Vec<Finished>> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        while let Some(ended) = self.drivers.join_next().await {
            all.extend(ended.context("a driver")??);
        }
        Ok(all)
    }
}

/// Sends and waits for the end of the turn; an API that is away is tried again.
pub async fn turn(client: &Client, agent: &str, text: &str) -> Result<Finished> {
    let began = Instant::now();
    // One message, however often its answer is lost.
    let once = match client.has_keys() {
        true => client.clone().with_idempotency_key(uuid::Uuid::now_v7().simple().to_string()),
        false => client.clone(),
    };
    let sent = insist(began, || once.send_and_wait(agent, text, Mode::Queue, 20.0)).await?;
    let id = sent.turn_id.context("an agent without a live turn was given none")?;
    if let Some(turn) = sent.turn.filter(|turn| turn.is_over()) {
        return Ok(Finished { turn: id, status: turn.status, began, ended: Instant::now() });
    }
    loop {
        let turn = insist(began, || client.turn_within(&id, 5.0)).await?;
        if turn.is_over() {
            return Ok(Finished { turn: id, status: turn.status, began, ended: Instant::now() });
        }
        if began.elapsed() > TURN_WITHIN {
            bail!("turn {id} is {} after {:?}, waiting for {:?}", turn.status, began.elapsed(), turn.waiting_for);
        }
    }
}

/// Asks until somebody answers; an API that is away is tried again.
pub(crate) async fn insist<T, F>(began: Instant, ask: impl Fn() -> F) -> Result<T>
where
    F: Future<Output = Result<T, ClientError>>,
{
    loop {
        match ask().await {
            Ok(answer) => return Ok(answer),
            Err(error) if began.elapsed() > TURN_WITHIN => return Err(error.into()),
            Err(ClientError::Problem { status, problem }) if ![429, 500, 502, 503, 504].contains(&status) => {
                bail!("{status}: {problem:?}")
            }
            Err(_) => tokio::time::sleep(POLL * 4).await,
        }
    }
}
