//! A runner dies at every point of making an agent: there is one agent, and one result.

use anyhow::{Context, Result, ensure};
use instar_core::id::{AgentId, SessionId};
use instar_store::{Options, Store};
use instar_testkit::wait;
use instar_tests::fleet::{Fleet, Setup};
use instar_tests::{audit, puppet};
use serde_json::json;
use std::time::Duration;

const WITHIN: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runner_that_dies_while_it_makes_an_agent_makes_one() -> Result<()> {
    let (database, nats) = (instar_testkit::postgres::shared().await?, instar_testkit::nats::shared().await?);
    let binary = env!("CARGO_BIN_EXE_instar-armed").into();
    let mut fleet = Fleet::start(Setup::new(binary, &database, &nats, puppet::script())).await?;
    let store = Store::open(Options::new(&database)).await?;
    fleet.node("tool-runner")?.terminate(WITHIN).await?;
    let passed = |point: &&&str| {
        let by_runner = ["runner.native", "runner.ack", "store.", "runtime."];
        by_runner.iter().any(|area| point.starts_with(area))
    };
    let points: Vec<&str> = instar_crashpoint::POINTS.iter().filter(passed).copied().collect();
    ensure!(points.len() == 8, "{points:?}");
    for point in points {
        let (session, agents) = fleet.agents(1, &["spawn_agent"]).await?;
        let mut armed = fleet.spawn("tool-runner", &[(instar_crashpoint::VARIABLE, point)]).await?;
        let text = format!("call spawn_agent {}", json!({"name": "child", "task": "hello"}));
        let sent = fleet.client.send_message(&agents[0], &text, Default::default()).await?;
        let turn = sent.turn_id.context("a turn")?;
        wait::until_ok(WITHIN, || {
            let ended = armed.ended();
            async move {
                ensure!(ended?.is_some(), "it lives");
                Ok(())
            }
        })
        .await
        .with_context(|| format!("{point} was not reached"))?;
        let mut next = fleet.spawn("tool-runner", &[]).await?;
        wait::until_ok(WITHIN, || async {
            let turn = fleet.client.turn(&turn).await?;
            ensure!(turn.status == "completed", "{point}: the turn is {}", turn.status);
            Ok(())
        })
        .await?;
        let parent: AgentId = agents[0].parse()?;
        wait::until_ok(WITHIN, || async {
            let children = store.live_children(parent).await?;
            ensure!(children.len() == 1, "{point}: {} children", children.len());
            ensure!(children[0].rests(), "{point}: its task is not done");
            Ok(())
        })
        .await?;
        let wrong = audit::session(&store, session.parse::<SessionId>()?).await?;
        ensure!(wrong.is_empty(), "{point}: {wrong:#?}");
        next.terminate(WITHIN).await?;
    }
    Ok(())
}
