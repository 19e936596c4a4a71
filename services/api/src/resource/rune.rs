//! The runelog as callers read it.

use super::find;
use crate::auth::Role;
use crate::call::{Call, Reply};
use crate::page;
use crate::problem::Problem;
use crate::shape::{Kind, Shape, may, must};
use chrono::{DateTime, SecondsFormat};
use instar_core::id::{AgentId, CommandId, RuneId, SessionId, TurnId};
use instar_core::rune::{Moved, Rune, Visibility};
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;
use std::sync::Arc;

pub(crate) static ACTOR: Shape = Shape {
    name: "Actor",
    fields: &[must("type", Kind::Text(40), "user, agent, system or policy"), must("id", Kind::Text(200), "Which")],
};
static MOVE: Shape = Shape {
    name: "Move",
    fields: &[
        must("row", Kind::Text(10), "The row of the machine's table"),
        must("entity_id", Kind::Text(80), "What moved"),
        may("from", Kind::Text(40), "From where; absent for a birth"),
        must("to", Kind::Text(40), "To where"),
    ],
};
pub(crate) static RUNE: Shape = Shape {
    name: "Rune",
    fields: &[
        must("id", Kind::Id("run"), "The rune's id"),
        must("session_id", Kind::Id("ses"), "Its session"),
        must("seq", Kind::Integer, "Its number: increasing, without gaps"),
        must("kind", Kind::Text(80), "What happened"),
        must("machine", Kind::Text(40), "On which machine"),
        must("entity_id", Kind::Text(80), "To what"),
        may("agent_id", Kind::Id("agt"), "The agent it belongs to"),
        may("turn_id", Kind::Id("trn"), "The turn it belongs to"),
        must("actor", Kind::Nested(&ACTOR), "Who did it"),
        must("visibility", Kind::Text(40), "Who may read it"),
        must("payload", Kind::Object, "What else there is to say"),
        may("traceparent", Kind::Text(80), "The trace it was made in"),
        must("at", Kind::Time, "When"),
        must("hash", Kind::Text(64), "Of its content"),
        must("moves", Kind::List(&MOVE), "The transitions that it stands for"),
        must("epoch", Kind::Integer, "The fencing epoch it was written under; 0 without one"),
        must("command_id", Kind::Id("cmd"), "What the runes of one commit share"),
    ],
};

pub(crate) static SEAL: Shape = Shape {
    name: "Seal",
    fields: &[
        must("seq", Kind::Integer, "The last rune that it covers"),
        must("hash", Kind::Text(64), "Of the chain up to there"),
    ],
};

#[derive(Serialize)]
struct By<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    id: &'a str,
}

#[derive(Serialize)]
struct Step<'a> {
    row: &'a str,
    entity_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<&'a str>,
    to: &'a str,
}

/// With everything that its hash covers, so that a reader can check it.
#[derive(Serialize)]
pub(crate) struct Shown<'a> {
    id: RuneId,
    session_id: SessionId,
    seq: i64,
    kind: &'a str,
    machine: &'static str,
    entity_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_id: Option<AgentId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    turn_id: Option<TurnId>,
    actor: By<'a>,
    visibility: &'static str,
    payload: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
    at: String,
    hash: String,
    moves: Vec<Step<'a>>,
    epoch: i64,
    command_id: CommandId,
}

impl<'a> From<&'a Rune> for Shown<'a> {
    fn from(rune: &'a Rune) -> Shown<'a> {
        let at = DateTime::from_timestamp_micros(rune.at_us).unwrap_or_default();
        Shown {
            id: rune.id,
            session_id: rune.session_id,
            seq: rune.seq,
            kind: &rune.kind,
            machine: rune.machine(),
            entity_id: rune.entity.to_string(),
            agent_id: rune.agent_id,
            turn_id: rune.turn_id,
            actor: By { kind: rune.actor.by.token(), id: &rune.actor.id },
            visibility: rune.visibility.token(),
            payload: &rune.payload,
            traceparent: rune.traceparent.as_deref(),
            at: at.to_rfc3339_opts(SecondsFormat::Micros, true),
            hash: rune.hash.0.iter().map(|byte| format!("{byte:02x}")).collect(),
            moves: rune.moves.iter().map(step).collect(),
            epoch: rune.epoch,
            command_id: rune.command_id,
        }
    }
}

fn step(moved: &Moved) -> Step<'_> {
    let (from, to) = (moved.from.as_deref(), moved.to.as_str());
    Step { row: &moved.row, entity_id: moved.entity.to_string(), from, to }
}

/// A secret is for the agent it comes from, and nobody else's to read here.
pub(crate) fn may_read(role: Role, rune: &Rune) -> bool {
    match rune.visibility {
        Visibility::Public => true,
        Visibility::Internal => role >= Role::Operator,
        Visibility::Secret => false,
    }
}

pub(crate) fn seq(name: &str, text: &str) -> Result<i64, Problem> {
    let good = text.parse::<i64>().ok().filter(|seq| *seq >= 0);
    good.ok_or_else(|| Problem::field(name, "must be the number of a rune, or 0 for the beginning"))
}

fn after(call: &Call) -> Result<i64, Problem> {
    match (call.asked("after"), call.asked("cursor")) {
        (Some(text), _) => seq("after", text),
        (None, Some(text)) => seq("cursor", text),
        (None, None) => Ok(0),
    }
}

pub(crate) async fn list(call: Arc<Call>) -> Result<Reply, Problem> {
    let limit = page::limit(&call)?;
    let after = after(&call)?;
    let session = SessionId::from(find::session(&call).await?.id);
    let runes = call.api.hub().runes(session, after, limit).await?;
    answer(&call, &runes, limit)
}

/// What was filed away in this namespace.
pub(crate) async fn catalogue(call: Arc<Call>) -> Result<Reply, Problem> {
    let (limit, after) = (page::limit(&call)?, after(&call)?);
    let runes = call.api.store().catalogue(&call.caller.namespace, after, limit).await?;
    answer(&call, &runes, limit)
}

fn answer(call: &Call, runes: &[Rune], limit: u64) -> Result<Reply, Problem> {
    // The cursor goes on past what this caller may not read, or it would stop there for ever.
    let full = runes.len() as u64 == limit;
    let next_cursor = runes.last().filter(|_| full).map(|rune| rune.seq.to_string());
    let data = runes.iter().filter(|rune| may_read(call.caller.role, rune)).map(Shown::from).collect();
    #[derive(Serialize)]
    struct Answer<'a> {
        data: Vec<Shown<'a>>,
        next_cursor: Option<String>,
    }
    Reply::exact(&Answer { data, next_cursor })
}

/// The chain over the log, as far as it is sealed.
pub(crate) async fn seals(call: Arc<Call>) -> Result<Reply, Problem> {
    let (limit, after) = (page::limit(&call)?, after(&call)?);
    let session = SessionId::from(find::session(&call).await?.id);
    let seals = call.api.store().seals(session, after, limit).await?;
    let next_cursor = seals.last().filter(|_| seals.len() as u64 == limit).map(|seal| seal.seq.to_string());
    let data: Vec<_> = seals.iter().map(|seal| json!({"seq": seal.seq, "hash": seal.hash.to_hex()})).collect();
    Ok(Reply::ok(json!({"data": data, "next_cursor": next_cursor})))
}
