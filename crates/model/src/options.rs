//! Times and sizes of the connection to a provider, with their defaults.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::circuit::Policy;
use crate::retry::Retry;

/// As the configuration writes them; each field can stand in a `[[models]]` entry under `limits`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    pub connect_timeout_ms: u64,
    /// Silence before the first piece of the answer. Models that reason, and local ones that read a
    /// long prompt, take minutes; two such silences must fit into what the caller has time for.
    pub first_event_timeout_ms: u64,
    /// Silence between bytes after that.
    pub idle_timeout_ms: u64,
    /// Idle connections kept open, and for how long.
    pub pool_idle_max: usize,
    pub pool_idle_timeout_ms: u64,
    pub response_bytes_max: usize,
    pub frame_bytes_max: usize,
    pub retries_max: u32,
    pub retry_first_ms: u64,
    pub retry_longest_ms: u64,
    /// A longer wait is handed to the caller instead of slept.
    pub inline_wait_max_ms: u64,
    /// Failures in a row after which the model is left alone for a while; 0: never. What may lie with one conversation
    /// counts once per agent. Quota that is used up does the same at once, to all models with the same credential.
    pub circuit_failures: u32,
    /// For how long, before one call is made to see; each that fails doubles it, up to five minutes.
    pub circuit_open_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect_timeout_ms: 10_000,
            first_event_timeout_ms: 120_000,
            idle_timeout_ms: 120_000,
            pool_idle_max: 256,
            pool_idle_timeout_ms: 90_000,
            response_bytes_max: 32 << 20,
            frame_bytes_max: 8 << 20,
            retries_max: 2,
            retry_first_ms: 500,
            retry_longest_ms: 8_000,
            inline_wait_max_ms: 2_000,
            circuit_failures: 5,
            circuit_open_ms: 30_000,
        }
    }
}

/// What a request needs of them.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) first_event_timeout: Duration,
    pub(crate) idle_timeout: Duration,
    pub(crate) response_bytes_max: usize,
    pub(crate) frame_bytes_max: usize,
    pub(crate) retry: Retry,
}

impl Limits {
    pub(crate) fn options(&self) -> Options {
        Options {
            first_event_timeout: Duration::from_millis(self.first_event_timeout_ms),
            idle_timeout: Duration::from_millis(self.idle_timeout_ms),
            response_bytes_max: self.response_bytes_max,
            frame_bytes_max: self.frame_bytes_max,
            retry: Retry {
                retries_max: self.retries_max,
                first: Duration::from_millis(self.retry_first_ms),
                longest: Duration::from_millis(self.retry_longest_ms),
                inline_wait_max: Duration::from_millis(self.inline_wait_max_ms),
            },
        }
    }

    pub(crate) fn circuit(&self) -> Policy {
        Policy { failures: self.circuit_failures, first: Duration::from_millis(self.circuit_open_ms) }
    }

    /// Zero would mean "fail at once" here, though elsewhere it often means "for ever".
    pub(crate) fn problems(&self) -> impl Iterator<Item = String> {
        let rows = [
            ("connect_timeout_ms", self.connect_timeout_ms),
            ("first_event_timeout_ms", self.first_event_timeout_ms),
            ("idle_timeout_ms", self.idle_timeout_ms),
            ("response_bytes_max", self.response_bytes_max as u64),
            ("frame_bytes_max", self.frame_bytes_max as u64),
        ];
        rows.into_iter().filter(|(_, value)| *value == 0).map(|(name, _)| format!("limits.{name} must be above 0"))
    }
}
