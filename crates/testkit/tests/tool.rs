//! The tool server and its witness.

mod http;

use std::io::Write;
use std::time::Duration;

use http::post;
use instar_testkit::ledger::Ledger;
use instar_testkit::tool::{ATTEMPT_HEADER, Idempotency, Tool};

const PATIENCE: Duration = Duration::from_secs(10);

async fn tool(idempotency: Idempotency) -> (tempfile::TempDir, Tool) {
    let dir = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(dir.path().join("effects")).unwrap();
    (dir, Tool::start(ledger, idempotency).await.unwrap())
}

#[tokio::test]
async fn an_effect_is_on_disk_before_the_answer() {
    let (dir, tool) = tool(Idempotency::None).await;
    let headers = [("idempotency-key", "k1"), (ATTEMPT_HEADER, "2")];
    let answer = post(&tool.effect_url("charge"), &headers, "{\"a\":1}", PATIENCE).await.unwrap();
    assert_eq!(answer.json(), serde_json::json!({ "effect": 1, "name": "charge" }));
    let seen = Ledger::read(dir.path().join("effects")).unwrap();
    assert_eq!(seen, tool.ledger().effects());
    assert_eq!((seen[0].key.as_deref(), seen[0].attempt.as_deref()), (Some("k1"), Some("2")));
    assert_eq!(seen[0].digest, "015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862");
}

#[tokio::test]
async fn a_repeated_key_is_a_duplicate_unless_the_tool_is_idempotent() {
    for (idempotency, effects) in [(Idempotency::None, 2), (Idempotency::ByKey, 1)] {
        let (_dir, tool) = tool(idempotency).await;
        let mut answers = Vec::new();
        for key in ["k1", "k1", "k2"] {
            let url = tool.effect_url("charge");
            answers.push(post(&url, &[("idempotency-key", key)], "{}", PATIENCE).await.unwrap().body);
        }
        assert_eq!(answers[0] == answers[1], idempotency == Idempotency::ByKey);
        assert_eq!(tool.ledger().count_of("charge"), effects + 1);
        let duplicates = tool.ledger().duplicates();
        assert_eq!(duplicates.get("k1").copied(), (effects > 1).then_some(2));
        assert_eq!(duplicates.get("k2"), None);
        assert_eq!(tool.requests(), 3);
    }
}

#[tokio::test]
async fn each_fault_says_whether_the_effect_happened() {
    let rows = [
        ("?fail=503", 0),
        ("?hang", 0),
        ("?drop", 1),
        ("?drop&when=before", 0),
        ("?hang&when=after", 1),
        ("?fail=500&when=after", 1),
        ("?delay_ms=20", 1),
    ];
    for (query, effects) in rows {
        let (_dir, tool) = tool(Idempotency::None).await;
        let url = format!("{}{query}", tool.effect_url("x"));
        let patience = if query.contains("hang") { Duration::from_millis(500) } else { PATIENCE };
        let answer = post(&url, &[], "", patience).await;
        assert_eq!(tool.ledger().count(), effects, "{query}");
        match answer {
            Ok(answer) => assert_eq!(answer.status == 200, query.starts_with("?delay"), "{query}"),
            Err(_) => assert!(query.contains("hang") || query.contains("drop"), "{query}"),
        }
    }
    let (_dir, tool) = tool(Idempotency::None).await;
    let mistyped = post(&format!("{}?fial=500", tool.effect_url("x")), &[], "", PATIENCE).await.unwrap();
    assert_eq!((mistyped.status, tool.ledger().count()), (400, 0));
}

#[tokio::test]
async fn a_ledger_outlives_its_server_and_forgets_a_torn_line() {
    let (dir, first) = tool(Idempotency::ByKey).await;
    let path = dir.path().join("effects");
    post(&first.effect_url("x"), &[("idempotency-key", "k")], "", PATIENCE).await.unwrap();
    assert!(Ledger::open(&path).is_err(), "two writers at once");
    drop(first);
    let again = instar_testkit::wait::until_ok(PATIENCE, || async { Ledger::open(&path) }).await.unwrap();
    drop(again);
    let mut file = std::fs::File::options().append(true).open(&path).unwrap();
    file.write_all(b"{\"number\":2,\"at_m").unwrap();

    let second = Tool::start(Ledger::open(&path).unwrap(), Idempotency::ByKey).await.unwrap();
    post(&second.effect_url("x"), &[("idempotency-key", "k")], "", PATIENCE).await.unwrap();
    post(&second.effect_url("x"), &[("idempotency-key", "l")], "", PATIENCE).await.unwrap();
    let numbers: Vec<u64> = Ledger::read(&path).unwrap().iter().map(|effect| effect.number).collect();
    assert_eq!(numbers, [1, 2]);
}
