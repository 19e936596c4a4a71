//! Accounts: two agents never hold the same, and each comes back by its policy or by time.

use anyhow::{Context, Result, ensure};
use instar_core::id::{AgentId, SessionId};
use instar_store::entity::{account, agent};
use instar_store::{Claim, NewAccount, RELEASES, Store, StoreError, Wanted};
use instar_testkit::wait;
use instar_tests::cast::{self, fresh};
use instar_tests::on_both;
use instar_tests::stage::Stage;
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, EntityTrait, IntoActiveModel, QueryFilter};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;
use uuid::Uuid;

const LONG: Duration = Duration::from_secs(3600);
const NAMESPACE: &str = "test";

fn pool() -> Wanted {
    Wanted::Pool("crm".into())
}

async fn add(store: &Store, name: &str, release_on: &[&str]) -> Result<account::Model> {
    let new = NewAccount {
        id: Uuid::now_v7(),
        namespace: NAMESPACE.into(),
        name: name.into(),
        pool: "crm".into(),
        username: None,
        sealed: None,
        refs: Some(json!({"password": "secret://crm"})),
        release_on: release_on.iter().map(|word| (*word).to_owned()).collect(),
        origin: "api",
    };
    Ok(store.add_account(new).await?)
}

fn by_default() -> Vec<&'static str> {
    RELEASES.iter().filter(|release| release.default).map(|release| release.token).collect()
}

async fn agents(store: &Store, count: usize) -> Result<(SessionId, Vec<AgentId>)> {
    let session = cast::session(store).await?;
    let mut ids = Vec::new();
    for _ in 0..count {
        let id: AgentId = fresh();
        let row = cast::agent_row(id, session, "idle", "running");
        agent::Entity::insert(row.into_active_model()).exec_without_returning(store.db()).await?;
        ids.push(id);
    }
    Ok((session, ids))
}

/// As the machines would leave it; what moves it there is tested elsewhere.
async fn put(store: &Store, id: AgentId, lifecycle: &str, drive: &str) -> Result<()> {
    agent::Entity::update_many()
        .col_expr(agent::Column::Lifecycle, Expr::value(lifecycle))
        .col_expr(agent::Column::Drive, Expr::value(drive))
        .filter(agent::Column::Id.eq(id.uuid()))
        .exec(store.db())
        .await?;
    Ok(())
}

async fn claim(store: &Store, agent: AgentId) -> Result<Option<String>> {
    Ok(match store.claim_account(NAMESPACE, agent, &pool(), LONG).await? {
        Claim::Held(row) => Some(row.name),
        Claim::Taken => None,
        Claim::Unknown => anyhow::bail!("there is none"),
    })
}

async fn each_of_many_who_claim_at_once_gets_another_one_or_none(stage: Stage) -> Result<()> {
    let store = &stage.store;
    for n in 0..10 {
        add(store, &format!("crm-{n}"), &by_default()).await?;
    }
    let (_, agents) = agents(store, 40).await?;
    let claims = agents.iter().map(|agent| claim(store, *agent));
    let got = futures::future::try_join_all(claims).await?;
    let names: Vec<&String> = got.iter().flatten().collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "one was given twice: {names:?}");
    // Whoever finds every row locked by others at that moment waits, and looks again.
    let got = futures::future::try_join_all(agents.iter().map(|agent| claim(store, *agent))).await?;
    assert_eq!(got.iter().flatten().collect::<BTreeSet<_>>().len(), 10, "{got:?}");
    for (agent, name) in agents.iter().zip(got) {
        assert_eq!(store.account_of(*agent).await?.map(|row| row.name), name);
    }
    Ok(())
}

