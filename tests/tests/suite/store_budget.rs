//! Limits that commits draw from, on both backends: whoever races, nobody overshoots.

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use instar_core::id::SessionId;
use instar_core::rune::Draft;
use instar_core::rune::payload::SystemError;
use instar_runtime::flow;
use instar_store::entity::{budget, session, turn};
use instar_store::{Answer, Change, Commit, Options, Store, StoreError};
use instar_tests::cast::{self, fresh, land, system};
use instar_tests::on_both;
use instar_tests::stage::Stage;
use serde_json::json;
use uuid::Uuid;

fn commit(session: SessionId) -> Result<Commit> {
    let mut commit = Commit::new(session, system());
    let told = SystemError { error_type: "test".into(), message: "drawn".into(), context: json!(null) };
    commit.rune(Draft::new(session, &told)?);
    Ok(commit)
}

async fn limit(store: &Store, session: SessionId, cap: i64) -> Result<Uuid> {
    let id = Uuid::now_v7();
    let mut made = commit(session)?;
    made.insert(
        &budget::TABLE,
        budget::Model {
            id,
            session_id: session.uuid(),
            scope: "session".into(),
            scope_id: session.uuid(),
            kind: format!("tokens{}", id.simple()),
            cap,
            used: 0,
            reserved: 0,
            since: None,
            version: 0,
        },
    );
    land(store, made).await?;
    Ok(id)
}

fn draw(session: SessionId, draws: &[(Uuid, i64, i64, i64)]) -> Result<Commit> {
    let mut commit = commit(session)?;
    for (id, used, reserved, need) in draws {
        commit.change(Change::new(&budget::TABLE, *id).drawing(*used, *reserved, *need));
    }
    Ok(commit)
}

async fn row(store: &Store, id: Uuid) -> Result<budget::Model> {
    store.budget(id).await?.context("a limit")
}

/// Two writers with connections of their own; on SQLite they share the one writer there is.
async fn rivals(stage: &Stage) -> Result<[Store; 2]> {
    let first = stage.store.clone();
    let second = match first.is_postgres() {
        true => Store::open(Options::new(&stage.url)).await?,
        false => first.clone(),
    };
    Ok([first, second])
}

async fn a_draw_lands_while_anything_is_left_and_says_what_is_not_used(stage: Stage) -> Result<()> {
    let store = &stage.store;
    let s = cast::session(store).await?;
    let (one, two) = (limit(store, s, 100).await?, limit(store, s, 1_000).await?);
    let landed = land(store, draw(s, &[(one, 0, 70, 1), (two, 5, 0, 5)])?).await?;
    assert_eq!((landed.counter(one), landed.counter(two)), (Some(100), Some(995)));
    // Something is left, so a whole estimate may go beyond; then nothing is.
    land(store, draw(s, &[(one, 0, 70, 1)])?).await?;
    let Answer::Found(found) = store.commit(draw(s, &[(two, 0, 1, 1), (one, 0, 1, 1)])?).await? else {
        panic!("more than there was")
    };
    assert_eq!(found.iter().map(|f| (f.table, f.id)).collect::<Vec<_>>(), [("budgets", one)]);
    assert_eq!(row(store, two).await?.reserved, 0, "it dropped out as a whole");
    // What was used is booked whatever is left, and may come to more than the limit.
    let landed = land(store, draw(s, &[(one, 60, -70, 0)])?).await?;
    assert_eq!(landed.counter(one), Some(40));
    let landed = land(store, draw(s, &[(one, 65, -70, 0)])?).await?;
    assert_eq!(landed.counter(one), Some(-25));
    let left = row(store, one).await?;
    assert_eq!((left.used, left.reserved, left.version), (125, 0, 4));
    // Counted exactly: all of it or nothing.
    assert!(matches!(store.commit(draw(s, &[(two, 996, 0, 996)])?).await?, Answer::Found(_)));
    assert_eq!(land(store, draw(s, &[(two, 995, 0, 995)])?).await?.counter(two), Some(0));
    // A raise makes room again.
    let mut raise = commit(s)?;
    raise.change(Change::new(&budget::TABLE, one).set(budget::Column::Cap, 200i64));
    land(store, raise).await?;
    land(store, draw(s, &[(one, 0, 1, 1)])?).await?;
    let gone = store.commit(draw(s, &[(fresh(), 1, 0, 0)])?).await?;
    assert!(matches!(gone, Answer::Absent { table: "budgets", .. }), "{gone:?}");
    let mut both = commit(s)?;
    both.change(Change::new(&budget::TABLE, one).set(budget::Column::Cap, 1i64).drawing(1, 0, 0));
    assert!(matches!(store.commit(both).await, Err(StoreError::Invalid(_))));
    let mut other = commit(s)?;
    other.change(Change::new(&turn::TABLE, Uuid::now_v7()).drawing(1, 0, 0));
    assert!(matches!(store.commit(other).await, Err(StoreError::Invalid(_))));
    Ok(())
}

async fn racing_writers_never_set_aside_more_than_the_limit_and_one_estimate(stage: Stage) -> Result<()> {
    let stores = &rivals(&stage).await?;
    let s = cast::session(&stores[0]).await?;
    let (cap, n) = (1_000, 30);
    let (one, two) = (limit(&stores[0], s, cap).await?, limit(&stores[0], s, 1_000_000).await?);
    let tries = futures::stream::iter(0..300usize).map(|at| async move {
        let answer = stores[at % 2].commit(draw(s, &[(one, 0, n, 1), (two, 0, n, 1)])?).await?;
        Ok::<_, anyhow::Error>(match answer {
            Answer::Moved(_) => true,
            Answer::Found(found) => {
                ensure!(found.len() == 1 && found[0].id == one, "{found:?}");
                false
            }
            other => anyhow::bail!("{other:?}"),
        })
    });
    let landed: Vec<Result<bool>> = tries.buffer_unordered(100).collect().await;
    let landed = landed.into_iter().collect::<Result<Vec<bool>>>()?.into_iter().filter(|landed| *landed).count() as i64;
    assert_eq!(landed, (cap + n - 1) / n, "as many as one after another would have been let in");
    let left = row(&stores[0], one).await?;
    assert_eq!((left.used, left.reserved), (0, landed * n));
    assert_eq!(row(&stores[0], two).await?.reserved, landed * n, "who dropped out took nothing elsewhere");
    Ok(())
}

