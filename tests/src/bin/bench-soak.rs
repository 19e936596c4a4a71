//! Whether anything grows that should not: agents that get message after message for minutes on end.
//!
//! `bench-soak [minutes [agents]]`: all services as processes of their own, the model a mock at zero latency. Memory
//! of each process is sampled, and its slope over the second half printed; open files, sockets, threads and tasks of
//! each are counted at rest before and after, and the database's connections. Ends with 1 if any of these counts has
//! grown, or a turn did not complete. `INSTAR_BIN` is the command.

use anyhow::{Context, Result, ensure};
use instar_store::{Options, Store};
use instar_testkit::nats::Nats;
use instar_testkit::postgres::Postgres;
use instar_testkit::wait;
use instar_tests::fleet::{self, Fleet, Node, SERVICES, Setup, tool_turn};
use instar_tests::load::Load;
use instar_tests::meter;
use instar_tests::mock::Mock;
use sea_orm::{ConnectionTrait, DbBackend, Statement};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const MINUTES: u64 = 10;
const AGENTS: usize = 64;
const SAMPLE_EVERY: Duration = Duration::from_secs(5);
/// Pools, buffers and caches are as large as they get before anything is counted.
const WARM: Duration = Duration::from_secs(30);
/// How long what was under way may take to let go of what it held: connections of the pools and of HTTP are kept for
/// a while in case they are needed again.
const REST_WITHIN: Duration = Duration::from_secs(180);

/// What one process holds.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Holds {
    files: usize,
    sockets: usize,
    threads: usize,
    tasks: u64,
}

impl Holds {
    /// `health`: where it has its metrics.
    async fn of(node: &Node, health: &str) -> Result<Holds> {
        let (files, sockets) = meter::open_files(node.pid())?;
        let told = reqwest::get(format!("http://{health}/metrics")).await?.text().await?;
        let tasks = told.lines().find_map(|line| line.strip_prefix("instar_runtime_tasks ")?.parse::<f64>().ok());
        let tasks = tasks.context("its metrics do not say how many tasks it has")? as u64;
        Ok(Holds { files, sockets, threads: meter::threads(node.pid())?, tasks })
    }

    fn exceeds(&self, before: &Holds) -> bool {
        self.files > before.files
            || self.sockets > before.sockets
            || self.threads > before.threads
            || self.tasks > before.tasks
    }
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    let minutes: u64 = arguments.next().map_or(Ok(MINUTES), |n| n.parse())?;
    let count: usize = arguments.next().map_or(Ok(AGENTS), |n| n.parse())?;
    let binary = std::env::var_os("INSTAR_BIN").map(PathBuf::from).map_or_else(|| fleet::binary("instar"), Ok)?;
    let (postgres, nats) = (Postgres::start().await?, Nats::start().await?);
    let (database, mock) = (postgres.create_database().await?, Mock::start().await?);
    let setup = Setup::new(binary, &database, nats.url(), tool_turn());
    let mut fleet = Fleet::prepare(Setup { model_url: Some(mock.url().into()), ..setup }).await?;
    let mut health = Vec::new();
    for service in SERVICES {
        let listen = format!("127.0.0.1:{}", wait::free_port()?);
        let node = fleet.spawn(service, &[("INSTAR__HEALTH__LISTEN", &listen)]).await?;
        fleet.nodes.push(node);
        health.push(listen);
    }
    let fleet = fleet;
    let store = Store::open(Options::new(&database)).await?;
    let mut agents = Vec::new();
    for _ in 0..count {
        agents.extend(fleet.agents(1, &["echo"]).await?.1);
    }

    run(&fleet, &agents, WARM, |_| {}).await.context("warming up")?;
    let before = at_rest(&fleet, &health, &store, None).await?;

