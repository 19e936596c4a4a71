//! The registry of rune kinds.

use super::{code, codes, head, header, line, row_ids};
use crate::machine::Emit;
use crate::rune::{KINDS, KindInfo};

pub fn runes() -> String {
    let mut text = header("Runes", "crates/core/src/rune/payload.rs");
    text += "A session's log is a list of runes, numbered from 1 without a gap. Each carries in its envelope: id, session, seq, kind, \
             entity, agent and turn where there are any, actor, visibility, payload, the moves it stands for \
             (`row:from>to`, another entity after `@`), fencing epoch, trace context, time, the command that made it and a hash of its content. Where a \
             row names several runes, the last one carries the move.\n";
    let mut family = "";
    for kind in KINDS {
        let of = kind.token.split('.').next().unwrap_or_default();
        if of != family {
            family = of;
            text += &format!("\n## {family}\n\n");
            text += &head(&["kind", "visibility", "required", "optional", "emitted by", "carries the moves of"]);
        }
        text += &row(kind);
    }
    text
}

fn row(kind: &KindInfo) -> String {
    let required = kind.fields.iter().copied().filter(|f| !f.ends_with('?'));
    let optional = kind.fields.iter().filter_map(|f| f.strip_suffix('?'));
    let emitted = row_ids(|row| matches!(row.emit, Emit::Runes(kinds) if kinds.contains(&kind.token)));
    let carried = row_ids(|row| row.emit == Emit::Via(kind.token));
    let emitted = if kind.standalone { "beside the machines".to_owned() } else { emitted.join(", ") };
    let cells =
        [&code(kind.token), kind.visibility.token(), &codes(required), &codes(optional), &emitted, &carried.join(", ")];
    line(&cells)
}
