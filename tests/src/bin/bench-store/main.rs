//! Transitions per second through the transition writer, beside pgbench doing the same SQL work as
//! one statement per commit, on the same private PostgreSQL with default durability, in one run.
//!
//! One transition: compare-and-set of a turn (state and epoch), one rune, the session's number.
//!
//! `bench-store [lanes [callers]]`; with a number of callers only that is measured.

// The allocator of the command.
use instar as _;

use anyhow::{Context, Result};
use instar_store::{Options, Store};
use instar_tests::pgbench::{Figure, SESSIONS, peer, writer};
use sea_orm::{ConnectionTrait, DbBackend, Statement};
use std::time::Duration;

const CALLERS: [usize; 4] = [1, 8, 64, 256];
const ROUNDS: usize = 3;
const ROUND: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> Result<()> {
    let server = instar_testkit::postgres::Postgres::start().await?;
    let url = server.create_database().await?;
    Store::migrate(&url).await?;
    let mut options = Options::new(&url);
    let number = |at: usize| std::env::args().nth(at).map(|n| n.parse()).transpose().context("lanes, then callers");
    if let Some(writers) = number(1)? {
        options.writers = writers;
    }
    let only: Option<usize> = number(2)?;
    println!("writer lanes: {}", options.writers);
    let store = Store::open(options).await?;
    let cast = std::sync::Arc::new(writer::Cast::make(&store, SESSIONS).await?);
    let pgbench = server.bin("pgbench").context("this PostgreSQL has no pgbench: install the one that ships it")?;

    println!("{}", version(&store).await?);
    println!("fsync on, synchronous_commit on; best of {ROUNDS} rounds of {} s each, taken in turn", ROUND.as_secs());
    println!();
    println!(
        "callers | pgbench/s | writer/s | ratio | pgbench mean ms | writer p50/p99 ms | WAL B pgbench/writer | tx per transition"
    );
    println!("---:|---:|---:|---:|---:|---:|---:|---:");
    for callers in only.map_or(CALLERS.to_vec(), |only| vec![only]) {
        let (mut theirs, mut ours) = (Figure::default(), Figure::default());
        for _ in 0..ROUNDS {
            checkpoint(&store).await?;
            let before = wal(&store).await?;
            let mut figure = peer::run(&pgbench, &url, callers, ROUND, SESSIONS)?;
            figure.wal_bytes = (wal(&store).await? - before) / (figure.per_second * ROUND.as_secs_f64());
            theirs = theirs.best(figure);

            checkpoint(&store).await?;
            let before = wal(&store).await?;
            let (mut figure, count) = writer::run(&store, &cast, callers, ROUND).await?;
            figure.wal_bytes = (wal(&store).await? - before) / count as f64;
            ours = ours.best(figure);
        }
        println!(
            "{callers} | {:.0} | {:.0} | {:.2} | {:.2} | {:.2} / {:.2} | {:.0} / {:.0} | {:.3}",
            theirs.per_second,
            ours.per_second,
            ours.per_second / theirs.per_second,
            theirs.p50_us / 1e3,
            ours.p50_us / 1e3,
            ours.p99_us / 1e3,
            theirs.wal_bytes,
            ours.wal_bytes,
            ours.transactions_per_transition,
        );
    }
    Ok(())
}

async fn one(store: &Store, sql: &str) -> Result<String> {
    let row = store.db().query_one_raw(Statement::from_string(DbBackend::Postgres, sql)).await?;
    Ok(row.context("no row")?.try_get_by_index(0)?)
}

async fn version(store: &Store) -> Result<String> {
    one(store, "SELECT version()").await
}

async fn wal(store: &Store) -> Result<f64> {
    Ok(one(store, "SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::text").await?.parse()?)
}

/// Both sides start from the same point, so that both pay for full page images alike.
async fn checkpoint(store: &Store) -> Result<()> {
    store.db().execute_unprepared("CHECKPOINT").await?;
    Ok(())
}
