//! Commands that do not want to end, in every way there is: each is over within its limit and two
//! seconds, with the right word for it, and nothing of it is left.

use crate::kit::{PYTHON, Yard, call, code, left_behind, text, tool};
use instar_core::rune::payload::ResultStatus;
use instar_tools::sandbox::Mode;
use instar_tools::{Outcome, Sink, Spec};
use serde_json::json;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

const LIMIT_MS: u64 = 700;
/// For what ends by itself, also on a machine that has much else to do.
const PATIENT_MS: u64 = 20_000;

async fn sh(yard: &Yard, script: &str) -> Outcome {
    yard.run(&["sh", "-c", script], LIMIT_MS).await
}

#[tokio::test]
async fn what_hangs_is_timed_out_whatever_it_does_about_signals() {
    let yards = Yard::both_ways(|_| ());
    for script in [
        "sleep 1000",
        "trap '' TERM HUP INT; while :; do sleep 1000; done",
        "trap '' TERM; sleep 1000 & wait",
        "while :; do :; done",
        "sleep 1000 & sleep 1000 & sleep 1000 & wait",
        "cat > /dev/null; exec sleep 1000",
        "kill -STOP $$",
    ] {
        for yard in &yards {
            let outcome = sh(yard, script).await;
            let found = (outcome.status, code(&outcome), outcome.began);
            assert_eq!(found, (ResultStatus::Timeout, "timeout", true), "{script}");
        }
    }
}

#[tokio::test]
async fn a_result_that_is_followed_by_a_hang_is_kept_but_no_success() {
    let outcome = sh(&Yard::plain(), "echo '{\"done\": true}'; sleep 1000").await;
    assert_eq!(outcome.status, ResultStatus::Timeout);
    assert_eq!(text(&outcome), "{\"done\":true}");
}

#[tokio::test]
async fn what_a_command_leaves_in_the_background_ends_with_it() {
    let yard = Yard::plain();
    for script in ["sleep 1000 & echo done", "(sleep 1000 & sleep 1000 &) ; echo done", "nohup sleep 1000 & echo done"]
    {
        let outcome = yard.run(&["sh", "-c", script], PATIENT_MS).await;
        assert_eq!((outcome.status, text(&outcome).trim()), (ResultStatus::Success, "done"), "{script}");
    }
}

#[tokio::test]
async fn a_daemon_is_found_with_and_without_the_sandbox() {
    let daemon = "import os,sys,time\n\
        if os.fork()==0:\n\
        \x20 try: os.setsid(); print('left',flush=True)\n\
        \x20 except OSError: print('held',flush=True)\n\
        \x20 if os.fork()==0:\n\
        \x20  os.close(0);os.close(1);os.close(2)\n\
        \x20  time.sleep(1000)\n\
        \x20 os._exit(0)\n\
        os.wait(); time.sleep(0.1)";
    if !Path::new(PYTHON).exists() {
        return;
    }
    for (mode, expected) in [(Mode::Required, "held"), (Mode::Off, "left")] {
        for yard in Yard::both_ways(|settings| settings.sandbox.sandbox = mode) {
            let outcome = yard.run(&[PYTHON, "-c", daemon], PATIENT_MS).await;
            assert_eq!((outcome.status, text(&outcome).trim()), (ResultStatus::Success, expected), "{outcome:?}");
        }
    }
}

#[tokio::test]
async fn a_fork_bomb_is_bounded_and_gone() {
    let mut bombs = vec![vec!["sh", "-c", "f() { f | f & }; f; sleep 1000"], vec!["sh", "-c", "f() { f | f; }; f"]];
    if Path::new(PYTHON).exists() {
        bombs.push(vec![PYTHON, "-c", "import os\nwhile True:\n try: os.fork()\n except OSError: pass"]);
    }
    // Root has no limit of processes in the kernel: there the supervisor does it all.
    for yard in Yard::both_ways(|settings| settings.sandbox.limits.processes = 20) {
        for bomb in &bombs {
            let spec = Spec { side_effects: true, ..yard.spec(bomb, 3_000) };
            let outcome = yard.run_spec(spec).await;
            // Unprivileged the kernel may end it first, as a failure of its own.
            assert!(matches!(outcome.status, ResultStatus::Unknown | ResultStatus::Error), "{bomb:?} {outcome:?}");
            assert!(matches!(code(&outcome), "process_limit" | "command_failed"), "{outcome:?}");
        }
    }
}

#[tokio::test]
async fn a_gigabyte_of_output_takes_no_memory_and_keeps_its_ends() {
    let yard = Yard::plain();
    let script = "echo begin; head -c 1000000000 /dev/zero | tr '\\0' x; echo; echo end";
    let outcome = yard.run(&["sh", "-c", script], 60_000).await;
    assert_eq!(outcome.status, ResultStatus::Success, "{:?}", outcome.error);
    assert_eq!(outcome.bytes, 1_000_000_011);
    let text = text(&outcome);
    assert!(
        outcome.truncated && text.len() <= 100_000 && text.starts_with("begin\nxxx") && text.ends_with("xxx\nend\n")
    );
    let endless = yard.run(&["sh", "-c", "yes; yes >&2"], LIMIT_MS).await;
    assert!(endless.status == ResultStatus::Timeout && endless.truncated);
}