/// Each sets an estimate aside, settles with less and tries again when there was no room; at the same moment
/// somebody commits what does not land.
async fn what_is_set_aside_and_settled_at_once_adds_up(stage: Stage) -> Result<()> {
    let stores = &rivals(&stage).await?;
    let s = cast::session(&stores[0]).await?;
    let id = limit(&stores[0], s, 400).await?;
    let (estimate, real) = (50, 7);
    let one = |at: usize| async move {
        let store = &stores[at % 2];
        loop {
            match store.commit(draw(s, &[(id, 0, estimate, 1)])?).await? {
                Answer::Moved(_) => {
                    let mut settle = draw(s, &[(id, real, -estimate, 0)])?;
                    if at.is_multiple_of(5) {
                        // Somebody else's row: it drops out, and has settled nothing.
                        let mut wrong = draw(s, &[(id, real, -estimate, 0)])?;
                        wrong.change(Change::entity(&instar_store::entity::session::TABLE, s).version(1_000_000));
                        ensure!(matches!(store.commit(wrong).await?, Answer::Found(_)), "landed");
                        settle = draw(s, &[(id, 0, -estimate, 0)])?;
                    }
                    land(store, settle).await?;
                    return Ok::<_, anyhow::Error>(i64::from(!at.is_multiple_of(5)) * real);
                }
                Answer::Found(_) => {
                    let now = row(store, id).await?;
                    ensure!(now.used + now.reserved < now.cap + estimate, "{now:?}");
                    if now.used >= now.cap {
                        return Ok(0);
                    }
                    tokio::task::yield_now().await;
                }
                other => anyhow::bail!("{other:?}"),
            }
        }
    };
    let spent: Vec<Result<i64>> = futures::stream::iter(0..120).map(one).buffer_unordered(40).collect().await;
    let spent = spent.into_iter().sum::<Result<i64>>()?;
    let left = row(&stores[0], id).await?;
    assert_eq!((left.used, left.reserved), (spent, 0));
    assert!(left.used >= left.cap && left.used < left.cap + estimate, "{left:?}");
    Ok(())
}

async fn a_clock_does_not_stop_at_a_limit_that_was_raised_meanwhile(stage: Stage) -> Result<()> {
    let store = &stage.store;
    let session = cast::session(store).await?;
    let id = limit(store, session, 1_000).await?;
    let set = |row: &budget::Model, cap: i64| -> Result<Commit> {
        let mut raised = commit(session)?;
        let change = Change::new(&budget::TABLE, id).version(row.version);
        raised.change(change.set(budget::Column::Cap, cap).set(budget::Column::Since, Some(raised.at())));
        Ok(raised)
    };
    let row = store.budget(id).await?.context("a limit")?;
    land(store, set(&row, 1_000)?).await?;
    let seen = store.budget(id).await?.context("a limit")?;
    land(store, set(&seen, 9_000)?).await?;
    ensure!(!store.stop_clock(&seen, 1_000).await?, "it stopped a clock that has time left");
    let raised = store.budget(id).await?.context("a limit")?;
    ensure!(raised.since.is_some() && raised.used == 0, "{raised:?}");
    // The other way round: who raises it must have seen that it stands.
    ensure!(store.stop_clock(&raised, 9_000).await?);
    let Answer::Found(_) = store.commit(set(&raised, 20_000)?).await? else {
        anyhow::bail!("it was not seen to stand")
    };
    let stands = store.budget(id).await?.context("a limit")?;
    ensure!(stands.since.is_none() && (stands.used, stands.cap) == (9_000, 9_000), "{stands:?}");
    ensure!(!store.stop_clock(&stands, 9_000).await?, "it stood already");
    Ok(())
}

async fn who_joins_while_its_session_gets_its_first_limit_looks_again(stage: Stage) -> Result<()> {
    let store = &stage.store;
    let id = cast::session(store).await?;
    let row = store.session(id).await?.context("a session")?;
    let new = || flow::NewAgent { name: "late".into(), model: "default".into(), ..Default::default() };
    let mut limited = commit(id)?;
    let change = Change::entity(&session::TABLE, id).version(row.version);
    limited.change(change.set(session::Column::Budget, json!({"max_tokens": 1_000})));
    land(store, limited).await?;
    let born = flow::join(&row, vec![new()], system(), None)?;
    let Answer::Found(_) = store.commit(born.commit).await? else { anyhow::bail!("it joined without its limits") };
    let row = store.session(id).await?.context("a session")?;
    let born = flow::join(&row, vec![new()], system(), None)?;
    ensure!(born.agents[0].config[flow::PAYERS] == json!([id]), "{:?}", born.agents[0].config);
    land(store, born.commit).await?;
    Ok(())
}

on_both! {
    a_clock_does_not_stop_at_a_limit_that_was_raised_meanwhile;
    who_joins_while_its_session_gets_its_first_limit_looks_again;
    a_draw_lands_while_anything_is_left_and_says_what_is_not_used;
    racing_writers_never_set_aside_more_than_the_limit_and_one_estimate;
    what_is_set_aside_and_settled_at_once_adds_up;
}
