//! Waiting says what it waited for, and where.

use std::cell::Cell;
use std::time::{Duration, Instant};

use instar_testkit::wait::{free_port, until, until_ok};

#[tokio::test]
async fn a_condition_that_comes_true_ends_the_wait() {
    let tries = Cell::new(0);
    until(Duration::from_secs(5), || async {
        tries.set(tries.get() + 1);
        tries.get() == 3
    })
    .await;
    assert_eq!(tries.get(), 3);
}

#[tokio::test]
#[should_panic(expected = "testkit/tests/wait.rs:")]
async fn a_condition_that_stays_false_names_the_line_that_waited() {
    until(Duration::from_millis(20), || async { false }).await;
}

#[tokio::test]
async fn a_condition_that_hangs_is_given_up_too() {
    let started = Instant::now();
    let waited = until_ok::<(), _, _>(Duration::from_millis(50), std::future::pending);
    let error = waited.await.unwrap_err();
    assert!(format!("{error:#}").contains("still running"), "{error:#}");
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn the_reason_of_the_last_refusal_is_told() {
    let error = until_ok::<(), _, _>(Duration::from_millis(10), || async { anyhow::bail!("no rows yet") });
    assert!(format!("{:#}", error.await.unwrap_err()).contains("no rows yet"));
}

#[test]
fn a_free_port_can_be_listened_on() {
    std::net::TcpListener::bind(("127.0.0.1", free_port().unwrap())).unwrap();
}
