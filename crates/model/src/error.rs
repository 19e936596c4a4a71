//! What can go wrong with a model, and whether and when to try again.
//!
//! Must not know: wire formats; `classify` reads them.

use std::time::Duration;

use instar_core::secret::Redactor;

use serde::{Deserialize, Serialize};

/// What an error means for the one who called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Too many requests or tokens: wait as told.
    RateLimited,
    /// The rate rose too fast: wait, and raise it more slowly.
    SlowDown,
    /// The provider is short of capacity.
    Overloaded,
    /// Money or quota is used up: waiting does not help, a person does.
    QuotaExhausted,
    /// A fault that may be gone the next time.
    Transient,
    /// The conversation is longer than the model can read.
    ContextOverflow,
    /// The same request will fail again.
    Permanent,
}

impl Class {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RateLimited => "rate_limited",
            Self::SlowDown => "slow_down",
            Self::Overloaded => "overloaded",
            Self::QuotaExhausted => "quota_exhausted",
            Self::Transient => "transient",
            Self::ContextOverflow => "context_overflow",
            Self::Permanent => "permanent",
        }
    }

    pub fn retryable(self) -> bool {
        matches!(self, Self::RateLimited | Self::SlowDown | Self::Overloaded | Self::Transient)
    }

    fn advice(self) -> &'static str {
        match self {
            Self::RateLimited => "wait and try again, or raise the limit with the provider",
            Self::SlowDown => "wait and raise the rate more slowly",
            Self::Overloaded => "wait and try again, or use another model",
            Self::QuotaExhausted => "add credit or raise the spend limit with the provider; it will not be retried",
            Self::Transient => "try again",
            Self::ContextOverflow => "shorten the conversation",
            Self::Permanent => "correct the request or the model's configuration",
        }
    }
}

/// A failed call. Everything in it may be stored and shown: no key and no prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelError {
    pub class: Class,
    /// The provider's own words where there are any, cut to a length fit for a log.
    pub message: String,
    /// The provider's code for it, or ours.
    pub code: Option<String>,
    pub status: Option<u16>,
    pub request_id: Option<String>,
    /// How long the provider said to wait.
    pub retry_after: Option<Duration>,
    /// In how long to try again: set on every retryable error that leaves this crate, so that a turn can be
    /// parked on a durable timer.
    pub retry_in: Option<Duration>,
    /// The provider's `x-should-retry`.
    pub should_retry: Option<bool>,
}

const MESSAGE_CHARS_MAX: usize = 1000;
const WORD_CHARS_MAX: usize = 100;
/// A longer wait is a mistake of the provider or of its clock.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 60 * 60);

impl ModelError {
    pub fn new(class: Class, message: impl Into<String>) -> Self {
        let mut message: String = message.into();
        if let Some((end, _)) = message.char_indices().nth(MESSAGE_CHARS_MAX) {
            message.truncate(end);
            message.push('…');
        }
        let (code, status, request_id, retry_after, retry_in, should_retry) = Default::default();
        Self { class, message, code, status, request_id, retry_after, retry_in, should_retry }
    }

    pub fn transient(message: impl Into<String>) -> Self {
        Self::new(Class::Transient, message)
    }

    pub fn permanent(message: impl Into<String>) -> Self {
        Self::new(Class::Permanent, message)
    }

    pub(crate) fn with_code(mut self, code: &str) -> Self {
        self.code = Some(code.to_owned());
        self
    }

    /// Nothing of what a provider says is trusted to be short, or to be free of the key it was called with.
    pub(crate) fn tidy(mut self, redactor: &Redactor) -> Self {
        redactor.text(&mut self.message);
        for word in [&mut self.code, &mut self.request_id].into_iter().flatten() {
            redactor.text(word);
            if let Some((end, _)) = word.char_indices().nth(WORD_CHARS_MAX) {
                word.truncate(end);
                word.push('…');
            }
        }
        self
    }

