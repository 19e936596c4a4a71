//! A call that was not answered as it should be: what came of it, and whether the connection is to blame.

use crate::outcome::{Failure, Outcome, code};
use instar_core::decide::Effect;
use instar_core::rune::payload::ResultStatus;
use rmcp::service::ServiceError;
use rmcp::transport::streamable_http_client::{HttpStatusError, StreamableHttpError};
use std::error::Error;

const WORDS_CHARS_MAX: usize = 500;

/// Why there is no answer.
#[derive(Debug)]
pub(super) struct Lost {
    /// The server may have got the request, and may have acted.
    pub(super) sent: bool,
    /// The connection is of no use any more.
    pub(super) broken: bool,
    failure: Failure,
}

impl Lost {
    /// It never left.
    pub(super) fn unsent() -> Lost {
        let failure = Failure::passing(code::MCP_CONNECTION_LOST, "the connection to the server had ended");
        Lost { sent: false, broken: true, failure }
    }

    pub(super) fn of(error: &ServiceError) -> Lost {
        let lost = |words: String| Failure::passing(code::MCP_CONNECTION_LOST, words);
        match error {
            // The server has judged the request: that is an answer, and the model can act on it.
            ServiceError::McpError(said) => {
                let words: String = said.message.chars().take(WORDS_CHARS_MAX).collect();
                let failure = Failure::new(code::MCP_ERROR, format!("the server refused: {words} ({})", said.code.0));
                Lost { sent: false, broken: false, failure }
            }
            ServiceError::TransportSend(error) => of_transport(&*error.error),
            ServiceError::UnexpectedResponse => {
                let failure = Failure::new(code::MCP_ERROR, "the server's answer cannot be read");
                Lost { sent: true, broken: false, failure }
            }
            other => Lost {
                sent: true,
                broken: true,
                failure: lost(format!("the server ended before it answered: {other}")),
            },
        }
    }

    /// Whether the same request may be sent once more.
    pub(super) fn may_repeat(&self, effect: Effect) -> bool {
        self.broken && (!self.sent || effect.repeatable())
    }

    pub(super) fn outcome(self, effect: Effect) -> Outcome {
        if self.sent {
            return unclear(effect, self.failure.code, &self.failure.message);
        }
        Outcome::failed(ResultStatus::Error, self.failure)
    }
}

/// The server may have acted: an error for what can be repeated, else nobody knows.
pub(super) fn unclear(effect: Effect, code: &'static str, words: &str) -> Outcome {
    let (status, perhaps) = match effect.repeatable() {
        true => (ResultStatus::Error, ""),
        false => (ResultStatus::Unknown, "; it may have taken effect or not"),
    };
    let failure = Failure { retryable: effect.repeatable(), ..Failure::new(code, format!("{words}{perhaps}")) };
    Outcome::failed(status, failure).began()
}

fn of_transport(error: &(dyn Error + 'static)) -> Lost {
    let words = chain(error);
    let found = |broken: bool, sent: bool, failure: Failure| Lost { sent, broken, failure };
    let mut at = Some(error);
    while let Some(current) = at {
        if let Some(http) = current.downcast_ref::<reqwest::Error>()
            && http.is_connect()
        {
            return found(true, false, Failure::passing(code::MCP_UNAVAILABLE, words));
        }
        if let Some(HttpStatusError { status, .. }) = current.downcast_ref::<HttpStatusError>() {
            let failure = Failure::passing(code::MCP_ERROR, format!("the server answered with HTTP {status}"));
            // Asked too often, it has done nothing; with its own failure nobody knows.
            return found(false, *status >= 500, failure);
        }
        if let Some(http) = current.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
            match http {
                StreamableHttpError::AuthRequired(_) | StreamableHttpError::InsufficientScope(_) => {
                    let words = "the server does not accept the operator's credentials";
                    return found(false, false, Failure::new(code::MCP_ERROR, words));
                }
                StreamableHttpError::SessionExpired => {
                    return found(true, false, Failure::passing(code::MCP_CONNECTION_LOST, words));
                }
                _ => {}
            }
        }
        at = current.source();
    }
    found(true, true, Failure::passing(code::MCP_CONNECTION_LOST, words))
}

/// An error with its causes, each once.
pub(super) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let text = next.to_string();
        if !words.contains(&text) {
            words = format!("{words}: {text}");
        }
        cause = next.source();
    }
    words.chars().take(WORDS_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::ErrorData;

    #[test]
    fn an_answer_that_is_missing_is_unknown_only_where_it_matters() {
        let closed = || Lost::of(&ServiceError::TransportClosed);
        assert_eq!(closed().outcome(Effect::AtMostOnce).status, ResultStatus::Unknown);
        assert_eq!(closed().outcome(Effect::Idempotent).status, ResultStatus::Error);
        assert!(closed().may_repeat(Effect::ReadOnly) && !closed().may_repeat(Effect::AtMostOnce));
        assert!(Lost::unsent().may_repeat(Effect::AtMostOnce));
        assert_eq!(Lost::unsent().outcome(Effect::AtMostOnce).status, ResultStatus::Error);
        let refused = Lost::of(&ServiceError::McpError(ErrorData::invalid_params("no such zone", None)));
        assert!(!refused.broken && !refused.may_repeat(Effect::ReadOnly));
        let outcome = refused.outcome(Effect::AtMostOnce);
        assert_eq!(outcome.status, ResultStatus::Error);
        assert!(outcome.error.unwrap().message.contains("no such zone (-32602)"));
    }
}
