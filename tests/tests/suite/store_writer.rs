//! The transition writer, on both backends.

use anyhow::{Context, Result};
use instar_core::machine::{self, By};
use instar_core::rune::Draft;
use instar_core::rune::payload::*;
use instar_store::entity::{agent, session, turn};
use instar_store::{Answer, Change, Commit, StoreError};
use instar_tests::cast::{self, fresh, land, mv, system};
use instar_tests::on_both;
use instar_tests::stage::Stage;
use sea_orm::EntityTrait;

async fn a_claim_moves_agent_and_turn_in_one_commit_and_a_second_one_changes_nothing(stage: Stage) -> Result<()> {
    let store = &stage.store;
    let s = cast::session(store).await?;
    let a = cast::agent(store, s).await?;
    let t = cast::turn(store, s, a).await?;
    let before = store.runes(s, 0, 100).await?.len() as i64;

    let landed = land(store, cast::claim(s, a, t, 0)?).await?;
    assert_eq!(landed.first_seq(), before + 1);
    assert_eq!(landed.runes.len(), 1);
    let row = agent::Entity::find_by_id(a.uuid()).one(store.db()).await?.context("agent")?;
    assert_eq!((row.lifecycle.as_str(), row.drive.as_str(), row.epoch), ("running_turn", "running", 1));
    let row = turn::Entity::find_by_id(t.uuid()).one(store.db()).await?.context("turn")?;
    assert_eq!((row.status.as_str(), row.epoch, row.attempts), ("streaming", 1, 1));

    let Answer::Found(found) = store.commit(cast::claim(s, a, t, 0)?).await? else { panic!("claimed twice") };
    let lost = found.iter().find(|f| f.table == "agents").context("agents")?;
    assert_eq!((lost.states.clone(), lost.epoch), (vec!["running_turn".into(), "running".into()], 1));
    assert_eq!(store.runes(s, 0, 100).await?.len() as i64, before + 1);
    let row = session::Entity::find_by_id(s.uuid()).one(store.db()).await?.context("session")?;
    assert_eq!(row.head_seq, before + 1);
    Ok(())
}

async fn runes_read_back_intact_with_their_moves(stage: Stage) -> Result<()> {
    let store = &stage.store;
    let s = cast::session(store).await?;
    let a = cast::agent(store, s).await?;
    let t = cast::turn(store, s, a).await?;
    let commit =
        cast::claim(s, a, t, 0)?.traced(Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()));
    let command = commit.command_id();
    let landed = land(store, commit).await?;

    let read = store.read_back(s, command).await?;
    assert_eq!(read.len(), 1);
    assert!(read[0].is_intact());
    assert_eq!(read[0].hash, landed.runes[0].hash);
    assert_eq!(read[0].epoch, 1);
    assert!(read[0].traceparent.is_some());
    let rows: Vec<&str> = read[0].moves.iter().map(|m| m.row.as_str()).collect();
    assert_eq!(rows, ["L4", "T1"]);
    assert!(store.runes(s, 0, 100).await?.iter().all(|r| r.is_intact()));
    Ok(())
}

async fn two_commits_that_follow_from_each_other_land_as_one_or_not_at_all(stage: Stage) -> Result<()> {
    let store = &stage.store;
    let s = cast::session(store).await?;
    let a = cast::agent(store, s).await?;
    let t = cast::turn(store, s, a).await?;
    let received = || -> Result<Commit> {
        let mut commit = Commit::new(s, system()).under_epoch(1);
        let calls = mv(&machine::turn::TABLE, Some("streaming"), "tool_calls_received", By::System)?;
        // As they are after the claim.
        commit.change(Change::entity(&turn::TABLE, t).moving(calls).epoch(1).version(1));
        let told = TurnToolCallsReceived { call_ids: vec![], content: None, reasoning: None };
        commit.rune(Draft::new(t, &told)?.turn(t));
        Ok(commit)
    };
    // Without the claim it finds the turn queued; with one under a stale epoch neither lands.
    assert!(matches!(store.commit(received()?).await?, Answer::Found(_)));
    assert!(matches!(store.commit(cast::claim(s, a, t, 7)?.under_epoch(1).then(received()?)).await?, Answer::Found(_)));
    let head = store.runes(s, 0, 100).await?.len();
    let landed = land(store, cast::claim(s, a, t, 0)?.then(received()?)).await?;
    let kinds: Vec<&str> = landed.runes.iter().map(|rune| rune.kind.as_str()).collect();
    assert_eq!((kinds[0], *kinds.last().unwrap()), ("turn.started", "turn.tool_calls_received"));
    let row = store.turn(t).await?.unwrap();
    assert_eq!((row.status.as_str(), row.version, row.epoch), ("tool_executing", 1, 1));
    assert_eq!(store.runes(s, 0, 100).await?.len(), head + kinds.len());
    // States that do not chain up are refused before anything is sent.
    let other = cast::turn(store, s, a).await?;
    let wrong = store.commit(cast::claim(s, a, other, 1)?.then(cast::claim(s, a, other, 1)?)).await;
    assert!(matches!(wrong, Err(StoreError::Invalid(_))), "{wrong:?}");
    Ok(())
}

