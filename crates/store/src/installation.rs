//! What all processes of one installation share, and nobody outside it: a key, made by whoever comes
//! first.

use crate::connect::Store;
use crate::error::StoreError;
use sea_orm::{ConnectionTrait, Statement, Value};
use sha2::{Digest, Sha256};

/// A key nobody can guess: each id brings 74 random bits.
pub fn fresh_key() -> [u8; 32] {
    let mut hash = Sha256::new();
    for _ in 0..8 {
        hash.update(uuid::Uuid::now_v7().as_bytes());
    }
    hash.finalize().into()
}

impl Store {
    /// The installation's key.
    pub async fn installation_key(&self) -> Result<[u8; 32], StoreError> {
        let made: [Value; 1] = [fresh_key().to_vec().into()];
        let insert = "INSERT INTO installation (id, key) VALUES (1, $1) ON CONFLICT (id) DO NOTHING";
        let made = Statement::from_sql_and_values(self.backend(), insert, made);
        self.db.execute_raw(made).await.map_err(|error| match StoreError::from(error) {
            passing if passing.retryable() => passing,
            other => StoreError::Unusable(format!("its schema is behind, run `instar migrate` first ({other})")),
        })?;
        let read = Statement::from_string(self.backend(), "SELECT key FROM installation WHERE id = 1");
        let row = self.db.query_one_raw(read).await?;
        let key: Option<Vec<u8>> = row.map(|row| row.try_get_by_index(0)).transpose()?;
        let key = key.and_then(|key| <[u8; 32]>::try_from(key).ok());
        key.ok_or_else(|| StoreError::Unusable("the table installation has no key of 32 bytes: remove its row".into()))
    }
}