    let pids: Vec<u32> = fleet.nodes.iter().map(Node::pid).chain([nats.pid().context("no NATS")?]).collect();
    let mut names: Vec<&str> = fleet.nodes.iter().map(|node| node.service).collect();
    names.push("NATS");
    let mut samples: Vec<Vec<(f64, f64)>> = vec![Vec::new(); pids.len()];
    let time = Duration::from_secs(minutes * 60);
    let turns = run(&fleet, &agents, time, |minute| {
        for (samples, pid) in samples.iter_mut().zip(&pids) {
            samples.push((minute, meter::memory_mb(*pid) * 1024.0));
        }
    })
    .await?;
    println!("{count} agents, {minutes} minutes, {turns} turns");
    println!("process | memory MB, begin | half | end | slope of the second half, kB/min");
    println!("---|---:|---:|---:|---:");
    for (name, samples) in names.iter().zip(&samples) {
        let late = &samples[samples.len() / 2..];
        let mb = |sample: Option<&(f64, f64)>| sample.map_or(f64::NAN, |sample| sample.1 / 1024.0);
        let (first, half, last) = (mb(samples.first()), mb(late.first()), mb(late.last()));
        println!("{name} | {first:.1} | {half:.1} | {last:.1} | {:+.0}", slope(late));
    }

    let after = at_rest(&fleet, &health, &store, Some(&before)).await?;
    println!("\nat rest: process | files | sockets | threads | tasks, before -> after");
    println!("---|---:|---:|---:|---:");
    let mut leaked = false;
    for ((name, before), after) in names.iter().zip(&before.processes).zip(&after.processes) {
        let told = |was: usize, is: usize| format!("{was} -> {is}");
        println!(
            "{name} | {} | {} | {} | {}",
            told(before.files, after.files),
            told(before.sockets, after.sockets),
            told(before.threads, after.threads),
            told(before.tasks as usize, after.tasks as usize)
        );
        leaked |= after.exceeds(before);
    }
    println!("\nconnections of the database: {} -> {}", before.connections, after.connections);
    leaked |= after.connections > before.connections;
    println!("{}", if leaked { "LEAKED: something is held that was not before" } else { "nothing is leaked" });
    Ok(if leaked { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Turn after turn by every agent; how many there were.
async fn run(fleet: &Fleet, agents: &[String], time: Duration, mut sample: impl FnMut(f64)) -> Result<u64> {
    let mut load = Load::start_as(fleet.client.clone().without_keys(), agents, &["echo"]);
    let begun = Instant::now();
    let mut every = tokio::time::interval(SAMPLE_EVERY);
    while begun.elapsed() < time {
        every.tick().await;
        sample(begun.elapsed().as_secs_f64() / 60.0);
        // A driver that has failed says so now, not when the time is over.
        load.more(1, Duration::from_secs(60)).await?;
    }
    let turns = load.finished();
    let failed = load.stop().await?.into_iter().find(|turn| turn.status != "completed");
    ensure!(failed.is_none(), "{failed:?}");
    Ok(turns)
}

struct Rest {
    processes: Vec<Holds>,
    connections: i64,
}

/// What is held once nothing is under way: no more than `before`, or what it stays at.
async fn at_rest(fleet: &Fleet, health: &[String], store: &Store, before: Option<&Rest>) -> Result<Rest> {
    let unpublished = || async {
        let trailing = store.trailing(store.now().await?, None, 1).await?;
        ensure!(trailing.is_empty(), "a session's transitions are not published: {trailing:?}");
        Ok(())
    };
    wait::until_ok(REST_WITHIN, unpublished).await?;
    let begun = Instant::now();
    loop {
        let mut processes = Vec::new();
        for (node, health) in fleet.nodes.iter().zip(health) {
            processes.push(Holds::of(node, health).await?);
        }
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()";
        let row = store.db().query_one_raw(Statement::from_string(DbBackend::Postgres, sql)).await?;
        let connections: i64 = row.context("no row")?.try_get_by_index(0)?;
        let rest = Rest { processes, connections };
        let settled = match before {
            Some(before) => {
                let mut both = rest.processes.iter().zip(&before.processes);
                rest.connections <= before.connections && both.all(|(now, before)| !now.exceeds(before))
            }
            // As long as idle connections may live.
            None => begun.elapsed() > REST_WITHIN / 2,
        };
        if settled || begun.elapsed() > REST_WITHIN {
            return Ok(rest);
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

/// Of the straight line through them that fits best.
fn slope(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let over: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    let under: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    if under > 0.0 { over / under } else { f64::NAN }
}
