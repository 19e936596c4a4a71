//! The store when its database, its connection or its caller goes away.

use anyhow::{Context, Result, ensure};
use futures::future::{join_all, try_join_all};
use instar_core::id::SessionId;
use instar_core::rune::Draft;
use instar_core::rune::payload::SystemError;
use instar_store::entity::worker;
use instar_store::{Answer, Commit, Options, Store, StoreError};
use instar_testkit::postgres::Postgres;
use instar_testkit::proxy::{Direction, Proxy};
use instar_testkit::wait;
use instar_tests::cast::{self, fresh, land, mv, system};
use instar_tests::stage;
use sea_orm::{ActiveValue::Set, EntityTrait, PaginatorTrait, TransactionTrait};
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

fn note(session: SessionId, message: &str) -> Result<Commit> {
    let mut commit = Commit::new(session, system());
    let told = SystemError { error_type: "test".into(), message: message.into(), context: json!(null) };
    commit.rune(Draft::new(session, &told)?);
    Ok(commit)
}

async fn through(proxy: &Proxy, url: &str, readers: u32) -> Result<Store> {
    let mut options = Options::new(proxy.instead_of(url));
    options.readers_max = readers;
    options.acquire_timeout = Duration::from_secs(10);
    options.writers = 1;
    Ok(Store::open(options).await?)
}

