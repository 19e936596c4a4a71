//! From a provider's error to its class. Codes decide, then types, then words; the status is only
//! what is left when they say nothing: a 429 may mean "wait" or "pay".
//!
//! Must not know: how the error arrived, as a response or inside a stream.

use serde_json::Value;

use crate::error::{Class, ModelError};
use crate::message::Dialect;

/// The parts of an error body that carry meaning, wherever the server put them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Signal {
    pub(crate) status: Option<u16>,
    kind: String,
    code: String,
    message: String,
}

impl Signal {
    pub(crate) fn from_status(status: u16, body: &str) -> Self {
        let parsed = serde_json::from_str::<Value>(body).unwrap_or_default();
        let mut signal = Self::from_json(&parsed);
        signal.status = Some(status);
        let is_bare = body.trim().is_empty() || parsed == Value::Object(Default::default());
        if signal.message.is_empty() && !is_bare {
            // A gateway's page: its first words are better than none.
            signal.message = body.split_whitespace().take(40).collect::<Vec<_>>().join(" ");
        }
        signal
    }

    /// Errors come as `{"error": {…}}`, as `{"error": "words"}`, or bare.
    pub(crate) fn from_json(body: &Value) -> Self {
        let error = body.get("error").unwrap_or(body);
        if let Some(message) = error.as_str() {
            return Self { message: message.to_owned(), ..Self::default() };
        }
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let message = [&error["message"], &error["detail"], &body["message"]].map(word);
        // Anthropic puts the finer code in the details; some servers repeat the status as code.
        let code = [&error["details"]["error_code"], &error["code"]].map(word);
        Self {
            status: error["code"].as_u64().and_then(|code| u16::try_from(code).ok()).filter(|code| *code >= 400),
            kind: word(&error["type"]),
            code: code.into_iter().find(|code| !code.is_empty()).unwrap_or_default(),
            message: message.into_iter().find(|message| !message.is_empty()).unwrap_or_default(),
        }
    }

    pub(crate) fn into_error(self, dialect: Dialect) -> ModelError {
        let class = self.class(dialect);
        let message = if self.message.is_empty() { "the provider gave no reason".to_owned() } else { self.message };
        let mut error = ModelError::new(class, message);
        error.status = self.status;
        error.code = [self.code, self.kind].into_iter().find(|word| !word.is_empty());
        error
    }

    fn class(&self, dialect: Dialect) -> Class {
        by_token(&self.code)
            .or_else(|| by_words(dialect, &self.message.to_ascii_lowercase()))
            // A loose type must not turn "wait" into "never".
            .or_else(|| by_token(&self.kind).filter(|class| *class != Class::Permanent || !self.may_pass()))
            .unwrap_or_else(|| self.by_status())
    }

    fn may_pass(&self) -> bool {
        self.status.is_some_and(|status| status == 429 || status >= 500)
    }

    fn by_status(&self) -> Class {
        match self.status {
            Some(402) => Class::QuotaExhausted,
            Some(429) => Class::RateLimited,
            Some(529) => Class::Overloaded,
            Some(408 | 409 | 425) => Class::Transient,
            Some(status) if status >= 500 => Class::Transient,
            Some(_) => Class::Permanent,
            // Inside a stream, unnamed: the request itself had been accepted.
            None => Class::Transient,
        }
    }
}

/// Codes and types of both providers; no token means different things to them.
fn by_token(token: &str) -> Option<Class> {
    Some(match token {
        "credit_balance_exhausted"
        | "organization_spend_limit_exceeded"
        | "project_spend_limit_exceeded"
        | "organization_usage_limit_exceeded"
        | "enforced_spend_limit_reached"
        | "insufficient_quota"
        | "billing_hard_limit_reached"
        | "billing_not_active"
        | "billing_error" => Class::QuotaExhausted,
        "slow_down" => Class::SlowDown,
        "rate_limit_exceeded" | "rate_limit_error" => Class::RateLimited,
        "server_is_overloaded" | "overloaded_error" | "overloaded" => Class::Overloaded,
        "context_length_exceeded" | "exceed_context_size_error" => Class::ContextOverflow,
        "server_error" | "api_error" | "timeout_error" | "conflict_error" | "InternalServerError" => Class::Transient,
        "authentication_error"
        | "permission_error"
        | "not_found_error"
        | "request_too_large"
        | "invalid_api_key"
        | "model_not_found"
        | "invalid_request_error"
        | "BadRequestError" => Class::Permanent,
        _ => return None,
    })
}

