//! The statement for a single commit, without the set-wise detours. It takes for granted that its
//! expectations hold, see [`bold`](super::bold).
//!
//! Every write hangs on the update of the session's row, which comes first. Parameters are given in the order
//! of the text, so that text and arguments are made in one pass.

use super::Verdict;
use super::bold::{self, MISMATCH};
use crate::commit::{Op, Sealed, UNUSED, Write};
use instar_core::rune::Moved;
use sea_orm::Value;
use sea_orm::sqlx::error::BoxDynError;
use sea_orm::sqlx::postgres::{PgArguments, PgRow};
use sea_orm::sqlx::types::Json;
use sea_orm::sqlx::{self, Arguments, Encode, Postgres, Row, Type};
use std::fmt::Write as _;

/// Larger ones go through the set-wise statement: each size would be a statement to prepare.
const WRITES_MAX: usize = 6;
const RUNES_MAX: usize = 6;

pub(super) fn fits(commit: &Sealed) -> bool {
    commit.writes.len() <= WRITES_MAX && commit.runes.len() <= RUNES_MAX && bold::fits(commit)
}

#[derive(Default)]
struct Text {
    sql: String,
    arguments: PgArguments,
    count: usize,
}

impl Text {
    fn push(&mut self, text: &str) {
        self.sql.push_str(text);
    }

    /// Binds a value and writes its place.
    fn bind<'t, T: Encode<'t, Postgres> + Type<Postgres>>(&mut self, value: T) -> Result<(), BoxDynError> {
        self.arguments.add(value)?;
        self.count += 1;
        let _ = write!(self.sql, "${}", self.count);
        Ok(())
    }

    fn value(&mut self, value: &Value) -> Result<(), BoxDynError> {
        match value {
            Value::Bool(v) => self.bind(*v),
            Value::Int(v) => self.bind(*v),
            Value::BigInt(v) => self.bind(*v),
            Value::String(v) => self.bind(v.as_deref()),
            Value::Uuid(v) => self.bind(*v),
            Value::Json(v) => self.bind(v.as_deref().map(Json)),
            Value::ChronoDateTimeUtc(v) => self.bind(*v),
            Value::Bytes(v) => self.bind(v.as_deref()),
            other => Err(format!("no column of the store has the type of {other:?}").into()),
        }
    }

