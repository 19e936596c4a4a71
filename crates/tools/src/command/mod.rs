//! Tools that are programs: arguments on standard input, the result on standard output, progress
//! on both outputs, line by line.

mod descent;
mod launch;
mod proc;
mod read;
mod reap;
mod supervisor;
mod verdict;

pub(crate) use launch::{Ending, Launch, Orders, Report, Started, Watch, spawn};

use crate::outcome::{Failure, Outcome, Sink, code};
use crate::runner::{cancelled, timed_out};
use crate::sandbox::Settings;
use instar_core::decide::Effect;
use instar_core::rune::payload::ResultStatus;
use launch::Launched;
use read::Heard;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// From the last order to giving up on processes that even the kernel cannot end now. Long, since a
/// call that ends before its processes is worse than one that ends late: its next attempt would
/// meet them.
const KILL_WAIT: Duration = Duration::from_secs(15);

/// Why a command was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Cancelled,
    Timeout,
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
    let (settings, end, arguments) = (launch.settings.clone(), launch.end, launch.charged.arguments.to_string());
    // Forking and opening folders is for a thread that may wait.
    let started = tokio::task::spawn_blocking(move || launch.start()).await;
    let launched = match started {
        Ok(Ok(launched)) => launched,
        Ok(Err(failure)) => return Outcome::failed(ResultStatus::Error, failure),
        Err(_) => return Outcome::failed(ResultStatus::Error, Failure::new(code::INTERNAL, "the start failed")),
    };
    let Launched { mut child, mut orders, report, scratch } = launched;
    let heard = read::all(&mut child, arguments, keep_max, progress);
    let ended = async { tokio::join!(heard, child.wait()).0 };
    tokio::pin!(ended);
    let (stop, heard) = tokio::select! {
        heard = &mut ended => (None, Some(heard)),
        () = cancel.cancelled() => (Some(Stop::Cancelled), None),
        () = tokio::time::sleep_until(end) => (Some(Stop::Timeout), None),
    };
    let heard = match (stop, heard) {
        (Some(_), None) => end_it(&mut orders, &settings, ended).await,
        (_, heard) => heard,
    };
    // Where the supervisor is still at work its report would be waited for.
    let ending = if heard.is_some() { last_word(&mut orders, report).await } else { None };
    // A folder may be large, and made to be hard to remove.
    let _ = tokio::task::spawn_blocking(move || scratch.remove()).await;
    conclude(stop, heard, ending, effect, settings.limits.processes)
}

/// Somebody may have killed the guard: then its supervisor is there yet, and has to be ended first.
async fn last_word(orders: &mut Orders, report: Report) -> Option<Ending> {
    orders.kill();
    let report = tokio::task::spawn_blocking(move || report.read());
    tokio::time::timeout(KILL_WAIT, report).await.ok()?.ok()?
}

async fn end_it<F: Future<Output = Heard> + Unpin>(
    orders: &mut Orders,
    settings: &Settings,
    mut ended: F,
) -> Option<Heard> {
    orders.term();
    if let Ok(heard) = tokio::time::timeout(settings.kill_grace(), &mut ended).await {
        return Some(heard);
    }
    orders.kill();
    tokio::time::timeout(KILL_WAIT, ended).await.ok()
}

fn conclude(stop: Option<Stop>, heard: Option<Heard>, ending: Option<Ending>, effect: Effect, most: u64) -> Outcome {
    let said = heard.as_ref().map(|heard| heard.last_words.clone()).unwrap_or_default();
    let base = match (stop, ending) {
        (Some(Stop::Cancelled), _) => cancelled(effect, true),
        // Also when ending them all took until the timeout: this is why.
        (_, Some(Ending::TooMany)) => verdict::too_many(effect, most),
        (Some(Stop::Timeout), _) => timed_out(effect, true),
        (None, Some(Ending::Status(status))) => verdict::of(Some(status), effect, &said),
        (None, None) => verdict::of(None, effect, &said),
    };
    match heard {
        None => still_running(base),
        Some(Heard { output, .. }) => Outcome {
            output: output.output,
            truncated: output.truncated,
            bytes: output.bytes,
            digest: output.digest,
            ..base
        },
    }
}

/// The one way in which a call can end before its processes: the machine cannot end them.
fn still_running(base: Outcome) -> Outcome {
    let words = format!("its processes were killed and have not ended within {} s", KILL_WAIT.as_secs());
    tracing::error!("a call is over, but {words}; its supervisor goes on killing them; look at the machine");
    let error = base.error.map(|error| Failure { message: format!("{}; {words}", error.message), ..error });
    Outcome { error, ..base }
}