/// Where providers have no code of their own for it. Longer than the word "limit" on purpose: these
/// phrases must not occur in other errors.
fn by_words(dialect: Dialect, message: &str) -> Option<Class> {
    let says = |phrases: &[&str]| phrases.iter().any(|phrase| message.contains(phrase));
    match dialect {
        Dialect::Anthropic if says(&["acceleration limit"]) => Some(Class::SlowDown),
        Dialect::Anthropic if says(&["credit balance is too low"]) => Some(Class::QuotaExhausted),
        Dialect::Anthropic if says(&["prompt is too long", "exceed context limit"]) => Some(Class::ContextOverflow),
        Dialect::OpenAi if says(&["maximum context length", "exceeds the available context size"]) => {
            Some(Class::ContextOverflow)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(dialect: Dialect, status: u16, body: &str) -> Class {
        Signal::from_status(status, body).into_error(dialect).class
    }

    #[test]
    fn a_refusal_without_a_word_is_said_to_have_none() {
        for body in ["", "{}", " {} \n"] {
            let error = Signal::from_status(401, body).into_error(Dialect::OpenAi);
            assert_eq!(error.said(), "the provider gave no reason (status 401)", "{body:?}");
        }
        let error = Signal::from_status(401, r#"{"reason":"who are you?"}"#).into_error(Dialect::OpenAi);
        assert!(error.said().contains("who are you?"));
    }

    #[test]
    fn the_code_decides_and_the_status_only_when_nothing_else_does() {
        use Class::*;
        use Dialect::{Anthropic, OpenAi};
        let rows = [
            (OpenAi, 429, r#"{"error":{"code":"rate_limit_exceeded","type":"requests","message":"m"}}"#, RateLimited),
            (OpenAi, 429, r#"{"error":{"code":"slow_down","message":"m"}}"#, SlowDown),
            (OpenAi, 429, r#"{"error":{"code":"project_spend_limit_exceeded","message":"m"}}"#, QuotaExhausted),
            (OpenAi, 429, r#"{"error":{"code":null,"type":"insufficient_quota","message":"m"}}"#, QuotaExhausted),
            (OpenAi, 429, "slow down please", RateLimited),
            (OpenAi, 429, r#"{"error":{"type":"invalid_request_error","message":"m"}}"#, RateLimited),
            (OpenAi, 402, "{}", QuotaExhausted),
            (OpenAi, 503, r#"{"error":{"code":"server_is_overloaded","message":"m"}}"#, Overloaded),
            (OpenAi, 503, "<html>Bad gateway</html>", Transient),
            (OpenAi, 408, "", Transient),
            (OpenAi, 409, "", Transient),
            (OpenAi, 400, r#"{"error":{"code":"context_length_exceeded","message":"m"}}"#, ContextOverflow),
            (
                OpenAi,
                400,
                r#"{"object":"error","message":"This model's maximum context length is 4096 tokens.","type":"BadRequestError","code":400}"#,
                ContextOverflow,
            ),
            (OpenAi, 401, r#"{"error":{"code":"invalid_api_key","message":"m"}}"#, Permanent),
            (OpenAi, 404, r#"{"error":"model 'x' not found"}"#, Permanent),
            (OpenAi, 418, "", Permanent),
            (Anthropic, 429, r#"{"error":{"type":"rate_limit_error","message":"m"}}"#, RateLimited),
            (
                Anthropic,
                429,
                r#"{"error":{"type":"rate_limit_error","message":"m","details":{"error_code":"enforced_spend_limit_reached"}}}"#,
                QuotaExhausted,
            ),
            (
                Anthropic,
                429,
                r#"{"error":{"type":"rate_limit_error","message":"faster than the acceleration limit"}}"#,
                SlowDown,
            ),
            (Anthropic, 402, r#"{"error":{"type":"billing_error","message":"m"}}"#, QuotaExhausted),
            (
                Anthropic,
                400,
                r#"{"error":{"type":"invalid_request_error","message":"Your credit balance is too low"}}"#,
                QuotaExhausted,
            ),
            (Anthropic, 529, r#"{"error":{"type":"overloaded_error","message":"m"}}"#, Overloaded),
            (Anthropic, 500, r#"{"error":{"type":"api_error","message":"m"}}"#, Transient),
            (
                Anthropic,
                400,
                r#"{"error":{"type":"invalid_request_error","message":"prompt is too long: 9 > 8"}}"#,
                ContextOverflow,
            ),
            (Anthropic, 400, r#"{"error":{"type":"invalid_request_error","message":"m"}}"#, Permanent),
            (Anthropic, 413, r#"{"error":{"type":"request_too_large","message":"m"}}"#, Permanent),
        ];
        for (dialect, status, body, expected) in rows {
            assert_eq!(class(dialect, status, body), expected, "{status} {body}");
        }
    }

    #[test]
    fn an_error_inside_a_stream_is_read_the_same_way() {
        let read = |body| Signal::from_json(&serde_json::from_str(body).unwrap()).into_error(Dialect::OpenAi);
        assert_eq!(read(r#"{"error":{"message":"m"}}"#).class, Class::Transient);
        let numbered = read(r#"{"error":{"message":"m","type":"NotFoundError","code":404}}"#);
        assert_eq!((numbered.class, numbered.status), (Class::Permanent, Some(404)));
        assert_eq!(read(r#"{"error":{"type":"overloaded_error","message":"Overloaded"}}"#).class, Class::Overloaded);
    }

    #[test]
    fn the_providers_words_are_kept() {
        let error = Signal::from_status(502, "<html>\n  Bad   gateway </html>").into_error(Dialect::OpenAi);
        assert_eq!(error.message, "<html> Bad gateway </html>");
        let error = Signal::from_status(500, "").into_error(Dialect::OpenAi);
        assert_eq!(error.message, "the provider gave no reason");
    }
}
