//! The README's first command, really run.

use anyhow::{Result, ensure};
use std::process::Command;

#[test]
fn a_turn_survives_a_kill_after_every_commit() -> Result<()> {
    let output = Command::new(env!("CARGO_BIN_EXE_walkthrough")).output()?;
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
    ensure!(told.contains("killed 5 times; 13 runes"), "{told}");
    ensure!(told.contains("verify: 0 violations; replay: 0 differences from the rows"), "{told}");
    Ok(())
}
