//! Commands with their cascades, publication after commits, leases kept: on both backends.

use anyhow::{Context, Result, ensure};
use instar_bus::Pull;
use instar_core::fold;
use instar_core::id::{Entity, SessionId, WorkerId};
use instar_core::invariant::{self, Scope};
use instar_core::machine;
use instar_runtime::{Act, ActError, Done, Hub, Keeper, LeaseState, Published};
use instar_store::entity::{tool_call, turn};
use instar_store::{Options, Store};
use instar_testkit::proxy::{Direction, Proxy};
use instar_testkit::wait;
use instar_tests::cast::{self, fresh, person};
use instar_tests::on_both;
use instar_tests::stage::{self, Stage};
use sea_orm::EntityTrait;
use serde_json::json;
use std::collections::HashSet;
use std::time::Duration;

const BOUND: Duration = Duration::from_secs(15);

async fn hub(stage: &Stage) -> Result<Hub> {
    Ok(Hub::new(stage.store.clone(), stage::bus(stage).await?))
}

/// The log keeps every invariant and folds to the rows.
async fn is_sound(hub: &Hub, session: SessionId) -> Result<()> {
    let runes = hub.store().runes(session, 0, 1_000).await?;
    let violations = invariant::check(&runes, Scope::default());
    ensure!(violations.is_empty(), "{violations:?}");
    let (states, illegal) = fold::fold(runes.iter());
    let rows = hub.store().states(session).await?;
    let differences = states.diff(rows.iter().map(|(m, e, s)| (*m, *e, s.as_str())));
    ensure!(illegal.is_empty() && differences.is_empty(), "{illegal:?} {differences:?}");
    Ok(())
}

fn kinds(done: &Done) -> Vec<&str> {
    match done {
        Done::Moved { runes } => runes.iter().map(|r| r.kind.as_str()).collect(),
        Done::Ignored => vec![],
    }
}

async fn closing_a_session_ends_calls_then_turns_then_agents_in_one_commit(stage: Stage) -> Result<()> {
    let hub = hub(&stage).await?;
    let session = cast::session(hub.store()).await?;
    let busy = cast::agent(hub.store(), session).await?;
    let waiting = cast::agent(hub.store(), session).await?;
    let (turn_id, calls) = cast::waiting_turn(hub.store(), session, busy, 2, "executing").await?;
    cast::turn(hub.store(), session, waiting).await?;

    let close = Act::new(session, session, &machine::session::TABLE, "close_requested", person());
    let done = close.reason("test over").carry_out(&hub).await?;
    let busy_agent = ["tool.result", "tool.result", "turn.interrupted", "agent.terminated"];
    let waiting_agent = ["turn.interrupted", "agent.terminated"];
    let expected = [&["session.closing"], &busy_agent[..], &waiting_agent[..]].concat();
    assert_eq!(kinds(&done), expected, "the queued turn ends too");

    let row = turn::Entity::find_by_id(turn_id.uuid()).one(hub.store().db()).await?.context("turn")?;
    assert_eq!((row.status.as_str(), row.open_calls, row.ended_at.is_some()), ("interrupted", 0, true));
    let row = tool_call::Entity::find_by_id(calls[0].uuid()).one(hub.store().db()).await?.context("call")?;
    assert_eq!(row.result_status.as_deref(), Some("cancelled"));
    is_sound(&hub, session).await
}

async fn a_decision_about_a_call_is_made_once(stage: Stage) -> Result<()> {
    let hub = &hub(&stage).await?;
    let session = cast::session(hub.store()).await?;
    let agent = cast::agent(hub.store(), session).await?;
    let (turn_id, calls) = cast::waiting_turn(hub.store(), session, agent, 12, "awaiting_approval").await?;
    let decide = |call, event: &'static str| {
        Act::new(session, call, &machine::tool_call::TABLE, event, person()).reason("because").carry_out(hub)
    };
    let mut denied = 0;
    for call in &calls {
        let (yes, no) = tokio::join!(decide(*call, "approved"), decide(*call, "denied"));
        let (won, lost) = match (yes, no) {
            (Ok(yes), Err(lost)) => (yes, lost),
            (Err(lost), Ok(no)) => (no, lost),
            other => anyhow::bail!("not exactly one decision: {other:?}"),
        };
        denied += i64::from(kinds(&won) == ["tool.denied", "tool.result"]);
        let ActError::Refused(refusal) = lost else { anyhow::bail!("{lost}") };
        ensure!(["executing", "denied"].contains(&refusal.from.as_str()), "{refusal}");
    }
    let row = turn::Entity::find_by_id(turn_id.uuid()).one(hub.store().db()).await?.context("turn")?;
    assert_eq!(row.open_calls, 12 - denied, "a denied call has its result, an approved one has not");
    is_sound(hub, session).await
}

