//! What a tool says while it runs: passed on at once, and kept from time to time, so that who comes
//! later can read it.

use instar_bus::message::Progress;
use instar_core::id::{CallId, SessionId, TurnId, WorkerId};
use instar_runtime::{Hub, flow};
use instar_store::entity::tool_call;
use instar_tools::Stream;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc::Receiver;

/// A call that is over sooner has a result to show instead.
const KEEP_EVERY: Duration = Duration::from_secs(1);
/// Of what is kept at once; the newest.
const CHUNK_BYTES_MAX: usize = 4 << 10;
/// Of one call: after that its progress is only passed on.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// `epoch`: the one that the attempt writes under now.
pub(crate) async fn pass_on(
    hub: Hub,
    runner: WorkerId,
    call: tool_call::Model,
    epoch: Arc<AtomicI64>,
    mut reports: Receiver<instar_tools::Progress>,
) {
    // One for each output and one for what belongs to none: they are not mixed line by line.
    let (mut index, mut unkept, mut kept) = (0, [const { String::new() }; 3], 0);
    let mut keep = tokio::time::interval(KEEP_EVERY);
    keep.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    keep.reset();
    loop {
        tokio::select! {
            said = reports.recv() => {
                let Some(said) = said else { return };
                if kept < KEPT_BYTES_MAX {
                    add(&mut unkept[place(said.stream)], &said.text);
                }
                hub.cast_progress(message(&call, index, said));
                index += 1;
            }
            _ = keep.tick(), if unkept.iter().any(|said| !said.is_empty()) => {
                for stream in STREAMS {
                    let chunk = std::mem::take(&mut unkept[place(stream)]);
                    if chunk.is_empty() {
                        continue;
                    }
                    kept += chunk.len();
                    let (epoch, stream) = (epoch.load(Ordering::Relaxed), stream.map(Stream::token));
                    // What a call said on its way is not worth a second try; the result is.
                    match flow::progress(&call, epoch, runner, stream, chunk) {
                        Ok(commit) => drop(hub.commit(commit).await),
                        Err(error) => tracing::debug!(%error, "progress is not kept"),
                    }
                }
            }
        }
    }
}

const STREAMS: [Option<Stream>; 3] = [None, Some(Stream::Stdout), Some(Stream::Stderr)];

fn place(stream: Option<Stream>) -> usize {
    match stream {
        None => 0,
        Some(Stream::Stdout) => 1,
        Some(Stream::Stderr) => 2,
    }
}

/// The end of what was said, cut at a line or character.
fn add(unkept: &mut String, text: &str) {
    if !unkept.is_empty() {
        unkept.push('\n');
    }
    unkept.push_str(text);
    if unkept.len() > CHUNK_BYTES_MAX {
        let from = unkept.ceil_char_boundary(unkept.len() - CHUNK_BYTES_MAX);
        unkept.drain(..from);
    }
}

fn message(call: &tool_call::Model, index: u64, said: instar_tools::Progress) -> Progress {
    Progress {
        session_id: SessionId::from(call.session_id).to_string(),
        turn_id: call.turn_id.map(|turn| TurnId::from(turn).to_string()).unwrap_or_default(),
        call_id: CallId::from(call.id).to_string(),
        index,
        text: said.text,
        done_permille: None,
        stream: said.stream.map(Stream::token).unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_is_kept_of_what_is_too_long() {
        let mut unkept = String::new();
        add(&mut unkept, "first");
        add(&mut unkept, &"é".repeat(CHUNK_BYTES_MAX));
        assert!(unkept.len() <= CHUNK_BYTES_MAX && unkept.chars().all(|c| c == 'é'));
        add(&mut unkept, "last");
        assert!(unkept.len() <= CHUNK_BYTES_MAX && unkept.ends_with("é\nlast"));
    }
}
