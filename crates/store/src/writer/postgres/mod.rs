//! The writer on PostgreSQL: one statement, one round trip and one transaction per batch.
//!
//! All writers of a session queue up on its row, in the order of ids, so that they cannot
//! deadlock. `one` is the statement for a single commit, `many` the one for a batch.

mod many;
mod one;

use super::{Failure, Verdict};
use crate::commit::{Op, Sealed};
use crate::error::StoreError;
use many::Part;
use sea_orm::sqlx::postgres::PgConnectOptions;
use sea_orm::sqlx::{self, AssertSqlSafe, ConnectOptions, PgConnection, Row};
use std::collections::HashMap;
use std::sync::Arc;

/// How far back an ambiguous commit is looked for: it was made moments ago.
const READ_BACK_RUNES: i64 = 10_000;

pub(crate) struct Engine {
    options: PgConnectOptions,
    connection: Option<PgConnection>,
    backend: i32,
    statements: HashMap<Vec<Part>, Arc<str>>,
}

impl Engine {
    pub(crate) fn new(options: PgConnectOptions) -> Engine {
        // Every look-up is by key, from a handful of rows: say so, or a plan made while a table
        // was small would be kept after it has grown.
        let options = options
            .options([
                ("enable_seqscan", "off"),
                ("enable_hashjoin", "off"),
                ("enable_mergejoin", "off"),
                ("plan_cache_mode", "force_generic_plan"),
                ("jit", "off"),
                ("lock_timeout", "5s"),
            ])
            .statement_cache_capacity(512);
        Engine { options, connection: None, backend: 0, statements: HashMap::new() }
    }

    async fn connection(&mut self) -> Result<&mut PgConnection, Failure> {
        if self.connection.is_none() {
            super::Engine::reconnect(self).await.map_err(Failure::Lost)?;
        }
        self.connection.as_mut().ok_or_else(|| Failure::Lost("no connection".into()))
    }

    async fn one(&mut self, commit: &Sealed) -> Result<Verdict, Failure> {
        let (sql, arguments) = one::statement(commit).map_err(not_sent)?;
        let connection = self.connection().await?;
        let rows = sqlx::query_with(AssertSqlSafe(sql), arguments).fetch_all(connection).await.map_err(classify)?;
        one::verdict(commit, &rows).map_err(classify)
    }

    async fn many(&mut self, batch: &[&Sealed]) -> Result<Vec<Verdict>, Failure> {
        let groups = many::group(batch);
        let shape: Vec<Part> = groups.iter().map(|g| g.part).collect();
        let sql = self.statements.entry(shape).or_insert_with(|| many::statement(&groups).into()).clone();
        let arguments = many::arguments(batch, &groups).map_err(not_sent)?;
        let connection = self.connection().await?;
        let rows = sqlx::query_with(AssertSqlSafe(sql), arguments).fetch_all(connection).await.map_err(classify)?;
        many::verdicts(batch, &groups, &rows).map_err(classify)
    }

    async fn read(&mut self, commit: &Sealed) -> Result<Option<Verdict>, sqlx::Error> {
        let Some(connection) = self.connection.as_mut() else { return Ok(None) };
        let sql = "SELECT min(seq) AS first FROM (SELECT seq, command_id FROM runes WHERE session_id = $1 \
                   ORDER BY seq DESC LIMIT $2) AS newest WHERE command_id = $3";
        let row = sqlx::query(sql)
            .bind(commit.session.uuid())
            .bind(READ_BACK_RUNES)
            .bind(commit.id.uuid())
            .fetch_one(&mut *connection)
            .await?;
        let Some(first) = row.try_get::<Option<i64>, _>("first")? else { return Ok(None) };
        let mut counters = Vec::new();
        for write in &commit.writes {
            if let (Some(column), Op::Update { add, .. }) = (write.table.counter, &write.op)
                && *add != 0
            {
                let sql = format!("SELECT {column} AS n FROM {} WHERE id = $1", write.table.name);
                let row = sqlx::query(AssertSqlSafe(sql)).bind(write.id).fetch_one(&mut *connection).await?;
                counters.push((write.id, row.try_get("n")?));
            }
        }
        Ok(Some(Verdict::Moved { base: first - 1, counters }))
    }
}

impl super::Engine for Engine {
    async fn run(&mut self, batch: &[&Sealed]) -> Result<Vec<Verdict>, Failure> {
        let done = match batch {
            [commit] if one::fits(commit) => self.one(commit).await.map(|verdict| vec![verdict]),
            _ => self.many(batch).await,
        };
        if matches!(done, Err(Failure::Lost(_))) {
            self.connection = None;
        }
        done
    }

    async fn reconnect(&mut self) -> Result<(), String> {
        self.connection = None;
        let attempt = async {
            let mut connection = self.options.connect().await?;
            if self.backend != 0 {
                // The old backend may still be at work on the batch whose fate is to be read back.
                let sql =
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND pid <> pg_backend_pid()";
                while !sqlx::query(sql).bind(self.backend).fetch_all(&mut connection).await?.is_empty() {
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                }
            }
            let row = sqlx::query("SELECT pg_backend_pid(), pg_is_in_recovery()").fetch_one(&mut connection).await?;
            if row.try_get::<bool, _>(1)? {
                return Err(sqlx::Error::Protocol("this server is a replica: commits need the primary".into()));
            }
            self.backend = row.try_get(0)?;
            Ok::<_, sqlx::Error>(connection)
        };
        let connection = tokio::time::timeout(std::time::Duration::from_secs(5), attempt)
            .await
            .map_err(|_| "connecting took more than 5 s".to_string())?
            .map_err(|e| e.to_string())?;
        self.connection = Some(connection);
        Ok(())
    }

    async fn read_back(&mut self, commit: &Sealed) -> Result<Option<Verdict>, Failure> {
        self.read(commit).await.map_err(|e| {
            self.connection = None;
            Failure::Lost(e.to_string())
        })
    }
}

/// A value that could not even be encoded.
fn not_sent(error: sqlx::error::BoxDynError) -> Failure {
    Failure::Refused(StoreError::Invalid(error.to_string()))
}

fn classify(error: sqlx::Error) -> Failure {
    let Some(db) = error.as_database_error() else { return Failure::Lost(error.to_string()) };
    let code = db.code().unwrap_or_default().into_owned();
    match code.as_str() {
        "40001" | "40P01" | "55P03" => Failure::Again(error.to_string()),
        // Ended by an operator, a shutdown or a crash of another backend.
        "57P01" | "57P02" | "57P03" => Failure::Lost(error.to_string()),
        "23505" => {
            let what = db.constraint().unwrap_or("a unique key").to_owned();
            Failure::Refused(StoreError::Duplicate(what))
        }
        code if code.starts_with("22") || code.starts_with("23") => {
            Failure::Refused(StoreError::Invalid(db.message().to_owned()))
        }
        // Disk full, out of memory, cancelled: nothing was written.
        code if code.starts_with("53") || code == "57014" => Failure::Again(error.to_string()),
        _ => Failure::Refused(StoreError::Unusable(error.to_string())),
    }
}
