//! Waiting on a condition with a bound, and a port to listen on.
//!
//! It must not know what is waited for.

use std::future::Future;
use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// Polls `condition` until it holds. Panics where it was called from when `bound` passes first,
/// which is what a test wants; use [`until_ok`] to get the reason of the last refusal.
#[track_caller]
pub fn until<F, Fut>(bound: Duration, mut condition: F) -> impl Future<Output = ()>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = bool>,
{
    let caller = std::panic::Location::caller();
    async move {
        let (started, mut tries, mut pause) = (Instant::now(), 0u32, PAUSE_MIN);
        loop {
            tries += 1;
            // The condition itself may hang: it gets what is left of the bound.
            let left = bound.saturating_sub(started.elapsed());
            let held = tokio::time::timeout(left.max(PAUSE_MIN), condition()).await;
            if matches!(held, Ok(true)) {
                return;
            }
            if started.elapsed() >= bound {
                let last = if held.is_err() { "still being evaluated" } else { "false" };
                panic!(
                    "the condition at {caller} did not hold within {bound:?}: \
                     tried {tries} times, {last} at the end"
                );
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

/// Polls `attempt` until it succeeds, and gives what it found. When `bound` passes first the error
/// carries the reason of the last refusal.
pub async fn until_ok<T, F, Fut>(bound: Duration, mut attempt: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T>>,
{
    let (started, mut pause) = (Instant::now(), PAUSE_MIN);
    let mut last: Option<anyhow::Error> = None;
    loop {
        let left = bound.saturating_sub(started.elapsed());
        let refusal = match tokio::time::timeout(left.max(PAUSE_MIN), attempt()).await {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(refusal)) => refusal,
            // What the one before said tells more than that there was no time for another.
            Err(_) => last.take().unwrap_or_else(|| anyhow::anyhow!("the last attempt was still running")),
        };
        if started.elapsed() >= bound {
            return Err(refusal.context(format!("not so within {bound:?}")));
        }
        last = Some(refusal);
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// A port of the loopback interface that nobody listens on now.
///
/// Taken from below the ephemeral range: while a server is down, a client that keeps connecting to
/// an ephemeral port can be given that very port as its own and so connect to itself, and the
/// server could never come back. Another process may still take the port first: whoever starts a
/// server retries.
pub fn free_port() -> Result<u16> {
    const LOW: u16 = 12_000;
    let high = ephemeral_low().unwrap_or(32_768);
    if high > LOW + 1_000 {
        for _ in 0..200 {
            // The last 32 bits of a version 7 id are random.
            let random = uuid::Uuid::now_v7().as_u128() as u32;
            let port = LOW + (random % u32::from(high - LOW)) as u16;
            if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
                return Ok(port);
            }
        }
        bail!("no free port found between {LOW} and {high} on 127.0.0.1: close some listeners");
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .context("no port can be bound on 127.0.0.1: is the loopback interface up?")?;
    Ok(listener.local_addr()?.port())
}

fn ephemeral_low() -> Option<u16> {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    range.split_whitespace().next()?.parse().ok()
}
