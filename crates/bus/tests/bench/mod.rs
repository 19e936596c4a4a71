//! What the bus tests share: a bus with a namespace of its own, and waiting with a bound.

#![allow(dead_code, reason = "each test file uses its part")]

use std::future::Future;
use std::time::Duration;

use instar_bus::message::{Rune, WorkTool, WorkTurn};
use instar_bus::{Bus, Connection, Namespace, Options, Pull, Receipt, Stamp};

pub(crate) const KINDS: [&str; 3] = ["turn.queued", "turn.completed", "tool.call"];
pub(crate) const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// A prefix nobody else uses, so that tests share a server.
pub(crate) fn prefix() -> String {
    format!("t{}", uuid::Uuid::now_v7().simple())
}

pub(crate) fn space(prefix: &str) -> Namespace {
    Namespace::new(prefix, KINDS).unwrap()
}

/// Small limits: many tests reserve room on one server.
pub(crate) fn options() -> Options {
    let mut options = Options::default();
    options.streams.transition_bytes_max = 4 << 20;
    options.streams.work_bytes_max = 4 << 20;
    options.streams.dead_bytes_max = 4 << 20;
    options
}

pub(crate) fn local(options: Options) -> Bus {
    Bus::local(space(&prefix()), options)
}

pub(crate) async fn nats(options: Options) -> Bus {
    let url = instar_testkit::nats::shared().await.unwrap();
    connect(&url, &prefix(), options).await
}

pub(crate) async fn connect(url: &str, prefix: &str, options: Options) -> Bus {
    Bus::connect(space(prefix), &Connection::new(url), options).await.unwrap()
}

/// The value, or a panic where it was asked for when it takes too long.
#[track_caller]
pub(crate) fn soon<T>(future: impl Future<Output = T>) -> impl Future<Output = T> {
    let caller = std::panic::Location::caller();
    async move {
        let bound = Duration::from_secs(20);
        let result = tokio::time::timeout(bound, future).await;
        result.unwrap_or_else(|_| panic!("{caller} took more than {bound:?}"))
    }
}

/// Whether nothing happens for so long.
pub(crate) async fn silent<T>(duration: Duration, future: impl Future<Output = T>) -> bool {
    tokio::time::timeout(duration, future).await.is_err()
}

pub(crate) fn pull() -> Pull {
    Pull { silence_max: Duration::from_secs(1), ..Pull::default() }
}

pub(crate) fn impatient(ack_wait_ms: u64) -> Pull {
    Pull { ack_wait: Duration::from_millis(ack_wait_ms), ..pull() }
}

pub(crate) fn turn(n: usize) -> WorkTurn {
    WorkTurn {
        session_id: "ses_1".into(),
        agent_id: "agt_1".into(),
        turn_id: format!("trn_{n}"),
        reason: "queued".into(),
        epoch: 1,
        ..WorkTurn::default()
    }
}

pub(crate) fn tool(n: usize) -> WorkTool {
    WorkTool {
        session_id: "ses_1".into(),
        turn_id: "trn_1".into(),
        call_id: format!("call_{n}"),
        class: "shell".into(),
        epoch: 1,
        ..WorkTool::default()
    }
}

pub(crate) fn rune(kind: &str, seq: u64) -> Rune {
    Rune {
        id: format!("run_{seq}"),
        session_id: "ses_1".into(),
        seq,
        kind: kind.into(),
        payload: "{}".into(),
        traceparent: TRACE.into(),
        ..Rune::default()
    }
}

/// Publishes turn `n` to the default lane under the id `turn:n`.
pub(crate) async fn publish(bus: &Bus, n: usize) -> Receipt {
    let subject = bus.space().work_turn("default").unwrap();
    soon(bus.publish(&subject, &turn(n), Stamp::new(&format!("turn:{n}")))).await.unwrap()
}