async fn a_counter_is_added_to_without_knowing_it(stage: Stage) -> Result<()> {
    let store = &stage.store;
    let s = cast::session(store).await?;
    let a = cast::agent(store, s).await?;
    let t = cast::turn(store, s, a).await?;
    land(store, cast::claim(s, a, t, 0)?).await?;
    for (n, sum) in [(3, 3), (-1, 2), (-2, 0)] {
        let mut commit = Commit::new(s, system());
        let usage = mv(&machine::turn::TABLE, Some("streaming"), "usage_reported", By::System)?;
        commit.change(Change::entity(&turn::TABLE, t).moving(usage).epoch(1).adding(n));
        commit.rune(Draft::new(t, &TurnUsage { input_tokens: 1, output_tokens: 1, estimated: false })?);
        assert_eq!(land(store, commit).await?.counter(t.uuid()), Some(sum));
    }
    Ok(())
}

async fn bad_input_is_refused_with_what_is_wrong_and_writes_nothing(stage: Stage) -> Result<()> {
    let store = &stage.store;
    let s = cast::session(store).await?;
    let a = cast::agent(store, s).await?;
    let t = cast::turn(store, s, a).await?;
    let head = store.runes(s, 0, 100).await?.len();

    // A stale epoch.
    let Answer::Found(found) = store.commit(cast::claim(s, a, t, 7)?).await? else { panic!("stale epoch") };
    assert_eq!((found[0].table, found[0].epoch), ("agents", 0));
    // An unknown id, and one of another session.
    let unknown = store.commit(cast::claim(s, a, fresh(), 0)?).await?;
    assert!(matches!(unknown, Answer::Absent { table: "turns", .. }), "{unknown:?}");
    let other = cast::session(store).await?;
    let foreign = store.commit(cast::claim(other, a, t, 0)?).await?;
    assert!(matches!(foreign, Answer::Absent { table: "agents", .. }), "{foreign:?}");
    let nowhere = store.commit(cast::claim(fresh(), a, t, 0)?).await?;
    assert!(matches!(nowhere, Answer::Absent { .. }), "{nowhere:?}");
    // A payload over its limit.
    let mut commit = cast::claim(s, a, t, 0)?;
    commit.rune(Draft::new(t, &TurnAssistantDelta { content: "x".repeat(600_000), index: 0 })?);
    let refused = store.commit(commit).await.expect_err("too large");
    assert!(
        matches!(refused, StoreError::TooLarge { .. }) && refused.to_string().contains("over the limit"),
        "{refused}"
    );
    // A transition without its rune.
    let mut commit = Commit::new(s, system());
    let started = mv(&machine::turn::TABLE, Some("queued"), "start_turn", By::System)?;
    commit.change(Change::entity(&turn::TABLE, t).moving(started));
    commit.rune(Draft::new(t, &TurnUsage { input_tokens: 1, output_tokens: 1, estimated: false })?);
    let refused = store.commit(commit).await.expect_err("untold");
    assert!(refused.to_string().contains("must be told by a rune turn.started"), "{refused}");
    // A status written past the machine.
    let mut commit = cast::claim(s, a, t, 0)?;
    commit.change(Change::new(&turn::TABLE, t.uuid()).set(turn::Column::Status, "completed"));
    let refused = store.commit(commit).await.expect_err("status");
    assert!(refused.to_string().contains("written by the transition writer only"), "{refused}");
    // The same row twice.
    let mut commit = Commit::new(s, system());
    let birth = mv(&machine::turn::TABLE, None, "queue_turn", By::User)?;
    commit.bear(&turn::TABLE, t, &[birth], cast::turn_row(t, s, a, "queued"));
    commit.rune(Draft::new(t, &TurnQueued { cause: "user".into(), number: 0, message_ids: vec![], input: None })?);
    assert!(matches!(store.commit(commit).await, Err(StoreError::Duplicate(_))));

    assert_eq!(store.runes(s, 0, 100).await?.len(), head);
    let row = turn::Entity::find_by_id(t.uuid()).one(store.db()).await?.context("turn")?;
    assert_eq!((row.status.as_str(), row.version), ("queued", 0));
    Ok(())
}

