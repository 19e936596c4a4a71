//! Opening a store on either backend.

use crate::addressee::{self, Addressee};
use crate::clock;
use crate::commit::{Answer, Commit};
use crate::entity::turn;
use crate::error::StoreError;
use crate::gather::Gather;
use crate::pool::Pool;
use crate::schema;
use crate::writer::{self, Writer, WriterStats};
use instar_migrations::{Migrator, MigratorTrait};
use sea_orm::sqlx::postgres::PgConnectOptions;
use sea_orm::sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sea_orm::{ConnectOptions, ConnectionTrait, Database, DatabaseConnection, DbBackend};
use std::str::FromStr;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// A connection that rested for longer is asked whether it lives before it is lent out.
const IDLE_TRUSTED: Duration = Duration::from_millis(500);
const TRANSACTIONS_MAX: u32 = 2;
/// A lease that is not renewed within this is asked for again over another connection, while there is time.
const VITAL_MAX: Duration = Duration::from_secs(3);

/// How a store is opened; every field has a default.
#[derive(Clone, Debug)]
pub struct Options {
    /// `postgres://…` or `sqlite://path`.
    pub url: String,
    /// Connections for reading; the writer has its own.
    pub readers_max: u32,
    /// Lanes of the transition writer on PostgreSQL; SQLite always has one.
    pub writers: usize,
    /// How long a query waits for a connection.
    pub acquire_timeout: Duration,
    /// How long an answer may take; then the connection is taken for lost.
    pub round_trip_max: Duration,
}

impl Options {
    pub fn new(url: impl Into<String>) -> Options {
        Options {
            url: url.into(),
            readers_max: 8,
            writers: 2,
            acquire_timeout: Duration::from_secs(3),
            round_trip_max: Duration::from_secs(15),
        }
    }
}

/// A handle on the database; cheap to clone.
#[derive(Clone)]
pub struct Store {
    pub(crate) db: Pool,
    /// For leases alone: a busy process must not lose its work because its readers are.
    pub(crate) vital: Pool,
    pub(crate) transactions: Pool,
    writer: Writer,
    pub(crate) addressees: Gather<Uuid, Addressee>,
    pub(crate) turns: Gather<Uuid, turn::Model>,
}

impl Store {
    /// Opens the store. The schema must be there: see [`Store::migrate`].
    pub async fn open(options: Options) -> Result<Store, StoreError> {
        let unusable = |e: sea_orm::sqlx::Error| StoreError::Unusable(e.to_string());
        if options.url.contains(":memory:") {
            return Err(StoreError::Unusable(
                "an in-memory SQLite cannot be shared by writer and readers: name a file".into(),
            ));
        }
        if options.url.starts_with("sqlite:") {
            let file = sqlite(&options.url).map_err(unusable)?;
            let db = Pool::open(readers(&options), None).await?;
            let writer = Writer::start(vec![writer::Sqlite::new(file)]);
            let vital = Pool::open(vital(&options), None).await?;
            let transactions = Pool::open(transactions(&options), None).await?;
            Ok(Store::of(db, vital, transactions, writer))
        } else if options.url.starts_with("postgres:") || options.url.starts_with("postgresql:") {
            let server = PgConnectOptions::from_str(&options.url).map_err(unusable)?;
            // A query that the server itself ends is answered before its limit is over.
            let limit = options.acquire_timeout + options.round_trip_max;
            let db = Pool::open(readers(&options), Some(limit)).await?;
            refuse_replica(&db).await?;
            let server = server.application_name("instar-writer");
            let lanes = (0..options.writers.max(1))
                .map(|_| writer::Postgres::new(server.clone(), options.round_trip_max))
                .collect();
            let vital = Pool::open(vital(&options), Some(VITAL_MAX)).await?;
            let transactions = Pool::open(transactions(&options), Some(limit)).await?;
            Ok(Store::of(db, vital, transactions, Writer::start(lanes)))
        } else {
            let scheme = options.url.split(':').next().unwrap_or_default().to_owned();
            Err(StoreError::Unusable(format!("database.url begins with {scheme:?}; use postgres:// or sqlite://")))
        }
    }

    fn of(db: Pool, vital: Pool, transactions: Pool, writer: Writer) -> Store {
        let (one, two) = (db.clone(), db.clone());
        let addressees = Gather::start(move |ids| {
            let db = one.clone();
            async move { addressee::find(&db, ids).await }
        });
        let turns = Gather::start(move |ids| {
            let db = two.clone();
            async move { addressee::turns(&db, ids).await }
        });
        Store { db, vital, transactions, writer, addressees, turns }
    }

    /// Brings the schema up to date. Safe to run from several processes at once.
    pub async fn migrate(url: &str) -> Result<(), StoreError> {
        let mut options = ConnectOptions::new(url);
        // One connection: the advisory lock belongs to it.
        options.max_connections(1).sqlx_logging(false);
        if url.starts_with("sqlite:") {
            options.map_sqlx_sqlite_opts(tune_sqlite);
        }
        let db = Database::connect(options).await?;
        let postgres = db.get_database_backend() == DbBackend::Postgres;
        if postgres {
            db.execute_unprepared("SELECT pg_advisory_lock(7023108)").await?;
        }
        // A database that is new has no list yet.
        if let Ok(applied) = schema::applied(&db).await {
            schema::not_ahead(&applied)?;
        }
        let pending = Migrator::get_pending_migrations(&db).await?.len();
        Migrator::up(&db, None).await?;
        if pending > 0 {
            tracing::info!(migrations = pending, "the schema was brought up to date");
        }
        // Closing the only connection gives the lock back.
        Ok(db.close().await?)
    }

