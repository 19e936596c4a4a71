//! The subjects of the bus.

use super::{code, codes, head, header, line, row_ids};
use crate::machine::Emit;
use crate::rune::KINDS;

/// Subjects that carry no rune: subject below the prefix, stream, meaning.
const OTHERS: [(&str, &str, &str); 7] = [
    (
        "work.turn.<lane>",
        "JetStream, work queue",
        "a turn is ready to claim; acknowledged when claimed, finished or found moot",
    ),
    ("work.tool.<class>", "JetStream, work queue", "a tool call is ready to claim; acknowledged likewise"),
    (
        "owner.<worker>.turn",
        "JetStream, work queue",
        "a turn is ready, for the worker that owns its agent and has its context warm",
    ),
    ("control.<agent>", "core", "interrupt, steer, cancel: checked against the row at once"),
    ("delta.<session>", "core", "token deltas and progress; lossy by design, never the only copy"),
    ("published", "core", "runs of runes that a process has published: the schedulers note how far each log is"),
    ("dead.<source>", "JetStream, limits", "a message that nobody could read or handle, kept for a person"),
];

const PREFIX: &str = "instar.v1";

pub fn subjects() -> String {
    let mut text = header("Subjects", "crates/core/src/rune/payload.rs and crates/core/src/doc/subject.rs");
    text += "A message is a hint: every one may be lost, repeated or reordered without changing an outcome. `<session>`, \
             `<agent>` and `<worker>` are ids such as `ses_…`.\n\n## Work, control and deltas\n\n";
    text += &head(&["subject", "kind", "meaning"]);
    for (subject, kind, meaning) in OTHERS {
        text += &line(&[&format!("`{PREFIX}.{subject}`"), kind, meaning]);
    }
    text += "\n## Transitions\n\nJetStream, limits. One subject per rune kind; a message carries its rune, and its `Nats-Msg-Id` is \
             the rune's id. A `?` marks a field that may be absent.\n\n";
    text += &head(&["subject", "visibility", "payload", "emitted by"]);
    for kind in KINDS {
        let rows = row_ids(|row| matches!(row.emit, Emit::Runes(kinds) if kinds.contains(&kind.token)));
        let by = match (kind.standalone, rows.as_slice()) {
            (true, _) => "beside the machines".to_owned(),
            (false, []) => "other machines' moves ride on it".to_owned(),
            (false, rows) => rows.join(", "),
        };
        let subject = code(&format!("{PREFIX}.{}.<session>", kind.token));
        text += &line(&[&subject, kind.visibility.token(), &codes(kind.fields.iter().copied()), &by]);
    }
    text
}
