//! Runelogs in cold storage: segments of compressed, checksummed frames with an index at their end, in a
//! folder or a bucket.
//!
//! It knows runes and objects; it does not know the database, which keeps the manifest of every archive.
//! A segment says by itself what it holds, so that a log can be read again from its objects alone.

mod content;
mod error;
mod frame;
mod kept;
mod log;
mod manifest;
mod segment;
mod storage;

pub use content::Contents;
pub use error::ArchiveError;
pub use log::{Archive, Writing};
pub use manifest::{Manifest, Part};
pub use segment::Segment;
pub use storage::{Options, Storage};