    fn columns(&mut self, set: &[(&'static str, Value)]) -> Result<(), BoxDynError> {
        for (name, value) in set {
            let _ = write!(self.sql, "{name} = ");
            self.value(value)?;
            self.push(", ");
        }
        Ok(())
    }
}

pub(super) fn statement(commit: &Sealed) -> Result<(String, PgArguments), BoxDynError> {
    let mut t = Text::default();
    t.sql.reserve(2_048);
    let n = commit.runes.len();
    let _ = write!(t.sql, "WITH h AS (UPDATE sessions s SET head_seq = s.head_seq + {n}, updated_at = ");
    t.bind(commit.at)?;
    t.push(" WHERE s.id = ");
    t.bind(commit.session.uuid())?;
    let state = bold::session_state(commit);
    if !state.is_empty() {
        t.push(" AND s.status = ");
        t.bind(state)?;
    }
    let _ = write!(t.sql, " RETURNING s.head_seq - {n} AS base)");
    for (k, write) in commit.writes.iter().enumerate() {
        apply(&mut t, k, commit, write)?;
    }
    runes(&mut t, commit)?;
    t.push("\nSELECT h.base, CASE WHEN true");
    for (k, _) in updates(commit) {
        let _ = write!(t.sql, " AND EXISTS (SELECT 1 FROM u{k})");
    }
    let _ = write!(t.sql, " THEN true ELSE ('{MISMATCH}' || h.base)::bool END AS good");
    for (k, _) in updates(commit).filter(|(_, told)| *told) {
        let _ = write!(t.sql, ", (SELECT n FROM u{k}) AS n{k}");
    }
    t.push(" FROM h");
    Ok((t.sql, t.arguments))
}

/// Position of each change, and whether something is told of it.
fn updates(commit: &Sealed) -> impl Iterator<Item = (usize, bool)> {
    let changes = |write: &Write| matches!(write.op, Op::Update { .. } | Op::Draw(_));
    let writes = commit.writes.iter().enumerate().filter(move |(_, write)| changes(write));
    writes.map(|(k, write)| (k, write.told().is_some()))
}

fn apply(t: &mut Text, k: usize, commit: &Sealed, write: &Write) -> Result<(), BoxDynError> {
    let name = write.table.name;
    match &write.op {
        Op::Update { set, add } => {
            let _ = write!(t.sql, ",\nu{k} AS (UPDATE {name} t SET ");
            t.columns(set)?;
            t.push("version = t.version + 1");
            let counter = write.table.counter.filter(|_| *add != 0);
            if let Some(counter) = counter {
                let _ = write!(t.sql, ", {counter} = t.{counter} + ");
                t.bind(*add)?;
            }
            t.push(" FROM h WHERE t.id = ");
            t.bind(write.id)?;
            t.push(" AND t.session_id = ");
            t.bind(commit.session.uuid())?;
            for ((_, column), state) in write.table.machines.iter().zip(write.expect.states) {
                if !state.is_empty() {
                    let _ = write!(t.sql, " AND t.{column} = ");
                    t.bind(state)?;
                }
            }
            for (name, wanted) in [("t.epoch", write.expect.epoch), ("t.version", write.expect.version)] {
                if let Some(wanted) = wanted {
                    let _ = write!(t.sql, " AND {name} = ");
                    t.bind(wanted)?;
                }
            }
            let told = counter.map_or("1".to_owned(), |counter| format!("t.{counter}"));
            let _ = write!(t.sql, " RETURNING {told} AS n)");
        }
        Op::Insert { values } => {
            let names: Vec<&str> = values.iter().map(|(name, _)| *name).collect();
            let _ = write!(t.sql, ",\ni{k} AS (INSERT INTO {name} ({}) SELECT ", names.join(", "));
            for (at, (_, value)) in values.iter().enumerate() {
                if at > 0 {
                    t.push(", ");
                }
                t.value(value)?;
            }
            t.push(" FROM h)");
        }
        Op::Draw(draw) => {
            let _ = write!(t.sql, ",\nu{k} AS (UPDATE {name} t SET used = t.used + ");
            t.bind(draw.used)?;
            t.push(", reserved = t.reserved + ");
            t.bind(draw.reserved)?;
            t.push(", version = t.version + 1 FROM h WHERE t.id = ");
            t.bind(write.id)?;
            t.push(" AND t.session_id = ");
            t.bind(commit.session.uuid())?;
            if draw.need > 0 {
                t.push(" AND t.cap - t.used - t.reserved >= ");
                t.bind(draw.need)?;
            }
            let _ = write!(t.sql, " RETURNING {UNUSED} AS n)");
        }
        // A state of the session is a condition of its update; nothing else is merely looked at here.
        Op::Check | Op::Delete => {}
    }
    Ok(())
}

fn runes(t: &mut Text, commit: &Sealed) -> Result<(), BoxDynError> {
    let columns = "session_id, seq, id, kind, entity_kind, entity_id, agent_id, turn_id, actor_type, actor_id, \
                   visibility, payload, moves, epoch, traceparent, at_us, hash, command_id";
    let _ = write!(t.sql, ",\nr AS (INSERT INTO runes ({columns}) ");
    for (ord, rune) in (1..).zip(&commit.runes) {
        t.push(if ord > 1 { " UNION ALL SELECT " } else { "SELECT " });
        t.bind(rune.session_id.uuid())?;
        let _ = write!(t.sql, ", h.base + {ord}, ");
        t.bind(rune.id.uuid())?;
        t.push(", ");
        t.bind(rune.kind.as_str())?;
        t.push(", ");
        t.bind(rune.entity.kind.prefix())?;
        t.push(", ");
        t.bind(rune.entity.id)?;
        t.push(", ");
        t.bind(rune.agent_id.map(|id| id.uuid()))?;
        t.push(", ");
        t.bind(rune.turn_id.map(|id| id.uuid()))?;
        t.push(", ");
        t.bind(rune.actor.by.token())?;
        t.push(", ");
        t.bind(rune.actor.id.as_str())?;
        t.push(", ");
        t.bind(rune.visibility.token())?;
        t.push(", ");
        t.bind(rune.payload.get())?;
        t.push(", ");
        t.bind(Moved::encode_all(&rune.moves, rune.entity))?;
        t.push(", ");
        t.bind(rune.epoch)?;
        t.push(", ");
        t.bind(rune.traceparent.as_deref())?;
        t.push(", ");
        t.bind(rune.at_us)?;
        t.push(", ");
        t.bind(&rune.hash.0[..])?;
        t.push(", ");
        t.bind(rune.command_id.uuid())?;
        t.push(" FROM h");
    }
    t.push(")");
    Ok(())
}

/// `None` if its session is not there.
pub(super) fn verdict(commit: &Sealed, rows: &[PgRow]) -> Result<Option<Verdict>, sqlx::Error> {
    let Some(row) = rows.first() else { return Ok(None) };
    let mut counters = Vec::new();
    for (k, told) in updates(commit) {
        if told {
            counters.push((commit.writes[k].id, row.try_get(format!("n{k}").as_str())?));
        }
    }
    Ok(Some(Verdict::Moved { base: row.try_get("base")?, counters }))
}
