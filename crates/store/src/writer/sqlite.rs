//! The writer's transaction for SQLite: the same answers, row by row, in one IMMEDIATE transaction.
//!
//! There is one writer per file, so nothing is ever stale, and a commit's fate is never unknown.

use super::{Failure, Mode, Verdict};
use crate::commit::{Found, Op, Sealed, UNUSED, Write};
use crate::entity::session;
use crate::error::StoreError;
use instar_core::rune::Moved;
use sea_orm::Value;
use sea_orm::sqlx::query::Query;
use sea_orm::sqlx::sqlite::{SqliteArguments, SqliteConnectOptions, SqliteRow};
use sea_orm::sqlx::{self, AssertSqlSafe, ConnectOptions, Row, Sqlite, SqliteConnection};
use std::collections::{HashMap, HashSet};
use uuid::Uuid;

pub(crate) struct Engine {
    options: SqliteConnectOptions,
    connection: Option<SqliteConnection>,
}

impl Engine {
    pub(crate) fn new(options: SqliteConnectOptions) -> Engine {
        Engine { options: options.statement_cache_capacity(512), connection: None }
    }

    async fn transaction(&mut self, batch: &[&Sealed]) -> Result<Vec<Verdict>, Failure> {
        if self.connection.is_none() {
            super::Engine::reconnect(self).await.map_err(Failure::Down)?;
        }
        let Some(connection) = self.connection.as_mut() else { return Err(Failure::Down("no connection".into())) };
        execute(connection, "BEGIN IMMEDIATE").await?;
        match commits(connection, batch).await {
            Ok(verdicts) => match execute(connection, "COMMIT").await {
                Ok(()) => Ok(verdicts),
                Err(failure) => {
                    // What reached the file may count when it is opened next: look there.
                    self.connection = None;
                    Err(Failure::Lost(format!("{failure:?}")))
                }
            },
            Err(failure) => {
                if execute(connection, "ROLLBACK").await.is_err() {
                    self.connection = None;
                }
                Err(failure)
            }
        }
    }
}

impl super::Engine for Engine {
    async fn run(&mut self, batch: &[&Sealed], _: Mode) -> Result<Vec<Verdict>, Failure> {
        self.transaction(batch).await
    }

    async fn reconnect(&mut self) -> Result<(), String> {
        self.connection = Some(self.options.connect().await.map_err(|e| e.to_string())?);
        Ok(())
    }

    async fn read_back(&mut self, commit: &Sealed) -> Result<Option<Verdict>, Failure> {
        let Some(connection) = self.connection.as_mut() else { return Ok(None) };
        let row = sqlx::query("SELECT min(seq) AS first FROM runes WHERE session_id = ? AND command_id = ?")
            .bind(commit.session.uuid())
            .bind(commit.id.uuid())
            .fetch_one(&mut *connection)
            .await
            .map_err(classify)?;
        let Some(first) = row.try_get::<Option<i64>, _>("first").map_err(classify)? else { return Ok(None) };
        let mut counters = Vec::new();
        for write in &commit.writes {
            if let Some(column) = write.told() {
                let sql = format!("SELECT {column} FROM {} WHERE id = ?", write.table.name);
                let row = sqlx::query(AssertSqlSafe(sql)).bind(write.id).fetch_one(&mut *connection).await;
                counters.push((write.id, row.and_then(|r| r.try_get(0)).map_err(classify)?));
            }
        }
        Ok(Some(Verdict::Moved { base: first - 1, counters }))
    }
}

fn classify(error: sqlx::Error) -> Failure {
    let Some(db) = error.as_database_error() else { return Failure::Lost(error.to_string()) };
    let code = db.code().unwrap_or_default().into_owned();
    let busy = matches!(code.as_str(), "5" | "6" | "261" | "517");
    match () {
        _ if db.is_unique_violation() || code == "1555" => {
            Failure::Refused(StoreError::Duplicate(db.message().to_owned()))
        }
        _ if busy => Failure::Again(error.to_string()),
        // Constraints and type mismatches: the commit's own fault.
        _ if code.parse::<u32>().is_ok_and(|c| matches!(c & 0xff, 19 | 20)) => {
            Failure::Refused(StoreError::Invalid(db.message().to_owned()))
        }
        // Disk full and input/output errors: nothing was written.
        _ if code.parse::<u32>().is_ok_and(|c| matches!(c & 0xff, 10 | 13)) => Failure::Again(error.to_string()),
        _ => Failure::Refused(StoreError::Unusable(error.to_string())),
    }
}

