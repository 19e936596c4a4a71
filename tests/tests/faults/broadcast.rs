//! The API dies between the commits of a broadcast that is too large for one: everybody hears it once all the same.

use anyhow::{Result, ensure};
use instar_client::Broadcast;
use instar_core::id::SessionId;
use instar_runtime::flow;
use instar_store::entity::message;
use instar_store::{Options, Store};
use instar_testkit::wait;
use instar_tests::fleet::{Fleet, Setup};
use instar_tests::{audit, puppet};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};
use std::collections::BTreeMap;
use std::time::Duration;

const WITHIN: Duration = Duration::from_secs(60);
const AUDIENCE: usize = 25;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broadcast_that_its_sender_did_not_outlive_reaches_everybody_once() -> Result<()> {
    let (database, nats) = (instar_testkit::postgres::shared().await?, instar_testkit::nats::shared().await?);
    let binary = env!("CARGO_BIN_EXE_instar-armed").into();
    let mut fleet = Fleet::start(Setup::new(binary, &database, &nats, puppet::script())).await?;
    let store = Store::open(Options::new(&database)).await?;
    // So long that few fit into one commit, which is as good as many agents; the answer is its first word.
    let content = format!("heard ;; {}", "and so on ".repeat(20_000));
    let at_once = flow::recipients_max(&content);
    ensure!(at_once * 2 <= AUDIENCE, "{at_once} fit into one commit");
    fleet.node("api")?.terminate(WITHIN).await?;
    let mut api = fleet.spawn("api", &[]).await?;
    for point in ["store.commit.after", "runtime.publish.before"] {
        let (session, agents) = fleet.agents(AUDIENCE, &[]).await?;
        api.terminate(WITHIN).await?;
        let mut armed = fleet.spawn("api", &[(instar_crashpoint::VARIABLE, point)]).await?;
        let said = Broadcast { content: content.clone(), standing: Some(false), expires_at: None };
        // The client would go on trying for longer than there is to wait for.
        let sent = tokio::time::timeout(Duration::from_secs(5), fleet.client.broadcast(&session, &said)).await;
        ensure!(!matches!(sent, Ok(Ok(_))), "{point} was not reached");
        wait::until_ok(WITHIN, || {
            let ended = armed.ended();
            async move {
                ensure!(ended?.is_some(), "it lives");
                Ok(())
            }
        })
        .await?;
        let id: SessionId = session.parse()?;
        let heard = async || -> Result<BTreeMap<uuid::Uuid, usize>> {
            let all = message::Entity::find().filter(message::Column::SessionId.eq(id.uuid()));
            let all = all.filter(message::Column::Source.eq("broadcast")).all(store.db()).await?;
            let mut heard = BTreeMap::new();
            all.iter().for_each(|message| *heard.entry(message.agent_id).or_default() += 1);
            Ok(heard)
        };
        let first = heard().await?.len();
        ensure!(first == at_once, "{point}: it died between its commits, when {first} had heard it");
        // The scheduler goes on with it.
        wait::until_ok(WITHIN, || async {
            let heard = heard().await?;
            ensure!(heard.len() == AUDIENCE, "{point}: {} of {AUDIENCE}", heard.len());
            Ok(())
        })
        .await?;
        api = fleet.spawn("api", &[]).await?;
        wait::until_ok(WITHIN, || async {
            for agent in &agents {
                let query = instar_client::Query::new().maybe("agent", Some(agent.clone()));
                let turns = fleet.client.turns(&query).await?.data;
                ensure!(turns.len() == 1 && turns[0].status == "completed", "{point}: {turns:?}");
            }
            Ok(())
        })
        .await?;
        ensure!(heard().await?.values().all(|times| *times == 1), "{point}");
        let wrong = audit::session(&store, id).await?;
        ensure!(wrong.is_empty(), "{point}: {wrong:#?}");
    }
    Ok(())
}
