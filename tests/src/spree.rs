//! Many turns at once on one session's budget, which is enough for half of them.

use crate::fleet::Fleet;
use anyhow::{Context, Result, ensure};
use futures::stream::{self, StreamExt, TryStreamExt};
use instar_client::{InFlight, Mode, NewAgent, NewSession};
use instar_core::id::SessionId;
use instar_store::Store;
use instar_store::entity::{budget, turn};
use instar_testkit::model::{Reply, Request};
use instar_testkit::wait;
use sea_orm::{ColumnTrait, EntityTrait, PaginatorTrait, QueryFilter};
use serde_json::json;
use std::time::{Duration, Instant};

/// By it the scenarios' model knows which script it follows.
const PROMPT: &str = "[holds_however_many_draw_on_it_at_once]";
/// What is set aside for each call: the longest answer of a model that is not limited otherwise, and what it is sent,
/// instructions and two bytes with what frames them.
pub const ESTIMATE: i64 = 8_192 + (PROMPT.len() as i64 + 2 + 16 + 1) / 2;
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

/// A model that uses all that it may, if it is told what that is: every other byte that it is sent is a token, and
/// its answer is as long as allowed.
pub fn greedy(request: &Request) -> Reply {
    let sent = |message: &serde_json::Value| {
        let frame = if message["role"] == "system" { 0 } else { 16 };
        message["content"].as_str().map_or(0, str::len) + frame
    };
    let input = request.messages().iter().map(sent).sum::<usize>().div_ceil(2);
    let allowed = ["max_tokens", "max_completion_tokens"].iter().find_map(|field| request.body[*field].as_u64());
    Reply::text("Done.").usage(input as u64, allowed.unwrap_or(100_000))
}

/// Runs so many turns of a [`greedy`] model, and fails if more is spent than the budget and one estimate, if the session does not
/// suspend, or if a turn that was not cut off does not end once it was replenished.
pub async fn run(fleet: &Fleet, store: &Store, count: usize) -> Result<Figures> {
    let client = &fleet.client;
    // No multiple of what a call uses: the last one that is let in goes beyond it.
    let cap = i64::try_from(count)? / 2 * ESTIMATE - ESTIMATE / 2;
    let new =
        NewSession { name: Some("spree".into()), budget: Some(json!({"max_tokens": cap})), ..NewSession::default() };
    let session = client.create_session(&new).await?.id;
    let id: SessionId = session.parse()?;
    let make = |n: usize| {
        let session = &session;
        async move {
            let agent = NewAgent {
                name: format!("a{n}"),
                model: "default".into(),
                system_prompt: Some(PROMPT.into()),
                ..NewAgent::default()
            };
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
        ensure!(now.used + now.reserved < cap + ESTIMATE, "{now:?}");
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
    ensure!(now.used >= cap && now.used < cap + ESTIMATE, "{now:?}");
    let completed = turns(store, id, "completed").await?;
    // Who heard the provider when the limit was used up was cut off, and has used what it had sent.
    let cut = turns(store, id, "interrupted").await?;
    let whole = i64::try_from(completed)? * ESTIMATE;
    ensure!(whole == now.used || (cut > 0 && whole < now.used), "{completed} turns and {cut} cut off, {now:?}");
    let again = Instant::now();
    client.replenish_session(&session, &json!({"max_tokens": 10 * cap})).await?;
    wait::until_ok(WITHIN, || async {
        let done = turns(store, id, "completed").await?;
        ensure!(usize::try_from(done + cut)? == count, "{done} of {count} turns, {cut} cut off");
        Ok(())
    })
    .await?;
    let until_done = again.elapsed();
    let (last, done) = (limit(store, id).await?, turns(store, id, "completed").await?);
    ensure!(last.reserved == 0 && last.used - now.used == i64::try_from(done - completed)? * ESTIMATE, "{last:?}");
    Ok(Figures { cap, peak, used: now.used, until_suspended, until_done })
}