async fn what_is_refused_unknown_or_already_so_writes_nothing(stage: Stage) -> Result<()> {
    let hub = hub(&stage).await?;
    let session = cast::session(hub.store()).await?;
    let agent = cast::agent(hub.store(), session).await?;
    let head = hub.store().runes(session, 0, 100).await?.len();
    let on_agent = |event: &'static str| Act::new(session, agent, &machine::agent_drive::TABLE, event, person());

    let refused = on_agent("start").carry_out(&hub).await.expect_err("already running");
    assert!(refused.to_string().contains("already running") && refused.to_string().contains("stop"), "{refused}");
    let nobody: Entity = fresh::<instar_core::id::TurnId>().into();
    let absent = Act::new(session, nobody, &machine::turn::TABLE, "interrupt", person()).carry_out(&hub).await;
    assert!(matches!(absent, Err(ActError::Absent(e)) if e == nobody), "{absent:?}");
    let unknown = fresh::<SessionId>();
    let absent =
        Act::new(unknown, unknown, &machine::session::TABLE, "pause_requested", person()).carry_out(&hub).await;
    assert!(matches!(absent, Err(ActError::Absent(_))), "{absent:?}");
    assert_eq!(hub.store().runes(session, 0, 100).await?.len(), head);

    assert_eq!(kinds(&on_agent("stop").carry_out(&hub).await?), ["agent.drive_stopped"]);
    assert!(matches!(on_agent("stop").carry_out(&hub).await?, Done::Ignored), "already stopped");
    is_sound(&hub, session).await
}

async fn what_is_committed_is_published_and_marked_and_what_was_missed_is_repeated(stage: Stage) -> Result<()> {
    let hub = hub(&stage).await?;
    let store = hub.store();
    let session = cast::session(store).await?; // past the hub: as by a process that died before publishing
    let agent = cast::agent(store, session).await?;
    let all: Vec<&str> = instar_core::rune::KINDS.iter().map(|k| k.token).collect();
    let mut reader = hub.bus().transitions("witness", &all, Pull::default()).await?;
    let soon = store.now().await? + chrono::Duration::seconds(60);

    let stop = Act::new(session, agent, &machine::agent_drive::TABLE, "stop", person());
    let Done::Moved { runes } = stop.carry_out(&hub).await? else { panic!("moved") };
    let first = tokio::time::timeout(BOUND, reader.next()).await?;
    assert_eq!((first.value().kind.as_str(), first.value().seq), ("agent.drive_stopped", runes[0].seq as u64));
    assert_eq!(first.value().payload.as_ref() as &[u8], runes[0].payload.get().as_bytes());
    first.ack().await?;

    // What came before it was never published, so its mark must wait.
    assert_eq!(store.trailing(soon, None, 10).await?, [(session, 0, runes[0].seq)]);
    assert_eq!(hub.republish(soon, 10).await?, runes[0].seq as usize);
    assert_eq!(store.trailing(soon, None, 10).await?, []);
    let mut seen = HashSet::from([runes[0].seq as u64]);
    while seen.len() < runes[0].seq as usize {
        let delivery = tokio::time::timeout(BOUND, reader.next()).await?;
        seen.insert(delivery.value().seq);
        delivery.ack().await?;
    }
    // From here on what the fast path publishes is noted by whoever listens.
    let mut published = Published::listen(&hub).await?;
    Act::new(session, agent, &machine::agent_drive::TABLE, "start", person()).carry_out(&hub).await?;
    assert_eq!(store.trailing(soon, None, 10).await?.len(), 1);
    while !store.trailing(soon, None, 10).await?.is_empty() {
        tokio::time::timeout(BOUND, published.hear()).await?;
        published.note().await?;
    }
    Ok(())
}

async fn a_keeper_renews_its_lease_and_says_when_it_is_lost(stage: Stage) -> Result<()> {
    let store = &stage.store;
    let ttl = Duration::from_millis(900);
    let id: WorkerId = fresh();
    let keeper = Keeper::register(store.clone(), id, "agent-worker", ttl, json!({})).await?;
    let first = store.now().await?;
    // It outlives several times its length.
    wait::until(BOUND, || async {
        store.now().await.is_ok_and(|now| now > first + chrono::Duration::milliseconds(2_700))
    })
    .await;
    assert!(keeper.state().is_held() && store.is_alive(id).await?);
    store.release_lease(id).await?;
    wait::until(BOUND, || async { !keeper.state().is_held() }).await;

    let other = Keeper::register(store.clone(), fresh(), "agent-worker", ttl, json!({})).await?;
    let id = other.id();
    other.release().await?;
    assert!(!store.is_alive(id).await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_cannot_be_renewed_is_lost_without_anybody_saying_so() -> Result<()> {
    let stage = stage::postgres().await?;
    let host = stage.url.split('@').next_back().and_then(|rest| rest.split('/').next()).context("host")?;
    let proxy = Proxy::start(host).await?;
    let store = Store::open(Options::new(proxy.instead_of(&stage.url))).await?;
    let (id, ttl) = (fresh(), Duration::from_secs(3));
    let keeper = Keeper::register(store, id, "agent-worker", ttl, json!({})).await?;
    assert!(keeper.state().is_held());
    // No reset, no error, and no database that could say that it has run out.
    proxy.black_hole(Direction::Down);
    wait::until(BOUND, || async { keeper.state() == LeaseState::Lost }).await;
    // What arrives late enough is no renewal; it is not held again either.
    stage.store.release_lease(id).await?;
    proxy.cut();
    proxy.heal();
    let mut states = keeper.watch();
    let ended = tokio::time::timeout(BOUND, async { while states.changed().await.is_ok() {} }).await;
    ensure!(ended.is_ok(), "it gives up when the database says so");
    assert_eq!(keeper.state(), LeaseState::Lost);
    Ok(())
}

on_both! {
    closing_a_session_ends_calls_then_turns_then_agents_in_one_commit;
    a_decision_about_a_call_is_made_once;
    what_is_refused_unknown_or_already_so_writes_nothing;
    what_is_committed_is_published_and_marked_and_what_was_missed_is_repeated;
    a_keeper_renews_its_lease_and_says_when_it_is_lost;
}
