//! What a caller is told when something cannot be done: `application/problem+json` (RFC 9457).

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use instar_archive::ArchiveError;
use instar_core::machine::Refusal;
use instar_runtime::flow::FlowError;
use instar_runtime::{ActError, Done, LogError};
use instar_store::StoreError;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// How long to wait before the same request may succeed, seconds.
const RETRY_SOON_S: u32 = 1;

#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    /// A word for programs, stable.
    pub(crate) code: &'static str,
    title: &'static str,
    detail: String,
    more: Map<String, Value>,
    retry_after_s: Option<u32>,
    allow: Option<String>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        Problem { status, code, title, detail: detail.into(), more: Map::new(), retry_after_s: None, allow: None }
    }

    pub(crate) fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.more.insert(field.to_owned(), value.into());
        self
    }

    fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after_s = Some(seconds);
        self
    }

    pub(crate) fn no_route() -> Self {
        let detail = "there is nothing at this path; GET /openapi.json lists what there is";
        Problem::new(StatusCode::NOT_FOUND, "no_route", "No such path", detail)
    }

    pub(crate) fn method(allowed: &[&str]) -> Self {
        let list = allowed.join(", ");
        let detail = format!("this path takes {list}");
        let mut problem =
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "Method not allowed", detail);
        problem.allow = Some(list);
        problem
    }

    pub(crate) fn absent(what: &str, id: &str) -> Self {
        let shown: String = id.chars().take(80).collect();
        Problem::new(StatusCode::NOT_FOUND, "not_found", "Not found", format!("there is no {what} {shown:?}"))
    }

    /// The same answer to every bad key: which of them it was is nobody's business.
    pub(crate) fn unauthenticated() -> Self {
        let detail = "send a valid key: Authorization: Bearer <key>";
        Problem::new(StatusCode::UNAUTHORIZED, "unauthenticated", "No valid key", detail)
    }

    pub(crate) fn forbidden(has: &str, needs: &str) -> Self {
        let detail = format!("this key is a {has}; it takes a {needs}");
        Problem::new(StatusCode::FORBIDDEN, "forbidden", "Not allowed", detail).with("role_needed", needs)
    }

    /// The same with words of its own.
    pub(crate) fn saying(mut self, detail: String) -> Self {
        self.detail = detail;
        self
    }

    pub(crate) fn invalid(errors: Vec<(String, String)>) -> Self {
        let say = |(pointer, detail): &(String, String)| match pointer.as_str() {
            "" => detail.clone(),
            pointer => format!("{}: {detail}", pointer.trim_start_matches('/').replace('/', ".")),
        };
        let detail = errors.iter().map(say).collect::<Vec<_>>().join("; ");
        let errors: Vec<Value> =
            errors.into_iter().map(|(pointer, detail)| json!({"pointer": pointer, "detail": detail})).collect();
        let title = "The request does not fit";
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", title, detail).with("errors", errors)
    }

    pub(crate) fn field(name: &str, detail: impl Into<String>) -> Self {
        Problem::invalid(vec![(format!("/{name}"), detail.into())])
    }

    pub(crate) fn content_type() -> Self {
        let detail = "send the body as application/json";
        Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content_type", "Not JSON", detail)
    }

    pub(crate) fn too_large(limit: usize) -> Self {
        let detail = format!("the body is over the limit of {limit} bytes");
        let title = "Body too large";
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", title, detail).with("limit_bytes", limit)
    }

    pub(crate) fn conflict(code: &'static str, detail: impl Into<String>) -> Self {
        Problem::new(StatusCode::CONFLICT, code, "Not now", detail)
    }

    pub(crate) fn refused(no: &Refusal) -> Self {
        Problem::new(StatusCode::CONFLICT, "refused", "The machine refuses", no.to_string())
            .with("machine", no.machine)
            .with("from", no.from.as_str())
            .with("event", no.event.as_str())
            .with("allowed", no.allowed.clone())
    }

    /// A refusal that has a name of its own.
    pub(crate) fn coded(mut self, code: &'static str, detail: impl Into<String>) -> Self {
        (self.code, self.detail) = (code, detail.into());
        self
    }

    pub(crate) fn key_reused() -> Self {
        let detail = "this Idempotency-Key was used for another request; use a new one";
        let title = "Key used before";
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "idempotency_key_reused", title, detail)
    }

    pub(crate) fn busy(detail: &str) -> Self {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", "Try again", detail).retry_after(RETRY_SOON_S)
    }

    pub(crate) fn unavailable() -> Self {
        let detail = "the database does not answer; try again, with the same Idempotency-Key if you sent one";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "Try again", detail).retry_after(RETRY_SOON_S)
    }

    pub(crate) fn timeout(limit_ms: u64) -> Self {
        let detail =
            format!("no answer within {limit_ms} ms; look before you send it again, or use an Idempotency-Key");
        Problem::new(StatusCode::GATEWAY_TIMEOUT, "timeout", "Took too long", detail)
    }

    pub(crate) fn slow_body(limit_ms: u64) -> Self {
        let detail = format!("the body did not arrive within {limit_ms} ms; nothing was done: send it again");
        Problem::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", "Body too slow", detail).retry_after(RETRY_SOON_S)
    }

    pub(crate) fn too_many(what: &str, wait: Duration) -> Self {
        let title = "Too many";
        // In whole seconds, and never none.
        let seconds = u32::try_from(wait.as_secs()).unwrap_or(u32::MAX).saturating_add(1);
        Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many", title, what.to_owned()).retry_after(seconds)
    }

    /// The reason is for the log only.
    pub(crate) fn internal(reason: &dyn std::fmt::Display) -> Self {
        tracing::error!(%reason, "a request failed by our own fault");
        let detail = "something went wrong here; the log has it under this request's id";
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "Our fault", detail)
    }

    pub(crate) fn response(self, request_id: &str) -> Response {
        let mut body = json!({
            "type": format!("urn:instar:error:{}", self.code),
            "title": self.title,
            "status": self.status.as_u16(),
            "detail": self.detail,
            "code": self.code,
            "retryable": self.retry_after_s.is_some(),
            "request_id": request_id,
        });
        if let Some(fields) = body.as_object_mut() {
            fields.extend(self.more);
        }
        let mut response = (self.status, Body::from(body.to_string())).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"instar\""));
        }
        if let Some(seconds) = self.retry_after_s {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(allow) = self.allow.and_then(|list| HeaderValue::try_from(list).ok()) {
            headers.insert(header::ALLOW, allow);
        }
        response
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Problem {
        match &error {
            StoreError::Duplicate(_) => Problem::conflict("duplicate", "it is there already"),
            StoreError::TooLarge { .. } => Problem::invalid(vec![(String::new(), error.to_string())]),
            StoreError::Busy => Problem::busy("too many commits wait; try again shortly"),
            StoreError::Ambiguous(_) | StoreError::Unavailable(_) | StoreError::Unknown(_) => {
                tracing::warn!(%error, "the database did not answer a request");
                Problem::unavailable()
            }
            StoreError::Database(_) if error.retryable() => {
                tracing::warn!(%error, "the database did not answer a request");
                Problem::unavailable()
            }
            StoreError::Invalid(_) | StoreError::Closed | StoreError::Unusable(_) | StoreError::Database(_) => {
                Problem::internal(&error)
            }
        }
    }
}

