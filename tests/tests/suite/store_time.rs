//! Leases, timers, claims: what the database's clock decides.

use anyhow::Result;
use futures::future::try_join_all;
use instar_core::id::{SessionId, TimerId, WorkerId};
use instar_core::rune::Draft;
use instar_core::rune::payload::SystemError;
use instar_store::entity::timer;
use instar_store::{Answer, Commit, Options, Store};
use instar_testkit::wait;
use instar_tests::cast::{self, fresh, land, system};
use instar_tests::on_both;
use instar_tests::stage::Stage;
use serde_json::json;
use std::collections::HashSet;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);

async fn a_lease_is_renewed_while_it_lasts_and_never_after(stage: Stage) -> Result<()> {
    let store = &stage.store;
    let (kept, lost): (WorkerId, WorkerId) = (fresh(), fresh());
    let asked = Instant::now();
    let lease = store.register_worker(kept, "agent-worker", LONG, json!({})).await?;
    assert!(lease.trusted_until < asked + LONG, "the holder trusts it for less than it lasts");
    store.register_worker(lost, "agent-worker", Duration::from_millis(30), json!({})).await?;
    wait::until(Duration::from_secs(5), || async { store.expired_workers(10).await.is_ok_and(|e| e == [lost]) }).await;

    assert!(store.renew_lease(kept, LONG).await?.is_some_and(|l| l.until >= lease.until));
    assert!(store.renew_lease(lost, LONG).await?.is_none(), "a lease that ran out is not renewed");
    assert!(store.renew_lease(fresh(), LONG).await?.is_none());
    assert_eq!((store.is_alive(kept).await?, store.is_alive(lost).await?), (true, false));
    store.release_lease(kept).await?;
    assert!(!store.is_alive(kept).await?);
    Ok(())
}

async fn set(store: &Store, session: SessionId, due: chrono::DateTime<chrono::Utc>, count: usize) -> Result<()> {
    let mut commit = Commit::new(session, system());
    for _ in 0..count {
        let id: TimerId = fresh();
        let row = timer::Model {
            id: id.uuid(),
            session_id: session.uuid(),
            kind: "nudge".into(),
            entity: session.to_string(),
            due_at: due,
            claimed_until: None,
            payload: Some(json!({"n": 1})),
            version: 0,
            created_at: commit.at(),
        };
        commit.insert(&timer::TABLE, row);
    }
    commit.rune(note(session)?);
    land(store, commit).await?;
    Ok(())
}

fn note(session: SessionId) -> Result<Draft> {
    let told = SystemError { error_type: "test".into(), message: "timer".into(), context: json!(null) };
    Ok(Draft::new(session, &told)?)
}

async fn due_timers_are_claimed_by_one_scheduler_each_and_fire_once(stage: Stage) -> Result<()> {
    let store = &stage.store;
    let session = cast::session(store).await?;
    let now = store.now().await?;
    set(store, session, now - chrono::Duration::seconds(1), 60).await?;
    set(store, session, now + chrono::Duration::seconds(3600), 5).await?;
    let other = match store.is_postgres() {
        true => Store::open(Options::new(&stage.url)).await?,
        false => store.clone(),
    };
    let claims = (0..8).map(|n| {
        let store = if n % 2 == 0 { store } else { &other };
        store.claim_timers(LONG, 10)
    });
    let mut claimed: Vec<timer::Model> = try_join_all(claims).await?.concat();
    // Rows that another claim had locked were skipped; they are still there to be claimed.
    claimed.extend(store.claim_timers(LONG, 100).await?);
    let ids: HashSet<uuid::Uuid> = claimed.iter().map(|t| t.id).collect();
    assert_eq!((claimed.len(), ids.len()), (60, 60), "each due timer exactly once, none that is not due");
    assert_eq!(claimed[0].payload, Some(json!({"n": 1})));

    // Fired by deleting it with what it was set for; a second firing finds it gone.
    let fire = |id: usize| -> Result<Commit> {
        let mut commit = Commit::new(session, system());
        commit.delete(&timer::TABLE, claimed[id].id);
        commit.rune(note(session)?);
        Ok(commit)
    };
    let (one, two) = tokio::join!(store.commit(fire(0)?), other.commit(fire(0)?));
    let answers = [one?, two?];
    assert_eq!(answers.iter().filter(|a| matches!(a, Answer::Moved(_))).count(), 1, "{answers:?}");
    assert!(answers.iter().any(|a| matches!(a, Answer::Absent { table: "timers", .. })), "{answers:?}");
    // Many at once, so that the writer's path for batches does it too.
    let fired = (1..60).map(|n| {
        let commit = fire(n);
        async move { land(store, commit?).await }
    });
    try_join_all(fired).await?;
    assert!(store.claim_timers(LONG, 100).await?.is_empty());
    Ok(())
}

async fn a_claimed_timer_comes_up_again_when_its_holder_does_not_fire_it(stage: Stage) -> Result<()> {
    let store = &stage.store;
    let session = cast::session(store).await?;
    set(store, session, store.now().await?, 1).await?;
    assert_eq!(store.claim_timers(Duration::from_millis(50), 10).await?.len(), 1);
    wait::until(Duration::from_secs(5), || async {
        store.claim_timers(LONG, 10).await.is_ok_and(|again| again.len() == 1)
    })
    .await;
    Ok(())
}

on_both! {
    a_lease_is_renewed_while_it_lasts_and_never_after;
    due_timers_are_claimed_by_one_scheduler_each_and_fire_once;
    a_claimed_timer_comes_up_again_when_its_holder_does_not_fire_it;
}