async fn an_agent_whose_calls_claim_at_once_holds_one(stage: Stage) -> Result<()> {
    let store = &stage.store;
    for n in 0..8 {
        add(store, &format!("crm-{n}"), &by_default()).await?;
    }
    let (_, agents) = agents(store, 1).await?;
    let got = futures::future::try_join_all((0..8).map(|_| claim(store, agents[0]))).await?;
    let names: BTreeSet<String> = got.iter().flatten().cloned().collect();
    assert_eq!(names.len(), 1, "{got:?}");
    let held = account::Entity::find().filter(account::Column::Holder.is_not_null()).all(store.db()).await?;
    assert_eq!(held.len(), 1);
    Ok(())
}

/// Claims, releases and relaunches of many at once: whoever has one for sure has it alone.
async fn nobody_ever_shares_one_while_holders_come_and_go(stage: Stage) -> Result<()> {
    let store = &stage.store;
    for n in 0..3 {
        add(store, &format!("crm-{n}"), &by_default()).await?;
    }
    let (_, agents) = agents(store, 8).await?;
    let lives = agents.iter().map(|agent| async move {
        let mut held = 0;
        for _ in 0..15 {
            if let Some(name) = claim(store, *agent).await? {
                held += 1;
                let row = store.account(NAMESPACE, &name).await?.context("gone")?;
                ensure!(row.holder == Some(agent.uuid()), "{name} is another's while {agent} may use it");
            }
            put(store, *agent, "idle", "stopped").await?;
            store.return_accounts(100).await?;
            put(store, *agent, "idle", "running").await?;
        }
        anyhow::Ok(held)
    });
    let held: usize = futures::future::try_join_all(lives).await?.into_iter().sum();
    ensure!(held > 0, "nobody got any");
    Ok(())
}

async fn each_row_of_the_policy_gives_it_back_and_no_other_state_does(stage: Stage) -> Result<()> {
    let store = &stage.store;
    let states = [
        ("stop", "idle", "stopped"),
        ("error", "idle", "errored"),
        ("terminate", "terminated", "stopped"),
        ("terminate", "terminated", "errored"),
        ("terminate", "failed", "errored"),
        ("delete", "idle", "deleted"),
        ("idle", "idle", "idle"),
        ("never", "idle", "running"),
        ("never", "running_turn", "running"),
        // A turn that is being ended still has it.
        ("never", "running_turn", "stopped"),
    ];
    let policies: Vec<Vec<&str>> =
        RELEASES.iter().map(|release| vec![release.token]).chain([vec![], by_default()]).collect();
    let (_, agents) = agents(store, 2).await?;
    for policy in &policies {
        add(store, "crm", policy).await?;
        for (word, lifecycle, drive) in states {
            put(store, agents[0], "idle", "running").await?;
            assert_eq!(claim(store, agents[0]).await?.as_deref(), Some("crm"));
            put(store, agents[0], lifecycle, drive).await?;
            let back = policy.contains(&word);
            // By the claim itself, and by the sweep.
            let said = format!("{policy:?}: {lifecycle}, {drive}");
            assert_eq!(store.return_accounts(10).await?, u64::from(back), "{said}");
            assert_eq!(claim(store, agents[1]).await?.is_some(), back, "{said}");
            let holder = agents[usize::from(back)];
            assert_eq!(store.account_of(holder).await?.map(|row| row.name).as_deref(), Some("crm"), "{said}");
            put(store, agents[0], "idle", "running").await?;
            give_back(store).await?;
            // And without the sweep.
            assert!(claim(store, agents[0]).await?.is_some());
            put(store, agents[0], lifecycle, drive).await?;
            assert_eq!(claim(store, agents[1]).await?.is_some(), back, "{said}");
            give_back(store).await?;
        }
        let row = store.account(NAMESPACE, "crm").await?.context("gone")?;
        store.remove_account(row).await?;
    }
    Ok(())
}

async fn give_back(store: &Store) -> Result<()> {
    let none = Expr::value(None::<Uuid>);
    account::Entity::update_many().col_expr(account::Column::Holder, none).exec(store.db()).await?;
    Ok(())
}

