//! Commands whose processes are hard to catch: they fork fast, leave their session, or turn on those
//! who watch them. Each is tried with a name space and without; `Yard` sees that nothing is left.

use crate::kit::{PYTHON, Yard, call, code, left_behind, text, tool};
use instar_core::rune::payload::ResultStatus;
use instar_tools::Sink;
use instar_tools::sandbox::Mode;
use serde_json::json;
use std::path::Path;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const LIMIT_MS: u64 = 700;

/// Without walls, which would keep a command in its session and so make this easy.
fn open_yards(processes: u64) -> Vec<Yard> {
    Yard::both_ways(|settings| {
        settings.sandbox.sandbox = Mode::Off;
        settings.sandbox.limits.processes = processes;
    })
}

#[tokio::test]
async fn a_bomb_whose_every_process_leaves_its_session_is_gone() {
    let bomb = "import os\nwhile True:\n try:\n  if os.fork() == 0: os.setsid()\n except OSError: pass";
    if Path::new(PYTHON).exists() && urgent() {
        for yard in open_yards(20) {
            let outcome = yard.run(&[PYTHON, "-c", bomb], 3_000).await;
            assert_eq!(code(&outcome), "process_limit", "{outcome:?}");
        }
    }
}

/// Without walls, name spaces and the right to go first, a supervisor is one of thousands: it does
/// end such a bomb, but the machine has a bad minute, which a test should not give it.
fn urgent() -> bool {
    std::process::Command::new("chrt").args(["--rr", "1", "true"]).status().is_ok_and(|status| status.success())
}

#[tokio::test]
async fn a_process_that_is_another_one_every_moment_is_gone() {
    let chain = "import os, time\n\
        if os.fork() == 0:\n\
        \x20while True:\n\
        \x20 os.setsid()\n\
        \x20 if os.fork(): os._exit(0)\n\
        time.sleep(DURATION)";
    if Path::new(PYTHON).exists() {
        for yard in open_yards(64) {
            for (duration, expected) in [("1000", ResultStatus::Timeout), ("0.2", ResultStatus::Success)] {
                let outcome = yard.run(&[PYTHON, "-c", &chain.replace("DURATION", duration)], 3_000).await;
                assert_eq!(outcome.status, expected, "{outcome:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_command_that_kills_its_supervisor_is_gone_with_what_it_started() {
    let script = "sleep 1000 & setsid sh -c 'sleep 1000 & sleep 1000' & sleep 0.1; kill -KILL $PPID; sleep 1000";
    for yard in open_yards(64) {
        let outcome = yard.run(&["sh", "-c", script], LIMIT_MS).await;
        // In a name space of its own the supervisor cannot be killed from within.
        assert!(matches!(code(&outcome), "command_killed" | "timeout"), "{outcome:?}");
    }
}

#[tokio::test]
async fn whoever_is_killed_from_outside_nothing_is_left() {
    // They hold no pipe by which they could be noticed.
    let script = "(exec > /dev/null 2>&1; setsid sh -c 'sleep 1000 & sleep 1000' & sleep 1000 &)
        echo up >&2; exec > /dev/null 2>&1; sleep 1000";
    let yards = open_yards(64);
    for (yard, generations) in yards.iter().flat_map(|yard| [(yard, 1), (yard, 2)]) {
        let (sink, mut progress) = Sink::channel(4);
        let one = call(tool(yard.spec(&["sh", "-c", script], 2_000)), json!({}));
        let id = one.call_id;
        let killed = async {
            progress.recv().await.unwrap();
            // The command's number is the lowest: it was the first to carry the call's id.
            let command = left_behind(id).into_iter().min().unwrap();
            let above = (0..generations).fold(command, |process, _| parent_of(process));
            assert_ne!(above, std::process::id());
            std::process::Command::new("kill").args(["-KILL", &above.to_string()]).status().unwrap()
        };
        tokio::join!(yard.runner.run(one, CancellationToken::new(), sink), killed);
        instar_testkit::wait::until(Duration::from_secs(4), || async { left_behind(id).is_empty() }).await;
    }
}

fn parent_of(process: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok()).unwrap()
}

#[tokio::test]
async fn as_many_processes_as_allowed_are_not_too_many() {
    for yard in Yard::both_ways(|settings| settings.sandbox.limits.processes = 5) {
        let sleeps = |count| format!("for i in {}; do sleep 0.3 & done; wait; echo done", "x ".repeat(count));
        let enough = yard.run(&["sh", "-c", &sleeps(4)], 10_000).await;
        assert_eq!((enough.status, text(&enough).trim()), (ResultStatus::Success, "done"), "{enough:?}");
        let more = yard.run(&["sh", "-c", &sleeps(5)], 10_000).await;
        assert_eq!((more.status, code(&more)), (ResultStatus::Error, "process_limit"), "{more:?}");
    }
}

#[test]
fn a_runtime_that_is_dropped_takes_its_commands_along() {
    for yard in open_yards(64) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (sink, mut progress) = Sink::channel(4);
        let script = "trap '' TERM; setsid sleep 1000 & echo up >&2; wait; sleep 1000";
        let one = call(tool(yard.spec(&["sh", "-c", script], 60_000)), json!({}));
        let id = one.call_id;
        runtime.spawn(async move { yard.runner.run(one, CancellationToken::new(), sink).await });
        runtime.block_on(progress.recv()).unwrap();
        assert!(!left_behind(id).is_empty());
        drop(runtime);
        let gone = instar_testkit::wait::until(Duration::from_secs(4), || async { left_behind(id).is_empty() });
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(gone);
    }
}

#[tokio::test]
async fn the_numbers_in_proc_are_the_ones_that_commands_have() {
    for yard in open_yards(64) {
        let outcome =
            yard.run(&["sh", "-c", "read pid rest < /proc/self/stat; [ $pid = $$ ] && echo same"], 5_000).await;
        assert_eq!(text(&outcome).trim(), "same", "{outcome:?}");
    }
}