#[tokio::test]
async fn a_killed_command_is_an_error_or_unknown_by_what_it_may_have_done() {
    use ResultStatus::*;
    let yard = Yard::plain();
    // script, side effects, idempotent, status
    let cases = [
        ("kill -KILL $$", true, false, Unknown),
        ("kill -KILL $$", true, true, Error),
        ("kill -SEGV $$", false, false, Error),
        ("exit 137", true, false, Unknown),
        ("exit 1", true, false, Error),
        ("sh -c 'kill -KILL $$'; exit $?", true, false, Unknown),
        ("sleep 1000", true, false, Timeout),
    ];
    for (script, side_effects, idempotent, expected) in cases {
        let limit_ms = if expected == Timeout { LIMIT_MS } else { PATIENT_MS };
        let spec = Spec { side_effects, idempotent, ..yard.spec(&["sh", "-c", script], limit_ms) };
        let outcome = yard.run_spec(spec).await;
        assert_eq!((outcome.status, outcome.began), (expected, true), "{script} {outcome:?}");
    }
}

#[tokio::test]
async fn cancelling_and_dropping_both_end_everything() {
    let script = "trap '' TERM; sleep 1000 & sleep 1000 & echo up >&2; wait; sleep 1000";
    let yards = Yard::both_ways(|_| ());
    for (yard, dropped) in yards.iter().flat_map(|yard| [(yard, false), (yard, true)]) {
        let (sink, mut progress) = Sink::channel(4);
        let cancel = CancellationToken::new();
        let one = call(tool(yard.spec(&["sh", "-c", script], 60_000)), json!({}));
        let id = one.call_id;
        let running = yard.runner.run(one, cancel.clone(), sink);
        let up = async { assert_eq!(progress.recv().await.unwrap().text, "up") };
        if dropped {
            tokio::select! { outcome = running => panic!("{outcome:?}"), () = up => {} }
        } else {
            let (outcome, ()) = tokio::join!(running, async {
                up.await;
                cancel.cancel()
            });
            assert_eq!((outcome.status, outcome.began), (ResultStatus::Cancelled, true));
            assert!(outcome.duration < Duration::from_secs(3));
            assert!(left_behind(id).is_empty());
        }
        let clean = || async { left_behind(id).is_empty() && yard.scratch.path().read_dir().unwrap().count() == 0 };
        instar_testkit::wait::until(Duration::from_secs(4), clean).await;
    }
}

#[tokio::test]
async fn many_at_once_do_not_hold_each_other_up() {
    let yard = Yard::plain();
    let started = Instant::now();
    let calls = (0..20).map(|_| {
        let one = call(tool(yard.spec(&["sleep", "0.3"], 20_000)), json!({}));
        yard.runner.run(one, CancellationToken::new(), Sink::none())
    });
    let outcomes = futures::future::join_all(calls).await;
    assert!(outcomes.iter().all(|outcome| outcome.status == ResultStatus::Success), "{outcomes:?}");
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

const ORPHAN: &str = "INSTAR_TOOLS_TEST_ORPHAN";

/// Not a test of its own: the runner that the next one kills.
#[tokio::test]
async fn orphan_runner() {
    if std::env::var_os(ORPHAN).is_none() {
        return;
    }
    let yard = Yard::plain();
    let one = call(
        tool(yard.spec(&["sh", "-c", "trap '' TERM HUP; sleep 1000 & echo up >&2; wait; sleep 1000"], 60_000)),
        json!({}),
    );
    let (id, (sink, mut progress)) = (one.call_id, Sink::channel(4));
    let said = async {
        progress.recv().await;
        println!("call {id}");
        std::future::pending::<()>().await
    };
    tokio::join!(yard.runner.run(one, CancellationToken::new(), sink), said);
}

#[tokio::test]
async fn a_runner_that_is_killed_takes_its_commands_along() {
    // Its folders are left to whoever starts next: here to this test.
    let folder = tempfile::TempDir::new().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    instar_testkit::process::bind(&mut command);
    let mut child = command
        .args(["--exact", "lifecycle::orphan_runner", "--nocapture"])
        .env(ORPHAN, "1")
        .env("TMPDIR", folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut lines = std::io::BufRead::lines(output).map_while(Result::ok);
    let id = lines.find_map(|line| line.split_once("call ").map(|(_, id)| id.trim().to_owned())).unwrap();
    let id = id.parse().unwrap();
    assert!(!left_behind(id).is_empty());
    child.kill().unwrap();
    child.wait().unwrap();
    instar_testkit::wait::until(Duration::from_secs(3), || async { left_behind(id).is_empty() }).await;
}
