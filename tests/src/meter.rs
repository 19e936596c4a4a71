//! What a run costs: processor time of everything that serves, memory of the services,
//! files and threads they hold.

use anyhow::{Context, Result};
use std::collections::HashMap;
use std::fs;

/// Processor seconds of each of these processes with its children and children's children, ended ones
/// included.
pub fn cpu_seconds(roots: &[u32]) -> Result<Vec<f64>> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    let mut ticks: HashMap<u32, (u64, u64)> = HashMap::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some((_, rest)) = stat.rsplit_once(')') else { continue };
        let field: Vec<&str> = rest.split_whitespace().collect();
        let number = |at: usize| field.get(at).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        children.entry(number(1) as u32).or_default().push(pid);
        ticks.insert(pid, (number(11) + number(12), number(13) + number(14)));
    }
    let total = |root: &u32| {
        let (mut total, mut open) = (0, vec![*root]);
        while let Some(pid) = open.pop() {
            let (own, reaped) = ticks.get(&pid).copied().unwrap_or_default();
            total += own + reaped;
            open.extend(children.get(&pid).into_iter().flatten());
        }
        // Linux counts in hundredths.
        total as f64 / 100.0
    };
    Ok(roots.iter().map(total).collect())
}

/// Resident memory, megabytes.
pub fn memory_mb(pid: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}

/// Open files of a process, and how many of them are sockets.
pub fn open_files(pid: u32) -> Result<(usize, usize)> {
    let folder = format!("/proc/{pid}/fd");
    let links =
        fs::read_dir(&folder).with_context(|| folder.clone())?.flatten().map(|entry| fs::read_link(entry.path()));
    let (mut files, mut sockets) = (0, 0);
    for link in links.flatten() {
        files += 1;
        sockets += usize::from(link.to_string_lossy().starts_with("socket:"));
    }
    Ok((files, sockets))
}

pub fn threads(pid: u32) -> Result<usize> {
    let folder = format!("/proc/{pid}/task");
    Ok(fs::read_dir(&folder).with_context(|| folder.clone())?.count())
}