impl From<sea_orm::DbErr> for Problem {
    fn from(error: sea_orm::DbErr) -> Problem {
        StoreError::from(error).into()
    }
}

impl From<FlowError> for Problem {
    fn from(error: FlowError) -> Problem {
        match error {
            FlowError::Refused(no) => Problem::refused(&no),
            other => Problem::internal(&other),
        }
    }
}

impl From<ActError> for Problem {
    fn from(error: ActError) -> Problem {
        match error {
            ActError::Absent(entity) => Problem::absent("such thing", &entity.to_string()),
            ActError::Refused(no) => Problem::refused(&no),
            ActError::Contended => Problem::busy("others keep changing the same rows; try again"),
            ActError::Store(error) => error.into(),
            ActError::Stale { expected, found } => {
                let said = ActError::Stale { expected, found }.to_string();
                Problem::conflict("stale_revision", said).with("expected", expected).with("revision", found)
            }
            ActError::Unfit(why) => Problem::invalid(vec![(String::new(), why)]),
            other => Problem::internal(&other),
        }
    }
}

impl From<LogError> for Problem {
    fn from(error: LogError) -> Problem {
        let said = error.to_string();
        match error {
            LogError::Store(StoreError::Duplicate(what)) => {
                Problem::conflict("already_there", format!("{what} is here already, and is not brought in twice"))
            }
            LogError::Store(error) => error.into(),
            LogError::Refused(no) => Problem::refused(&no),
            LogError::Absent(id) => Problem::absent("session", &id.to_string()),
            LogError::Unset => Problem::conflict("no_archive", said),
            LogError::Broken(seq) => Problem::conflict("log_broken", said).with("seq", seq),
            LogError::Contended => Problem::busy(&said),
            LogError::Unfit(_) => Problem::invalid(vec![(String::new(), said)]),
            LogError::Archive(ArchiveError::Damaged { object, first, last, .. }) => {
                let title = "The archive is damaged";
                Problem::new(StatusCode::BAD_GATEWAY, "archive_damaged", title, said)
                    .with("object", object)
                    .with("first_lost", first)
                    .with("last_lost", last)
            }
            LogError::Archive(ArchiveError::NoSegment(_)) => Problem::invalid(vec![(String::new(), said)]),
            LogError::Archive(ArchiveError::Unavailable(reason)) => {
                tracing::warn!(reason, "cold storage does not answer");
                Problem::busy("cold storage does not answer; try again")
            }
            LogError::Archive(_) | LogError::Untold(_) => Problem::internal(&said),
        }
    }
}

impl From<serde_json::Error> for Problem {
    fn from(error: serde_json::Error) -> Problem {
        Problem::internal(&error)
    }
}

/// The runes of a command that was carried out; none if it was already so.
pub(crate) fn runes_of(done: Done) -> Vec<instar_core::rune::Rune> {
    match done {
        Done::Moved { runes } => runes,
        Done::Ignored => Vec::new(),
    }
}
