//! Logs: written, judged, folded, from the server and from files.

use crate::kit::{Kit, log, logged};

#[tokio::test(flavor = "multi_thread")]
async fn an_exported_log_is_the_one_that_was_served_and_verifies() {
    let kit = Kit::new().await;
    kit.run(&["export", &logged(), "log.jsonl"]).await.with(0);
    let written = std::fs::read_to_string(kit.folder.path().join("log.jsonl")).unwrap();
    assert_eq!(written.lines().count(), 4, "three runes and a seal");
    assert_eq!(kit.run(&["export", &logged()]).await.with(0).stdout, written);
    let ended = kit.run(&["verify", "log.jsonl"]).await.with(0);
    assert!(
        ended.stdout.contains("3 of 3 intact")
            && ended.stdout.contains("held against 1 seals")
            && ended.stdout.ends_with("ok\n"),
        "{}",
        ended.stdout
    );
    let fetched = kit.run(&["verify", &logged()]).await.with(0);
    assert_eq!(fetched.stdout, ended.stdout);
    let events = kit.run(&["events", &logged()]).await.with(0);
    assert!(events.stdout.lines().nth(2).unwrap().contains("session.closed"), "{}", events.stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_a_missing_and_a_resealed_rune_show() {
    let kit = Kit::new().await;
    let write =
        |name: &str, lines: Vec<String>| std::fs::write(kit.folder.path().join(name), lines.join("\n")).unwrap();
    let mut changed = log();
    changed[1] = changed[1].replace("\"payload\":{ }", "\"payload\":{\"reason\":\"x\"}");
    write("changed", changed);
    let ended = kit.run(&["verify", "changed"]).await.with(1);
    assert!(ended.stdout.contains("INV-HASH (fatal) at rune 2"), "{}", ended.stdout);
    write("short", vec![log()[0].clone(), log()[2].clone()]);
    let ended = kit.run(&["verify", "short", "-o", "json"]).await.with(1).json();
    assert_eq!(ended["violations"][0]["id"], "INV-SEGMENT-CONTIGUOUS");
    let whole = kit.run(&["verify", &logged(), "-o", "json"]).await.with(0).json();
    write("whole", log());
    let sealed = format!("{{\"seal\":{{\"seq\":2,\"hash\":\"{}\"}}}}", "ab".repeat(32));
    write("resealed", log().into_iter().chain([sealed]).collect());
    let ended = kit.run(&["verify", "resealed"]).await.with(1);
    assert!(ended.stdout.contains("INV-SEAL"), "{}", ended.stdout);
    kit.run(&["verify", "whole", "--seal", whole["chain"].as_str().unwrap()]).await.with(0);
    let other = format!("3:{}", "ab".repeat(32));
    let ended = kit.run(&["verify", "whole", "--seal", &other]).await.with(1);
    assert!(ended.stdout.contains("INV-SEAL"), "{}", ended.stdout);
    kit.run(&["verify", "whole", "--seal", "nonsense"]).await.with(2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_folds_to_the_states_of_the_rows() {
    let kit = Kit::new().await;
    let ended = kit.run(&["replay", &logged()]).await.with(0);
    assert!(ended.stdout.contains("rows    1 compared, 0 differences"), "{}", ended.stdout);
    std::fs::write(kit.folder.path().join("open"), log()[..2].join("\n")).unwrap();
    let ended = kit.run(&["replay", "open"]).await.with(0);
    assert!(ended.stdout.contains("session          closing            1"), "{}", ended.stdout);
    std::fs::write(kit.folder.path().join("torn"), [log()[0].clone(), log()[2].clone()].join("\n")).unwrap();
    let ended = kit.run(&["replay", "torn", "-o", "json"]).await.with(1).json();
    assert!(ended["violations"][0].as_str().unwrap().contains("but it was created"), "{ended}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_log_is_named() {
    let kit = Kit::new().await;
    kit.run(&["verify", "nowhere.jsonl"]).await.with(3);
    kit.run(&["verify", "ses_0"]).await.with(3);
    std::fs::write(kit.folder.path().join("bad"), format!("{}\nhello\n", log()[0])).unwrap();
    let ended = kit.run(&["replay", "bad"]).await.with(1);
    assert!(ended.stderr.contains("line 2: not a rune"), "{}", ended.stderr);
}
