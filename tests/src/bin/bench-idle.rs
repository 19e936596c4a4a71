//! What agents cost that do nothing.
//!
//! `bench-idle [agents [seconds]]`: processor time and memory of each service with no agents and with
//! that many idle ones, half of them autonomous, none of them running. `INSTAR_BIN` is the command.

use anyhow::Result;
use futures::stream::{self, StreamExt, TryStreamExt};
use instar_runtime::flow::{self, NewAgent, NewSession};
use instar_store::{Options, Store};
use instar_testkit::nats::Nats;
use instar_testkit::postgres::Postgres;
use instar_testkit::wait;
use instar_tests::fleet::{self, Fleet, Setup, tool_turn};
use instar_tests::{cast, meter};
use serde_json::json;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const AGENTS_PER_SESSION: usize = 100;
const AT_ONCE: usize = 128;
/// Caches, statistics and marks of the log are as they will be before anything is counted.
const SETTLES: Duration = Duration::from_secs(20);
const SETTLED_WITHIN: Duration = Duration::from_secs(600);

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let agents: usize = arguments.next().map_or(Ok(100_000), |n| n.parse())?;
    let seconds: u64 = arguments.next().map_or(Ok(30), |n| n.parse())?;
    let binary = std::env::var_os("INSTAR_BIN").map(PathBuf::from).map_or_else(|| fleet::binary("instar"), Ok)?;
    let (postgres, nats) = (Postgres::start().await?, Nats::start().await?);
    let database = postgres.create_database().await?;
    let fleet = Fleet::start(Setup::new(binary, &database, nats.url(), tool_turn())).await?;
    let store = Store::open(Options::new(&database)).await?;
    let before = measure(&fleet, seconds).await?;
    let begun = Instant::now();
    let sessions = stream::iter(0..agents.div_ceil(AGENTS_PER_SESSION)).map(|_| people(&store));
    let made: Vec<usize> = sessions.buffer_unordered(AT_ONCE).try_collect().await?;
    println!("{} agents made in {:.0} s", made.iter().sum::<usize>(), begun.elapsed().as_secs_f64());
    settled(&store).await?;
    println!("their transitions published and sealed after {:.0} s", begun.elapsed().as_secs_f64());
    let after = measure(&fleet, seconds).await?;
    println!("{:<14} {:>22} {:>24}", "service", "CPU, % of a core", "memory, MB");
    for ((node, before), after) in fleet.nodes.iter().zip(before).zip(after) {
        let service = node.service;
        println!("{service:<14} {:>9.2} -> {:>9.2} {:>11.1} -> {:>9.1}", before.0, after.0, before.1, after.1);
    }
    Ok(())
}

/// The agents are made past the services, so that the scheduler has to publish and seal what made them: that is not
/// idleness.
async fn settled(store: &Store) -> Result<()> {
    let nothing_is_left = || async {
        let trailing = store.trailing(store.now().await?, None, 1).await?;
        anyhow::ensure!(trailing.is_empty(), "a session's transitions are not published: {trailing:?}");
        let unsealed = store.unsealed_sessions(1).await?;
        anyhow::ensure!(unsealed.is_empty(), "a session's transitions are not sealed: {unsealed:?}");
        Ok(())
    };
    wait::until_ok(SETTLED_WITHIN, nothing_is_left).await
}

/// Each service's share of a core and its memory, with nothing to do.
async fn measure(fleet: &Fleet, seconds: u64) -> Result<Vec<(f64, f64)>> {
    tokio::time::sleep(SETTLES).await;
    let pids: Vec<u32> = fleet.nodes.iter().map(|node| node.pid()).collect();
    let (begun, before) = (Instant::now(), meter::cpu_seconds(&pids)?);
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let passed = begun.elapsed().as_secs_f64();
    let after = meter::cpu_seconds(&pids)?;
    let share = before.iter().zip(after).map(|(before, after)| (after - before) / passed * 100.0);
    Ok(share.zip(pids.iter().map(|pid| meter::memory_mb(*pid))).collect())
}

/// A session full of agents that wait for somebody to speak.
async fn people(store: &Store) -> Result<usize> {
    let new = NewSession { namespace: "default".into(), ..NewSession::default() };
    let born = flow::open(new, None, cast::person(), None)?;
    let mut session = born.session;
    cast::land(store, born.commit).await?;
    for n in 0..AGENTS_PER_SESSION {
        let runs = if n % 2 == 0 { "autonomous" } else { "reactive" };
        let config =
            json!({"system_prompt": null, "tools": [], "loop": runs, "approval_mode": "full_access", "budget": {}});
        let new = NewAgent { name: format!("idle-{n}"), model: "default".into(), config, ..NewAgent::default() };
        let born = flow::join(&session, vec![new], cast::person(), None)?;
        session = born.session;
        cast::land(store, born.commit).await?;
    }
    Ok(AGENTS_PER_SESSION)
}
