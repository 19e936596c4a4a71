//! The first answer to a command, kept for its repeats.
//!
//! A row is inserted by the commit that carries the command out, so that the two land together;
//! a repeat that races with it is refused as a duplicate and reads the answer instead.

use crate::connect::Store;
use crate::entity::idempotency_key;
use crate::error::StoreError;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};

/// What is known of a key.
#[derive(Clone, Debug, PartialEq)]
pub enum Repeat {
    /// Nobody used it yet.
    New,
    /// The same command: this was its answer.
    Same { status: i64, answer: serde_json::Value },
    /// Used before for another command.
    Other,
}

impl Store {
    pub async fn repeat(&self, namespace: &str, key: &str, body_hash: &[u8]) -> Result<Repeat, StoreError> {
        let row = idempotency_key::Entity::find()
            .filter(idempotency_key::Column::Namespace.eq(namespace))
            .filter(idempotency_key::Column::Key.eq(key))
            .one(&self.db)
            .await?;
        Ok(match row {
            None => Repeat::New,
            Some(row) if row.body_hash == body_hash => Repeat::Same { status: row.status, answer: row.answer },
            Some(_) => Repeat::Other,
        })
    }
}
