//! A person's word reaches those who work while the bus is away.

use anyhow::{Result, ensure};
use instar_testkit::model::Script;
use instar_testkit::nats::Nats;
use instar_testkit::{postgres, wait};
use instar_tests::fleet::{Fleet, Setup};
use instar_tests::stopping::{self, Talk, WAYS};
use serde_json::Value;
use std::time::Duration;

const WITHIN: Duration = Duration::from_secs(60);
/// Three times what is promised, on a machine that does other things as well.
const SOON: Duration = Duration::from_secs(3 * 2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_end_where_they_are_while_the_broker_is_down() -> Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let nats = Nats::start().await?;
    let binary = env!("CARGO_BIN_EXE_instar-armed").into();
    let setup = Setup::new(binary, &postgres::shared().await?, nats.url(), Script::function(stopping::talks));
    let fleet = Fleet::start(setup).await?;
    let http = reqwest::Client::builder().no_proxy().timeout(WITHIN).build()?;
    let url = |path: &str| format!("http://127.0.0.1:{}/v1/{path}", fleet.port());
    let talks = WAYS.into_iter().enumerate().map(|(n, way)| Talk::begin(&fleet, way, n, 1));
    let talks = futures::future::try_join_all(talks).await?;
    // Until all of them have said something that is kept.
    for Talk { session, .. } in &talks {
        wait::until_ok(WITHIN, || async {
            let runes = http.get(url(&format!("sessions/{session}/runes"))).bearer_auth(fleet.key()).send().await?;
            let runes: Value = runes.json().await?;
            ensure!(runes.to_string().contains("turn.assistant_delta"), "nothing was said: {runes}");
            Ok(())
        })
        .await?;
    }
    nats.kill9().await?;
    for talk in &talks {
        let (way, turn) = (talk.way, &talk.turn);
        let answered = talk.stop(&fleet, &http).await?;
        let took = talk.given_up(&fleet).await?.saturating_duration_since(answered);
        ensure!(took <= SOON, "{way}: the provider spoke for {took:?}");
        let ended = wait::until_ok(WITHIN, || async {
            let row: Value =
                http.get(url(&format!("turns/{turn}"))).bearer_auth(fleet.key()).send().await?.json().await?;
            ensure!(row["ended_at"].is_string(), "{row}");
            Ok(row)
        })
        .await?;
        ensure!(ended["status"] == "interrupted", "{way}: {ended}");
        ensure!(ended["output"].as_str().is_some_and(|text| text.starts_with("word0 ")), "{way}: {ended}");
    }
    Ok(())
}
