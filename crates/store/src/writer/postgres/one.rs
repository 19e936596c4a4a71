//! The statement for a single commit: the same answers as for many, without the set-wise detours.
//!
//! The session's row is updated only if all expectations hold and its number is still the one
//! that the statement's snapshot shows; every other write hangs on that update. Parameters are
//! given in the order of the text, so that text and arguments are made in one pass.

use super::Verdict;
use super::many::is_sessions;
use crate::commit::{Found, Op, Sealed, Write};
use crate::entity::session;
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

/// Tags of the answer's rows that are not about a write.
const LANDED: i32 = -1;
const SESSION: i32 = -2;
const COUNTER: i32 = 1_000;

pub(super) fn fits(commit: &Sealed) -> bool {
    commit.writes.len() <= WRITES_MAX && commit.runes.len() <= RUNES_MAX
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
    t.push("WITH ");
    let mut good = String::from("true");
    for (k, write) in commit.writes.iter().enumerate() {
        if !matches!(write.op, Op::Insert { .. }) {
            expect(&mut t, k, commit, write)?;
            let _ = write!(good, " AND coalesce((SELECT ok FROM l{k}), false)");
        }
    }
    head(&mut t, commit, &good)?;
    for (k, write) in commit.writes.iter().enumerate() {
        apply(&mut t, k, write, commit.runes.len())?;
    }
    runes(&mut t, commit)?;
    let _ = write!(
        t.sql,
        "\nSELECT {LANDED} AS tag, '' AS g0, '' AS g1, 0::int8 AS epoch, h.base AS n, true AS ok FROM h\n\
         UNION ALL SELECT {SESSION}, '', '', 0, 0, true FROM sessions s WHERE NOT EXISTS (SELECT 1 FROM h) AND s.id = "
    );
    t.bind(commit.session.uuid())?;
    for (k, write) in commit.writes.iter().enumerate() {
        match &write.op {
            Op::Insert { .. } => {}
            Op::Update { add, .. } if *add != 0 => {
                let _ = write!(t.sql, "\nUNION ALL SELECT {COUNTER} + {k}, '', '', 0, n, true FROM u{k}");
                lost(&mut t, k);
            }
            _ => lost(&mut t, k),
        }
    }
    Ok((t.sql, t.arguments))
}

fn lost(t: &mut Text, k: usize) {
    let _ = write!(
        t.sql,
        "\nUNION ALL SELECT {k}, g0, g1, epoch, version, ok FROM l{k} WHERE NOT EXISTS (SELECT 1 FROM h)"
    );
}

fn expect(t: &mut Text, k: usize, commit: &Sealed, write: &Write) -> Result<(), BoxDynError> {
    let table = write.table;
    let column = |slot: usize| table.machines.get(slot).map_or("''".to_owned(), |(_, column)| format!("t.{column}"));
    let epoch = if table.has_epoch() { "t.epoch" } else { "0::int8" };
    let (g0, g1) = (column(0), column(1));
    let _ = write!(t.sql, "l{k} AS MATERIALIZED (SELECT {g0} AS g0, {g1} AS g1, {epoch} AS epoch, t.version, true");
    for (slot, state) in write.expect.states.iter().enumerate().filter(|(_, state)| !state.is_empty()) {
        let _ = write!(t.sql, " AND {} = ", column(slot));
        t.bind(*state)?;
    }
    for (name, wanted) in [("t.epoch", write.expect.epoch), ("t.version", write.expect.version)] {
        if let Some(wanted) = wanted {
            let _ = write!(t.sql, " AND {name} = ");
            t.bind(wanted)?;
        }
    }
    let _ = write!(t.sql, " AS ok FROM {} t WHERE t.id = ", table.name);
    t.bind(write.id)?;
    t.push(if is_sessions(table) { " AND t.id = " } else { " AND t.session_id = " });
    t.bind(commit.session.uuid())?;
    t.push("),\n");
    Ok(())
}

