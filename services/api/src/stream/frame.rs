//! Frames of an event stream.

use crate::resource::rune::Shown;
use instar_core::rune::Rune;
use serde_json::{Value, json};

/// How long a client waits before it comes back.
pub(super) const HELLO: &str = "retry: 2000\n\n";
pub(super) const HEARTBEAT: &str = ": heartbeat\n\n";

/// A piece of what is being said, or how far a tool is. Several readers share it.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) turn: String,
    /// Position in its stream, from 0.
    pub(super) index: u64,
    pub(super) text: String,
    pub(super) kind: String,
    pub(super) source: Source,
}

#[derive(Clone, Debug)]
pub(super) enum Source {
    Agent(String),
    Tool { call: String, stream: String, done_permille: Option<u32> },
}

impl Piece {
    pub(super) fn frame(&self) -> String {
        match &self.source {
            Source::Agent(agent) => delta(&self.turn, agent, self.index, &self.text, &self.kind),
            Source::Tool { call, stream, done_permille } => {
                let stream = Some(stream).filter(|stream| !stream.is_empty());
                let data = json!({
                    "turn_id": self.turn, "call_id": call, "index": self.index, "text": self.text,
                    "stream": stream, "done_permille": done_permille,
                });
                volatile("progress", &data)
            }
        }
    }
}

pub(super) fn delta(turn: &str, agent: &str, index: u64, text: &str, kind: &str) -> String {
    volatile("delta", &json!({"turn_id": turn, "agent_id": agent, "index": index, "text": text, "kind": kind}))
}

/// Some runes that were asked for are not to be had.
pub(super) fn gap(requested: i64, earliest: i64, head: i64) -> String {
    volatile("gap", &json!({"requested": requested, "earliest_available": earliest, "head_seq": head}))
}

pub(super) fn rune(rune: &Rune) -> Result<String, serde_json::Error> {
    // A payload may be spread over lines, and a line ends a field here.
    let data = serde_json::to_string(&Shown::from(rune))?.replace(['\n', '\r'], " ");
    Ok(format!("id: {}\nevent: {}\ndata: {data}\n\n", rune.seq, rune.kind))
}

/// Without an id: it does not move the reader's cursor.
fn volatile(event: &str, data: &Value) -> String {
    format!("event: {event}\ndata: {data}\n\n")
}