    /// What the provider said, with its status and code; not what to do about it.
    pub(crate) fn said(&self) -> String {
        let facts = [
            self.status.map(|status| format!("status {status}")),
            self.code.as_ref().map(|code| format!("code {code}")),
            self.request_id.as_ref().map(|id| format!("request {id}")),
        ];
        let facts: Vec<String> = facts.into_iter().flatten().collect();
        match facts.is_empty() {
            true => self.message.clone(),
            false => format!("{} ({})", self.message, facts.join(", ")),
        }
    }

    /// Whether the same call can succeed later without anybody changing anything. The provider's
    /// word counts, except where no waiting can help.
    pub fn retryable(&self) -> bool {
        match self.class {
            // What was not tried says nothing about what trying would.
            _ if self.is_untried() => true,
            Class::QuotaExhausted | Class::ContextOverflow => false,
            class => self.should_retry.unwrap_or(class.retryable()),
        }
    }

    /// Whether no call was made, because those before it had failed.
    pub fn is_untried(&self) -> bool {
        self.code.as_deref() == Some(crate::circuit::OPEN)
    }

    /// Whether the provider took the request, as far as is known: it was silent or broke off, instead of refusing.
    /// Such a call has its price.
    pub fn is_taken(&self) -> bool {
        let broke_off = ["timeout", "stream_ended_early", "malformed_event", "empty_stream"];
        self.status.is_none() && self.code.as_deref().is_some_and(|code| broke_off.contains(&code))
    }

    /// Whether whoever called would have met the same: what was sent had no part in it.
    pub(crate) fn is_providers_own(&self) -> bool {
        self.class == Class::Overloaded
            || self.status.is_some_and(|status| status >= 500)
            || self.code.as_deref() == Some(crate::circuit::UNREACHABLE)
    }

    /// How long to wait at least, if the provider said so.
    pub fn wait(&self) -> Option<Duration> {
        self.retry_after.filter(|_| self.retryable()).map(|wait| wait.min(RETRY_AFTER_MAX))
    }

    /// To be tried again after `wait`, unless the provider said when.
    pub(crate) fn parked(mut self, wait: Duration) -> Self {
        if self.retryable() {
            self.retry_in = Some(self.wait().unwrap_or(wait));
        }
        self
    }
}

impl std::fmt::Display for ModelError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}: {}", self.class.as_str(), self.said(), self.class.advice())
    }
}

impl std::error::Error for ModelError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_never_retried_whatever_the_provider_says() {
        let mut error = ModelError::new(Class::QuotaExhausted, "no credit");
        error.should_retry = Some(true);
        error.retry_after = Some(Duration::from_secs(1));
        assert!(!error.retryable());
        assert_eq!(error.wait(), None);
        assert_eq!(error.parked(Duration::ZERO).retry_in, None);
    }

    #[test]
    fn the_provider_may_overrule_the_class() {
        let mut error = ModelError::transient("500");
        error.should_retry = Some(false);
        assert!(!error.retryable());
        let mut error = ModelError::permanent("400");
        error.should_retry = Some(true);
        assert!(error.retryable());
    }

    #[test]
    fn a_parked_error_says_when() {
        let mut error = ModelError::transient("x");
        assert_eq!(error.clone().parked(Duration::from_millis(500)).retry_in, Some(Duration::from_millis(500)));
        error.retry_after = Some(Duration::from_secs(7));
        assert_eq!(error.clone().parked(Duration::from_millis(500)).retry_in, Some(Duration::from_secs(7)));
        error.retry_after = Some(Duration::MAX);
        assert_eq!(error.parked(Duration::ZERO).retry_in, Some(RETRY_AFTER_MAX));
    }

    #[test]
    fn the_sentence_tells_what_to_do() {
        let mut error = ModelError::permanent("Incorrect API key").with_code("invalid_api_key");
        error.status = Some(401);
        let expected = "permanent: Incorrect API key (status 401, code invalid_api_key): \
                        correct the request or the model's configuration";
        assert_eq!(error.to_string(), expected);
    }
}
