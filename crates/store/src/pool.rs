//! A pool of connections whose questions end: with an answer, or after a limit.
//!
//! A connection can be lost without anybody saying so, when something on its way forgets it. The driver would wait
//! for its answer until TCP gives up, which takes a quarter of an hour; and it would wait once more before it lends
//! the connection out again. So a pool in which a question got no answer is left to itself, and another is opened.

use sea_orm::prelude::async_trait::async_trait;
use sea_orm::{
    ConnectOptions, ConnectionTrait, Database, DatabaseConnection, DbBackend, DbErr, ExecResult, QueryResult,
    RuntimeErr, Statement,
};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Reads, and single writes that belong to no machine. Cheap to clone.
#[derive(Clone)]
pub struct Pool(Arc<Inner>);

struct Inner {
    options: ConnectOptions,
    backend: DbBackend,
    /// `None`: what is asked is a file, which always answers.
    limit: Option<Duration>,
    current: RwLock<Current>,
}

/// The connections in use, and which in the order of pools they are.
#[derive(Clone)]
pub(crate) struct Current {
    pub(crate) connections: DatabaseConnection,
    number: u64,
    opened: Instant,
    /// When they last answered anything, in ms since they were opened.
    answered_ms: Arc<AtomicU64>,
}

impl Current {
    fn new(connections: DatabaseConnection, number: u64) -> Current {
        Current { connections, number, opened: Instant::now(), answered_ms: Default::default() }
    }

    fn age_ms(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn silent_for(&self) -> Duration {
        Duration::from_millis(self.age_ms().saturating_sub(self.answered_ms.load(Relaxed)))
    }
}

impl Pool {
    pub(crate) async fn open(options: ConnectOptions, limit: Option<Duration>) -> Result<Pool, DbErr> {
        let connections = Database::connect(options.clone()).await?;
        let (backend, current) = (connections.get_database_backend(), RwLock::new(Current::new(connections, 0)));
        Ok(Pool(Arc::new(Inner { options, backend, limit, current })))
    }

    /// For who bounds its own waiting.
    pub(crate) fn current(&self) -> Current {
        self.0.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Another pool in the place of one that fell silent, unless somebody has seen to that.
    pub(crate) async fn replace(&self, silent: &Current) {
        let mut options = self.0.options.clone();
        options.connect_lazy(true);
        let fresh = match Database::connect(options).await {
            Ok(fresh) => Current::new(fresh, silent.number + 1),
            Err(error) => return tracing::warn!(%error, "no other pool could be opened"),
        };
        let mut current = self.0.current.write().unwrap_or_else(PoisonError::into_inner);
        if current.number == silent.number {
            tracing::warn!("the database fell silent; its connections are given up");
            *current = fresh;
        }
    }

    /// Closes the connections; whoever asks from now on is refused.
    pub async fn close(&self) -> Result<(), DbErr> {
        self.current().connections.close().await
    }

    async fn ask<T, F>(&self, question: impl FnOnce(DatabaseConnection) -> F) -> Result<T, DbErr>
    where
        F: Future<Output = Result<T, DbErr>>,
    {
        let current = self.current();
        let Some(limit) = self.0.limit else { return question(current.connections).await };
        match tokio::time::timeout(limit, question(current.connections.clone())).await {
            Ok(Err(error @ DbErr::ConnectionAcquire(_))) => {
                // A busy pool still answers somebody; one whose connections are all lost does not.
                if current.silent_for() > limit {
                    self.replace(&current).await;
                }
                Err(error)
            }
            Ok(answer) => {
                current.answered_ms.store(current.age_ms(), Relaxed);
                answer
            }
            Err(_) => {
                self.replace(&current).await;
                Err(DbErr::Conn(RuntimeErr::Internal(format!("no answer within {limit:?}"))))
            }
        }
    }
}

#[async_trait]
impl ConnectionTrait for Pool {
    fn get_database_backend(&self) -> DbBackend {
        self.0.backend
    }

    async fn execute_raw(&self, statement: Statement) -> Result<ExecResult, DbErr> {
        self.ask(|db| async move { db.execute_raw(statement).await }).await
    }

    async fn execute_unprepared(&self, sql: &str) -> Result<ExecResult, DbErr> {
        self.ask(|db| async move { db.execute_unprepared(sql).await }).await
    }

    async fn query_one_raw(&self, statement: Statement) -> Result<Option<QueryResult>, DbErr> {
        self.ask(|db| async move { db.query_one_raw(statement).await }).await
    }

    async fn query_all_raw(&self, statement: Statement) -> Result<Vec<QueryResult>, DbErr> {
        self.ask(|db| async move { db.query_all_raw(statement).await }).await
    }
}
