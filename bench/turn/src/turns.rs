//! The durable tool turn, candidate after candidate, round after round.

use crate::candidate::{Candidate, Ground, Kind, Plan};
use crate::meter::Sample;
use crate::record;
use crate::row::{Row, percentile};
use anyhow::Result;
use bench_drive::load::Load;
use std::path::Path;
use std::time::{Duration, Instant};

/// Load before it is measured: connections, caches and plans are there.
const WARM_UP: Duration = Duration::from_secs(1);
const ALLOCATIONS_FOR: Duration = Duration::from_millis(1_500);

pub(crate) struct Turns<'a> {
    pub(crate) plans: &'a [Plan],
    /// Builds that count allocations, under the names of those that do not.
    pub(crate) counted: &'a [Plan],
    pub(crate) levels: &'a [usize],
    pub(crate) time: Duration,
    pub(crate) rounds: usize,
    /// How often a candidate's round is repeated because others were at work.
    pub(crate) again: usize,
    /// Where samples of the products' processes go.
    pub(crate) record: Option<&'a Path>,
}

impl Turns<'_> {
    fn agents(&self) -> usize {
        self.levels.iter().sum()
    }

    /// Every candidate in every round, each round in the other order.
    pub(crate) async fn run(&self, ground: &Ground, mut each: impl FnMut(&Row) -> Result<()>) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for round in 0..self.rounds {
            let mut order: Vec<&Plan> = self.plans.iter().collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for plan in order {
                let found = self.undisturbed(ground, plan, round).await?;
                found.iter().try_for_each(&mut each)?;
                rows.extend(found);
            }
        }
        for plan in self.counted {
            let found = self.allocations(ground, plan).await?;
            found.iter().try_for_each(&mut each)?;
            rows.extend(found);
        }
        Ok(rows)
    }

    /// A candidate's round; once more if somebody else was at work, and then the better of the two.
    async fn undisturbed(&self, ground: &Ground, plan: &Plan, round: usize) -> Result<Vec<Row>> {
        let marked = |rows: &[Row]| rows.iter().filter(|row| row.marked).count();
        let mut best = self.round(ground, plan, round).await?;
        for _ in 0..self.again {
            if marked(&best) == 0 {
                break;
            }
            let next = self.round(ground, plan, round).await?;
            if marked(&next) < marked(&best) {
                best = next;
            }
        }
        Ok(best)
    }

    async fn round(&self, ground: &Ground, plan: &Plan, round: usize) -> Result<Vec<Row>> {
        let mut candidate = plan.start(ground, self.agents()).await?;
        let (mut rows, mut used) = (Vec::new(), 0);
        for level in self.levels {
            let recording = match (self.record, &plan.kind) {
                (Some(folder), Kind::Product(_)) => Some((folder, format!("{}-{level}-{round}", plan.name))),
                _ => None,
            };
            let mut row = measure(&mut candidate, plan, used, *level, self.time, recording).await?;
            row.round = round;
            rows.push(row);
            used += level;
        }
        Ok(rows)
    }

    async fn allocations(&self, ground: &Ground, plan: &Plan) -> Result<Vec<Row>> {
        let mut candidate = plan.start(ground, self.agents()).await?;
        let (mut rows, mut used) = (Vec::new(), 0);
        for level in self.levels {
            let mut row = measure(&mut candidate, plan, used, *level, ALLOCATIONS_FOR, None).await?;
            row.what = "allocations";
            rows.push(row);
            used += level;
        }
        Ok(rows)
    }
}

async fn measure(
    candidate: &mut Candidate,
    plan: &Plan,
    used: usize,
    level: usize,
    time: Duration,
    recording: Option<(&Path, String)>,
) -> Result<Row> {
    let mut entry = candidate.take_entry();
    let mut load = Load::start(&mut entry, used, level).await?;
    tokio::time::sleep(WARM_UP).await;
    let recorders = match recording {
        Some((folder, name)) => record::start(folder, &name, candidate, time)?,
        None => Vec::new(),
    };
    let before = Sample::take(candidate).await?;
    load.begin()?;
    let begun = Instant::now();
    tokio::time::sleep(time).await;
    let seconds = begun.elapsed().as_secs_f64();
    let times = load.end().await?;
    let used = Sample::take(candidate).await?.since(&before);
    load.stop().await?;
    record::end(recorders)?;
    candidate.entry = entry;
    let turns = times.len() as f64;
    let mut row = Row::new("turn", &plan.name, level, 0, &used, turns, 1_000.0);
    row.figures.insert("turns".into(), turns);
    row.figures.insert("seconds".into(), seconds);
    row.figures.insert("turns_per_second".into(), turns / seconds);
    row.figures.insert("p50_ms".into(), percentile(&times, 0.5));
    row.figures.insert("p99_ms".into(), percentile(&times, 0.99));
    Ok(row)
}