async fn execute(connection: &mut SqliteConnection, sql: &'static str) -> Result<(), Failure> {
    sqlx::query(sql).execute(connection).await.map(drop).map_err(classify)
}

/// Commits are applied one after another: each sees what the earlier ones made of their rows.
async fn commits(connection: &mut SqliteConnection, batch: &[&Sealed]) -> Result<Vec<Verdict>, Failure> {
    let mut heads: HashMap<Uuid, i64> = HashMap::new();
    let mut moved: HashSet<Uuid> = HashSet::new();
    let mut verdicts = Vec::with_capacity(batch.len());
    for commit in batch {
        let verdict = match judge(connection, commit, &mut heads).await? {
            Some(refusal) => refusal,
            None => {
                moved.insert(commit.session.uuid());
                apply(connection, commit, &mut heads).await?
            }
        };
        verdicts.push(verdict);
    }
    for (session, head) in heads.into_iter().filter(|(session, _)| moved.contains(session)) {
        let at = batch.iter().map(|c| c.at).max().unwrap_or_default();
        let sql = "UPDATE sessions SET head_seq = ?, updated_at = ? WHERE id = ?";
        sqlx::query(sql).bind(head).bind(at).bind(session).execute(&mut *connection).await.map_err(classify)?;
    }
    Ok(verdicts)
}

/// `None` when every row is as the commit expects.
async fn judge(
    connection: &mut SqliteConnection,
    commit: &Sealed,
    heads: &mut HashMap<Uuid, i64>,
) -> Result<Option<Verdict>, Failure> {
    let session = commit.session.uuid();
    if !commit.fresh && !heads.contains_key(&session) {
        let row = sqlx::query("SELECT head_seq FROM sessions WHERE id = ?").bind(session);
        match row.fetch_optional(&mut *connection).await.map_err(classify)? {
            Some(row) => drop(heads.insert(session, row.try_get(0).map_err(classify)?)),
            None => return Ok(Some(Verdict::Absent { table: session::TABLE.name, id: session })),
        }
    }
    let mut found = Vec::new();
    for write in commit.writes.iter().filter(|w| !matches!(w.op, Op::Insert { .. })) {
        let sql = select(write);
        let query = sqlx::query(AssertSqlSafe(sql)).bind(write.id).bind(session);
        let Some(row) = query.fetch_optional(&mut *connection).await.map_err(classify)? else {
            return Ok(Some(Verdict::Absent { table: write.table.name, id: write.id }));
        };
        let here = read(write, &row).map_err(classify)?;
        let expect = &write.expect;
        let states = here.states.iter().zip(expect.states).all(|(is, want)| want.is_empty() || is == want);
        let fits =
            states && expect.epoch.is_none_or(|e| e == here.epoch) && expect.version.is_none_or(|v| v == here.version);
        let room = match &write.op {
            Op::Draw(draw) if draw.need > 0 => {
                let left = row.try_get::<i64, _>("room").map_err(classify)?;
                left >= draw.need
            }
            _ => true,
        };
        if !fits || !room {
            found.push(here);
        }
    }
    Ok((!found.is_empty()).then_some(Verdict::Found(found)))
}

fn select(write: &Write) -> String {
    let table = write.table;
    let mut columns = vec!["version"];
    columns.push(if table.has_epoch() { "epoch" } else { "0 AS epoch" });
    columns.extend(table.machines.iter().map(|(_, column)| *column));
    if matches!(write.op, Op::Draw(_)) {
        columns.push("cap - used - reserved AS room");
    }
    let session = if table.name == session::TABLE.name { "id" } else { "session_id" };
    format!("SELECT {} FROM {} WHERE id = ? AND {session} = ?", columns.join(", "), table.name)
}

fn read(write: &Write, row: &SqliteRow) -> Result<Found, sqlx::Error> {
    let states: Result<Vec<String>, _> = (0..write.table.machines.len()).map(|i| row.try_get(2 + i)).collect();
    Ok(Found {
        table: write.table.name,
        id: write.id,
        states: states?,
        epoch: row.try_get(1)?,
        version: row.try_get(0)?,
    })
}

