//! What live turns have said so far, as far as this process heard it: for readers that join late.

use super::frame::{Piece, Source};
use std::collections::HashMap;
use std::time::{Duration, Instant};

const TURNS_MAX: usize = 8_192;
const TALK_BYTES_MAX: usize = 256 * 1024;
const BYTES_MAX: usize = 64 * 1024 * 1024;
/// Silence after which a turn's words make room for another's.
const SILENT_MAX: Duration = Duration::from_secs(300);

#[derive(Default)]
pub(super) struct Talks {
    turns: HashMap<String, Talk>,
    bytes: usize,
}

/// One answer of the model, from its first piece on.
struct Talk {
    agent: String,
    text: String,
    /// The piece that goes on from here.
    next: u64,
    heard_at: Instant,
}

/// What has been said up to and with a piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SoFar {
    pub(super) agent: String,
    pub(super) text: String,
    pub(super) index: u64,
}

impl Talks {
    pub(super) fn hear(&mut self, piece: &Piece) {
        let Source::Agent(agent) = &piece.source else { return };
        if !matches!(piece.kind.as_str(), "text" | "") {
            return;
        }
        if piece.index == 0 {
            self.end(&piece.turn);
            self.make_room();
            if self.turns.len() >= TURNS_MAX {
                return;
            }
            let talk = Talk { agent: agent.clone(), text: String::new(), next: 0, heard_at: Instant::now() };
            self.turns.insert(piece.turn.clone(), talk);
        }
        let Some(talk) = self.turns.get_mut(&piece.turn) else { return };
        let room = talk.text.len() + piece.text.len() <= TALK_BYTES_MAX && self.bytes + piece.text.len() <= BYTES_MAX;
        // After a loss, the rest alone is not what has been said.
        if talk.next != piece.index || !room {
            return self.end(&piece.turn);
        }
        talk.text += &piece.text;
        talk.next += 1;
        talk.heard_at = Instant::now();
        self.bytes += piece.text.len();
    }

    /// The turn has said this to its end, or begins anew.
    pub(super) fn end(&mut self, turn: &str) {
        if let Some(talk) = self.turns.remove(turn) {
            self.bytes -= talk.text.len();
        }
    }

    /// The answer under way has its first pieces behind it, and the next one goes on with them: the
    /// numbers run through the turn, the words do not.
    pub(super) fn turn_page(&mut self, turn: &str) {
        if let Some(talk) = self.turns.get_mut(turn) {
            self.bytes -= talk.text.len();
            talk.text.clear();
        }
    }

    fn make_room(&mut self) {
        if self.turns.len() >= TURNS_MAX || self.bytes >= BYTES_MAX {
            self.turns.retain(|_, talk| talk.heard_at.elapsed() < SILENT_MAX);
            self.bytes = self.turns.values().map(|talk| talk.text.len()).sum();
        }
    }

    /// `None` if it was not heard from its beginning on.
    pub(super) fn so_far(&self, turn: &str) -> Option<SoFar> {
        let talk = self.turns.get(turn).filter(|talk| !talk.text.is_empty())?;
        Some(SoFar { agent: talk.agent.clone(), text: talk.text.clone(), index: talk.next.saturating_sub(1) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(index: u64, text: &str) -> Piece {
        let (turn, kind) = ("trn_1".into(), "text".into());
        Piece { turn, index, text: text.into(), kind, source: Source::Agent("agt_1".into()) }
    }

    fn said(index: u64, text: &str) -> Option<SoFar> {
        Some(SoFar { agent: "agt_1".into(), text: text.into(), index })
    }

    #[test]
    fn who_joins_late_is_told_everything_said_so_far() {
        let mut talks = Talks::default();
        for (index, text) in [(0, "It "), (1, "is "), (2, "so")] {
            talks.hear(&piece(index, text));
        }
        assert_eq!(talks.so_far("trn_1"), said(2, "It is so"));
        talks.turn_page("trn_1");
        assert_eq!(talks.so_far("trn_1"), None);
        talks.hear(&piece(3, "Next"));
        assert_eq!(talks.so_far("trn_1"), said(3, "Next"));
        talks.hear(&piece(0, "Again"));
        assert_eq!(talks.so_far("trn_1"), said(0, "Again"));
        talks.end("trn_1");
        assert_eq!((talks.so_far("trn_1"), talks.bytes), (None, 0));
    }

    #[test]
    fn half_a_sentence_is_not_what_has_been_said() {
        let mut talks = Talks::default();
        talks.hear(&piece(5, "f"));
        assert_eq!(talks.so_far("trn_1"), None, "its beginning was not heard");
        for (index, text) in [(0, "a"), (1, "b"), (3, "d"), (4, "e")] {
            talks.hear(&piece(index, text));
        }
        assert_eq!(talks.so_far("trn_1"), None, "a piece was lost");
        talks.hear(&piece(0, &"x".repeat(TALK_BYTES_MAX)));
        talks.hear(&piece(1, "x"));
        assert_eq!((talks.so_far("trn_1"), talks.bytes), (None, 0), "everything has a limit");
    }
}
