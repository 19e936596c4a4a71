//! What waiting costs and how fast others take over.
//!
//! `bench-wait [parked [rounds]]`: memory of worker and runner with that many turns parked on
//! approvals, the time in which an approved one goes on; then the time from the death of a worker
//! (kill -9, and SIGTERM) to the next provider call for its turns. `INSTAR_BIN` is the command.

#![allow(clippy::disallowed_methods, reason = "a test stands outside: it goes by its machine's clock")]

use anyhow::{Context, Result, ensure};
use futures::stream::{self, StreamExt, TryStreamExt};
use instar_client::{Mode, NewAgent, NewSession, Query};
use instar_testkit::model::{Reply, Script};
use instar_testkit::nats::Nats;
use instar_testkit::postgres::Postgres;
use instar_testkit::wait;
use instar_tests::fleet::{self, Fleet, Setup, tool_turn};
use instar_tests::meter::memory_mb;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

const AT_ONCE: usize = 64;
const APPROVED: usize = 50;
const STREAMING: usize = 16;

fn percentile(sorted: &[f64], share: f64) -> f64 {
    let at = (sorted.len() as f64 * share) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

async fn setup(binary: &Path, postgres: &Postgres, nats: &Nats, model: Script) -> Result<Setup> {
    let database = postgres.create_database().await?;
    Ok(Setup::new(binary.to_path_buf(), &database, nats.url(), model))
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let parked: usize = arguments.next().map_or(Ok(10_000), |n| n.parse())?;
    let rounds: usize = arguments.next().map_or(Ok(8), |n| n.parse())?;
    let binary = std::env::var_os("INSTAR_BIN").map(PathBuf::from).map_or_else(|| fleet::binary("instar"), Ok)?;
    let (postgres, nats) = (Postgres::start().await?, Nats::start().await?);
    waiting(Fleet::start(setup(&binary, &postgres, &nats, tool_turn()).await?).await?, parked).await?;
    let speaking = Script::function(|_| {
        Reply::chunks((0..600).map(|n| format!("word{n} "))).slow(Duration::ZERO, Duration::from_millis(50))
    });
    let mut fleet = Fleet::start(setup(&binary, &postgres, &nats, speaking).await?).await?;
    let second = fleet.spawn("agent-worker", &[]).await?;
    fleet.nodes.push(second);
    take_over(&mut fleet, rounds, "kill -9").await?;
    take_over(&mut fleet, rounds, "SIGTERM").await
}

async fn waiting(fleet: Fleet, parked: usize) -> Result<()> {
    let agent = NewAgent {
        name: "parked".into(),
        model: "default".into(),
        tools: vec!["charge".into()],
        approval_mode: Some("auto".into()),
        ..NewAgent::default()
    };
    let client = &fleet.client;
    let park = |n: usize, agent: NewAgent| async move {
        let session = client.create_session(&NewSession::default()).await?.id;
        let agent = client.create_agent(&session, &agent).await?.id;
        let sent = client.send_message(&agent, &format!("charge {n}"), Mode::Queue).await?;
        sent.turn_id.context("no turn")
    };
    let pid = |service: &str| fleet.nodes.iter().find(|n| n.service == service).map(|n| n.pid()).unwrap_or_default();
    let (worker, runner) = (pid("agent-worker"), pid("tool-runner"));
    // Pools, buffers and caches are as large as they get before anything is counted.
    let warm: Vec<String> =
        stream::iter(0..500).map(|n| park(n, agent.clone())).buffer_unordered(AT_ONCE).try_collect().await?;
    settle(&fleet, warm.len()).await?;
    let before = (memory_mb(worker), memory_mb(runner));
    let begun = Instant::now();
    let turns: Vec<String> =
        stream::iter(500..500 + parked).map(|n| park(n, agent.clone())).buffer_unordered(AT_ONCE).try_collect().await?;
    settle(&fleet, warm.len() + turns.len()).await?;
    let after = (memory_mb(worker), memory_mb(runner));
    println!(
        "{parked} turns parked on approvals in {:.0} s: worker {:.1} -> {:.1} MB ({:+.1}), runner {:.1} -> {:.1} MB ({:+.1})",
        begun.elapsed().as_secs_f64(),
        before.0,
        after.0,
        after.0 - before.0,
        before.1,
        after.1,
        after.1 - before.1
    );
    let mut times = Vec::new();
    for turn in turns.iter().step_by((turns.len() / APPROVED).max(1)) {
        let calls = client.calls(&Query::new().with("turn", turn)).await?;
        let call = calls.data.first().context("no call")?;
        let begun = Instant::now();
        client.approve(&call.id, call.digest.as_deref()).await?;
        let ended = client.turn_within(turn, 20.0).await?;
        ensure!(ended.status == "completed", "{ended:?}");
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    println!(
        "approve to the end of the turn: p50 {:.1} ms, p99 {:.1} ms ({} of them)",
        percentile(&times, 0.5),
        percentile(&times, 0.99),
        times.len()
    );
    Ok(())
}

/// Until that many calls wait for somebody.
async fn settle(fleet: &Fleet, calls: usize) -> Result<()> {
    let store = instar_store::Store::open(instar_store::Options::new(&fleet.database)).await?;
    wait::until(Duration::from_secs(600), || async {
        use sea_orm::{ColumnTrait, EntityTrait, PaginatorTrait, QueryFilter};
        let waiting = instar_store::entity::tool_call::Column::Status.eq("awaiting_approval");
        let found = instar_store::entity::tool_call::Entity::find().filter(waiting).count(store.db()).await;
        found.is_ok_and(|found| found as usize >= calls)
    })
    .await;
    Ok(())
}

async fn take_over(fleet: &mut Fleet, rounds: usize, how: &str) -> Result<()> {
    let (mut times, mut attempts) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let (_, agents) = fleet.agents(STREAMING, &[]).await?;
        let seen = fleet.model.requests().len();
        let mut turns = Vec::new();
        for (n, agent) in agents.iter().enumerate() {
            let sent = fleet.client.send_message(agent, &format!("{how} {round} {n}"), Mode::Queue).await?;
            turns.push(sent.turn_id.context("no turn")?);
        }
        wait::until(Duration::from_secs(20), || async { fleet.model.requests().len() >= seen + STREAMING }).await;
        // In the middle of their answers.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let at = SystemTime::now();
        let place = fleet.nodes.iter().position(|n| n.service == "agent-worker").context("no worker")?;
        match how {
            "SIGTERM" => drop(fleet.nodes[place].terminate(Duration::from_secs(30)).await?),
            _ => fleet.nodes[place].kill9().await?,
        }
        // The survivor has its own turns, so that only some come again.
        tokio::time::sleep(Duration::from_secs(6)).await;
        let mut by_text: HashMap<String, Vec<SystemTime>> = HashMap::new();
        for request in fleet.model.requests().into_iter().skip(seen) {
            by_text.entry(request.user_text()).or_default().push(request.at);
        }
        let again = by_text.values().filter_map(|times| times.iter().filter(|t| **t > at).min());
        times.extend(again.filter_map(|t| t.duration_since(at).ok()).map(|d| d.as_secs_f64()));
        for turn in &turns {
            attempts.push(fleet.client.turn(turn).await?.attempts);
            let _ = fleet.client.interrupt_turn(turn, Some("measured")).await;
        }
        let node = fleet.spawn("agent-worker", &[]).await?;
        fleet.nodes.remove(place);
        fleet.nodes.push(node);
    }
    times.sort_by(f64::total_cmp);
    let most = attempts.iter().max().copied().unwrap_or_default();
    println!(
        "{how} of a worker to the next provider call for its turns: p50 {:.2} s, p99 {:.2} s, {} turns in {rounds} rounds; attempts at most {most}",
        percentile(&times, 0.5),
        percentile(&times, 0.99),
        times.len()
    );
    Ok(())
}