fn host(url: &str) -> Result<String> {
    let rest = url.split('@').next_back().context("host")?;
    Ok(rest.split('/').next().context("host")?.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_is_lost_is_read_back_and_not_made_twice() -> Result<()> {
    let stage = stage::postgres().await?;
    let session = cast::session(&stage.store).await?;
    let proxy = Proxy::start(&host(&stage.url)?).await?;
    let store = through(&proxy, &stage.url, 1).await?;
    land(&store, note(session, "the connection is up")?).await?;

    // The statement reaches the server, its answer does not come back.
    proxy.black_hole(Direction::Down);
    let commit = note(session, "ambiguous")?;
    let command = commit.command_id();
    let pending = tokio::spawn({
        let store = store.clone();
        async move { store.commit(commit).await }
    });
    wait::until(Duration::from_secs(10), || async {
        stage.store.read_back(session, command).await.is_ok_and(|runes| !runes.is_empty())
    })
    .await;
    proxy.cut();
    proxy.heal();

    let Answer::Moved(landed) = pending.await?? else { panic!("it did land") };
    let stored = stage.store.read_back(session, command).await?;
    assert_eq!(stored.len(), 1);
    assert_eq!(stored[0].seq, landed.head_seq());
    assert_eq!(store.writer_stats().read_back.load(Ordering::Relaxed), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_commit_is_read_back_with_its_numbers_whatever_came_on_top() -> Result<()> {
    let stage = stage::postgres().await?;
    let session = cast::session(&stage.store).await?;
    let proxy = Proxy::start(&host(&stage.url)?).await?;
    let mut options = Options::new(proxy.instead_of(&stage.url));
    options.round_trip_max = Duration::from_secs(120);
    let store = Store::open(options).await?;
    let many = |runes: usize| -> Result<Commit> {
        let mut commit = note(session, "one of many")?;
        for _ in 1..runes {
            let told = SystemError { error_type: "test".into(), message: "another".into(), context: json!(null) };
            commit.rune(Draft::new(session, &told)?);
        }
        Ok(commit)
    };
    // The connection is up and knows the statement.
    land(&store, many(1_000)?).await?;
    let before = stage.store.session(session).await?.context("session")?.head_seq;
    proxy.black_hole(Direction::Down);
    let commit = many(1_000)?;
    let command = commit.command_id();
    let pending = tokio::spawn({
        let store = store.clone();
        async move { store.commit(commit).await }
    });
    wait::until(Duration::from_secs(30), || async {
        stage.store.read_back(session, command).await.is_ok_and(|runes| !runes.is_empty())
    })
    .await;
    for _ in 0..10 {
        land(&stage.store, many(950)?).await?;
    }
    proxy.cut();
    proxy.heal();

    let Answer::Moved(landed) = pending.await?? else { panic!("it did land") };
    let numbers = landed.runes.iter().map(|rune| rune.seq);
    assert!(numbers.eq(before + 1..=before + 1_000), "{} after {before}", landed.runes[0].seq);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_never_reached_the_server_is_made_after_the_reconnect() -> Result<()> {
    let stage = stage::postgres().await?;
    let session = cast::session(&stage.store).await?;
    let proxy = Proxy::start(&host(&stage.url)?).await?;
    let store = through(&proxy, &stage.url, 1).await?;
    land(&store, note(session, "the connection is up")?).await?;
    proxy.black_hole(Direction::Up);
    let commit = note(session, "late")?;
    let command = commit.command_id();
    let pending = tokio::spawn({
        let store = store.clone();
        async move { store.commit(commit).await }
    });
    let sent = proxy.bytes(Direction::Up);
    wait::until(Duration::from_secs(10), || async { proxy.bytes(Direction::Up) >= sent }).await;
    proxy.cut();
    proxy.heal();
    assert!(matches!(pending.await??, Answer::Moved(_)));
    assert_eq!(stage.store.read_back(session, command).await?.len(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_falls_silent_holds_a_lane_up_for_a_limited_time() -> Result<()> {
    let stage = stage::postgres().await?;
    let session = cast::session(&stage.store).await?;
    let proxy = Proxy::start(&host(&stage.url)?).await?;
    let mut options = Options::new(proxy.instead_of(&stage.url));
    options.round_trip_max = Duration::from_millis(300);
    let store = Store::open(options).await?;
    land(&store, note(session, "the connection is up")?).await?;
    // No reset, no end of stream: nobody ever says that the answer will not come.
    proxy.black_hole(Direction::Down);
    let commit = note(session, "into silence")?;
    let command = commit.command_id();
    let pending = tokio::spawn({
        let store = store.clone();
        async move { store.commit(commit).await }
    });
    let lost = || store.writer_stats().ambiguous.load(Ordering::Relaxed);
    wait::until(Duration::from_secs(10), || async { lost() == 1 }).await;
    proxy.heal();
    assert!(matches!(pending.await??, Answer::Moved(_)));
    assert_eq!(stage.store.read_back(session, command).await?.len(), 1);
    Ok(())
}

/// Every connection there was is lost for good and nobody is told; the way itself is fine again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_and_leases_go_on_over_other_connections_when_theirs_fell_silent() -> Result<()> {
    let stage = stage::postgres().await?;
    let proxy = Proxy::start(&host(&stage.url)?).await?;
    let mut options = Options::new(proxy.instead_of(&stage.url));
    (options.readers_max, options.writers) = (2, 1);
    (options.acquire_timeout, options.round_trip_max) = (Duration::from_millis(300), Duration::from_millis(300));
    let store = Store::open(options).await?;
    let (id, ttl) = (fresh(), Duration::from_secs(60));
    store.register_worker(id, "test", ttl, json!({})).await?;
    let read = || worker::Entity::find_by_id(instar_core::id::WorkerId::uuid(id)).one(store.db());
    try_join_all([read(), read()]).await?;
    proxy.strand();
    // Asked at once, while the connections still count as alive: their questions are on the way.
    let asked = std::time::Instant::now();
    let (reads, renewed) = tokio::join!(join_all((0..4).map(|_| read())), store.renew_lease(id, ttl));
    ensure!(reads.iter().all(Result::is_err) && renewed.is_err(), "something answered: {reads:?}, {renewed:?}");
    ensure!(asked.elapsed() < Duration::from_secs(5), "it took {:?} to notice", asked.elapsed());
    for error in reads.into_iter().filter_map(Result::err) {
        ensure!(StoreError::from(error).retryable(), "whoever asked may ask again");
    }
    ensure!(proxy.stranded() >= 3, "only {} connections were lost", proxy.stranded());
    proxy.heal();
    wait::until(Duration::from_secs(5), || async { read().await.is_ok_and(|row| row.is_some()) }).await;
    wait::until(Duration::from_secs(5), || async { store.renew_lease(id, ttl).await.is_ok_and(|l| l.is_some()) }).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_share_the_connections_of_the_pool() -> Result<()> {
    let stage = stage::postgres().await?;
    let proxy = Proxy::start(&host(&stage.url)?).await?;
    let store = through(&proxy, &stage.url, 2).await?;
    let before = proxy.connections();
    for _ in 0..100 {
        store.expired_workers(1).await?;
    }
    let more = proxy.connections() - before;
    assert!(more <= 2, "100 reads took {more} more connections");
    Ok(())
}

/// Five rows written after a deadline struck must all be visible from elsewhere.
async fn five_rows_are_visible(store: &Store, elsewhere: &Store) -> Result<()> {
    let before = worker::Entity::find().count(elsewhere.db()).await?;
    for _ in 0..5 {
        let row = worker::ActiveModel {
            id: Set(uuid::Uuid::now_v7()),
            service: Set("test".into()),
            lease_until: Set(chrono::Utc::now()),
            started_at: Set(chrono::Utc::now()),
            info: Set(json!({})),
        };
        worker::Entity::insert(row).exec_without_returning(&store.transaction_pool()).await?;
    }
    let after = worker::Entity::find().count(elsewhere.db()).await?;
    ensure!(after == before + 5, "5 inserts were reported as done, {} are visible", after - before);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_caller_leaves_no_connection_inside_a_transaction() -> Result<()> {
    let stage = stage::postgres().await?;
    let proxy = Proxy::start(&host(&stage.url)?).await?;
    // Few connections, so that whoever comes next gets the one whose caller went away.
    let store = through(&proxy, &stage.url, 1).await?;
    proxy.delay(Duration::from_millis(10), Duration::ZERO);
    for deadline in [5, 30, 50, 60, 68, 76, 90].map(Duration::from_millis) {
        let body = store.transaction(|_| Box::pin(async { Ok(()) }));
        let _ = tokio::time::timeout(deadline, body).await;
        five_rows_are_visible(&store, &stage.store).await.with_context(|| format!("helper, {deadline:?}"))?;
        // The second line: a bare begin that nobody may write is caught when its connection
        // comes back to the pool.
        let _ = tokio::time::timeout(deadline, store.transaction_pool().begin()).await;
        five_rows_are_visible(&store, &stage.store).await.with_context(|| format!("begin, {deadline:?}"))?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_goes_on_when_its_caller_stops_waiting() -> Result<()> {
    let stage = stage::postgres().await?;
    let id = uuid::Uuid::now_v7();
    let (go, gate) = tokio::sync::oneshot::channel::<()>();
    let body = stage.store.transaction(move |tx| {
        Box::pin(async move {
            gate.await.map_err(|_| StoreError::Closed)?;
            let now = chrono::Utc::now();
            let row = worker::ActiveModel {
                id: Set(id),
                service: Set("test".into()),
                lease_until: Set(now),
                started_at: Set(now),
                info: Set(json!({})),
            };
            worker::Entity::insert(row).exec_without_returning(tx).await?;
            Ok(())
        })
    });
    assert!(tokio::time::timeout(Duration::from_millis(20), body).await.is_err(), "the caller left");
    go.send(()).map_err(|_| anyhow::anyhow!("the transaction was cancelled with its caller"))?;
    wait::until(Duration::from_secs(10), || async {
        worker::Entity::find_by_id(id).one(stage.store.db()).await.is_ok_and(|row| row.is_some())
    })
    .await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_bad_commit_of_a_batch_fails_alone() -> Result<()> {
    for stage in [stage::sqlite().await?, stage::postgres().await?] {
        let store = &stage.store;
        let session = cast::session(store).await?;
        let agent = cast::agent(store, session).await?;
        let taken = cast::turn(store, session, agent).await?;
        let free = cast::turn(store, session, agent).await?;
        let birth = mv(&instar_core::machine::turn::TABLE, None, "queue_turn", instar_core::machine::By::User)?;
        let queue = |id| -> Result<Commit> {
            let mut commit = Commit::new(session, system());
            commit.bear(&instar_store::entity::turn::TABLE, id, &[birth], cast::turn_row(id, session, agent, "queued"));
            let told = instar_core::rune::payload::TurnQueued {
                cause: "user".into(),
                number: 0,
                message_ids: vec![],
                input: None,
            };
            commit.rune(Draft::new(id, &told)?);
            Ok(commit)
        };
        let before = store.runes(session, 0, 1_000).await?.len();
        let mut commits: Vec<Commit> = (0..40).map(|_| queue(fresh())).collect::<Result<_>>()?;
        commits.insert(7, queue(taken)?); // exists already: refused by a constraint
        commits.insert(20, cast::claim(session, agent, free, 5)?); // stale epoch
        commits.insert(30, cast::claim(session, agent, fresh(), 0)?); // no such turn
        let transactions = store.writer_stats().transactions.load(Ordering::Relaxed);
        let answers = join_all(commits.into_iter().map(|c| store.commit(c))).await;
        let transactions = store.writer_stats().transactions.load(Ordering::Relaxed) - transactions;

        let landed = answers.iter().filter(|a| matches!(a, Ok(Answer::Moved(_)))).count();
        assert_eq!(landed, 40);
        assert!(matches!(answers[7], Err(StoreError::Duplicate(_))), "{:?}", answers[7]);
        assert!(matches!(answers[20], Ok(Answer::Found(_))), "{:?}", answers[20]);
        assert!(matches!(answers[30], Ok(Answer::Absent { table: "turns", .. })), "{:?}", answers[30]);
        assert_eq!(store.runes(session, 0, 1_000).await?.len(), before + 40);
        assert!(transactions < 30, "they shared transactions: {transactions}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_killed_and_restarted_under_load_loses_no_answered_commit_and_makes_none_twice() -> Result<()> {
    let server = Postgres::start().await?;
    let url = server.create_database().await?;
    Store::migrate(&url).await?;
    let store = Store::open(Options::new(&url)).await?;
    let sessions = try_join_all((0..16).map(|_| cast::session(&store))).await?;
    let head = store.runes(sessions[0], 0, 100).await?.len() as i64;
    let (stop, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    let load = join_all(sessions.iter().map(|session| async {
        let mut mine = 0;
        while !stop.load(Ordering::Relaxed) {
            let commit = note(*session, "load")?;
            let command = commit.command_id();
            match store.commit(commit).await {
                Ok(Answer::Moved(_)) => mine += 1,
                Ok(other) => anyhow::bail!("{other:?}"),
                Err(StoreError::Ambiguous(id)) => {
                    ensure!(id == command, "it names the command");
                    mine += store.read_back(*session, command).await?.len() as i64;
                }
                Err(error) => return Err(error.into()),
            }
            answered.fetch_add(1, Ordering::Relaxed);
        }
        Ok(mine)
    }));
    let fault = async {
        for _ in 0..3 {
            let before = answered.load(Ordering::Relaxed);
            wait::until(Duration::from_secs(30), || async { answered.load(Ordering::Relaxed) > before + 200 }).await;
            server.kill9().await?;
            server.restart().await?;
        }
        let before = answered.load(Ordering::Relaxed);
        wait::until(Duration::from_secs(30), || async { answered.load(Ordering::Relaxed) > before + 200 }).await;
        stop.store(true, Ordering::Relaxed);
        Ok::<_, anyhow::Error>(())
    };
    let (counts, fault) = tokio::join!(load, fault);
    fault?;
    for (session, count) in sessions.iter().zip(counts) {
        let mut seq = 0;
        loop {
            let page = store.runes(*session, seq, 1_000).await?;
            let Some(last) = page.last() else { break };
            assert_eq!(last.seq, seq + page.len() as i64, "no gap");
            seq = last.seq;
        }
        assert_eq!(seq, head + count?, "every answered commit once, and nothing else");
    }
    Ok(())
}