async fn apply(
    connection: &mut SqliteConnection,
    commit: &Sealed,
    heads: &mut HashMap<Uuid, i64>,
) -> Result<Verdict, Failure> {
    let mut counters = Vec::new();
    for write in &commit.writes {
        let (sql, values): (String, Vec<Value>) = match &write.op {
            Op::Check => continue,
            Op::Update { set, add } => update(write, set, *add),
            Op::Insert { values } => {
                let names: Vec<&str> = values.iter().map(|(name, _)| *name).collect();
                let marks = vec!["?"; names.len()].join(", ");
                let sql = format!("INSERT INTO {} ({}) VALUES ({marks})", write.table.name, names.join(", "));
                (sql, values.iter().map(|(_, v)| v.clone()).collect())
            }
            Op::Delete => (format!("DELETE FROM {} WHERE id = ?", write.table.name), vec![write.id.into()]),
            Op::Draw(draw) => {
                let sql = format!(
                    "UPDATE {} SET used = used + ?, reserved = reserved + ?, version = version + 1 WHERE id = ? \
                     RETURNING {UNUSED}",
                    write.table.name
                );
                (sql, vec![draw.used.into(), draw.reserved.into(), write.id.into()])
            }
        };
        let query = values.into_iter().fold(sqlx::query(AssertSqlSafe(sql)), bind);
        let row = query.fetch_optional(&mut *connection).await.map_err(classify)?;
        if let (Some(row), Some(_)) = (row, write.told()) {
            counters.push((write.id, row.try_get(0).map_err(classify)?));
        }
    }
    let head = heads.entry(commit.session.uuid()).or_insert(0);
    let base = *head;
    for rune in &commit.runes {
        *head += 1;
        sqlx::query(
            "INSERT INTO runes (session_id, seq, id, kind, entity_kind, entity_id, agent_id, turn_id, actor_type, \
             actor_id, visibility, payload, moves, epoch, traceparent, at_us, hash, command_id) \
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(rune.session_id.uuid())
        .bind(*head)
        .bind(rune.id.uuid())
        .bind(rune.kind.as_str())
        .bind(rune.entity.kind.prefix())
        .bind(rune.entity.id)
        .bind(rune.agent_id.map(|id| id.uuid()))
        .bind(rune.turn_id.map(|id| id.uuid()))
        .bind(rune.actor.by.token())
        .bind(rune.actor.id.as_str())
        .bind(rune.visibility.token())
        .bind(rune.payload.get())
        .bind(Moved::encode_all(&rune.moves, rune.entity))
        .bind(rune.epoch)
        .bind(rune.traceparent.as_deref())
        .bind(rune.at_us)
        .bind(&rune.hash.0[..])
        .bind(rune.command_id.uuid())
        .execute(&mut *connection)
        .await
        .map_err(classify)?;
    }
    Ok(Verdict::Moved { base, counters })
}

fn update(write: &Write, set: &[(&'static str, Value)], add: i64) -> (String, Vec<Value>) {
    let mut sets: Vec<String> = set.iter().map(|(name, _)| format!("{name} = ?")).collect();
    let mut values: Vec<Value> = set.iter().map(|(_, v)| v.clone()).collect();
    sets.push("version = version + 1".into());
    let mut returning = String::new();
    if let (Some(counter), true) = (write.table.counter, add != 0) {
        sets.push(format!("{counter} = {counter} + ?"));
        values.push(add.into());
        returning = format!(" RETURNING {counter}");
    }
    values.push(write.id.into());
    (format!("UPDATE {} SET {} WHERE id = ?{returning}", write.table.name, sets.join(", ")), values)
}

/// In the forms that sea-orm reads: ids as 16 bytes, JSON and times as text.
fn bind<'q>(query: Query<'q, Sqlite, SqliteArguments>, value: Value) -> Query<'q, Sqlite, SqliteArguments> {
    match value {
        Value::Bool(v) => query.bind(v),
        Value::Int(v) => query.bind(v),
        Value::BigInt(v) => query.bind(v),
        Value::String(v) => query.bind(v),
        Value::Uuid(v) => query.bind(v),
        Value::Json(v) => query.bind(v.map(|j| j.to_string())),
        Value::ChronoDateTimeUtc(v) => query.bind(v),
        Value::Bytes(v) => query.bind(v),
        // No column of ours has another type; a null is refused by the schema, not stored by mistake.
        _ => query.bind(None::<String>),
    }
}
