//! A session that somebody follows: a bell for its runes, a wire for its deltas.

use super::frame::Piece;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{broadcast, watch};
use tokio::task::AbortHandle;

/// Pieces that may wait for a reader; one that is further behind is sent away.
const PIECES_MAX: usize = 512;

pub(super) struct Channel {
    head: watch::Sender<i64>,
    pieces: broadcast::Sender<Arc<Piece>>,
    /// What rings it; ends with it.
    ear: OnceLock<AbortHandle>,
    /// Changed under the lock of the list that holds the channel.
    readers: AtomicUsize,
}

impl Drop for Channel {
    fn drop(&mut self) {
        if let Some(ear) = self.ear.get() {
            ear.abort();
        }
    }
}

impl Channel {
    pub(super) fn new() -> Channel {
        let (head, pieces) = (watch::Sender::new(0), broadcast::Sender::new(PIECES_MAX));
        Channel { head, pieces, ear: OnceLock::new(), readers: AtomicUsize::new(0) }
    }

    pub(super) fn join(&self) {
        self.readers.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether that was the last reader.
    pub(super) fn leave(&self) -> bool {
        self.readers.fetch_sub(1, Ordering::Relaxed) == 1
    }

    pub(super) fn hear_by(&self, ear: AbortHandle) {
        let _ = self.ear.set(ear);
    }

    /// The log has come this far; whether that is news.
    pub(super) fn ring(&self, seq: i64) -> bool {
        self.head.send_if_modified(|head| {
            let news = seq > *head;
            *head = seq.max(*head);
            news
        })
    }

    pub(super) fn hear(&self, piece: Piece) {
        // Nobody listening is no error.
        let _ = self.pieces.send(Arc::new(piece));
    }

    pub(super) fn bell(&self) -> watch::Receiver<i64> {
        self.head.subscribe()
    }

    pub(super) fn wire(&self) -> broadcast::Receiver<Arc<Piece>> {
        self.pieces.subscribe()
    }
}

/// Kinds after which a turn says nothing more.
pub(super) fn ends(kind: &str) -> bool {
    matches!(kind, "turn.completed" | "turn.interrupted" | "turn.error")
}
