//! The writer on PostgreSQL: one statement, one round trip and one transaction per batch.
//!
//! All writers of a session queue up on its row, in the order of ids, so that they cannot
//! deadlock. `many` is the statement for any commits; `bold`, and `one` for a single commit, are what is tried
//! first.

mod bold;
mod draw;
mod group;
mod many;
mod one;

use super::{Failure, Mode, Verdict};
use crate::commit::Sealed;
use crate::error::StoreError;
use chrono::{DateTime, Utc};
use group::Part;
use sea_orm::sqlx::postgres::{PgArguments, PgConnectOptions, PgRow};
use sea_orm::sqlx::{self, Arguments, AssertSqlSafe, ConnectOptions, PgConnection, Row};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// Statements that are kept.
const STATEMENTS_MAX: usize = 512;
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Below how many runes of others an ambiguous commit is looked for: it was made moments ago. One that landed is found
/// long before, from the end.
const READ_BACK_RUNES: i64 = 200_000;

/// What statements differ by: whether they begin sessions, and tables, operations, columns, counters.
type Shape = (bool, Vec<(Part, Vec<&'static str>, bool)>);

pub(crate) struct Engine {
    options: PgConnectOptions,
    round_trip_max: Duration,
    connection: Option<PgConnection>,
    /// The server process of the newest connection: its id and when it began. The id alone may
    /// belong to somebody else by now.
    backend: Option<(i32, DateTime<Utc>)>,
    statements: HashMap<Shape, Arc<str>>,
    bold_statements: HashMap<Shape, Arc<str>>,
}

impl Engine {
    /// A statement takes milliseconds; one without an answer after `round_trip_max` has lost its way.
    pub(crate) fn new(options: PgConnectOptions, round_trip_max: Duration) -> Engine {
        // Every look-up is by key, from a handful of rows: say so, or a plan made while a table
        // was small would be kept after it has grown.
        let options = options
            .options([
                ("enable_seqscan", "off"),
                ("enable_bitmapscan", "off"),
                ("enable_hashjoin", "off"),
                ("enable_mergejoin", "off"),
                ("plan_cache_mode", "force_generic_plan"),
                ("jit", "off"),
                ("lock_timeout", "2s"),
                ("default_transaction_isolation", "read committed"),
                // A server process whose client is gone must not keep its locks.
                ("tcp_user_timeout", "15000"),
                ("client_connection_check_interval", "5s"),
            ])
            .statement_cache_capacity(STATEMENTS_MAX);
        Engine {
            options,
            round_trip_max,
            connection: None,
            backend: None,
            statements: HashMap::new(),
            bold_statements: HashMap::new(),
        }
    }

    async fn connection(&mut self) -> Result<&mut PgConnection, Failure> {
        if self.connection.is_none() {
            super::Engine::reconnect(self).await.map_err(Failure::Down)?;
        }
        self.connection.as_mut().ok_or_else(|| Failure::Down("no connection".into()))
    }

    /// `None`: something was not as expected, and nothing was written.
    async fn one(&mut self, commit: &Sealed) -> Result<Option<Vec<Verdict>>, Failure> {
        let (sql, arguments) = one::statement(commit).map_err(not_sent)?;
        let rows = self.fetch(sql.into(), arguments).await?;
        Ok(one::verdict(commit, &rows).map_err(classify)?.map(|verdict| vec![verdict]))
    }

    async fn bold(&mut self, batch: &[&Sealed]) -> Result<Option<Vec<Verdict>>, Failure> {
        if let [commit] = batch
            && one::fits(commit)
        {
            return self.one(commit).await;
        }
        let Some(sessions) = bold::Sessions::of(batch) else { return Ok(None) };
        let groups = group::group(batch);
        let shape = (false, groups.iter().map(|g| (g.part, g.columns.clone(), g.adds)).collect());
        let sql = self.bold_statements.entry(shape).or_insert_with(|| bold::statement(&groups).into()).clone();
        let arguments = bold::arguments(batch, &groups, &sessions).map_err(not_sent)?;
        let rows = self.fetch(sql, arguments).await?;
        bold::verdicts(&groups, &sessions, &rows).map(Some).map_err(classify)
    }

    async fn many(&mut self, batch: &[&Sealed]) -> Result<Vec<Verdict>, Failure> {
        let groups = group::group(batch);
        // Those that begin a session are not mixed with others.
        let fresh = batch.iter().all(|commit| commit.fresh);
        let shape = (fresh, groups.iter().map(|g| (g.part, g.columns.clone(), g.adds)).collect());
        let sql = self.statements.entry(shape).or_insert_with(|| many::statement(&groups, fresh).into()).clone();
        let arguments = many::arguments(batch, &groups).map_err(not_sent)?;
        let rows = self.fetch(sql, arguments).await?;
        many::verdicts(batch, &groups, &rows).map_err(classify)
    }

    /// Forgets texts before there are too many: each mixture of shapes has its own.
    fn bound(&mut self) {
        for texts in [&mut self.statements, &mut self.bold_statements] {
            if texts.len() >= STATEMENTS_MAX {
                texts.clear();
            }
        }
    }

    async fn plain(&mut self, batch: &[&Sealed]) -> Result<Vec<Verdict>, Failure> {
        self.bound();
        if batch.iter().all(|commit| bold::fits(commit)) {
            match self.bold(batch).await {
                Ok(Some(verdicts)) => return Ok(verdicts),
                // Refused as a whole: who is to blame is found by looking.
                Ok(None) | Err(Failure::Refused(_)) => {}
                Err(failure) => return Err(failure),
            }
        }
        self.many(batch).await
    }

    /// With the sessions locked before the statement begins, its snapshot cannot be old.
    async fn locked(&mut self, batch: &[&Sealed]) -> Result<Vec<Verdict>, Failure> {
        self.simple("BEGIN").await?;
        let mut arguments = PgArguments::default();
        let sessions: Vec<Uuid> = batch.iter().map(|c| c.session.uuid()).collect();
        arguments.add(sessions).map_err(not_sent)?;
        let lock = "SELECT 1 FROM sessions WHERE id = ANY($1) ORDER BY id FOR UPDATE";
        let done = match self.fetch(lock.into(), arguments).await {
            Ok(_) => self.many(batch).await,
            Err(failure) => Err(failure),
        };
        match done {
            Ok(verdicts) => self.simple("COMMIT").await.map(|()| verdicts),
            Err(failure @ (Failure::Lost(_) | Failure::Down(_))) => Err(failure),
            Err(failure) => {
                // A connection that cannot even roll back is not used again.
                if self.simple("ROLLBACK").await.is_err() {
                    self.connection = None;
                }
                Err(failure)
            }
        }
    }

    async fn simple(&mut self, sql: &'static str) -> Result<(), Failure> {
        let limit = self.round_trip_max;
        let connection = self.connection().await?;
        limited(limit, sqlx::raw_sql(sql).execute(connection)).await.map(drop)
    }

    async fn fetch(&mut self, sql: Arc<str>, arguments: PgArguments) -> Result<Vec<PgRow>, Failure> {
        let limit = self.round_trip_max;
        let connection = self.connection().await?;
        limited(limit, sqlx::query_with(AssertSqlSafe(sql), arguments).fetch_all(connection)).await
    }

    async fn read(&mut self, commit: &Sealed) -> Result<Option<Verdict>, sqlx::Error> {
        let Some(connection) = self.connection.as_mut() else { return Ok(None) };
        // Its runes follow one another, whatever came on top: the last one says where they begin.
        let sql = "SELECT seq FROM (SELECT seq, command_id FROM runes WHERE session_id = $1 \
                   ORDER BY seq DESC LIMIT $2) AS newest WHERE command_id = $3 ORDER BY seq DESC LIMIT 1";
        let row = sqlx::query(sql)
            .bind(commit.session.uuid())
            .bind(READ_BACK_RUNES)
            .bind(commit.id.uuid())
            .fetch_optional(&mut *connection)
            .await?;
        let Some(row) = row else { return Ok(None) };
        let base = row.try_get::<i64, _>("seq")? - commit.runes.len() as i64;
        let mut counters = Vec::new();
        for write in &commit.writes {
            if let Some(column) = write.told() {
                let sql = format!("SELECT {column} AS n FROM {} WHERE id = $1", write.table.name);
                let row = sqlx::query(AssertSqlSafe(sql)).bind(write.id).fetch_one(&mut *connection).await?;
                counters.push((write.id, row.try_get("n")?));
            }
        }
        Ok(Some(Verdict::Moved { base, counters }))
    }
}

impl super::Engine for Engine {
    async fn run(&mut self, batch: &[&Sealed], mode: Mode) -> Result<Vec<Verdict>, Failure> {
        let done = match mode {
            Mode::Plain => self.plain(batch).await,
            Mode::Locked => self.locked(batch).await,
        };
        if matches!(done, Err(Failure::Lost(_))) {
            self.connection = None;
        }
        done
    }

    async fn reconnect(&mut self) -> Result<(), String> {
        self.connection = None;
        let (options, backend) = (&self.options, self.backend);
        let attempt = async {
            let mut connection = options.connect().await?;
            if let Some(old) = backend {
                gone(&mut connection, old).await?;
            }
            let sql = "SELECT a.pid, a.backend_start, pg_is_in_recovery() FROM pg_stat_activity a \
                       WHERE a.pid = pg_backend_pid()";
            let row = sqlx::query(sql).fetch_one(&mut connection).await?;
            if row.try_get::<bool, _>(2)? {
                return Err(sqlx::Error::Protocol("this server is a replica: commits need the primary".into()));
            }
            Ok::<_, sqlx::Error>((connection, (row.try_get(0)?, row.try_get(1)?)))
        };
        let (connection, backend) = tokio::time::timeout(CONNECT_MAX, attempt)
            .await
            .map_err(|_| format!("connecting took more than {} s", CONNECT_MAX.as_secs()))?
            .map_err(|e| e.to_string())?;
        self.connection = Some(connection);
        self.backend = Some(backend);
        Ok(())
    }

    async fn read_back(&mut self, commit: &Sealed) -> Result<Option<Verdict>, Failure> {
        match tokio::time::timeout(self.round_trip_max, self.read(commit)).await {
            Ok(Ok(verdict)) => Ok(verdict),
            failed => {
                self.connection = None;
                Err(Failure::Lost(format!("{failed:?}")))
            }
        }
    }
}

/// A value that could not even be encoded.
fn not_sent(error: sqlx::error::BoxDynError) -> Failure {
    Failure::Refused(StoreError::Invalid(error.to_string()))
}

/// Waits until the server process that a lost connection had is gone; only then is it certain what
/// it landed. It is ended, unless it waits for its standby: then what it committed would become
/// visible without being safe, and the wait must be left to run its course.
async fn gone(connection: &mut PgConnection, (pid, began): (i32, DateTime<Utc>)) -> Result<(), sqlx::Error> {
    let sql = "SELECT CASE WHEN wait_event = 'SyncRep' THEN false ELSE pg_terminate_backend(pid) END \
               FROM pg_stat_activity WHERE pid = $1 AND backend_start = $2 AND usename = current_user";
    while !sqlx::query(sql).bind(pid).bind(began).fetch_all(&mut *connection).await?.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// A peer that vanished without a word would hold the lane up for ever.
async fn limited<T>(limit: Duration, trip: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, Failure> {
    match tokio::time::timeout(limit, trip).await {
        Ok(done) => done.map_err(classify),
        Err(_) => Err(Failure::Lost(format!("no answer within {limit:?}"))),
    }
}

fn classify(error: sqlx::Error) -> Failure {
    let Some(db) = error.as_database_error() else { return Failure::Lost(error.to_string()) };
    let code = db.code().unwrap_or_default().into_owned();
    match code.as_str() {
        "55P03" => Failure::Locked(error.to_string()),
        // Deadlock and serialisation, no disk, no memory, cancelled: nothing was written.
        "40001" | "40P01" | "57014" => Failure::Again(error.to_string()),
        code if code.starts_with("53") => Failure::Again(error.to_string()),
        "23505" => {
            let what = db.constraint().unwrap_or("a unique key").to_owned();
            Failure::Refused(StoreError::Duplicate(what))
        }
        code if code.starts_with("22") || code.starts_with("23") => {
            Failure::Refused(StoreError::Invalid(db.message().to_owned()))
        }
        // The server ends or ended the connection, became read-only, lost a prepared statement or
        // is broken: another connection may be better, and what was under way is looked up.
        "25006" | "26000" => Failure::Lost(error.to_string()),
        code if ["57P", "08", "58", "XX"].iter().any(|class| code.starts_with(class)) => {
            Failure::Lost(error.to_string())
        }
        _ => Failure::Refused(StoreError::Unusable(error.to_string())),
    }
}
