//! Processes by a mark in their environment, which whatever they start inherits: for counting what is left.

use anyhow::{Result, ensure};
use instar_testkit::mcp::MARK;
use instar_testkit::wait;
use std::time::Duration;

/// Number and name of every process that has the mark.
pub fn marked(mark: &str) -> Vec<(u32, String)> {
    let wanted = format!("{MARK}={mark}");
    let Ok(folder) = std::fs::read_dir("/proc") else { return Vec::new() };
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let has = |process: &u32| {
        let environment = std::fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    let name = |process: u32| {
        let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        (process, name.trim().to_owned())
    };
    folder.flatten().filter_map(number).filter(has).map(name).collect()
}

pub async fn none_is_left(mark: &str, within: Duration) -> Result<()> {
    wait::until_ok(within, || async {
        let left = marked(mark);
        ensure!(left.is_empty(), "{left:?} are left");
        Ok(())
    })
    .await
}
