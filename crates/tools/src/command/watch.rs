//! Counts the processes of a call.
//!
//! The kernel's own limit counts all that a user runs, and does not hold root at all; this one is
//! exact but looks only now and then.

use std::fs;
use std::time::Duration;

const PAUSE: Duration = Duration::from_millis(50);

/// Returns when there are more than `most`, which is never for a well-behaved command.
pub(super) async fn too_many(supervisor: Option<u32>, most: u64) {
    let Some(supervisor) = supervisor else { return std::future::pending().await };
    loop {
        tokio::time::sleep(PAUSE).await;
        if count(supervisor, most) > most {
            return;
        }
    }
}

/// Stops counting when it is enough: a list of thousands is no reason to be slow.
fn count(supervisor: u32, most: u64) -> u64 {
    let (mut found, mut open) = (0, vec![supervisor]);
    while let Some(process) = open.pop() {
        let children = children(process);
        found += children.len() as u64;
        if found > most {
            break;
        }
        open.extend(children);
    }
    found
}

/// Each thread has the list of what it forked.
fn children(process: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return Vec::new() };
    let lists = threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}
