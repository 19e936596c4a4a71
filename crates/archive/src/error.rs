//! What can go wrong with cold storage, and what to do about it.

#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// These runes cannot be read; the others can.
    #[error(
        "runes {first} to {last} cannot be read: object {object} {why}; put the object back from a copy \
         (its SHA-256 is in the manifest), or go on after rune {last}"
    )]
    Damaged { object: String, why: String, first: i64, last: i64 },
    #[error("this is no segment of a runelog: {0}")]
    NoSegment(String),
    #[error("cold storage does not answer: {0}; nothing was changed, try again")]
    Unavailable(String),
    #[error("archive.url: {0}")]
    Unusable(String),
    /// What was written is not what is read back.
    #[error("object {0} reads back as something else than was written; it was not taken for an archive")]
    Unfaithful(String),
}

impl ArchiveError {
    pub(crate) fn storage(error: object_store::Error) -> ArchiveError {
        ArchiveError::Unavailable(error.to_string())
    }
}