async fn several_changes_of_one_row_in_one_commit_all_land(stage: Stage) -> Result<()> {
    let store = &stage.store;
    let table = &machine::turn::TABLE;
    // Alone, and beside others: the writer has a path for each.
    for together in [1, 16] {
        let commits = (0..together).map(|_| async {
            let s = cast::session(store).await?;
            let a = cast::agent(store, s).await?;
            let t = cast::turn(store, s, a).await?;
            land(store, cast::claim(s, a, t, 0)?).await?;
            let mut commit = Commit::new(s, system()).under_epoch(1);
            // The session is expected first and moved later; the turn moves twice and counts.
            commit.change(Change::entity(&session::TABLE, s).expecting("session", "active"));
            let usage = mv(table, Some("streaming"), "usage_reported", By::System)?;
            commit.change(Change::entity(&turn::TABLE, t).moving(usage).epoch(1).adding(3));
            commit.rune(Draft::new(t, &TurnUsage { input_tokens: 1, output_tokens: 1, estimated: false })?);
            let asked = mv(table, Some("streaming"), "tool_calls_received", By::System)?;
            commit.change(Change::entity(&turn::TABLE, t).moving(asked).set(turn::Column::Iterations, 1i64).adding(2));
            commit.rune(Draft::new(t, &TurnToolCallsReceived { call_ids: vec![], content: None, reasoning: None })?);
            let paused = mv(&machine::session::TABLE, Some("active"), "pause_requested", By::User)?;
            commit.change(Change::entity(&session::TABLE, s).moving(paused));
            commit.rune(Draft::new(s, &SessionPaused { reason: None, in_flight: None })?);
            let landed = land(store, commit).await?;
            anyhow::ensure!(landed.counter(t.uuid()) == Some(5), "{:?}", landed.counters);
            let row = turn::Entity::find_by_id(t.uuid()).one(store.db()).await?.context("turn")?;
            anyhow::ensure!(
                (row.status.as_str(), row.iterations, row.open_calls) == ("tool_executing", 1, 5),
                "{row:?}"
            );
            let row = session::Entity::find_by_id(s.uuid()).one(store.db()).await?.context("session")?;
            anyhow::ensure!(row.status == "paused" && row.head_seq == landed.head_seq(), "{row:?}");
            Ok(())
        });
        futures::future::try_join_all(commits).await?;
    }
    Ok(())
}

