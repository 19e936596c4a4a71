//! `cargo xtask bench turn`: this product, the floor and the best peers side by side in one run, at several numbers of
//! agents; and agents whose model talks slowly beside the least that reading it costs.
//!
//! It must not link the product: builds of any version are given to it and driven over their public API.

mod agree;
mod candidate;
mod meter;
mod record;
mod row;
mod streams;
mod table;
mod turns;

use anyhow::{Context, Result, bail};
use bench_drive::model::Model;
use candidate::{Ground, Kind, Plan, Product};
use clap::Parser;
use instar_testkit::Postgres;
use row::Row;
use serde_json::json;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

#[derive(Parser)]
#[command(name = "bench-turn", about = "The durable tool turn beside the floor and the peers")]
struct Arguments {
    /// Numbers of agents that work at the same time
    #[arg(long, value_delimiter = ',', default_value = "1,32,256")]
    agents: Vec<usize>,
    /// How long each is measured
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// How often a round is repeated in which other processes used more than 0.1 cores
    #[arg(long, default_value_t = 1)]
    again: usize,
    /// A release build of the command `instar`; several are compared with each other
    #[arg(long = "product", value_name = "NAME=PATH", value_parser = named)]
    products: Vec<(String, PathBuf)>,
    /// A build with the feature `count-allocations`, under the name of one without
    #[arg(long = "counted", value_name = "NAME=PATH", value_parser = named)]
    counted: Vec<(String, PathBuf)>,
    /// What stands beside the products: floor, restate, dbos, embedded
    #[arg(long, value_delimiter = ',', default_value = "floor,restate,dbos")]
    beside: Vec<String>,
    /// The server of Restate [default: that of the npm registry]
    #[arg(long, value_name = "PATH", env = "RESTATE_SERVER")]
    restate_server: Option<PathBuf>,
    /// Agents whose model talks slowly; 0 leaves them out
    #[arg(long, default_value_t = 1_000)]
    streams: usize,
    #[arg(long, default_value_t = 3)]
    stream_rounds: usize,
    #[arg(long, default_value_t = 6.0)]
    stream_seconds: f64,
    /// Rows and ratios are appended there as lines of JSON
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Samples of the products' processes by `perf`, a file for each process and round
    #[arg(long, value_name = "FOLDER")]
    record: Option<PathBuf>,
    /// Measures nothing: shows how far the ratios in the files of several runs are apart
    #[arg(long, value_name = "FILE,FILE,...", value_delimiter = ',')]
    agree: Vec<PathBuf>,
}

fn named(text: &str) -> Result<(String, PathBuf)> {
    let (name, path) = text.split_once('=').context("NAME=PATH, such as before=/tmp/instar")?;
    let path = std::path::absolute(path)?;
    anyhow::ensure!(path.is_file(), "{} is not there: build it first", path.display());
    Ok((name.to_owned(), path))
}

fn product(named: &(String, PathBuf), counts: bool) -> Plan {
    let product = Product { binary: named.1.clone(), counts };
    Plan { name: named.0.clone(), kind: Kind::Product(product) }
}

impl Arguments {
    /// What is measured; a peer that is not to be had is left out, which is said.
    fn plans(&self) -> Result<Vec<Plan>> {
        let mut plans: Vec<Plan> = self.products.iter().map(|named| product(named, false)).collect();
        for name in &self.beside {
            let kind = match name.as_str() {
                "floor" => Ok(Kind::Floor),
                "dbos" => candidate::program("bench-dbos").map(|_| Kind::Dbos),
                "restate" => self.restate().map(Kind::Restate),
                "embedded" => {
                    let (_, binary) = self.products.last().context("embedded: which --product?")?;
                    Ok(Kind::Embedded(Product { binary: binary.clone(), counts: false }))
                }
                _ => bail!("--beside {name}: it is none of floor, restate, dbos, embedded"),
            };
            match kind {
                Ok(kind) => plans.push(Plan { name: name.clone(), kind }),
                Err(why) => println!("{name} is left out: {why:#}"),
            }
        }
        Ok(plans)
    }

    /// The peer's server, if its service is built.
    fn restate(&self) -> Result<PathBuf> {
        candidate::program("bench-restate")?;
        let cache = std::env::current_exe()?.with_file_name("peers");
        candidate::restate_server(self.restate_server.clone(), &cache)
    }

    async fn run(self) -> Result<()> {
        let begun = Instant::now();
        let plans = self.plans()?;
        let names: Vec<String> = plans.iter().map(|plan| plan.name.clone()).collect();
        let products: Vec<String> =
            plans.iter().filter(|plan| plan.is_product()).map(|plan| plan.name.clone()).collect();
        let counted: Vec<Plan> = self.counted.iter().map(|named| product(named, true)).collect();
        if let Some(folder) = &self.record {
            std::fs::create_dir_all(folder)?;
        }
        let mut out = match &self.out {
            Some(path) => Some(File::options().create(true).append(true).open(path)?),
            None => None,
        };
        let mut write = |row: &Row| {
            eprintln!("{}", serde_json::to_string(row)?);
            out.as_mut().map_or(Ok(()), |out| Ok(writeln!(out, "{}", serde_json::to_string(row)?)?))
        };

        let postgres = Postgres::start().await?;
        settle(&postgres).await?;
        let model = Model::start().await?;
        let ground = Ground { postgres, model: model.url() };
        let turns = turns::Turns {
            plans: &plans,
            counted: &counted,
            levels: &self.agents,
            time: Duration::from_secs_f64(self.seconds),
            rounds: self.rounds,
            again: self.again,
            record: self.record.as_deref(),
        };
        let mut rows = turns.run(&ground, &mut write).await?;
        if self.streams > 0 {
            let time = Duration::from_secs_f64(self.stream_seconds);
            let streams = streams::Streams { plans: &plans, streams: self.streams, time, rounds: self.stream_rounds };
            rows.extend(streams.run(&ground, &model, &mut write).await?);
        }

        println!(
            "medians of {} rounds of {} s; {:.0} s in all",
            self.rounds,
            self.seconds,
            begun.elapsed().as_secs_f64()
        );
        table::turns(&rows, &names);
        let ratios = table::ratios(&rows, &products);
        table::compare(&ratios);
        table::allocations(&rows, &names);
        table::streams(&rows, &names);
        if let Some(out) = &mut out {
            for ratio in &ratios {
                let (low, high) = ratio.half;
                let line = json!({"what": "ratio", "agents": ratio.agents, "candidate": ratio.candidate,
                    "over": ratio.over, "of": ratio.of, "median": ratio.middle, "low": low, "high": high});
                writeln!(out, "{line}")?;
            }
        }
        Ok(())
    }
}

/// No checkpoint by time or size in the middle of a round.
async fn settle(postgres: &Postgres) -> Result<()> {
    let (client, connection) = tokio_postgres::connect(postgres.url(), tokio_postgres::NoTls).await?;
    tokio::task::spawn_local(async move { drop(connection.await) });
    for setting in ["max_wal_size = '4GB'", "checkpoint_timeout = '1h'"] {
        client.batch_execute(&format!("ALTER SYSTEM SET {setting}")).await?;
    }
    client.batch_execute("SELECT pg_reload_conf()").await?;
    Ok(())
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if !arguments.agree.is_empty() {
        return agree::show(&arguments.agree);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        tokio::select! {
            done = arguments.run() => done,
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
        }
    })
}
