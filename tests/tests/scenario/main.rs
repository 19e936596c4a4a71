//! Scenarios over the public HTTP API, each run against `instar dev` on SQLite and against four processes
//! on Postgres and NATS; afterwards the runelogs are asked which rows of the machines were exercised.
//!
//! A group of scenarios shares an installation, and so a configuration. A scenario has a session, agents
//! and a script of the model of its own, so that those of a group can run side by side.

#![allow(clippy::disallowed_methods, reason = "a test stands outside: it goes by its machine's clock")]

mod account;
mod agent;
mod archive;
mod broadcast;
mod budget;
mod call;
mod context;
mod coverage;
mod drive;
mod hop;
mod mcp;
mod mission;
mod plan;
mod session;
mod step;
mod stop;
mod terms;
mod turn;
mod waiting;
mod world;

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use futures::future::BoxFuture;
use std::collections::BTreeSet;
use std::time::Instant;
use world::{Mode, World};

pub(crate) struct Scenario {
    name: &'static str,
    run: fn(World) -> BoxFuture<'static, Result<()>>,
}

pub(crate) struct Group {
    name: &'static str,
    /// Further lines of the configuration.
    config: &'static str,
    /// What the processes are told beside it.
    environment: &'static [(&'static str, &'static str)],
    /// How many run side by side: one, where processes are killed.
    at_once: usize,
    scenarios: &'static [Scenario],
}

/// `scenarios![one, two]` from functions `async fn one(world: World) -> Result<()>`.
macro_rules! scenarios {
    ($($name:ident),+ $(,)?) => {
        &[$(crate::Scenario { name: stringify!($name), run: |world| Box::pin($name(world)) }),+]
    };
}
pub(crate) use scenarios;

const GROUPS: &[&Group] = &[
    &agent::PLAIN,
    &agent::CROWDED,
    &agent::MORTAL,
    &turn::PLAIN,
    &turn::HASTY,
    &turn::PATIENT,
    &turn::MORTAL,
    &turn::WATCHED,
    &turn::POISONED,
    &call::PLAIN,
    &call::HASTY,
    &call::MORTAL,
    &call::LATE,
    &stop::PLAIN,
    &stop::FROZEN,
    &session::PLAIN,
    &session::STRICT,
    &session::PRESSED,
    &context::PLAIN,
    &context::MORTAL,
    &plan::PLAIN,
    &plan::CROWDED,
    &waiting::PLAIN,
    &mission::PLAIN,
    &mission::MORTAL,
    &hop::PLAIN,
    &hop::BY_PLAN,
    &archive::PLAIN,
    &archive::AGED,
    &archive::BUCKET,
    &drive::PLAIN,
    &drive::DAILY,
    &drive::BROKEN,
    &broadcast::PLAIN,
    &account::PLAIN,
    &account::HASTY,
    &account::MORTAL,
    &step::PLAIN,
    &step::MORTAL,
    &terms::PLAIN,
    &budget::PLAIN,
    &budget::CROWD,
    &budget::MORTAL,
    &mcp::PLAIN,
    &mcp::SLOW,
    &mcp::MORTAL,
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_the_embedded_backends() -> Result<()> {
    all(Mode::Embedded).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_four_processes() -> Result<()> {
    all(Mode::Distributed).await
}

/// Every group in turn. `INSTAR_SCENARIO`: only those whose name has this in it; coverage is then only told.
async fn all(mode: Mode) -> Result<()> {
    let only = std::env::var("INSTAR_SCENARIO").unwrap_or_default();
    let (mut rows, mut failures) = (BTreeSet::new(), Vec::new());
    for group in GROUPS {
        let chosen: Vec<_> =
            group.scenarios.iter().filter(|s| format!("{}::{}", group.name, s.name).contains(&only)).collect();
        if chosen.is_empty() {
            continue;
        }
        let world = World::start(mode, group).await.with_context(|| format!("group {}", group.name))?;
        let ran = futures::stream::iter(chosen).map(|scenario| {
            let world = world.for_scenario(scenario.name);
            async move {
                let begun = Instant::now();
                // A task of its own: a failed assertion must not take the others along.
                let ended = tokio::spawn((scenario.run)(world)).await;
                let ended = ended.unwrap_or_else(|panic| Err(anyhow::anyhow!("{panic}")));
                println!("{mode:?} {}::{} {:.1} s", group.name, scenario.name, begun.elapsed().as_secs_f64());
                ended.err().map(|error| format!("{}::{}: {error:#}", group.name, scenario.name))
            }
        });
        let failed: Vec<String> = ran.buffer_unordered(group.at_once).filter_map(|f| async { f }).collect().await;
        if !failed.is_empty() {
            failures.push(world.log_tails());
        }
        failures.extend(failed);
        rows.extend(world.end().await?);
    }
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    let mut missing = coverage::missing(&rows);
    missing.retain(|row| mode != Mode::Embedded || !coverage::UNREACHED_EMBEDDED.contains(row));
    let missing = missing.join(" ");
    println!("{mode:?}: {} rows exercised; not: {missing}", rows.len());
    ensure!(!only.is_empty() || missing.is_empty(), "{mode:?}: no scenario exercised {missing}");
    Ok(())
}
