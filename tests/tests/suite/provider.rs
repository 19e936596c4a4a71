//! A provider that is down, or whose credit is used up, and a fleet that wants something of it.

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use instar_core::id::{AgentId, SessionId, TurnId};
use instar_runtime::config::{Config, ModelConfig};
use instar_runtime::flow::Mode;
use instar_testkit::model::{Reply, Script};
use instar_testkit::wait;
use instar_tests::stage::Stage;
use instar_tests::troupe::{Troupe, WITHIN};
use instar_tests::{cast, on_both};
use serde_json::json;

/// A circuit that opens after three failures, for a short while.
fn wary() -> Config {
    let limits = json!({"retry_first_ms": 10, "circuit_failures": 3, "circuit_open_ms": 2_500});
    let limits = limits.as_object().cloned().unwrap_or_default();
    let model = ModelConfig { name: "default".into(), limits, ..ModelConfig::default() };
    Config { models: vec![model], ..Config::default() }
}

async fn agents(troupe: &Troupe, n: usize) -> Result<(SessionId, Vec<AgentId>)> {
    let store = troupe.context.hub.store();
    let session = cast::session(store).await?;
    let mut agents = Vec::new();
    for _ in 0..n {
        agents.push(cast::agent_like(store, session, json!({})).await?);
    }
    Ok((session, agents))
}

async fn send(troupe: &Troupe, agent: AgentId) -> Result<TurnId> {
    troupe.send(agent, "hello", Mode::Queue).await?.context("a turn")
}

/// The turn waits for its provider, in the database alone.
async fn parked(troupe: &Troupe, turn: TurnId) -> Result<()> {
    wait::until_ok(WITHIN, || async {
        let row = troupe.turn(turn).await?;
        ensure!(row.control.as_ref().is_some_and(|control| control["action"] == "wait"), "{row:?}");
        Ok(())
    })
    .await
}

async fn a_fleet_leaves_a_provider_alone_that_is_down_and_goes_on_when_it_is_back(stage: Stage) -> Result<()> {
    let troupe = Troupe::start(&stage, Script::function(|_| Reply::server_error()), wary()).await?;
    let (session, agents) = agents(&troupe, 12).await?;
    // The first one finds it out by its own retries.
    let first = send(&troupe, agents[0]).await?;
    parked(&troupe, first).await?;
    assert_eq!(troupe.model.requests().len(), 3);
    let rest = try_join_all(agents[1..].iter().map(|agent| send(&troupe, *agent))).await?;
    try_join_all(rest.iter().map(|turn| parked(&troupe, *turn))).await?;
    let made = troupe.model.requests().len();
    ensure!(made <= 4, "{made} calls, though nobody but one who tries should have made any");
    troupe.model.set_script(Script::function(|_| Reply::text("back")));
    for turn in rest.iter().chain([&first]) {
        let ended = troupe.ended(*turn).await?;
        assert_eq!((ended.status.as_str(), ended.output.as_deref(), ended.attempts), ("completed", Some("back"), 1));
    }
    troupe.audit(session).await
}

async fn whoever_hears_that_the_credit_is_used_up_ends_and_the_others_wait(stage: Stage) -> Result<()> {
    let troupe = Troupe::start(&stage, Script::function(|_| Reply::spend_limit()), wary()).await?;
    let (session, agents) = agents(&troupe, 3).await?;
    let first = send(&troupe, agents[0]).await?;
    assert_eq!(troupe.ended(first).await?.status, "error");
    let row = troupe.context.hub.store().agent(agents[0]).await?.context("agent")?;
    assert_eq!(row.drive, "errored");
    let rest = try_join_all(agents[1..].iter().map(|agent| send(&troupe, *agent))).await?;
    try_join_all(rest.iter().map(|turn| parked(&troupe, *turn))).await?;
    assert_eq!(troupe.model.requests().len(), 1, "money errors are not retried, by nobody");
    troupe.model.set_script(Script::function(|_| Reply::text("paid")));
    for turn in rest {
        let ended = troupe.ended(turn).await?;
        assert_eq!((ended.status.as_str(), ended.output.as_deref()), ("completed", Some("paid")));
    }
    troupe.audit(session).await
}

async fn a_wait_is_counted_for_one_provider_call_and_grows(stage: Stage) -> Result<()> {
    let mut config = wary();
    config.models[0].limits.insert("circuit_failures".into(), json!(0));
    config.models[0].limits.insert("retries_max".into(), json!(0));
    let script = Script::replies([Reply::server_error(), Reply::server_error(), Reply::call("now", json!({}))])
        .then(|_| Reply::text("at last"));
    let troupe = Troupe::start(&stage, script, config).await?;
    let store = troupe.context.hub.store();
    let session = cast::session(store).await?;
    let agent = cast::agent_like(store, session, json!({"tools": ["now"]})).await?;
    let turn = send(&troupe, agent).await?;
    let mut waits = Vec::new();
    for n in [1, 2] {
        let row = wait::until_ok(WITHIN, || async {
            let row = troupe.turn(turn).await?;
            let control = row.control.clone().unwrap_or_default();
            ensure!(control["n"] == n && control["call"] == 1, "{control}");
            Ok(row)
        })
        .await?;
        let until: chrono::DateTime<chrono::Utc> =
            serde_json::from_value(row.control.unwrap_or_default()["until"].clone())?;
        waits.push((until - row.updated_at).num_milliseconds());
    }
    ensure!((1_900..=2_600).contains(&waits[0]) && (3_900..=5_100).contains(&waits[1]), "{waits:?}");
    let ended = troupe.ended(turn).await?;
    assert_eq!((ended.status.as_str(), ended.iterations), ("completed", 2));
    assert_eq!(instar_runtime::flow::waits(&ended), 0, "the next call has not waited");
    troupe.audit(session).await
}

on_both! {
    a_fleet_leaves_a_provider_alone_that_is_down_and_goes_on_when_it_is_back;
    whoever_hears_that_the_credit_is_used_up_ends_and_the_others_wait;
    a_wait_is_counted_for_one_provider_call_and_grows;
}
