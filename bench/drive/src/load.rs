//! Load: agents that get message after message, each sent when the turn before is over.

use crate::child::Child;
use crate::model::SAID;
use crate::wire::{Line, find};
use anyhow::{Context, Result, ensure};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// How a candidate is given turns.
pub enum Entry {
    /// One ready request for each agent.
    Http { address: String, requests: Vec<Vec<u8>> },
    /// It makes them itself, as many at once as it is told.
    Library(Child),
}

#[derive(Default)]
struct Count {
    stopped: bool,
    /// Milliseconds of each turn that ended while somebody counted.
    times: Option<Vec<f64>>,
}

/// Agents at work.
pub struct Load<'a> {
    entry: &'a mut Entry,
    count: Rc<RefCell<Count>>,
    drivers: JoinSet<Result<()>>,
}

impl<'a> Load<'a> {
    /// `from`: agents of this entry that have been used before.
    pub async fn start(entry: &'a mut Entry, from: usize, agents: usize) -> Result<Load<'a>> {
        let (count, mut drivers) = (Rc::new(RefCell::new(Count::default())), JoinSet::new());
        match entry {
            Entry::Http { address, requests } => {
                for request in requests.get(from..from + agents).context("more agents than there are")? {
                    let (line, request, count) = (Line::connect(address).await?, request.clone(), count.clone());
                    drivers.spawn_local(drive(line, request, count));
                }
            }
            Entry::Library(child) => child.order(&format!("start {agents}"))?,
        }
        Ok(Load { entry, count, drivers })
    }

    pub fn begin(&mut self) -> Result<()> {
        self.count.borrow_mut().times = Some(Vec::new());
        match &mut self.entry {
            Entry::Http { .. } => Ok(()),
            Entry::Library(child) => child.order("begin"),
        }
    }

    /// The times of the turns since, in order of size.
    pub async fn end(&mut self) -> Result<Vec<f64>> {
        let mut times = match &mut self.entry {
            Entry::Http { .. } => self.count.borrow_mut().times.take().unwrap_or_default(),
            Entry::Library(child) => {
                child.order("end")?;
                serde_json::from_str(&child.line(ANSWER_WITHIN).await?)?
            }
        };
        times.sort_by(f64::total_cmp);
        Ok(times)
    }

    /// Lets every agent finish its turn.
    pub async fn stop(mut self) -> Result<()> {
        self.count.borrow_mut().stopped = true;
        while let Some(ended) = self.drivers.join_next().await {
            ended??;
        }
        Ok(())
    }
}

async fn drive(mut line: Line, request: Vec<u8>, count: Rc<RefCell<Count>>) -> Result<()> {
    while !count.borrow().stopped {
        let begun = Instant::now();
        let answer = tokio::time::timeout(ANSWER_WITHIN, line.ask(&request)).await.context("a turn without end")??;
        ensure!(find(&answer.body, SAID).is_some(), "no whole turn: {}", String::from_utf8_lossy(&answer.body));
        if let Some(times) = &mut count.borrow_mut().times {
            times.push(begun.elapsed().as_secs_f64() * 1e3);
        }
    }
    Ok(())
}
