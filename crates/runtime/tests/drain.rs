//! Real signals to a real process: this test binary starts itself as the one that is asked to end.

use instar_runtime::drain::{Drain, Drained};
use instar_testkit::process::signal;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const CHILD: &str = "INSTAR_DRAIN_CHILD";
const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;

/// Not a test by itself: works until it is asked to end, then takes as long as the variable says.
#[test]
fn child() {
    let Ok(how) = std::env::var(CHILD) else { return };
    let drain = Drain::on_signal().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let outcome = runtime.block_on(async {
        let work = drain.clone();
        drain.spawn(async move {
            work.draining().await;
            println!("draining");
            match how.as_str() {
                "finish" => println!("finished"),
                // The whole runtime hangs with it: there is one thread.
                "block" => std::thread::sleep(Duration::from_secs(60)),
                _ => std::future::pending().await,
            }
        });
        println!("ready");
        drain.wait_for(Duration::from_millis(300)).await
    });
    println!("{outcome:?}");
    // What `main` does by returning `outcome.exit_code()`.
    std::process::exit(i32::from(outcome != Drained::Clean));
}

struct Started {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Started {
    fn new(how: &str) -> Started {
        let mut command = Command::new(std::env::current_exe().unwrap());
        instar_testkit::process::bind(&mut command);
        let mut child =
            command.args(["--exact", "child", "--nocapture"]).env(CHILD, how).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Started { child, lines }
    }

    fn says(&mut self, wanted: &str) -> &mut Self {
        let said = self.lines.by_ref().map(Result::unwrap).any(|line| line.ends_with(wanted));
        assert!(said, "never said {wanted}");
        self
    }

    fn gets(&mut self, number: i32) -> &mut Self {
        signal(self.child.id(), number).unwrap();
        self
    }

    fn ends(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn work_in_hand_is_finished_after_the_first_signal() {
    for number in [SIGTERM, SIGINT] {
        let mut started = Started::new("finish");
        started.says("ready").gets(number).says("draining").says("finished").says("Clean");
        assert_eq!(started.ends(), Some(0));
    }
}

#[test]
fn work_that_does_not_end_is_cut_when_the_grace_is_over() {
    let mut started = Started::new("never");
    started.says("ready").gets(SIGTERM).says("draining").says("Cut { left: 1 }");
    assert_eq!(started.ends(), Some(1));
}

#[test]
fn a_second_signal_ends_even_a_process_that_hangs() {
    for (number, code) in [(SIGTERM, 143), (SIGINT, 130)] {
        let mut started = Started::new("block");
        started.says("ready").gets(SIGTERM).says("draining");
        let at = Instant::now();
        started.gets(number);
        assert_eq!(started.ends(), Some(code));
        assert!(at.elapsed() < Duration::from_secs(5), "took {:?}", at.elapsed());
    }
}

#[tokio::test]
async fn nothing_is_waited_for_before_the_drain_begins() {
    let drain = Drain::new();
    let early = tokio::time::timeout(Duration::from_millis(20), drain.wait_for(Duration::ZERO)).await;
    assert!(early.is_err() && !drain.is_draining());
    drain.begin();
    assert_eq!(drain.wait_for(Duration::from_secs(5)).await, Drained::Clean);
}

#[tokio::test]
async fn a_hold_counts_until_it_is_dropped() {
    let drain = Drain::new();
    let hold = drain.hold();
    drain.begin();
    assert_eq!(drain.wait_for(Duration::from_millis(1)).await, Drained::Cut { left: 1 });
    drop(hold);
    assert_eq!(drain.wait_for(Duration::from_secs(5)).await, Drained::Clean);
}
