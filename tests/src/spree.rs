//! Many turns at once on one session's budget, which is enough for half of them.

use crate::fleet::Fleet;
use anyhow::{Context, Result, ensure};
use futures::stream::{self, StreamExt, TryStreamExt};
use instar_client::{InFlight, Mode, NewAgent, NewSession};
use instar_core::id::SessionId;
use instar_store::Store;
use instar_store::entity::{budget, turn};
use instar_testkit::wait;
use sea_orm::{ColumnTrait, EntityTrait, PaginatorTrait, QueryFilter};
use serde_json::json;
use std::time::{Duration, Instant};

/// What each answer of the model uses.
const TOKENS: i64 = 15;
/// No call sets more aside: the longest answer of the model `priced`, and what it is sent.
pub const ESTIMATE_MAX: i64 = 120;
const AT_ONCE: usize = 64;
const WITHIN: Duration = Duration::from_secs(300);

/// What was seen.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    pub cap: i64,
    /// The most that was used and set aside at one moment.
    pub peak: i64,
    /// Used when the session was suspended and nothing was under way any more.
    pub used: i64,
    pub until_suspended: Duration,
    /// From the replenishing to the end of the last turn.
    pub until_done: Duration,
}

async fn limit(store: &Store, session: SessionId) -> Result<budget::Model> {
    store.budgets(&[session.uuid()]).await?.pop().context("a limit")
}

async fn turns(store: &Store, session: SessionId, status: &str) -> Result<u64> {
    let found = turn::Entity::find().filter(turn::Column::SessionId.eq(session.uuid()));
    Ok(found.filter(turn::Column::Status.eq(status)).count(store.db()).await?)
}

/// Runs so many turns, and fails if more is spent than the budget and one estimate, if the session does not
/// suspend, or if a turn does not end once it was replenished.
pub async fn run(fleet: &Fleet, store: &Store, count: usize) -> Result<Figures> {
    let client = &fleet.client;
    let cap = i64::try_from(count)? / 2 * TOKENS;
    let new =
        NewSession { name: Some("spree".into()), budget: Some(json!({"max_tokens": cap})), ..NewSession::default() };
    let session = client.create_session(&new).await?.id;
    let id: SessionId = session.parse()?;
    let make = |n: usize| {
        let session = &session;
        async move {
            let agent = NewAgent { name: format!("a{n}"), model: "priced".into(), ..NewAgent::default() };
            Ok::<_, anyhow::Error>(client.create_agent(session, &agent).await?.id)
        }
    };
    let agents: Vec<String> = stream::iter(0..count).map(make).buffer_unordered(AT_ONCE).try_collect().await?;
    // While it is paused everybody can be asked something, and nobody begins.
    client.pause_session(&session, Some(InFlight::Complete)).await?;
    let send = |agent: &String| {
        let agent = agent.clone();
        async move { client.send_message(&agent, "go", Mode::Queue).await?.turn_id.context("no turn") }
    };
    let sent: Vec<String> = stream::iter(&agents).map(send).buffer_unordered(AT_ONCE).try_collect().await?;
    ensure!(sent.len() == count, "{} turns", sent.len());
    let begun = Instant::now();
    client.resume_session(&session).await?;
    let mut peak = 0;
    let until_suspended = loop {
        let now = limit(store, id).await?;
        peak = peak.max(now.used + now.reserved);
        ensure!(now.used >= 0 && now.reserved >= 0, "{now:?}");
        ensure!(now.used + now.reserved < cap + ESTIMATE_MAX, "{now:?}");
        if store.session(id).await?.context("session")?.status == "suspended" {
            break begun.elapsed();
        }
        ensure!(begun.elapsed() < WITHIN, "never suspended: {now:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    wait::until_ok(WITHIN, || async {
        let busy = turns(store, id, "streaming").await?;
        ensure!(busy == 0, "{busy} turns are under way");
        Ok(())
    })
    .await?;
    let now = limit(store, id).await?;
    ensure!(now.reserved == 0, "leaked: {now:?}");
    ensure!(now.used >= cap && now.used < cap + ESTIMATE_MAX, "{now:?}");
    let completed = turns(store, id, "completed").await?;
    ensure!(i64::try_from(completed)? * TOKENS == now.used, "{completed} turns, {now:?}");
    let again = Instant::now();
    client.replenish_session(&session, &json!({"max_tokens": 10 * cap})).await?;
    wait::until_ok(WITHIN, || async {
        let done = turns(store, id, "completed").await?;
        ensure!(usize::try_from(done)? == count, "{done} of {count} turns");
        Ok(())
    })
    .await?;
    let until_done = again.elapsed();
    let last = limit(store, id).await?;
    ensure!(last.reserved == 0 && last.used == i64::try_from(count)? * TOKENS, "{last:?}");
    Ok(Figures { cap, peak, used: now.used, until_suspended, until_done })
}
