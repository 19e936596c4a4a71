//! What the scheduler looks for, when there is more of it than one look takes up at once.

use anyhow::{Context as _, Result, ensure};
use futures::StreamExt;
use futures::stream;
use instar_bus::Pull;
use instar_core::id::{SessionId, TurnId, WorkerId};
use instar_runtime::config::Config;
use instar_runtime::drain::Drain;
use instar_runtime::flow;
use instar_runtime::{Context, Hub};
use instar_store::entity::{session, turn};
use instar_store::{After, Store};
use instar_tests::cast::{self, fresh, land, person};
use instar_tests::on_both;
use instar_tests::stage::{self, Stage};
use instar_tests::troupe::WITHIN;
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};
use serde_json::json;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

const LONG: Duration = Duration::from_secs(600);
/// More than one look takes up at once.
const MANY: usize = 510;

/// A turn of an agent of its own; queued, or claimed by this worker.
async fn turn_of(store: &Store, session: SessionId, owner: Option<WorkerId>) -> Result<Uuid> {
    let agent = cast::agent_like(store, session, json!({})).await?;
    let rows = session::Entity::find_by_id(session.uuid()).one(store.db()).await?.context("session")?;
    let row = store.agent(agent).await?.context("agent")?;
    let sent = flow::message(&rows, &row, false, "hello", person(), None)?;
    land(store, sent.commit).await?;
    let id: TurnId = sent.turn.context("a turn")?;
    if let Some(worker) = owner {
        let (agent, turn) = (store.agent(agent).await?.context("agent")?, store.turn(id).await?.context("turn")?);
        land(store, flow::claim(&agent, &turn, &[], None, worker, chrono::Duration::minutes(5), Vec::new())?).await?;
    }
    Ok(id.uuid())
}

/// As if all of this session's turns had been written, and been due, a minute ago.
async fn a_minute_passes(store: &Store, session: SessionId) -> Result<()> {
    let then = chrono::Utc::now() - chrono::Duration::minutes(1);
    turn::Entity::update_many()
        .col_expr(turn::Column::UpdatedAt, Expr::value(then))
        .col_expr(turn::Column::DeadlineAt, Expr::value(then))
        .filter(turn::Column::SessionId.eq(session.uuid()))
        .exec(store.db())
        .await?;
    Ok(())
}

async fn pages_of_live_turns_leave_none_out_and_repeat_none(stage: Stage) -> Result<()> {
    let store = &stage.store;
    let (living, dead): (WorkerId, WorkerId) = (fresh(), fresh());
    store.register_worker(living, "agent-worker", LONG, json!({})).await?;
    let mut expected: [HashSet<Uuid>; 3] = Default::default();
    for _ in 0..2 {
        let session = cast::session(store).await?;
        for _ in 0..3 {
            expected[0].insert(turn_of(store, session, None).await?);
            expected[1].insert(turn_of(store, session, Some(living)).await?);
            expected[2].insert(turn_of(store, session, Some(dead)).await?);
        }
        a_minute_passes(store, session).await?;
    }
    let [idle, quiet, lost] = expected;
    let streams: HashSet<Uuid> = quiet.union(&lost).copied().collect();
    let now = chrono::Utc::now();
    for (look, expected) in [("idle", &idle), ("quiet", &streams), ("ownerless", &lost), ("overdue", &streams)] {
        let (mut after, mut found) = (After::default(), Vec::new());
        loop {
            let page: Vec<turn::Model> = match look {
                "idle" => store.idle_turns(now, after, 2).await?.into_iter().map(|due| due.turn).collect(),
                "quiet" => store.quiet_turns(now, after, 2).await?.into_iter().map(|due| due.turn).collect(),
                "ownerless" => store.ownerless_turns(after, 2).await?.into_iter().map(|due| due.turn).collect(),
                _ => store.overdue_turns(Duration::from_secs(1), after, 2).await?,
            };
            let Some(last) = page.last() else { break };
            after = After::turn(last);
            found.extend(page.iter().map(|turn| turn.id));
        }
        ensure!(found.len() == expected.len(), "{look}: {} of {}", found.len(), expected.len());
        ensure!(found.into_iter().collect::<HashSet<_>>() == *expected, "{look}: others than expected");
    }
    Ok(())
}

/// Their owner lives and says nothing, so that every look finds all of them again.
async fn many_turns_that_stay_quiet_do_not_hide_the_others(stage: Stage) -> Result<()> {
    let store = &stage.store;
    let owner: WorkerId = fresh();
    store.register_worker(owner, "agent-worker", LONG, json!({})).await?;
    let session = cast::session(store).await?;
    let made: Vec<Result<Uuid>> =
        stream::iter(0..MANY).map(|_| turn_of(store, session, Some(owner))).buffer_unordered(16).collect().await;
    let mut unheard: HashSet<Uuid> = made.into_iter().collect::<Result<_>>()?;
    turn::Entity::update_many()
        .col_expr(turn::Column::UpdatedAt, Expr::value(chrono::Utc::now() - chrono::Duration::minutes(1)))
        .filter(turn::Column::SessionId.eq(session.uuid()))
        .exec(store.db())
        .await?;
    let bus = stage::bus(&stage).await?;
    let mut told = bus.owner_turn(&owner.to_string(), Pull::default()).await?;
    let context =
        Context { config: Arc::new(Config::default()), hub: Hub::new(store.clone(), bus), drain: Drain::new() };
    instar_scheduler::start(context.clone()).await?;
    let heard = async {
        while !unheard.is_empty() {
            let delivery = told.next().await;
            unheard.remove(&delivery.value().turn_id.parse::<TurnId>()?.uuid());
            delivery.ack().await?;
        }
        anyhow::Ok(())
    };
    let heard = tokio::time::timeout(WITHIN, heard).await;
    context.drain.begin();
    heard.with_context(|| format!("{} turns were never told of", unheard.len()))?
}

on_both! {
    pages_of_live_turns_leave_none_out_and_repeat_none;
    many_turns_that_stay_quiet_do_not_hide_the_others;
}
