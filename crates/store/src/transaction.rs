//! The helper that owns every transaction besides the writer's.
//!
//! It runs in a task of its own, so that no caller can cancel it half way: a cancelled `begin`
//! would leave the connection inside a transaction that nobody knows of, and every later write
//! through it would be lost without an error.

use crate::connect::Store;
use crate::error::StoreError;
use sea_orm::{DatabaseTransaction, SqliteTransactionMode, TransactionOptions, TransactionTrait};
use std::pin::Pin;
use std::time::Duration;

/// One that lasts longer has lost its connection without being told.
const WHOLE_MAX: Duration = Duration::from_secs(60);

/// A transaction's body: its future borrows the transaction.
pub type Body<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

impl Store {
    /// Runs `body` in one transaction: commits on `Ok`, rolls back on `Err`. It goes on to its end
    /// even if the caller stops waiting.
    pub async fn transaction<T, F>(&self, body: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: for<'a> FnOnce(&'a DatabaseTransaction) -> Body<'a, T> + Send + 'static,
    {
        let current = self.transactions.current();
        let (db, pool) = (current.connections.clone(), self.transactions.clone());
        let whole = async move {
            // Ignored by PostgreSQL; on SQLite a lock that is taken late cannot be waited for.
            let options = TransactionOptions {
                sqlite_transaction_mode: Some(SqliteTransactionMode::Immediate),
                ..Default::default()
            };
            let transaction = db.begin_with_options(options).await?;
            match body(&transaction).await {
                Ok(value) => {
                    transaction.commit().await.map_err(|e| StoreError::Unknown(e.to_string()))?;
                    Ok(value)
                }
                Err(error) => {
                    if let Err(lost) = transaction.rollback().await {
                        tracing::warn!(error = %lost, "a roll-back failed; the connection is closed instead");
                    }
                    Err(error)
                }
            }
        };
        let task = tokio::spawn(async move {
            match tokio::time::timeout(WHOLE_MAX, whole).await {
                Ok(ended) => ended,
                Err(_) => {
                    // With it goes the connection that it was begun on: nobody is lent it again.
                    pool.replace(&current).await;
                    Err(StoreError::Unknown(format!("no end within {WHOLE_MAX:?}")))
                }
            }
        });
        task.await.unwrap_or_else(|e| Err(StoreError::Unknown(format!("the transaction's task ended: {e}"))))
    }
}
