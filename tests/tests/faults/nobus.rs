//! NATS away for a while, with everything started anew meanwhile, and back empty. `cargo xtask faults -- nobus` goes on for
//! longer.

use anyhow::{Context, Result, ensure};
use instar_tests::fault::Ground;
use instar_tests::nobus::Terms;
use instar_tests::play::Play;
use std::time::Duration;

/// Three times what is promised for a hop.
const HOP_WITHIN: Duration = Duration::from_secs(6);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_nats_work_goes_on_from_rows() -> Result<()> {
    let mut ground = Ground::prepare(env!("CARGO_BIN_EXE_instar-armed").into()).await.context("the ground")?;
    let life = ground
        .live_without_nats(Terms {
            normal: Duration::from_secs(1),
            away: Duration::from_secs(2),
            kill_every: Some(Duration::from_secs(1)),
            restart: true,
            plays: &[Play::Words, Play::Accounts, Play::Children],
            rounds: 1,
        })
        .await?;
    println!("{life}");
    ensure!(life.violations.is_empty(), "{}", life.violations.join("\n"));
    // A third of what is promised: others share the machine.
    ensure!(life.rate >= life.normal / 30.0, "{life}");
    ensure!(life.hops > 0 && life.hop_p95 <= HOP_WITHIN, "{life}");
    Ok(())
}
