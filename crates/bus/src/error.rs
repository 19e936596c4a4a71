//! What can go wrong on the bus, each with what to do about it.
//!
//! Must not know: async-nats. Its errors arrive here as text, so that no caller depends on them.

use std::time::Duration;

use crate::topology::Difference;

/// A subject that would not be what it claims to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubjectError {
    #[error("{what} {token:?} can't be part of a subject: use 1 to 64 characters of A-Z a-z 0-9 _ -")]
    Token { what: &'static str, token: String },
    #[error(
        "rune kind {kind:?} can't be part of a subject: use tokens of a-z 0-9 _ joined by dots, \
         at most 64 characters, not starting with work, owner, control, delta, dead or sync"
    )]
    Kind { kind: String },
    #[error("rune kind {kind:?} is not declared: add it to the list of kinds the bus is opened with")]
    UnknownKind { kind: String },
    #[error("{subject:?} is not a subject below {root}")]
    Foreign { subject: String, root: String },
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum BusError {
    #[error(transparent)]
    Subject(#[from] SubjectError),

    #[error(
        "the NATS connection is not usable as configured ({reason}): correct the credentials or \
         certificate files named in the nats settings"
    )]
    Setup { reason: String },

    #[error(
        "NATS server {found} is too old, it would silently ignore settings we depend on: install \
         2.12.7 or later (2.10.0 is the oldest accepted)"
    )]
    ServerTooOld { found: String },

    #[error(
        "stream {stream} differs from what this version declares: {}. Nothing was changed. Edit the \
         stream with `nats stream edit {stream}` or change the settings to match; if its messages may \
         be lost (the database sends unfinished work again), remove it with `nats stream rm {stream}` \
         and start again",
        list(.differences)
    )]
    Drift { stream: String, differences: Vec<Difference> },

    #[error(
        "consumers {first} and {second} would both receive {subject} from a work queue: give each \
         lane, class or worker its own name"
    )]
    Overlap { first: String, second: String, subject: String },

    #[error(
        "a message of {bytes} bytes for {subject} is over the limit of {bytes_max}: store the content \
         and send its id, or raise bus.payload_bytes_max together with the server's max_payload"
    )]
    TooLarge { subject: String, bytes: usize, bytes_max: usize },

    #[error("message id {id:?} can't be sent: use 1 to 200 visible ASCII characters without spaces")]
    MessageId { id: String },

    #[error(
        "{queue_max} messages already wait to be published: try again later, or rely on the \
         scheduler, which publishes what trails"
    )]
    Busy { queue_max: usize },

    #[error("{what} got no answer within {within:?}: try again with the same message id")]
    Timeout { what: String, within: Duration },

    #[error("no stream takes {subject} at the moment: it is being recreated, try again")]
    NoStream { subject: String },

    #[error(
        "the stream for {subject} is full and refuses new messages: let consumers catch up, or raise \
         its max_bytes"
    )]
    Full { subject: String },

    #[error("NATS refused {what}: {reason}")]
    Refused { what: String, reason: String },

    #[error("the connection to NATS failed during {what} ({reason}): try again")]
    Link { what: String, reason: String },

    #[error("the bus is shut down: start a new one")]
    Closed,
}

impl BusError {
    /// Whether the same call can succeed later without anybody changing anything.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Busy { .. }
            | Self::Timeout { .. }
            | Self::NoStream { .. }
            | Self::Full { .. }
            | Self::Link { .. } => true,
            Self::Subject(_)
            | Self::Setup { .. }
            | Self::ServerTooOld { .. }
            | Self::Drift { .. }
            | Self::Overlap { .. }
            | Self::TooLarge { .. }
            | Self::MessageId { .. }
            | Self::Refused { .. }
            | Self::Closed => false,
        }
    }
}

fn list(differences: &[Difference]) -> String {
    differences.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