    /// For queries. Statuses and runes are written by [`Store::commit`] only.
    pub fn db(&self) -> &Pool {
        &self.db
    }

    /// Where transactions are begun, by [`Store::transaction`] alone: [`Store::db`] is for single reads,
    /// and nothing looks after a transaction that is left open there.
    #[doc(hidden)]
    pub fn transaction_pool(&self) -> DatabaseConnection {
        self.transactions.current().connections
    }

    pub fn is_postgres(&self) -> bool {
        self.db.get_database_backend() == DbBackend::Postgres
    }

    /// Hands a commit to the transition writer and waits for its answer. The commit goes on even
    /// if the caller is cancelled.
    pub async fn commit(&self, commit: Commit) -> Result<Answer, StoreError> {
        self.writer.commit(commit.seal()?).await
    }

    pub fn writer_stats(&self) -> &WriterStats {
        &self.writer.stats
    }
}

/// The first question, which also tells the time.
async fn refuse_replica(db: &Pool) -> Result<(), StoreError> {
    let asked = Instant::now();
    let sql = "SELECT pg_is_in_recovery(), clock_timestamp()";
    let row = db.query_one_raw(sea_orm::Statement::from_string(DbBackend::Postgres, sql)).await?;
    let said = row.map(|r| Ok::<_, StoreError>((r.try_get_by_index(0)?, r.try_get_by_index(1)?))).transpose()?;
    match said {
        Some((false, at)) => {
            clock::hear(at, asked);
            Ok(())
        }
        _ => Err(StoreError::Unusable("database.url points at a replica; point it at the primary".into())),
    }
}

fn vital(options: &Options) -> ConnectOptions {
    let mut vital = readers(options);
    vital.max_connections(1).acquire_timeout(options.acquire_timeout.min(VITAL_MAX * 2 / 3));
    vital
}

/// Connections for [`Store::transaction`], the only ones on which a transaction is begun.
fn transactions(options: &Options) -> ConnectOptions {
    let mut transactions = readers(options);
    transactions.max_connections(TRANSACTIONS_MAX);
    if !options.url.starts_with("sqlite:") {
        // Second line against a driver that can leave a transaction open when `begin` is
        // cancelled (the first is that nobody cancels it: see `transaction`): such a connection
        // is closed instead of being lent out again. Its sign is that time stands still in it.
        transactions.map_sqlx_postgres_pool_opts(|pool| {
            pool.after_release(|connection, _| {
                Box::pin(async move {
                    // By the simple protocol: the extended one takes the two times apart.
                    let sql = "SELECT now() = statement_timestamp()";
                    let row = sea_orm::sqlx::raw_sql(sql).fetch_one(connection).await?;
                    sea_orm::sqlx::Row::try_get(&row, 0)
                })
            })
        });
    }
    transactions
}

fn readers(options: &Options) -> ConnectOptions {
    let mut readers = ConnectOptions::new(&options.url);
    readers.max_connections(options.readers_max).acquire_timeout(options.acquire_timeout).sqlx_logging(false);
    if options.url.starts_with("sqlite:") {
        readers.map_sqlx_sqlite_opts(tune_sqlite);
    } else {
        let statement_max = format!("{}ms", options.round_trip_max.as_millis());
        readers.map_sqlx_postgres_opts(move |o| {
            o.application_name("instar").options([
                ("idle_in_transaction_session_timeout", "10s"),
                ("statement_timeout", statement_max.as_str()),
                ("lock_timeout", "5s"),
                ("jit", "off"),
                // Every query goes by an index. A plan made while a table was small would else read all of
                // it, and be kept after it has grown.
                ("enable_seqscan", "off"),
                ("enable_bitmapscan", "off"),
                // Nor is a query planned anew for what it is asked for this time.
                ("plan_cache_mode", "force_generic_plan"),
            ])
        });
        // A connection that was in use a moment ago is taken as it is: a round trip per read to ask
        // whether it lives would cost as much as the read.
        readers.test_before_acquire(false);
        readers.map_sqlx_postgres_pool_opts(|pool| {
            pool.before_acquire(|connection, about| {
                Box::pin(async move {
                    if about.idle_for >= IDLE_TRUSTED {
                        sea_orm::sqlx::Connection::ping(connection).await?;
                    }
                    Ok(true)
                })
            })
        });
    }
    readers
}

fn sqlite(url: &str) -> Result<SqliteConnectOptions, sea_orm::sqlx::Error> {
    Ok(tune_sqlite(SqliteConnectOptions::from_str(url)?))
}

/// FULL: a commit that was answered survives a power cut, as on PostgreSQL.
fn tune_sqlite(options: SqliteConnectOptions) -> SqliteConnectOptions {
    options
        .create_if_missing(true)
        .foreign_keys(true)
        .busy_timeout(Duration::from_secs(5))
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
}
