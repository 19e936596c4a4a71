//! What an archive consists of: kept in the database, and beside the segments.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub version: u32,
    pub session: String,
    pub head_seq: i64,
    /// The chain over all of it, hexadecimal.
    pub final_hash: String,
    /// In the order of the runes.
    pub segments: Vec<Part>,
}

/// One segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    pub object: String,
    pub first: i64,
    pub last: i64,
    pub bytes: u64,
    pub sha256: String,
}

impl Manifest {
    pub const VERSION: u32 = 1;
}
