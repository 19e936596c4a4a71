//! What a candidate has used so far: processor time by process, work of the database, messages of NATS, allocations.

use crate::candidate::Candidate;
use anyhow::{Context, Result};
use bench_drive::wire::{self, Line, request};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::time::Instant;
use tokio_postgres::Client;

/// Linux counts processor time in hundredths.
const TICKS_PER_SECOND: f64 = 100.0;

const DATABASE: &str = "\
SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::float8, (pg_snapshot_xmax(pg_current_snapshot())::text)::float8,
  (SELECT xact_commit::float8 FROM pg_stat_database WHERE datname = current_database()),
  (SELECT coalesce(sum(n_tup_upd), 0)::float8 FROM pg_stat_user_tables),
  (SELECT coalesce(sum(n_tup_hot_upd), 0)::float8 FROM pg_stat_user_tables)";

/// Processor seconds of processes with their children and children's children, ended ones included.
struct Processors {
    ticks: HashMap<u32, f64>,
    children: HashMap<u32, Vec<u32>>,
}

impl Processors {
    fn read() -> Result<Processors> {
        let (mut ticks, mut children) = (HashMap::new(), HashMap::<u32, Vec<u32>>::new());
        for entry in fs::read_dir("/proc")?.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
            let Some((_, rest)) = stat.rsplit_once(')') else { continue };
            let numbers: Vec<f64> = rest.split_whitespace().map(|word| word.parse().unwrap_or(0.0)).collect();
            if let Some(parent) = numbers.get(1) {
                children.entry(*parent as u32).or_default().push(pid);
            }
            // User, system, and the same of children that were waited for.
            ticks.insert(pid, numbers.iter().skip(11).take(4).sum());
        }
        Ok(Processors { ticks, children })
    }

    fn seconds(&self, root: u32) -> f64 {
        let (mut total, mut open) = (0.0, vec![root]);
        while let Some(pid) = open.pop() {
            total += self.ticks.get(&pid).copied().unwrap_or_default();
            open.extend(self.children.get(&pid).into_iter().flatten());
        }
        total / TICKS_PER_SECOND
    }
}

/// Processor seconds of the whole machine: user, nice, system, interrupts.
fn machine() -> Result<f64> {
    let stat = fs::read_to_string("/proc/stat")?;
    let line = stat.lines().next().context("/proc/stat is empty")?;
    let numbers: Vec<f64> = line.split_whitespace().skip(1).map(|word| word.parse().unwrap_or(0.0)).collect();
    Ok([0, 1, 2, 5, 6].iter().filter_map(|n| numbers.get(*n)).sum::<f64>() / TICKS_PER_SECOND)
}

/// Resident memory, kilobytes.
pub(crate) fn memory_kb(pid: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kb| kb.parse().ok()).unwrap_or(0.0)
}

/// Numbers that only grow, by name, at one moment.
#[derive(Clone)]
pub(crate) struct Sample {
    at: Instant,
    /// Processor seconds of each process of the candidate.
    cpu: Vec<(String, f64)>,
    machine: f64,
    /// Of this program and all that it started.
    own: f64,
    counts: BTreeMap<String, f64>,
}

/// What was used between two moments.
pub(crate) struct Use {
    pub(crate) seconds: f64,
    pub(crate) cpu: Vec<(String, f64)>,
    /// Cores that processes of others used meanwhile.
    pub(crate) foreign: f64,
    counts: BTreeMap<String, f64>,
}

impl Use {
    /// `None` if this candidate has no such number.
    pub(crate) fn count(&self, name: &str) -> Option<f64> {
        self.counts.get(name).copied()
    }

    pub(crate) fn counts(&self, prefix: &str) -> impl Iterator<Item = (&str, f64)> {
        self.counts.iter().filter_map(move |(name, count)| Some((name.strip_prefix(prefix)?, *count)))
    }
}

impl Sample {
    pub(crate) async fn take(candidate: &Candidate) -> Result<Sample> {
        let mut counts = BTreeMap::new();
        if let Some(database) = &candidate.database {
            counts.extend(work(database).await?);
        }
        if let Some(nats) = &candidate.nats {
            let figures = wire::json(&nats.monitor()?, &request("GET", "/varz", "", "")).await?;
            for (name, of) in [("nats_in", "in_msgs"), ("nats_out", "out_msgs")] {
                counts.insert(name.into(), figures[of].as_f64().context("no figures of NATS")?);
            }
        }
        for (service, address) in &candidate.pages {
            for (name, count) in allocations(address).await? {
                counts.insert(format!("{name}.{service}"), count);
            }
        }
        let processors = Processors::read()?;
        let cpu = candidate.processes().map(|(name, pid)| (name, processors.seconds(pid))).collect();
        let own = processors.seconds(std::process::id());
        Ok(Sample { at: Instant::now(), cpu, machine: machine()?, own, counts })
    }

    pub(crate) fn since(self, before: &Sample) -> Use {
        let seconds = (self.at - before.at).as_secs_f64();
        let cpu = self.cpu.into_iter().zip(&before.cpu).map(|((name, after), (_, before))| (name, after - before));
        let counts = self.counts.into_iter().filter_map(|(name, after)| {
            let before = before.counts.get(&name)?;
            Some((name, after - before))
        });
        let foreign = (self.machine - before.machine) - (self.own - before.own);
        Use { seconds, cpu: cpu.collect(), foreign: (foreign / seconds).max(0.0), counts: counts.collect() }
    }
}

async fn work(database: &Client) -> Result<[(String, f64); 5]> {
    let row = database.query_one(DATABASE, &[]).await?;
    let names = ["wal_bytes", "commits", "transactions", "updates", "hot_updates"];
    let mut at = 0..;
    Ok(names.map(|name| (name.to_owned(), row.get::<_, f64>(at.next().unwrap_or_default()))))
}

/// Allocations and their bytes, of a build that counts them.
async fn allocations(address: &str) -> Result<Vec<(&'static str, f64)>> {
    let page = Line::connect(address).await?.ask(&request("GET", "/metrics", "", "")).await?;
    let page = String::from_utf8(page.body)?;
    let figure = |name: &str| {
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        line.with_context(|| format!("no {name} at {address}: not built with the feature count-allocations"))
    };
    Ok(vec![
        ("allocations", figure("instar_allocations_total ")?),
        ("allocated_bytes", figure("instar_allocated_bytes_total ")?),
    ])
}
