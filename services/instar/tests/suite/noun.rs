//! Nouns and verbs, formats, and every exit code of the contract.

use crate::kit::Kit;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_list_is_a_table_for_people() {
    let kit = Kit::new().await;
    let ended = kit.run(&["session", "list"]).await.with(0);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(
        lines,
        [
            "ID      NAME     STATUS  RUNES  CREATED",
            "ses_1   one[31m  active  7      -",
            "ses_22  -        paused  7      -",
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_is_json_or_yaml_for_programs() {
    let kit = Kit::new().await;
    let ended = kit.run(&["session", "list", "-o", "json", "--limit", "1"]).await.with(0);
    assert_eq!(ended.json()[0]["id"], "ses_1");
    assert_eq!(ended.json().as_array().unwrap().len(), 1);
    let ended = kit.run(&["-o", "yaml", "session", "get", "ses_1"]).await.with(0);
    assert!(ended.stdout.contains("\nid: ses_1\n") && ended.stdout.contains("status: active\n"), "{}", ended.stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_created_carries_what_was_asked() {
    let kit = Kit::new().await;
    let line = ["session", "create", "--name", "mine", "--budget", r#"{"tokens":5}"#, "-o", "json"];
    let made = kit.run(&line).await.with(0).json();
    assert_eq!((&made["name"], &made["budget"]), (&json!("mine"), &json!({"tokens": 5})));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_good_key_it_fails_and_says_how_to_give_one() {
    let kit = Kit::new().await;
    let ended = kit.run_with(&["session", "list"], |_| {}).await.with(1);
    assert!(ended.stderr.contains("no such key") && ended.stderr.contains("INSTAR_API_KEY"), "{}", ended.stderr);
    kit.run_with(&["session", "list", "--key", "right"], |_| {}).await.with(0);
    let data = kit.folder.path().join(".instar");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("api-key"), "right\n").unwrap();
    kit.run_with(&["session", "list"], |_| {}).await.with(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_words_end_with_2() {
    let kit = Kit::new().await;
    kit.run(&["session", "dance"]).await.with(2);
    let ended = kit.run(&["session", "list", "--server", "nonsense"]).await.with(2);
    assert!(ended.stderr.contains("give http(s)://host:port"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_ends_with_3() {
    let kit = Kit::new().await;
    let ended = kit.run(&["session", "get", "ses_0"]).await.with(3);
    assert_eq!(ended.stderr, "instar: Not Found: there is no session ses_0\n");
    assert_eq!(ended.stdout, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_of_the_machine_ends_with_4_and_says_what_is_allowed() {
    let kit = Kit::new().await;
    let ended = kit.run(&["session", "pause", "ses_1"]).await.with(4);
    assert_eq!(ended.stderr, "instar: Conflict: it is closed (allowed now: archive_requested)\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_away_ends_with_5() {
    let kit = Kit::new().await;
    let ended = kit.run(&["session", "list", "--server", "http://127.0.0.1:1"]).await.with(5);
    assert!(ended.stderr.contains("http://127.0.0.1:1 cannot be reached"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_is_given_and_one_for_another_digest_is_refused() {
    let kit = Kit::new().await;
    let ended = kit.run(&["approve", "call_1"]).await.with(0);
    assert!(ended.stdout.contains("call_1  charge  executing"), "{}", ended.stdout);
    kit.run(&["approve", "call_1", "--digest", "other"]).await.with(4);
}

#[tokio::test(flavor = "multi_thread")]
async fn completions_are_a_script() {
    let ended = Kit::new().await.run(&["completions", "bash"]).await.with(0);
    assert!(ended.stdout.contains("_instar()"));
}
