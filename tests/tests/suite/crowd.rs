//! Sessions of more agents than fit into an ordinary commit.

use anyhow::{Result, ensure};
use instar_core::machine::session::TABLE;
use instar_runtime::config::Config;
use instar_runtime::{Act, Done};
use instar_testkit::model::{Reply, Script};
use instar_tests::stage::Stage;
use instar_tests::troupe::Troupe;
use instar_tests::{audit, cast, on_both};
use serde_json::json;

/// Each of them has several runes and rows in what ends them all.
const MANY: usize = 1_100;

async fn a_session_of_many_agents_is_closed_in_one_commit(stage: Stage) -> Result<()> {
    let troupe = Troupe::start(&stage, Script::function(|_| Reply::text("Done.")), Config::default()).await?;
    let (hub, store) = (&troupe.context.hub, &stage.store);
    let session = cast::session(store).await?;
    for _ in 0..MANY / 50 {
        let made = (0..50).map(|_| cast::agent_like(store, session, json!({})));
        futures::future::try_join_all(made).await?;
    }
    let done = Act::new(session, session, &TABLE, "close_requested", cast::person()).carry_out(hub).await?;
    let Done::Moved { runes } = done else { anyhow::bail!("nothing moved") };
    ensure!(runes.len() > MANY, "{} runes", runes.len());
    let command = runes[0].command_id;
    ensure!(runes.iter().all(|rune| rune.command_id == command), "more than one commit");
    let wrong = audit::session(store, session).await?;
    ensure!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}

on_both! {
    a_session_of_many_agents_is_closed_in_one_commit;
}
