//! What the scripted model answers: replies built by name.
//!
//! It must not know either wire format: a reply is the same for both.

use std::time::Duration;

use serde_json::Value;

/// A piece of an answer.
#[derive(Clone, Debug)]
pub enum Part {
    /// Text, in the fragments in which it is streamed.
    Text(Vec<String>),
    /// A tool call; the fragments of its arguments join to the JSON text.
    Call { id: Option<String>, name: String, arguments: Vec<String> },
}

/// Why the model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    Stop,
    ToolCalls,
    Length,
    /// The provider wants the answer back to go on; Messages only, `Stop` elsewhere.
    Pause,
    /// As `Length`, because nothing more can be read; Messages only, `Length` elsewhere.
    ContextWindow,
    Refusal,
}

/// Tokens to report. `cached` is a part of `input`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    pub input: u64,
    pub cached: u64,
    pub output: u64,
}

/// What breaks a stream that had begun well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// The connection ends without a terminal event.
    Cut,
    /// An error event, then the end.
    Error,
    /// A frame that is not JSON; the stream then goes on as if nothing were.
    Malformed,
    /// Nothing more, though the connection stays.
    Hang,
}

/// Answers with an error status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    RateLimited { retry_after: Option<Duration> },
    SlowDown,
    SpendLimit,
    ServerError,
    Overloaded,
    ContextOverflow,
    Unauthorized,
    Invalid(String),
}

#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Answer,
    Refusal(Refusal),
    /// The connection ends, or stays silent, before a single byte.
    Never(Break),
}

/// One answer of the model.
#[derive(Clone, Debug)]
pub struct Reply {
    pub(crate) outcome: Outcome,
    pub(crate) parts: Vec<Part>,
    pub(crate) reasoning: Option<String>,
    pub(crate) usage: Usage,
    pub(crate) finish: Option<Finish>,
    pub(crate) broken: Option<(usize, Break)>,
    pub(crate) first_after: Duration,
    pub(crate) between: Duration,
}

impl Reply {
    fn new(outcome: Outcome, parts: Vec<Part>) -> Self {
        let usage = Usage { input: 10, cached: 0, output: 5 };
        let (first_after, between) = (Duration::ZERO, Duration::ZERO);
        Self { outcome, parts, reasoning: None, usage, finish: None, broken: None, first_after, between }
    }

    /// Text, streamed word by word.
    pub fn text(text: impl AsRef<str>) -> Self {
        Self::chunks(text.as_ref().split_inclusive(' '))
    }

    /// Text in these fragments.
    pub fn chunks<S: Into<String>>(chunks: impl IntoIterator<Item = S>) -> Self {
        let chunks = chunks.into_iter().map(Into::into).collect();
        Self::new(Outcome::Answer, vec![Part::Text(chunks)])
    }

    /// A tool call. More of them, or text before them, by [`Reply::and`].
    pub fn call(name: &str, arguments: Value) -> Self {
        Self::call_raw(name, &arguments.to_string())
    }

    /// A tool call whose arguments need not be JSON, streamed in three fragments.
    pub fn call_raw(name: &str, arguments: &str) -> Self {
        let chars: Vec<char> = arguments.chars().collect();
        let size = chars.len().div_ceil(3).max(1);
        let arguments = chars.chunks(size).map(|piece| piece.iter().collect()).collect();
        let call = Part::Call { id: None, name: name.to_owned(), arguments };
        Self::new(Outcome::Answer, vec![call])
    }

    /// No content at all, yet an orderly end.
    pub fn empty() -> Self {
        Self::new(Outcome::Answer, Vec::new())
    }

    pub fn refused(refusal: Refusal) -> Self {
        Self::new(Outcome::Refusal(refusal), Vec::new())
    }

    pub fn rate_limited(retry_after: Option<Duration>) -> Self {
        Self::refused(Refusal::RateLimited { retry_after })
    }

    pub fn spend_limit() -> Self {
        Self::refused(Refusal::SpendLimit)
    }

    pub fn server_error() -> Self {
        Self::refused(Refusal::ServerError)
    }

    /// 529 or 503, as the provider has it.
    pub fn overloaded() -> Self {
        Self::refused(Refusal::Overloaded)
    }

    /// Takes the request and never answers.
    pub fn hang() -> Self {
        Self::new(Outcome::Never(Break::Hang), Vec::new())
    }

    /// Takes the request and closes the connection.
    pub fn cut() -> Self {
        Self::new(Outcome::Never(Break::Cut), Vec::new())
    }

    /// Adds the parts of another reply to this one.
    pub fn and(mut self, other: Reply) -> Self {
        self.parts.extend(other.parts);
        self
    }

    /// Thinks this first; Chat only, and only where the answer is streamed.
    pub fn thinking(mut self, text: &str) -> Self {
        self.reasoning = Some(text.to_owned());
        self
    }

    pub fn usage(mut self, input: u64, output: u64) -> Self {
        self.usage = Usage { input, output, ..self.usage };
        self
    }

    pub fn cached(mut self, cached: u64) -> Self {
        self.usage.cached = cached;
        self
    }

    /// Instead of the reason that follows from the parts.
    pub fn finish(mut self, finish: Finish) -> Self {
        self.finish = Some(finish);
        self
    }

    /// Breaks the stream after so many events; an answer that is not streamed breaks in its middle.
    pub fn broken_after(mut self, events: usize, how: Break) -> Self {
        self.broken = Some((events, how));
        self
    }

    /// Waits before the first byte, and before each further event.
    pub fn slow(mut self, first_after: Duration, between: Duration) -> Self {
        (self.first_after, self.between) = (first_after, between);
        self
    }

    pub(crate) fn finish_reason(&self) -> Finish {
        let calls = self.parts.iter().any(|part| matches!(part, Part::Call { .. }));
        self.finish.unwrap_or(if calls { Finish::ToolCalls } else { Finish::Stop })
    }
}
