//! Content of assets: objects that are named by their hash, so that the same content is the same object and
//! writing it again changes nothing.
//!
//! Whether an object still is what its name says, whoever reads it finds out.

use crate::error::ArchiveError;
use crate::storage::{Options, Storage};
use bytes::Bytes;
use futures::stream::BoxStream;

#[derive(Clone, Debug)]
pub struct Contents(Storage);

impl Contents {
    pub fn open(options: &Options) -> Result<Contents, ArchiveError> {
        Storage::open(options).map(Contents)
    }

    /// `hash`: SHA-256 of the bytes in hexadecimal digits.
    pub async fn put(&self, hash: &str, bytes: Vec<u8>) -> Result<(), ArchiveError> {
        self.0.put(&name(hash), bytes).await
    }

    /// `None`: there is no such object.
    pub async fn get(&self, hash: &str) -> Result<Option<Bytes>, ArchiveError> {
        self.0.get(&name(hash), None).await
    }

    /// The same piece by piece.
    pub async fn stream(
        &self,
        hash: &str,
    ) -> Result<Option<BoxStream<'static, Result<Bytes, ArchiveError>>>, ArchiveError> {
        self.0.stream(&name(hash)).await
    }
}

fn name(hash: &str) -> String {
    format!("assets/{}/{hash}", hash.get(..2).unwrap_or("00"))
}
