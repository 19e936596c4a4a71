//! The fast path of publication: runes go out at once; that they arrived is told to the schedulers, in
//! batches, who note how far each log is published (see [`Published`](crate::Published)).

use crate::wire;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use instar_bus::message::{self, Run};
use instar_bus::{Bus, Sent};
use instar_core::rune::Rune;
use std::time::Duration;
use tokio::sync::mpsc;

/// Commits whose acknowledgement may be awaited at once; beyond this they trail.
const WAITING_MAX: usize = 16_384;
const TELL_EVERY: Duration = Duration::from_millis(200);
/// Runs in one message.
const RUNS_MAX: usize = 2_000;

#[derive(Clone)]
pub(crate) struct Publisher {
    bus: Bus,
    outgoing: mpsc::Sender<(Run, Sent)>,
}

impl Publisher {
    pub(crate) fn start(bus: Bus) -> Publisher {
        let (outgoing, receiver) = mpsc::channel(WAITING_MAX);
        tokio::spawn(tell(bus.clone(), receiver));
        Publisher { bus, outgoing }
    }

    /// Never waits. Runes that could not be handed over trail, and are found by their state.
    pub(crate) fn publish(&self, runes: &[Rune]) {
        let (Some(first), Some(last)) = (runes.first(), runes.last()) else { return };
        let all: Vec<message::Rune> = runes.iter().map(wire::rune).collect();
        match self.bus.publish_runes_soon(&all) {
            Ok(sent) => {
                let run = Run { session_id: first.session_id.to_string(), after: first.seq - 1, up_to: last.seq };
                // A full queue only means that this is left to the slow path.
                drop(self.outgoing.try_send((run, sent)));
            }
            Err(error) => tracing::debug!(session = %first.session_id, %error, "not published; it trails"),
        }
    }
}

/// Waits for acknowledgements and passes them on.
async fn tell(bus: Bus, mut outgoing: mpsc::Receiver<(Run, Sent)>) {
    let mut awaited = FuturesUnordered::new();
    let mut runs: Vec<Run> = Vec::new();
    let mut tick = tokio::time::interval(TELL_EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            next = outgoing.recv() => match next {
                Some((run, sent)) => awaited.push(async move { sent.await.ok().map(|_| run) }),
                None => return,
            },
            Some(done) = awaited.next(), if !awaited.is_empty() => runs.extend(done),
            _ = tick.tick(), if !runs.is_empty() => {
                for chunk in std::mem::take(&mut runs).chunks(RUNS_MAX) {
                    let published = message::Published { runs: chunk.to_vec() };
                    if let Err(error) = bus.cast(&bus.space().published(), &published) {
                        tracing::debug!(%error, "nobody was told what is published; it is published again");
                    }
                }
            }
        }
    }
}
