//! A session's budget under load: how far it is overshot, and how fast turns get their share of it.
//!
//! `bench-budget [turns]`: so many turns at once, with a budget for half of them, in one process on SQLite and in
//! four on Postgres and NATS. `INSTAR_BIN` is the command.

use anyhow::Result;
use instar_store::{Options, Store};
use instar_testkit::model::Script;
use instar_testkit::nats::Nats;
use instar_testkit::postgres::Postgres;
use instar_tests::fleet::{self, Fleet, Setup};
use instar_tests::spree::{self, ESTIMATE};
use std::path::PathBuf;

fn script() -> Script {
    Script::function(spree::greedy)
}

async fn measure(what: &str, fleet: &Fleet, url: &str, turns: usize) -> Result<()> {
    let store = Store::open(Options::new(url)).await?;
    let seen = spree::run(fleet, &store, turns).await?;
    let rate = |turns: usize, time: std::time::Duration| turns as f64 / time.as_secs_f64();
    println!(
        "{what}: {turns} turns, a budget of {} tokens: at most {} used and set aside ({:+}, allowed {ESTIMATE}), {} \
         used when suspended; {:.0} turns/s until then, {:.0} turns/s after it was replenished",
        seen.cap,
        seen.peak,
        seen.peak - seen.cap,
        seen.used,
        rate(turns / 2, seen.until_suspended),
        rate(turns / 2, seen.until_done),
    );
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let turns: usize = std::env::args().nth(1).map_or(Ok(1_000), |n| n.parse())?;
    let binary = std::env::var_os("INSTAR_BIN").map(PathBuf::from).map_or_else(|| fleet::binary("instar"), Ok)?;
    let embedded = Fleet::embedded(Setup::new(binary.clone(), "", "", script())).await?;
    let url = format!("sqlite://{}", embedded.data().join("instar.db").display());
    measure("embedded", &embedded, &url, turns).await?;
    drop(embedded);
    let (postgres, nats) = (Postgres::start().await?, Nats::start().await?);
    let database = postgres.create_database().await?;
    let fleet = Fleet::start(Setup::new(binary, &database, nats.url(), script())).await?;
    measure("four processes", &fleet, &fleet.database, turns).await
}
