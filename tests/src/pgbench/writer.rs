//! Our side: callers that wait for each transition before they ask for the next.

use super::Figure;
use crate::cast::{self, mv, system};
use anyhow::{Result, bail};
use futures::future::try_join_all;
use instar_core::id::{AgentId, SessionId, TurnId};
use instar_core::machine::{self, By, Move};
use instar_core::rune::Draft;
use instar_core::rune::payload::TurnToolCallsReceived;
use instar_core::rune::payload::TurnToolsFinished;
use instar_store::entity::turn;
use instar_store::{Answer, Change, Commit, Store};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub struct Cast {
    turns: Vec<(SessionId, TurnId, AtomicU64)>,
    moves: [Move; 2],
}

impl Cast {
    /// Twice as many as asked for: the first half is pgbench's, which keeps no track of states.
    pub async fn make(store: &Store, sessions: usize) -> Result<Cast> {
        let mut turns = Vec::with_capacity(sessions);
        for chunk in 0..2 * sessions / 256 {
            let made = (0..256).map(|i| one(store, (chunk * 256 + i) as u64));
            turns.extend(try_join_all(made).await?);
        }
        let turns = turns.split_off(sessions);
        let table = &machine::turn::TABLE;
        let moves = [
            mv(table, Some("streaming"), "tool_calls_received", By::System)?,
            mv(table, Some("tool_executing"), "tools_finished", By::System)?,
        ];
        Ok(Cast { turns, moves })
    }
}

/// Ids that pgbench can compute from a number.
pub fn id<T: From<uuid::Uuid>>(n: u64, tag: u64) -> T {
    T::from(uuid::Uuid::from_u64_pair(0x7000 | tag << 16, 0x8000_0000_0000_0000 | n))
}

async fn one(store: &Store, n: u64) -> Result<(SessionId, TurnId, AtomicU64)> {
    let (session, agent, turn): (SessionId, AgentId, TurnId) = (id(n, 1), id(n, 2), id(n, 3));
    cast::session_with(store, session).await?;
    cast::agent_with(store, session, agent).await?;
    cast::turn_with(store, session, agent, turn).await?;
    cast::land(store, cast::claim(session, agent, turn, 0)?).await?;
    Ok((session, turn, AtomicU64::new(0)))
}

fn transition(cast: &Cast, n: usize) -> Result<Commit> {
    let (session, turn, count) = &cast.turns[n];
    let step = count.fetch_add(1, Ordering::Relaxed) % 2;
    let mut commit = Commit::new(*session, system()).under_epoch(1);
    commit.change(Change::entity(&turn::TABLE, *turn).moving(cast.moves[step as usize]).epoch(1));
    let draft = match step {
        0 => Draft::new(*turn, &TurnToolCallsReceived { call_ids: vec![], content: None, reasoning: None })?,
        _ => Draft::new(*turn, &TurnToolsFinished { results: vec![] })?,
    };
    commit.rune(draft.turn(*turn));
    Ok(commit)
}

pub async fn run(store: &Store, cast: &Arc<Cast>, callers: usize, time: Duration) -> Result<(Figure, u64)> {
    let transactions = store.writer_stats().transactions.load(Ordering::Relaxed);
    let start = Instant::now();
    let share = cast.turns.len() / callers;
    // Each caller is a task of its own on the thread pool that the writer runs on, as a service's
    // turns are.
    let mut tasks = tokio::task::JoinSet::new();
    for caller in 0..callers {
        let (store, cast) = (store.clone(), cast.clone());
        tasks.spawn(async move {
            let mut times = Vec::with_capacity(10_000);
            let mut next = 0;
            while start.elapsed() < time {
                let commit = transition(&cast, caller * share + next)?;
                next = (next + 1) % share;
                let asked = Instant::now();
                match store.commit(commit).await? {
                    Answer::Moved(_) => times.push(asked.elapsed().as_nanos() as u64),
                    other => bail!("a transition did not land: {other:?}"),
                }
            }
            Ok(times)
        });
    }
    let mut times: Vec<u64> = Vec::new();
    while let Some(done) = tasks.join_next().await {
        times.extend(done??);
    }
    let took = start.elapsed().as_secs_f64();
    times.sort_unstable();
    let at = |q: f64| times[((times.len() - 1) as f64 * q) as usize] as f64 / 1e3;
    let count = times.len() as u64;
    let transactions = store.writer_stats().transactions.load(Ordering::Relaxed) - transactions;
    let figure = Figure {
        per_second: count as f64 / took,
        p50_us: at(0.5),
        p99_us: at(0.99),
        wal_bytes: 0.0,
        transactions_per_transition: transactions as f64 / count as f64,
    };
    Ok((figure, count))
}