async fn a_commit_that_contradicts_itself_or_goes_past_the_machines_is_refused(stage: Stage) -> Result<()> {
    let store = &stage.store;
    let s = cast::session(store).await?;
    let a = cast::agent(store, s).await?;
    let t = cast::turn(store, s, a).await?;
    let head = store.runes(s, 0, 100).await?.len();
    let table = &machine::turn::TABLE;
    let start = || mv(table, Some("queued"), "start_turn", By::System);
    let done = || mv(table, Some("streaming"), "response_done", By::System);
    let row = |session| cast::turn_row(fresh(), session, a, "completed");
    let mut bad: Vec<(&str, Commit)> = Vec::new();
    let mut case = |why, build: &dyn Fn(&mut Commit) -> Result<()>| -> Result<()> {
        let mut commit = Commit::new(s, system());
        build(&mut commit)?;
        commit.rune(Draft::new(t, &TurnUsage { input_tokens: 1, output_tokens: 1, estimated: false })?);
        bad.push((why, commit));
        Ok(())
    };
    case("is born by a move", &|c| {
        c.insert(&turn::TABLE, row(s));
        Ok(())
    })?;
    case("by then, not", &|c| {
        c.change(Change::entity(&turn::TABLE, t).expecting("turn", "streaming").moving(start()?));
        Ok(())
    })?;
    case("by then, not", &|c| {
        c.change(Change::entity(&turn::TABLE, t).moving(start()?));
        c.change(Change::entity(&turn::TABLE, t).moving(start()?));
        Ok(())
    })?;
    case("two different epochs", &|c| {
        c.change(Change::entity(&turn::TABLE, t).moving(start()?).epoch(0));
        c.change(Change::entity(&turn::TABLE, t).moving(done()?).epoch(1));
        Ok(())
    })?;
    let birth = || mv(table, None, "queue_turn", By::User);
    case("must be where its birth leads", &|c| {
        let model = row(s);
        c.bear(&turn::TABLE, instar_core::id::TurnId::from(model.id), &[birth()?, done()?], model);
        Ok(())
    })?;
    case("is not that of", &|c| {
        c.bear(&turn::TABLE, fresh::<instar_core::id::TurnId>(), &[birth()?], row(s));
        Ok(())
    })?;
    case("belongs to another session", &|c| {
        let model = turn::Model { status: "queued".into(), ..row(fresh()) };
        c.bear(&turn::TABLE, instar_core::id::TurnId::from(model.id), &[birth()?], model);
        Ok(())
    })?;
    case("is written by the transition writer only", &|c| {
        c.change(Change::new(&turn::TABLE, t.uuid()).set(turn::Column::CreatedAt, chrono::Utc::now()));
        Ok(())
    })?;
    case("both set and added to", &|c| {
        c.change(Change::new(&turn::TABLE, t.uuid()).set(turn::Column::OpenCalls, 1i64).adding(1));
        Ok(())
    })?;
    case("no column has", &|c| {
        c.change(Change::new(&turn::TABLE, t.uuid()).set(turn::Column::Output, 1.5f64));
        Ok(())
    })?;
    case("bytes of a commit", &|c| {
        let text = "x".repeat(instar_store::COMMIT_BYTES_MAX);
        c.change(Change::new(&turn::TABLE, t.uuid()).set(turn::Column::Output, text));
        Ok(())
    })?;
    for (why, commit) in bad {
        let refused = store.commit(commit).await.expect_err(why).to_string();
        assert!(refused.contains(why), "{why}: {refused}");
    }
    assert_eq!(store.runes(s, 0, 100).await?.len(), head);
    Ok(())
}

async fn what_a_database_cannot_hold_is_stored_alike_on_every_path(stage: Stage) -> Result<()> {
    let store = &stage.store;
    for together in [1, 16] {
        let commits = (0..together).map(|_| async {
            let s = cast::session(store).await?;
            let a = cast::agent(store, s).await?;
            let t = cast::turn(store, s, a).await?;
            let mut commit = cast::claim(s, a, t, 0)?;
            let odd = serde_json::json!({"nul": "a\u{0}b", "k\u{0}": [1, "\u{0}"]});
            let change = Change::new(&turn::TABLE, t.uuid()).set(turn::Column::Output, "a\u{0}b");
            commit.change(change.set(turn::Column::Error, odd).set(turn::Column::Control, serde_json::Value::Null));
            land(store, commit).await?;
            let row = turn::Entity::find_by_id(t.uuid()).one(store.db()).await?.context("turn")?;
            anyhow::ensure!(row.output.as_deref() == Some("a\u{fffd}b"), "{row:?}");
            let held = serde_json::json!({"nul": "a\u{fffd}b", "k\u{fffd}": [1, "\u{fffd}"]});
            anyhow::ensure!(row.error == Some(held) && row.control.is_none(), "{row:?}");
            // Where a value must be, its absence is refused, not stored as something else.
            let mut commit = Commit::new(s, system());
            commit.change(Change::new(&turn::TABLE, t.uuid()).set(turn::Column::Usage, serde_json::Value::Null));
            commit.rune(Draft::new(t, &TurnUsage { input_tokens: 1, output_tokens: 1, estimated: false })?);
            let refused = store.commit(commit).await;
            anyhow::ensure!(matches!(refused, Err(StoreError::Invalid(_))), "{refused:?}");
            Ok(())
        });
        futures::future::try_join_all(commits).await?;
    }
    Ok(())
}

on_both! {
    several_changes_of_one_row_in_one_commit_all_land;
    a_commit_that_contradicts_itself_or_goes_past_the_machines_is_refused;
    what_a_database_cannot_hold_is_stored_alike_on_every_path;
    a_claim_moves_agent_and_turn_in_one_commit_and_a_second_one_changes_nothing;
    runes_read_back_intact_with_their_moves;
    two_commits_that_follow_from_each_other_land_as_one_or_not_at_all;
    a_counter_is_added_to_without_knowing_it;
    bad_input_is_refused_with_what_is_wrong_and_writes_nothing;
}
