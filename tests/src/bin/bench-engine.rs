//! What it costs to work out a commit: by the builders of the hot path, and by the list of cascades.
//!
//! `bench-engine [rounds [part of a name]]`: nanoseconds per commit as a table, the least of seven runs, since whatever
//! else the machine does only adds to it. `built` is the whole commit, with rows, payloads and ids; `expand` is what
//! follows by the list and how the log tells it, with none of these. Nothing is written and nothing else runs.

use anyhow::{Context, Result};
use instar_core::cascade;
use instar_tests::rules::{self, Case};
use std::hint::black_box;
use std::time::Instant;

const RUNS: usize = 7;

/// Nanoseconds for one of these.
fn least(rounds: u32, mut once: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut least = f64::INFINITY;
    for _ in 0..RUNS {
        let begun = Instant::now();
        for _ in 0..rounds {
            once()?;
        }
        least = least.min(begun.elapsed().as_secs_f64() * 1e9 / f64::from(rounds));
    }
    Ok(least)
}

fn measure(case: &Case, rounds: u32) -> Result<(f64, f64)> {
    let built = least(rounds, || {
        black_box(case.commit()?);
        Ok(())
    })?;
    let (world, causes) = case.command(&case.commit()?.outline());
    let expanded = least(rounds, || {
        let planned = rules::expand(&world, &causes).map_err(|why| anyhow::anyhow!(why))?;
        black_box(cascade::record(&planned).map_err(|p| anyhow::anyhow!("no rune tells of {p}"))?);
        Ok(())
    })?;
    // Each event of a command has its world copied, which is none of the list's.
    let copied = least(rounds, || {
        black_box(world.clone());
        Ok(())
    })?;
    Ok((built, (expanded - copied).max(0.0)))
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let rounds: u32 = arguments.next().map_or(Ok(2_000), |n| n.parse()).context("how many rounds")?;
    let part = arguments.next().unwrap_or_default();
    println!("builder | built ns | expand ns\n---|---:|---:");
    let (mut sums, mut n) = ((0.0, 0.0), 0.0);
    for case in rules::cases().iter().filter(|case| case.name().contains(&part)) {
        let (built, expanded) = measure(case, rounds).with_context(|| case.name())?;
        println!("{} | {built:.0} | {expanded:.0}", case.name());
        (sums.0, sums.1, n) = (sums.0 + built, sums.1 + expanded, n + 1.0);
    }
    println!("mean of {n} | {:.0} | {:.0}", sums.0 / n, sums.1 / n);
    Ok(())
}
