//! The machines, as their tables have them: for people, programs and pictures.

use crate::call::{Call, Reply};
use crate::problem::Problem;
use crate::shape::{Kind, Shape, may, must};
use crate::svg;
use instar_core::doc;
use instar_core::machine::{ALL, Emit, Phase, Table, by_name};
use serde_json::{Value, json};
use std::sync::Arc;

static STATE: Shape = Shape {
    name: "MachineState",
    fields: &[
        must("name", Kind::Text(40), "The state"),
        must("phase", Kind::Choice(&["live", "rest", "terminal"]), "What it means for the life of its entity"),
        must("doc", Kind::Prose(400), "In words"),
    ],
};
static EVENT: Shape = Shape {
    name: "MachineEvent",
    fields: &[
        must("name", Kind::Text(40), "The event"),
        must("by", Kind::Texts(8), "Who may raise it"),
        must("doc", Kind::Prose(400), "In words"),
    ],
};
static ROW: Shape = Shape {
    name: "MachineRow",
    fields: &[
        must("id", Kind::Text(10), "The row in the specification"),
        must("from", Kind::Texts(40), "States it starts from; none for a birth"),
        must("event", Kind::Text(40), "What it takes"),
        may("to", Kind::Text(40), "Where it leads; null where the state stays"),
        must("runes", Kind::Texts(8), "What the log tells of it"),
        must("when", Kind::Prose(400), "Guard and meaning"),
    ],
};
pub(crate) static MACHINE: Shape = Shape {
    name: "Machine",
    fields: &[
        must("name", Kind::Text(40), "The machine"),
        must("doc", Kind::Prose(400), "What it is about"),
        must("states", Kind::List(&STATE), "Its states"),
        must("events", Kind::List(&EVENT), "Its events"),
        must("rows", Kind::List(&ROW), "Its transitions"),
    ],
};

fn show(table: &Table) -> Value {
    let phase = |phase| match phase {
        Phase::Live => "live",
        Phase::Rest => "rest",
        Phase::Terminal => "terminal",
    };
    let name = |state: u8| table.states[state as usize].token;
    let by = |by: &[instar_core::machine::By]| by.iter().map(|by| by.token()).collect::<Vec<_>>();
    let states = table.states.iter().map(|s| json!({"name": s.token, "phase": phase(s.phase), "doc": s.doc}));
    let events = table.events.iter().map(|e| json!({"name": e.token, "by": by(e.by), "doc": e.doc}));
    let rows = table.rows.iter().map(|row| {
        let runes = match row.emit {
            Emit::Runes(kinds) => kinds.to_vec(),
            Emit::Via(kind) => vec![kind],
            Emit::Silent => Vec::new(),
        };
        json!({
            "id": row.id,
            "from": row.from.iter().map(|s| name(*s)).collect::<Vec<_>>(),
            "event": table.events[row.event as usize].token,
            "to": row.to.map(name),
            "runes": runes,
            "when": row.when,
        })
    });
    json!({
        "name": table.name,
        "doc": table.doc,
        "states": states.collect::<Vec<_>>(),
        "events": events.collect::<Vec<_>>(),
        "rows": rows.collect::<Vec<_>>(),
    })
}

pub(crate) async fn list(_: Arc<Call>) -> Result<Reply, Problem> {
    let data: Vec<Value> = ALL.iter().map(|table| show(table)).collect();
    Ok(Reply::ok(json!({"data": data, "next_cursor": null})))
}

/// The ending of the name says in which form: JSON, Mermaid or a picture.
pub(crate) async fn get(call: Arc<Call>) -> Result<Reply, Problem> {
    let asked = call.part("name");
    let (name, form) = asked.rsplit_once('.').unwrap_or((asked, ""));
    let table = by_name(name).ok_or_else(|| Problem::absent("machine", asked))?;
    match form {
        "" => Ok(Reply::ok(show(table))),
        "mmd" => Ok(Reply::text("text/vnd.mermaid; charset=utf-8", doc::mermaid(table))),
        "svg" => Ok(Reply::text("image/svg+xml", svg::picture(table))),
        _ => Err(Problem::absent("machine", asked)),
    }
}
