//! What can go wrong between a service and its database, and what to do about it.

use instar_core::id::CommandId;
use sea_orm::sqlx::Error as Sqlx;
use sea_orm::{DbErr, RuntimeErr};

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The caller built something that must not be written; nothing was.
    #[error("this commit is not valid: {0}")]
    Invalid(String),
    #[error("{what}: {size} is over the limit of {max}; nothing was written")]
    TooLarge { what: &'static str, size: usize, max: usize },
    /// A unique key exists already.
    #[error("already there ({0}); read it instead of writing it again")]
    Duplicate(String),
    /// The connection broke while committing and the database could not be asked again in time.
    #[error("it is not known whether command {0} landed; ask again with read_back once the database answers")]
    Ambiguous(CommandId),
    #[error("the database does not answer: {0}; nothing was written, try again")]
    Unavailable(String),
    /// A transaction beside the writer's, whose end was not heard of.
    #[error("it is not known whether the transaction landed: {0}; read before you write it again")]
    Unknown(String),
    #[error("the transition writer is at its limit of waiting commits; try again shortly")]
    Busy,
    #[error("the store is closed")]
    Closed,
    #[error("the database cannot be used: {0}")]
    Unusable(String),
    #[error(transparent)]
    Database(#[from] DbErr),
}

impl StoreError {
    /// The same refusal once more: every commit of a refused batch is told.
    pub(crate) fn again(&self) -> StoreError {
        match self {
            StoreError::Duplicate(what) => StoreError::Duplicate(what.clone()),
            StoreError::Invalid(why) => StoreError::Invalid(why.clone()),
            other if other.retryable() => StoreError::Unavailable(other.to_string()),
            other => StoreError::Unusable(other.to_string()),
        }
    }

    /// Whether the same call may succeed later.
    pub fn retryable(&self) -> bool {
        use StoreError::*;
        match self {
            Invalid(_) | TooLarge { .. } | Duplicate(_) | Closed | Unusable(_) => false,
            Ambiguous(_) | Unavailable(_) | Busy => true,
            Unknown(_) => false,
            Database(error) => out_of_reach(error),
        }
    }
}

/// Whether the database could not be asked at all, as against having refused what it was asked.
fn out_of_reach(error: &DbErr) -> bool {
    match error {
        DbErr::ConnectionAcquire(_) | DbErr::Conn(_) => true,
        DbErr::Exec(RuntimeErr::SqlxError(cause)) | DbErr::Query(RuntimeErr::SqlxError(cause)) => match &**cause {
            Sqlx::Io(_) | Sqlx::Tls(_) | Sqlx::Protocol(_) => true,
            Sqlx::PoolTimedOut | Sqlx::PoolClosed | Sqlx::WorkerCrashed => true,
            // Class 57: shutting down, starting up, a query cancelled; 53: out of resources.
            Sqlx::Database(db) => db.code().is_some_and(|code| code.starts_with("57P") || code.starts_with("53")),
            _ => false,
        },
        _ => false,
    }
}