async fn the_one_that_is_free_for_longest_goes_first(stage: Stage) -> Result<()> {
    let store = &stage.store;
    for name in ["crm-a", "crm-b", "crm-c"] {
        add(store, name, &by_default()).await?;
    }
    let (_, agents) = agents(store, 1).await?;
    let mut order = Vec::new();
    for _ in 0..5 {
        order.extend(claim(store, agents[0]).await?);
        put(store, agents[0], "idle", "stopped").await?;
        assert_eq!(store.return_accounts(10).await?, 1);
        put(store, agents[0], "idle", "running").await?;
    }
    assert_eq!(order, ["crm-a", "crm-b", "crm-c", "crm-a", "crm-b"]);
    Ok(())
}

async fn a_lease_ends_by_the_clock_of_the_database(stage: Stage) -> Result<()> {
    let store = &stage.store;
    add(store, "crm", &[]).await?;
    let (_, agents) = agents(store, 2).await?;
    let short = Duration::from_millis(300);
    let got = store.claim_account(NAMESPACE, agents[0], &pool(), short).await?;
    ensure!(matches!(got, Claim::Held(_)), "{got:?}");
    // A use renews it.
    ensure!(claim(store, agents[0]).await?.is_some());
    ensure!(claim(store, agents[1]).await?.is_none(), "it was taken before its time");
    store.claim_account(NAMESPACE, agents[0], &pool(), short).await?;
    wait::until_ok(Duration::from_secs(10), || async { claim(store, agents[1]).await?.context("still held") }).await?;
    ensure!(claim(store, agents[0]).await?.is_none(), "it has it no more");
    Ok(())
}

async fn what_is_not_there_is_said_to_be_unknown_and_a_change_of_mind_gives_back(stage: Stage) -> Result<()> {
    let store = &stage.store;
    let (_, agents) = agents(store, 2).await?;
    let got = store.claim_account(NAMESPACE, agents[0], &pool(), LONG).await?;
    assert_eq!(got, Claim::Unknown);
    add(store, "crm-1", &by_default()).await?;
    add(store, "crm-2", &by_default()).await?;
    let again = add(store, "crm-1", &by_default()).await.map_err(|error| error.downcast::<StoreError>());
    ensure!(matches!(again, Err(Ok(StoreError::Duplicate(_)))), "{again:?}");
    let other = store.claim_account("elsewhere", agents[0], &pool(), LONG).await?;
    assert_eq!(other, Claim::Unknown, "another namespace's");
    assert_eq!(claim(store, agents[0]).await?.as_deref(), Some("crm-1"));
    let named = Wanted::Name("crm-2".into());
    let got = store.claim_account(NAMESPACE, agents[0], &named, LONG).await?;
    ensure!(matches!(&got, Claim::Held(row) if row.name == "crm-2"), "{got:?}");
    assert_eq!(claim(store, agents[1]).await?.as_deref(), Some("crm-1"), "nobody holds two");
    let got = store.claim_account(NAMESPACE, agents[1], &named, LONG).await?;
    assert_eq!(got, Claim::Taken);
    Ok(())
}

async fn one_that_is_being_stopped_takes_none(stage: Stage) -> Result<()> {
    let store = &stage.store;
    add(store, "crm", &by_default()).await?;
    let (_, agents) = agents(store, 1).await?;
    for (lifecycle, drive) in [("running_turn", "stopped"), ("terminated", "stopped"), ("idle", "errored")] {
        put(store, agents[0], lifecycle, drive).await?;
        ensure!(claim(store, agents[0]).await?.is_none(), "{lifecycle} {drive}");
    }
    Ok(())
}

on_both! {
    each_of_many_who_claim_at_once_gets_another_one_or_none;
    an_agent_whose_calls_claim_at_once_holds_one;
    nobody_ever_shares_one_while_holders_come_and_go;
    each_row_of_the_policy_gives_it_back_and_no_other_state_does;
    the_one_that_is_free_for_longest_goes_first;
    a_lease_ends_by_the_clock_of_the_database;
    what_is_not_there_is_said_to_be_unknown_and_a_change_of_mind_gives_back;
    one_that_is_being_stopped_takes_none;
}
