//! How a call ended.

use instar_core::rune::payload::ResultStatus;
use instar_core::secret::Redactor;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Codes of failures: stable words for programs, beside the sentence for people and models.
pub mod code {
    pub const INVALID_ARGUMENTS: &str = "invalid_arguments";
    pub const UNKNOWN_TOOL: &str = "unknown_tool";
    pub const TOOL_DISABLED: &str = "tool_disabled";
    pub const TIMEOUT: &str = "timeout";
    pub const CANCELLED: &str = "cancelled";
    pub const EGRESS_BLOCKED: &str = "egress_blocked";
    pub const SECRET_MISSING: &str = "secret_missing";
    pub const CONNECT_FAILED: &str = "connect_failed";
    pub const CONNECTION_LOST: &str = "connection_lost";
    pub const HTTP_STATUS: &str = "http_status";
    pub const SANDBOX_UNAVAILABLE: &str = "sandbox_unavailable";
    pub const WORKSPACE_MISSING: &str = "workspace_missing";
    pub const COMMAND_NOT_STARTED: &str = "command_not_started";
    pub const COMMAND_FAILED: &str = "command_failed";
    pub const COMMAND_KILLED: &str = "command_killed";
    pub const PROCESS_LIMIT: &str = "process_limit";
    pub const MCP_UNAVAILABLE: &str = "mcp_unavailable";
    pub const MCP_CONNECTION_LOST: &str = "mcp_connection_lost";
    pub const MCP_ERROR: &str = "mcp_error";
    pub const MCP_TOOL_ERROR: &str = "mcp_tool_error";
    pub const MCP_LIMIT_EXCEEDED: &str = "mcp_limit_exceeded";
    pub const TOOL_DEFINITION_CHANGED: &str = "tool_definition_changed";
    pub const INTERNAL: &str = "internal";
}

#[derive(Clone, Debug, Default, PartialEq)]
pub enum Output {
    #[default]
    Nothing,
    Json(Value),
    Text(String),
}

impl Output {
    /// As it goes into a rune.
    pub fn into_json(self) -> Value {
        match self {
            Output::Nothing => Value::Null,
            Output::Json(value) => value,
            Output::Text(text) => Value::String(text),
        }
    }
}

/// What went wrong, for programs and for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Failure {
    pub code: &'static str,
    pub message: String,
    /// The same call may go better another time.
    pub retryable: bool,
}

impl Failure {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retryable: false }
    }

    pub(crate) fn passing(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retryable: true }
    }
}

#[derive(Clone, Debug)]
pub struct Outcome {
    pub status: ResultStatus,
    pub output: Output,
    pub error: Option<Failure>,
    pub duration: Duration,
    /// The output is not whole: head and tail were kept.
    pub truncated: bool,
    /// Of the whole output, as far as it was read.
    pub bytes: u64,
    /// SHA-256 of the whole output, in hexadecimal, if all of it was read.
    pub digest: Option<String>,
    /// Whether the tool may have acted. A timeout or a cancellation does not say.
    pub began: bool,
}

impl Outcome {
    pub(crate) fn failed(status: ResultStatus, error: Failure) -> Self {
        Self { error: Some(error), ..Self::of(status) }
    }

    pub(crate) fn success(output: Value) -> Self {
        Self { output: Output::Json(output), began: true, ..Self::of(ResultStatus::Success) }
    }

    pub(crate) fn of(status: ResultStatus) -> Self {
        Self {
            status,
            output: Output::Nothing,
            error: None,
            duration: Duration::ZERO,
            truncated: false,
            bytes: 0,
            digest: None,
            began: false,
        }
    }

    pub(crate) fn began(self) -> Self {
        Self { began: true, ..self }
    }
}

/// Something a tool said while it ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    pub text: String,
    /// `None`: it has no such streams, and reports how far it is.
    pub stream: Option<Stream>,
}

/// Which of its outputs a command wrote to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    pub const fn token(self) -> &'static str {
        match self {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        }
    }
}

/// Where progress goes. It never holds a tool up: what the receiver has no room for is dropped.
#[derive(Clone, Debug, Default)]
pub struct Sink {
    to: Option<mpsc::Sender<Progress>>,
    redactor: Arc<Redactor>,
}

impl Sink {
    pub fn none() -> Self {
        Self::default()
    }

    pub fn channel(room: usize) -> (Self, mpsc::Receiver<Progress>) {
        let (sender, receiver) = mpsc::channel(room);
        (Self { to: Some(sender), ..Self::default() }, receiver)
    }

    /// One that keeps these secrets.
    pub(crate) fn redacting(self, redactor: Arc<Redactor>) -> Self {
        Self { redactor, ..self }
    }

    pub(crate) fn redactor(&self) -> &Arc<Redactor> {
        &self.redactor
    }

    pub(crate) fn say(&self, mut text: String, stream: Option<Stream>) {
        if let Some(sender) = &self.to {
            self.redactor.text(&mut text);
            let _ = sender.try_send(Progress { text, stream });
        }
    }
}
