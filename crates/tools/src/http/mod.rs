//! Calls over HTTP: tools that are servers, and `http_fetch`.
//!
//! The one question that matters after a failure is whether the request was sent. Before that, an
//! error is an error; after it, a tool that must not act twice has an unknown outcome.

mod client;
mod fetch;
mod request;

pub(crate) use client::Clients;
pub(crate) use fetch::fetch;
pub(crate) use request::call;

use crate::capture::{Capture, Captured};
use crate::egress::Blocked;
use crate::outcome::{Failure, Outcome, code};
use futures::StreamExt;
use instar_core::decide::Effect;
use instar_core::rune::payload::ResultStatus;
use instar_core::secret::Redactor;
use reqwest::{Response, StatusCode};
use std::sync::Arc;

/// Reads a body within both limits: what is kept, and what is looked at before reading is given up.
async fn read(
    response: Response,
    keep_max: usize,
    body_max: u64,
    redactor: Arc<Redactor>,
) -> Result<Captured, reqwest::Error> {
    let mut capture = Capture::new(keep_max, redactor);
    let mut body = response.bytes_stream();
    while let Some(chunk) = body.next().await {
        capture.push(&chunk?);
        if capture.bytes() > body_max {
            capture.stop();
            break;
        }
    }
    Ok(capture.finish())
}

/// A request that failed before there was an answer.
fn unanswered(error: reqwest::Error, effect: Effect, guarded: bool) -> Outcome {
    if let Some(blocked) = refusal(&error) {
        return blocked_outcome(blocked);
    }
    if error.is_builder() || error.is_connect() {
        // The words of the system may hold an address, which is not for a model to know.
        let detail = if guarded { "no connection could be made".to_owned() } else { chain(error) };
        let failure = Failure::passing(code::CONNECT_FAILED, format!("the request was not sent: {detail}"));
        return Outcome::failed(ResultStatus::Error, failure);
    }
    lost(effect, &chain(error))
}

/// The connection broke when the tool may have acted already.
fn lost(effect: Effect, detail: &str) -> Outcome {
    let (status, words) = if effect.repeatable() {
        (ResultStatus::Error, "the connection was lost before the whole answer came")
    } else {
        (ResultStatus::Unknown, "the connection was lost after the request was sent: it may have taken effect or not")
    };
    let failure = Failure::passing(code::CONNECTION_LOST, format!("{words} ({detail})"));
    Outcome::failed(status, Failure { retryable: effect.repeatable(), ..failure }).began()
}

fn blocked_outcome(blocked: Blocked) -> Outcome {
    Outcome::failed(ResultStatus::SandboxViolation, Failure::new(code::EGRESS_BLOCKED, blocked.to_string()))
}

/// What the status of an answer says about the call.
fn verdict(status: StatusCode, effect: Effect) -> (ResultStatus, Option<Failure>) {
    if status.is_success() {
        return (ResultStatus::Success, None);
    }
    let failure = Failure { retryable: retryable(status), ..Failure::new(code::HTTP_STATUS, words(status)) };
    // A gateway that lost its server says nothing about what the server did.
    let gateway = matches!(status, StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT);
    let unknown = gateway && !effect.repeatable();
    (if unknown { ResultStatus::Unknown } else { ResultStatus::Error }, Some(failure))
}

fn words(status: StatusCode) -> String {
    let note = if status.is_redirection() { "; redirects are not followed" } else { "" };
    format!("the server answered {status}{note}")
}

fn retryable(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
}

/// The resolver's refusal, which the client wraps in errors of its own.
fn refusal(error: &reqwest::Error) -> Option<Blocked> {
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        if let Some(blocked) = inner.downcast_ref::<Blocked>() {
            return Some(*blocked);
        }
        source = inner.source();
    }
    None
}

/// All causes in a line, without the URL, whose query may hold anything.
fn chain(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut words = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(inner) = source {
        words.push_str(&format!(": {inner}"));
        source = inner.source();
    }
    words
}
