//! The runelog under concurrent writers: numbers without gap or repeat, readers that miss nothing,
//! seals that show tampering.

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use instar_core::id::{SessionId, TurnId};
use instar_core::rune::Draft;
use instar_core::rune::payload::{SystemError, TurnAssistantDelta};
use instar_store::entity::{rune, session};
use instar_store::{Commit, Options, Store};
use instar_tests::cast::{self, land, system};
use instar_tests::on_both;
use instar_tests::stage::Stage;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use sea_orm::sea_query::{Expr, ExprTrait};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};
use std::collections::HashSet;

const WRITERS: usize = 8;

fn note(session: SessionId, runes: usize) -> Result<Commit> {
    let mut commit = Commit::new(session, system());
    for n in 0..runes {
        let told = SystemError { error_type: "test".into(), message: n.to_string(), context: serde_json::Value::Null };
        commit.rune(Draft::new(session, &told)?);
    }
    Ok(commit)
}

/// How many runes each writer's commits have, and how large a page the reader takes.
fn plan() -> impl Strategy<Value = (Vec<Vec<usize>>, u64)> {
    let commits = proptest::collection::vec(1..5usize, 1..12);
    (proptest::collection::vec(commits, WRITERS), 1..40u64)
}

/// Pages by cursor until it has seen `total` runes; they must come in order, each exactly once.
async fn read_along(store: &Store, session: SessionId, from: i64, total: usize, page: u64) -> Result<()> {
    let mut cursor = from;
    let mut ids = HashSet::new();
    while ids.len() < total {
        for rune in store.runes(session, cursor, page).await? {
            ensure!(rune.seq == cursor + 1, "after {cursor} came {}", rune.seq);
            ensure!(ids.insert(rune.id), "{} came twice", rune.id);
            ensure!(rune.is_intact(), "{} is damaged", rune.seq);
            cursor = rune.seq;
        }
        tokio::task::yield_now().await;
    }
    ensure!(store.runes(session, cursor, page).await?.is_empty(), "more runes than were written");
    Ok(())
}

async fn numbers_have_no_gap_and_a_reader_sees_every_rune_once(stage: Stage) -> Result<()> {
    let store = &stage.store;
    // Half of the writers are another process's, where the backend allows more than one.
    let other = match store.is_postgres() {
        true => Store::open(Options::new(&stage.url)).await?,
        false => store.clone(),
    };
    let mut runner = TestRunner::deterministic();
    for _ in 0..24 {
        let (commits, page) = plan().new_tree(&mut runner).map_err(anyhow::Error::msg)?.current();
        let session = cast::session(store).await?;
        let from = store.runes(session, 0, 100).await?.len() as i64;
        let total: usize = commits.iter().flatten().sum();
        let writers = commits.iter().enumerate().map(|(w, sizes)| {
            let store = if w % 2 == 0 { store } else { &other };
            async move {
                let mut last = from;
                for size in sizes {
                    let landed = land(store, note(session, *size)?).await?;
                    let seqs: Vec<i64> = landed.runes.iter().map(|r| r.seq).collect();
                    let expected: Vec<i64> = (seqs[0]..).take(*size).collect();
                    ensure!(seqs == expected && seqs[0] > last, "{seqs:?} after {last}");
                    last = landed.head_seq();
                }
                Ok(())
            }
        });
        tokio::try_join!(try_join_all(writers), read_along(store, session, from, total, page))?;
        let row = session::Entity::find_by_id(session.uuid()).one(store.db()).await?.context("session")?;
        assert_eq!(row.head_seq, from + total as i64);
    }
    Ok(())
}

async fn what_trails_is_found_by_state_until_it_is_marked(stage: Stage) -> Result<()> {
    let store = &stage.store;
    let (a, b) = (cast::session(store).await?, cast::session(store).await?);
    let soon = store.now().await? + chrono::Duration::seconds(60);
    let head = store.runes(a, 0, 100).await?.len() as i64;
    let mut trailing = store.trailing(soon, None, 10).await?;
    trailing.sort();
    let mut both = vec![(a, 0, head), (b, 0, head)];
    both.sort();
    assert_eq!(trailing, both);
    assert_eq!(store.mark_published(&[(a, 0, head), (b, 0, 1)]).await?.len(), 2);
    assert_eq!(store.trailing(soon, None, 10).await?, [(b, 1, head)]);
    land(store, note(b, 3)?).await?;
    assert_eq!(store.mark_published(&[(b, head, head + 3)]).await?, [], "a mark never jumps a gap");
    assert_eq!(store.trailing(soon, None, 10).await?, [(b, 1, head + 3)]);
    assert_eq!(store.mark_published(&[(b, 1, head + 3)]).await?, [b]);
    assert_eq!(store.trailing(soon, None, 10).await?, []);
    assert_eq!(store.mark_published(&[(a, 0, 1)]).await?, [], "nor goes back");
    assert_eq!(store.trailing(soon, None, 10).await?, []);
    Ok(())
}

