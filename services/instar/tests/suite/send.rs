//! A message and its answer, and events as they are told.

use crate::kit::Kit;

#[tokio::test(flavor = "multi_thread")]
async fn the_answer_goes_to_standard_output_and_the_rest_to_the_other() {
    let kit = Kit::new().await;
    let ended = kit.run(&["send", "agt_1", "hello"]).await.with(0);
    assert_eq!(ended.stdout, "Let me see.\nIt said hi.\n");
    let told: Vec<&str> = ended.stderr.lines().collect();
    assert_eq!(told.len(), 3, "{told:?}");
    assert_eq!(told[0], r#"· echo({"text":"hi"})"#);
    assert!(told[1].starts_with("? echo waits for a word: instar approve call_1"), "{told:?}");
    assert_eq!(told[2], "· echo: success: hi");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_behind_another_is_followed_once_its_turn_is_known() {
    let kit = Kit::new().await;
    let ended = kit.run(&["send", "agt_late", "hello"]).await.with(0);
    assert_eq!(ended.stdout, "Let me see.\nIt said hi.\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_fails_ends_with_1() {
    let kit = Kit::new().await;
    let ended = kit.run(&["send", "agt_bad", "hello"]).await.with(1);
    assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("", "error: provider: gone\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_with_no_wait_and_programs_get_the_turn() {
    let kit = Kit::new().await;
    let sent = kit.run(&["send", "agt_1", "hello", "--no-wait", "-o", "json"]).await.with(0).json();
    assert_eq!(sent["message_id"], "msg_1");
    let turn = kit.run(&["send", "agt_1", "hello", "-o", "json"]).await.with(0).json();
    assert_eq!(turn["output"], "done");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_followed_to_the_end_of_the_session() {
    let kit = Kit::new().await;
    let ended = kit.run(&["events", "ses_1", "--follow", "--after", "6"]).await.with(0);
    let kinds: Vec<&str> = ended.stdout.lines().map(|line| line.split_whitespace().nth(2).unwrap()).collect();
    assert_eq!(kinds, ["turn.assistant_final", "turn.completed", "session.closed"]);
    let ended = kit.run(&["events", "ses_1", "-f", "--deltas", "-o", "json"]).await.with(0);
    assert_eq!(ended.stdout.lines().count(), 11);
    assert!(ended.stdout.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()));
}
