//! The durable tool turn: message, model, tool `echo`, model, done; entered over HTTP, all services
//! as processes of their own on a real Postgres and NATS, the model a mock at zero latency. Beside
//! it pgbench's one-statement transition rate, so that figures of different machines compare.
//!
//! `bench-turn [seconds [rounds [only]]]`; `only` is one number of agents, and then that is all that is
//! measured. `INSTAR_BIN` is the command to measure.

mod history;

// The allocator of the command.
use instar as _;

use anyhow::{Context, Result};
use instar_store::{Options, Store};
use instar_testkit::nats::Nats;
use instar_testkit::postgres::Postgres;
use instar_tests::fleet::{self, Fleet, Setup, tool_turn};
use instar_tests::load::Load;
use instar_tests::meter;
use instar_tests::mock::Mock;
use instar_tests::pgbench::{SESSIONS, peer, writer};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const LEVELS: [usize; 3] = [1, 32, 256];

struct Figure {
    turns_per_second: f64,
    p50: f64,
    p99: f64,
    /// Of each process and its children.
    cpu: Vec<f64>,
    database: meter::Work,
}

fn percentile(sorted: &[f64], share: f64) -> f64 {
    let at = (sorted.len() as f64 * share) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

/// Runs load for a while and says what came of it.
async fn measure(
    fleet: &Fleet,
    agents: &[String],
    time: Duration,
    roots: &[u32],
    store: Option<&Store>,
) -> Result<Figure> {
    let mut load = Load::start_as(fleet.client.clone().without_keys(), agents, &["echo"]);
    load.more(agents.len() as u64, Duration::from_secs(60)).await?;
    let (cpu, before) = (meter::cpu_seconds(roots)?, load.finished());
    let done = async || match store {
        Some(store) => meter::Work::so_far(store).await,
        None => Ok(meter::Work::NONE),
    };
    let database = done().await?;
    let begun = Instant::now();
    tokio::time::sleep(time).await;
    let (turns, took) = ((load.finished() - before) as f64, begun.elapsed().as_secs_f64());
    let ended = Instant::now();
    let cpu = meter::cpu_seconds(roots)?.into_iter().zip(cpu).map(|(after, before)| after - before);
    let cpu = cpu.map(|seconds| seconds * 1000.0 / turns).collect();
    let database = done().await?.per(turns, database);
    let finished = load.stop().await?;
    let inside = finished.iter().filter(|f| f.began >= begun && f.ended <= ended);
    let mut times: Vec<f64> = inside.map(|f| (f.ended - f.began).as_secs_f64() * 1e3).collect();
    times.sort_by(f64::total_cmp);
    Ok(Figure {
        turns_per_second: turns / took,
        p50: percentile(&times, 0.5),
        p99: percentile(&times, 0.99),
        cpu,
        database,
    })
}

/// One session per agent, as fleets of strangers have it.
async fn agents(fleet: &Fleet, n: usize) -> Result<Vec<String>> {
    let mut agents = Vec::new();
    for _ in 0..n {
        agents.extend(fleet.agents(1, &["echo"]).await?.1);
    }
    Ok(agents)
}

fn show(level: usize, figure: &Figure) {
    let each: Vec<String> = figure.cpu.iter().map(|cpu| format!("{cpu:.2}")).collect();
    println!(
        "{level} | {:.0} | {:.2} | {:.2} | {:.2} | {} | {:.1} | {:.2} | {:.2}",
        figure.turns_per_second,
        figure.p50,
        figure.p99,
        figure.cpu.iter().sum::<f64>(),
        each.join(" "),
        figure.database.wal_bytes / 1e3,
        figure.database.commits,
        figure.database.transactions
    );
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let time = Duration::from_secs(arguments.next().map_or(Ok(8), |n| n.parse())?);
    let rounds: usize = arguments.next().map_or(Ok(3), |n| n.parse())?;
    let only: Option<usize> = arguments.next().map(|n| n.parse()).transpose()?;
    let binary = std::env::var_os("INSTAR_BIN").map(PathBuf::from).map_or_else(|| fleet::binary("instar"), Ok)?;

    let (postgres, nats) = (Postgres::start().await?, Nats::start().await?);
    let database = postgres.create_database().await?;
    let mock = Mock::start().await?;
    // One thread each: four services, the database, the broker and the load share few cores.
    let environment = vec![("TOKIO_WORKER_THREADS", "1".to_owned())];
    // A load on few agents: their summaries would be measured with it.
    let config = "[worker]\nconcurrency = 512\nhistory_summaries = false\n".to_owned();
    let model_url = Some(mock.url().to_owned());
    let own = Setup::new(binary.clone(), "", "", tool_turn());
    let setup = Setup { config, model_url: model_url.clone(), environment, ..own };
    let setup = Setup { database: database.clone(), nats: nats.url().into(), ..setup };
    let fleet = Fleet::start(setup).await?;
    let store = Store::open(Options::new(&database)).await?;
    let mut roots: Vec<u32> = fleet.nodes.iter().map(|node| node.pid()).collect();
    roots.push(postgres.pid().context("no Postgres")?);
    roots.push(nats.pid().context("no NATS")?);

    println!("distributed: best of {rounds} rounds of {} s each", time.as_secs());
    println!(
        "agents | turns/s | p50 ms | p99 ms | CPU s per 1,000 turns | api scheduler worker runner Postgres NATS | WAL kB per turn | commits per turn | transactions per turn, reads included"
    );
    println!("---:|---:|---:|---:|---:|---:|---:|---:|---:");
    let everybody = agents(&fleet, only.unwrap_or(LEVELS[2])).await?;
    for level in only.map_or(LEVELS.to_vec(), |only| vec![only]) {
        let mut best: Option<Figure> = None;
        for _ in 0..rounds {
            let figure = measure(&fleet, &everybody[..level], time, &roots, Some(&store)).await?;
            if best.as_ref().is_none_or(|best| figure.turns_per_second > best.turns_per_second) {
                best = Some(figure);
            }
        }
        show(level, &best.context("no round")?);
    }
    if only.is_some() {
        return Ok(());
    }
    let memory: Vec<String> =
        fleet.nodes.iter().map(|node| format!("{} {:.0}", node.service, meter::memory_mb(node.pid()))).collect();
    println!("memory MB after that: {}", memory.join(", "));
    pgbench_rate(&postgres).await?;
    history::first_token(&fleet, mock.url(), &everybody[0]).await?;
    history::cost(&fleet, &store).await?;
    drop(fleet);

    let own = Setup::new(binary, "", "", tool_turn());
    let embedded =
        Fleet::embedded(Setup { config: "[worker]\nhistory_summaries = false\n".into(), model_url, ..own }).await?;
    let roots: Vec<u32> = embedded.nodes.iter().map(|node| node.pid()).collect();
    println!("\nembedded (SQLite, one process): best of {rounds} rounds of {} s each", time.as_secs());
    println!(
        "agents | turns/s | p50 ms | p99 ms | CPU s per 1,000 turns | the process | WAL kB per turn | commits per turn | transactions per turn, reads included"
    );
    println!("---:|---:|---:|---:|---:|---:|---:|---:|---:");
    let everybody = agents(&embedded, LEVELS[2]).await?;
    for level in LEVELS {
        let mut best: Option<Figure> = None;
        for _ in 0..rounds {
            let figure = measure(&embedded, &everybody[..level], time, &roots, None).await?;
            if best.as_ref().is_none_or(|best| figure.turns_per_second > best.turns_per_second) {
                best = Some(figure);
            }
        }
        show(level, &best.context("no round")?);
    }
    Ok(())
}

/// What the machine gives: one transition per commit, as one statement.
async fn pgbench_rate(postgres: &Postgres) -> Result<()> {
    let url = postgres.create_database().await?;
    Store::migrate(&url).await?;
    let store = Store::open(Options::new(&url)).await?;
    writer::Cast::make(&store, SESSIONS).await?;
    let program = postgres.bin("pgbench").context("this PostgreSQL has no pgbench")?;
    for clients in [1, 32, 64] {
        let figure = peer::run(&program, &url, clients, Duration::from_secs(5), SESSIONS)?;
        println!("pgbench, one statement per transition, {clients} clients: {:.0}/s", figure.per_second);
    }
    Ok(())
}
