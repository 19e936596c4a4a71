//! Tools that are programs: arguments on standard input, the result on standard output, progress
//! on standard error.

mod launch;
mod read;
mod supervisor;
mod verdict;
mod watch;

pub(crate) use launch::Launch;

use crate::outcome::{Failure, Outcome, Sink, code};
use crate::runner::{cancelled, timed_out};
use crate::sandbox::Settings;
use instar_core::decide::Effect;
use instar_core::rune::payload::ResultStatus;
use launch::{Launched, Orders};
use read::Heard;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// From the last signal to giving up on processes that even the kernel cannot end now.
const KILL_WAIT: Duration = Duration::from_millis(900);

/// Why a command was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Cancelled,
    Timeout,
    Processes,
}

/// The work goes on in a task of its own: whoever drops this future cancels it, and it still ends
/// its processes and removes its folder in order.
pub(crate) async fn run(launch: Launch, cancel: CancellationToken, progress: Sink) -> Outcome {
    let cancel = cancel.child_token();
    let _cancelled_when_dropped = cancel.clone().drop_guard();
    let effect = launch.call.tool.spec().effect();
    let task = tokio::spawn(async move { work(launch, cancel, progress).await });
    task.await.unwrap_or_else(|_| {
        let failure = Failure::new(code::INTERNAL, "the runner failed on this call; see its log");
        let status = if effect.repeatable() { ResultStatus::Error } else { ResultStatus::Unknown };
        Outcome::failed(status, failure).began()
    })
}

async fn work(launch: Launch, cancel: CancellationToken, progress: Sink) -> Outcome {
    let spec = launch.call.tool.spec();
    let (effect, keep_max) = (spec.effect(), spec.max_output_bytes);
    let (settings, end, arguments) = (launch.settings.clone(), launch.end, launch.call.arguments.to_string());
    // Forking and opening folders is for a thread that may wait.
    let started = tokio::task::spawn_blocking(move || launch.start()).await;
    let launched = match started {
        Ok(Ok(launched)) => launched,
        Ok(Err(failure)) => return Outcome::failed(ResultStatus::Error, failure),
        Err(_) => return Outcome::failed(ResultStatus::Error, Failure::new(code::INTERNAL, "the start failed")),
    };
    let Launched { mut child, mut orders, report, scratch } = launched;
    let supervisor = child.id();
    let heard = read::all(&mut child, arguments, keep_max, progress);
    let ended = async { tokio::join!(heard, child.wait()).0 };
    tokio::pin!(ended);
    let (stop, heard) = tokio::select! {
        heard = &mut ended => (None, Some(heard)),
        () = cancel.cancelled() => (Some(Stop::Cancelled), None),
        () = tokio::time::sleep_until(end) => (Some(Stop::Timeout), None),
        () = watch::too_many(supervisor, settings.limits.processes) => (Some(Stop::Processes), None),
    };
    let heard = match (stop, heard) {
        (Some(stop), None) => end_it(stop, &mut orders, &settings, ended).await,
        (_, heard) => heard,
    };
    // A folder may be large, and made to be hard to remove.
    let _ = tokio::task::spawn_blocking(move || scratch.remove()).await;
    // Where the supervisor is still at work its report would be waited for.
    let report = heard.as_ref().and_then(|_| report.read());
    conclude(stop, heard, report, effect, settings.limits.processes)
}

async fn end_it<F: Future<Output = Heard> + Unpin>(
    stop: Stop,
    orders: &mut Orders,
    settings: &Settings,
    mut ended: F,
) -> Option<Heard> {
    if stop != Stop::Processes {
        orders.term();
        if let Ok(heard) = tokio::time::timeout(settings.kill_grace(), &mut ended).await {
            return Some(heard);
        }
    }
    orders.kill();
    tokio::time::timeout(KILL_WAIT, ended).await.ok()
}

fn conclude(stop: Option<Stop>, heard: Option<Heard>, report: Option<i32>, effect: Effect, most: u64) -> Outcome {
    if heard.is_none() {
        tracing::warn!("a command's processes did not end when they were killed; they are left to their supervisor");
    }
    let said = heard.as_ref().map(|heard| heard.last_words.clone()).unwrap_or_default();
    let base = match stop {
        Some(Stop::Cancelled) => cancelled(effect, true),
        Some(Stop::Timeout) => timed_out(effect, true),
        Some(Stop::Processes) => verdict::too_many(effect, most),
        None => verdict::of(report, effect, &said),
    };
    match heard {
        None => base,
        Some(Heard { output, .. }) => Outcome {
            output: output.output,
            truncated: output.truncated,
            bytes: output.bytes,
            digest: output.digest,
            ..base
        },
    }
}
