//! A chosen point really ends or stops the process: this test binary starts itself as the victim.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

const VICTIM: &str = "INSTAR_CRASHPOINT_VICTIM";
const SIGKILL: i32 = 9;

/// Not a test by itself: hits two points, three times each, and says how far it came.
#[test]
fn victim() {
    if std::env::var_os(VICTIM).is_none() {
        return;
    }
    for round in 1..=3 {
        instar_crashpoint::hit("test.other");
        println!("before {round}");
        instar_crashpoint::hit("test.point");
        println!("after {round}");
    }
}

fn start(plan: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    // One that is paused would not end by itself.
    instar_testkit::process::bind(&mut command);
    command
        .args(["--exact", "victim", "--nocapture"])
        .env(VICTIM, "1")
        .env(instar_crashpoint::VARIABLE, plan)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn the_chosen_hit_kills_the_process() {
    for (plan, last) in [("test.point", "before 1"), ("test.point:1", "before 1"), ("test.point:3", "before 3")] {
        let output = start(plan).wait_with_output().unwrap();
        assert_eq!(output.status.signal(), Some(SIGKILL), "{plan}");
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert_eq!(stdout.trim_end().lines().last(), Some(last), "{plan}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains("crash point test.point: hit"), "{stderr}");
    }
}

#[test]
fn a_point_hit_too_seldom_leaves_the_process_alone() {
    for plan in ["test.point:4", "test.absent", ""] {
        assert!(start(plan).wait_with_output().unwrap().status.success(), "{plan}");
    }
}

#[test]
fn a_paused_process_goes_on_when_continued() {
    let mut child = start("test.point:2:pause");
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("stopping this process"));
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        stat.rsplit_once(") ").unwrap().1.chars().next()
    };
    // The line comes just before the stop.
    let since = std::time::Instant::now();
    while state() != Some('T') {
        assert!(since.elapsed().as_secs() < 10, "state {:?} instead of T", state());
        std::thread::yield_now();
    }
    Command::new("kill").args(["-CONT", &child.id().to_string()]).status().unwrap();
    let mut stdout = String::new();
    child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
    assert!(stdout.contains("after 3"), "{stdout}");
    assert!(child.wait().unwrap().success());
}

#[test]
fn an_unknown_name_ends_the_process_at_once_instead_of_never_crashing() {
    let output = start("store.no_such_point").wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(64));
    assert!(String::from_utf8(output.stderr).unwrap().contains("there is no crash point"));
}
