//! Ten thousand commands by people and agents against missions, wise and unwise ones, and what the system raises in
//! between: no commit leaves a pair that the coordination tables do not allow, every refusal says what may be done
//! instead, and the log folds to the rows.

mod verdict;
mod walk;

use anyhow::{Context, Result, ensure};
use instar_core::machine;
use instar_runtime::Hub;
use instar_tests::stage::{self, Stage};
use instar_tests::{audit, on_both};
use std::collections::BTreeSet;
use verdict::Tally;
use walk::{Tried, Walk};

/// By people and agents; what the system raises comes on top.
const COMMANDS: usize = 10_000;
/// Side by side, each in a session of its own, so that the writer has something to put together.
const WALKERS: u64 = 8;
/// Commands of anybody until a session is closed.
const WALK: usize = 180;
/// And on it afterwards.
const TOO_LATE: usize = 4;
/// A session is born with so many runes.
const BIRTH: usize = 2;

/// Rows that walks may miss: rare ones, and those that only values and time lead to, such as an output that goes bad
/// while the last hop runs (M18). The scenarios take them. Of hops they miss none.
const RARE: [&str; 15] = [
    "M18", "ST4", "ST7", "ST10", "ST12", "ST14", "ST16", "ST18", "ST19", "ST20", "AS7", "AS14", "AS15", "AS17", "AS19",
];

/// One walk after another until its share of commands is issued. Says which rows were taken.
async fn wander(hub: Hub, walker: u64) -> Result<(Tally, BTreeSet<String>)> {
    let (mut tally, mut tried, mut taken) = (Tally::default(), Tried::new(), BTreeSet::new());
    let mut walks = 0;
    while tally.asked < COMMANDS.div_ceil(WALKERS as usize) {
        walks += 1;
        let (seed, before) = ((walker * 1_000 + walks) * 7_919, tally.runes);
        let mut walk = Walk::begin(&hub, seed, &mut tally, &mut tried).await?;
        for n in 0..WALK {
            walk.step().await.with_context(|| format!("walker {walker}, walk {walks}, command {n}"))?;
        }
        walk.close().await?;
        for _ in 0..TOO_LATE {
            walk.step().await.with_context(|| format!("walker {walker}, walk {walks}, after its end"))?;
        }
        let session = walk.session;
        let (runes, wrong) = audit::log(hub.store(), session).await?;
        ensure!(wrong.is_empty(), "walker {walker}, walk {walks}: {wrong:#?}");
        ensure!(runes.len() == tally.runes - before + BIRTH, "something was written that nobody commanded");
        taken.extend(runes.into_iter().flat_map(|rune| rune.moves).map(|moved| moved.row));
    }
    Ok((tally, taken))
}

async fn no_command_leads_where_the_tables_do_not(stage: Stage) -> Result<()> {
    let hub = Hub::new(stage.store.clone(), stage::bus(&stage).await?);
    let mut walkers = tokio::task::JoinSet::new();
    for walker in 1..=WALKERS {
        walkers.spawn(wander(hub.clone(), walker));
    }
    let (mut tally, mut taken) = (Tally::default(), BTreeSet::new());
    while let Some(walked) = walkers.join_next().await {
        let (mine, rows) = walked.context("a walker")??;
        tally.add(mine);
        taken.extend(rows);
    }
    let rows = |name: &'static str| {
        let table = machine::by_name(name).map(|table| table.rows).unwrap_or_default();
        table.iter().map(|row| row.id).filter(|row| !taken.contains(*row)).collect::<BTreeSet<_>>()
    };
    let [missions, hops, steps, assets] = ["mission", "hop", "tool_step", "asset"].map(rows);
    println!("{tally:?}; rows not taken: {missions:?} {hops:?} {steps:?} {assets:?}");
    ensure!(tally.asked >= COMMANDS, "only {} commands were issued", tally.asked);
    let refused: usize = tally.refused.values().sum();
    ensure!(tally.landed > COMMANDS / 2 && refused > COMMANDS / 10, "{tally:?}");
    for way in ["refused", "absent", "stale", "unfit"] {
        ensure!(tally.refused.contains_key(way), "nothing was {way}: {tally:?}");
    }
    ensure!(hops.is_empty(), "the walks get nowhere: {hops:?}");
    let missed = missions.iter().chain(&steps).chain(&assets).copied();
    let missed: Vec<&str> = missed.filter(|row| !RARE.contains(row)).collect();
    ensure!(missed.is_empty(), "the walks leave out {missed:?}");
    Ok(())
}

on_both! {
    no_command_leads_where_the_tables_do_not;
}
