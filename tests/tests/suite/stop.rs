//! A person's word reaches those who work while the bus is away.

use anyhow::{Context, Result, ensure};
use instar_testkit::model::{Reply, Script};
use instar_testkit::nats::Nats;
use instar_testkit::{postgres, wait};
use instar_tests::fleet::{Fleet, Setup};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const WITHIN: Duration = Duration::from_secs(60);
/// Three times what is promised, on a machine that does other things as well.
const SOON: Duration = Duration::from_secs(3 * 2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_end_where_they_are_while_the_broker_is_down() -> Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let nats = Nats::start().await?;
    let talks = Script::function(|_| {
        Reply::chunks((0..4_000).map(|n| format!("word{n} "))).slow(Duration::ZERO, Duration::from_millis(30))
    });
    let binary = env!("CARGO_BIN_EXE_instar-armed").into();
    let setup = Setup::new(binary, &postgres::shared().await?, nats.url(), talks);
    let fleet = Fleet::start(setup).await?;
    let http = reqwest::Client::builder().no_proxy().timeout(WITHIN).build()?;
    let url = |path: &str| format!("http://127.0.0.1:{}/v1/{path}", fleet.port());
    let mut turns = Vec::new();
    for way in ["interrupt", "steer", "stop", "force", "close"] {
        let (session, agents) = fleet.agents(1, &[]).await?;
        let said = format!("talk until {way}");
        let sent = fleet.client.send_message(&agents[0], &said, Default::default()).await?;
        turns.push((way, said, session, agents[0].clone(), sent.turn_id.context("a turn")?));
    }
    // Until all of them have said something that is kept.
    for (.., session, _, _) in &turns {
        wait::until_ok(WITHIN, || async {
            let runes = http.get(url(&format!("sessions/{session}/runes"))).bearer_auth(fleet.key()).send().await?;
            let runes: Value = runes.json().await?;
            ensure!(runes.to_string().contains("turn.assistant_delta"), "nothing was said: {runes}");
            Ok(())
        })
        .await?;
    }
    nats.kill9().await?;
    for (way, said, session, agent, turn) in &turns {
        let (path, body) = match *way {
            "interrupt" => (format!("turns/{turn}/interrupt"), json!({})),
            "steer" => (format!("turns/{turn}/steer"), json!({"content": "and now?"})),
            "stop" => (format!("agents/{agent}/stop"), json!({})),
            "force" => (format!("agents/{agent}/terminate"), json!({"force": true})),
            _ => (format!("sessions/{session}/close"), json!({})),
        };
        let answer = http.post(url(&path)).bearer_auth(fleet.key()).json(&body).send().await?;
        let (status, told) = (answer.status(), answer.text().await?);
        ensure!(status.is_success(), "{way}: {told}");
        let answered = Instant::now();
        let asked = fleet.model.requests().into_iter().find(|request| request.user_text() == *said);
        let request = asked.context("its request")?.number;
        let gone = wait::until_ok(WITHIN, || async {
            let gone = fleet.model.given_up();
            Ok(gone.iter().find(|one| one.request == request).context("the provider still speaks")?.at)
        })
        .await?;
        let took = gone.saturating_duration_since(answered);
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