/// The session's number; a change of the session's own row goes with it, since a row changes
/// once per statement.
fn head(t: &mut Text, commit: &Sealed, good: &str) -> Result<(), BoxDynError> {
    if commit.fresh {
        let _ = write!(t.sql, "h AS MATERIALIZED (SELECT 0::int8 AS base WHERE {good})");
        return Ok(());
    }
    t.push("h AS (UPDATE sessions s SET ");
    let own = commit.writes.iter().find(|w| is_sessions(w.table) && w.id == commit.session.uuid());
    if let Some(Write { op: Op::Update { set, .. }, .. }) = own {
        let others: Vec<_> = set.iter().filter(|(name, _)| *name != "updated_at").cloned().collect();
        t.columns(&others)?;
        t.push("version = s.version + 1, ");
    }
    t.push("updated_at = ");
    t.bind(commit.at)?;
    let n = commit.runes.len();
    let _ = write!(t.sql, ", head_seq = s.head_seq + {n} WHERE {good} AND s.id = ");
    t.bind(commit.session.uuid())?;
    t.push(" AND s.head_seq = (SELECT head_seq FROM sessions WHERE id = ");
    t.bind(commit.session.uuid())?;
    let _ = write!(t.sql, ") RETURNING s.head_seq - {n} AS base)");
    Ok(())
}

fn apply(t: &mut Text, k: usize, write: &Write, runes: usize) -> Result<(), BoxDynError> {
    let name = write.table.name;
    match &write.op {
        Op::Check => {}
        Op::Update { .. } if is_sessions(write.table) => {}
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
            if let Some(counter) = counter {
                let _ = write!(t.sql, " RETURNING t.{counter} AS n");
            }
            t.push(")");
        }
        Op::Insert { values } => {
            let names: Vec<&str> = values.iter().map(|(name, _)| *name).collect();
            let _ = write!(t.sql, ",\ni{k} AS (INSERT INTO {name} ({}) SELECT ", names.join(", "));
            insert(t, write, values, runes)?;
            t.push(" FROM h)");
        }
        Op::Delete => {
            let _ = write!(t.sql, ",\nd{k} AS (DELETE FROM {name} t USING h WHERE t.id = ");
            t.bind(write.id)?;
            t.push(")");
        }
    }
    Ok(())
}

fn insert(t: &mut Text, write: &Write, values: &[(&'static str, Value)], runes: usize) -> Result<(), BoxDynError> {
    for (at, (name, value)) in values.iter().enumerate() {
        if at > 0 {
            t.push(", ");
        }
        if is_sessions(write.table) && *name == "head_seq" {
            // A new session starts at the number of this commit's last rune.
            let _ = write!(t.sql, "{runes}");
        } else {
            t.value(value)?;
        }
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

pub(super) fn verdict(commit: &Sealed, rows: &[PgRow]) -> Result<Verdict, sqlx::Error> {
    let mut base = None;
    let mut session_exists = false;
    let mut counters = Vec::new();
    let mut seen = vec![false; commit.writes.len()];
    let mut found = Vec::new();
    for row in rows {
        let tag: i32 = row.try_get("tag")?;
        let n: i64 = row.try_get("n")?;
        match tag {
            LANDED => base = Some(n),
            SESSION => session_exists = true,
            tag if tag >= COUNTER => counters.push((commit.writes[(tag - COUNTER) as usize].id, n)),
            tag => {
                let write = &commit.writes[tag as usize];
                seen[tag as usize] = true;
                if !row.try_get::<bool, _>("ok")? {
                    let states = [row.try_get::<String, _>("g0")?, row.try_get::<String, _>("g1")?];
                    let states = states.into_iter().take(write.table.machines.len()).collect();
                    let epoch = row.try_get("epoch")?;
                    found.push(Found { table: write.table.name, id: write.id, states, epoch, version: n });
                }
            }
        }
    }
    if let Some(base) = base {
        return Ok(Verdict::Moved { base, counters });
    }
    if !session_exists && !commit.fresh {
        return Ok(Verdict::Absent { table: session::TABLE.name, id: commit.session.uuid() });
    }
    let absent = commit.writes.iter().zip(seen).find(|(w, seen)| !seen && !matches!(w.op, Op::Insert { .. }));
    Ok(match absent {
        Some((write, _)) => Verdict::Absent { table: write.table.name, id: write.id },
        None if !found.is_empty() => Verdict::Found(found),
        None => Verdict::Stale,
    })
}