async fn tampering_shows_in_the_hash_or_in_the_chain(stage: Stage) -> Result<()> {
    let store = &stage.store;
    let session = cast::session(store).await?;
    land(store, note(session, 5)?).await?;
    let sealed = store.seal(session).await?.map_err(|seq| anyhow::anyhow!("hole at {seq}"))?;
    land(store, note(session, 3)?).await?;
    let longer = store.seal(session).await?.map_err(|seq| anyhow::anyhow!("hole at {seq}"))?;
    assert_eq!(longer.seq, sealed.seq + 3);
    assert_eq!(store.seals(session, 0, 100).await?, [sealed, longer]);

    // A changed rune no longer has the hash of its content.
    let nth = |seq: i64| rune::Column::SessionId.eq(session.uuid()).and(rune::Column::Seq.eq(seq));
    rune::Entity::update_many()
        .col_expr(rune::Column::Payload, Expr::value(r#"{"error_type":"test","message":"forged"}"#))
        .filter(nth(4))
        .exec(store.db())
        .await?;
    let damaged: Vec<i64> =
        store.runes(session, 0, 100).await?.iter().filter(|r| !r.is_intact()).map(|r| r.seq).collect();
    assert_eq!(damaged, [4]);

    // One that is gone leaves a hole that the next sealing runs into.
    land(store, note(session, 2)?).await?;
    rune::Entity::delete_many().filter(nth(longer.seq + 1)).exec(store.db()).await?;
    assert_eq!(store.seal(session).await?, Err(longer.seq + 1));
    Ok(())
}

async fn a_long_answer_is_put_together_from_all_its_pieces(stage: Stage) -> Result<()> {
    const PIECES: usize = 1_234;
    let store = &stage.store;
    let session = cast::session(store).await?;
    let agent = cast::agent_like(store, session, serde_json::json!({})).await?;
    let (long, short, silent): (TurnId, TurnId, TurnId) = (cast::fresh(), cast::fresh(), cast::fresh());
    let mut expected = String::new();
    let tell = |commit: &mut Commit, turn: TurnId, content: &str, index: usize| {
        let told = TurnAssistantDelta { content: content.into(), index: index as i64 };
        commit.rune(Draft::new(turn, &told)?.agent(agent).turn(turn));
        anyhow::Ok(())
    };
    // What was said before it was said anew, and what others say meanwhile.
    let mut commit = Commit::new(session, system());
    tell(&mut commit, long, "an answer that broke off", 0)?;
    tell(&mut commit, short, "short", 0)?;
    land(store, commit).await?;
    for some in (0..PIECES).collect::<Vec<_>>().chunks(100) {
        let mut commit = Commit::new(session, system());
        for n in some {
            let piece = format!("word{n} ");
            tell(&mut commit, long, &piece, expected.len())?;
            expected += &piece;
        }
        land(store, commit).await?;
    }
    let said = store.said_so_far(session, &[long, short, silent]).await?;
    assert_eq!(said.get(&long).map(String::len), Some(expected.len()));
    assert_eq!((said[&long].as_str(), said[&short].as_str(), said.len()), (expected.as_str(), "short", 2));
    assert_eq!(store.said_so_far(session, &[long]).await?[&long], expected);
    // However much others have said since.
    for _ in 0..30 {
        let mut commit = Commit::new(session, system());
        for _ in 0..100 {
            tell(&mut commit, silent, "", 0)?;
        }
        land(store, commit).await?;
    }
    assert_eq!(store.said_so_far(session, &[long, short]).await?.len(), 2);
    Ok(())
}

on_both! {
    a_long_answer_is_put_together_from_all_its_pieces;
    numbers_have_no_gap_and_a_reader_sees_every_rune_once;
    what_trails_is_found_by_state_until_it_is_marked;
    tampering_shows_in_the_hash_or_in_the_chain;
}
