//! A request on its way through the house, and the answer on its way back.

use crate::auth::Caller;
use crate::idempotency::Key;
use crate::problem::Problem;
use crate::state::Api;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use instar_core::id::{InvalidId, SessionId};
use instar_core::rune::Actor;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

pub(crate) struct Call {
    pub(crate) api: Arc<Api>,
    pub(crate) caller: Caller,
    /// What the path's placeholders stand for.
    pub(crate) path: Vec<(String, String)>,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Map<String, Value>,
    /// The body as it came, where a route takes any.
    pub(crate) raw: Bytes,
    pub(crate) key: Option<Key>,
    pub(crate) traceparent: Option<String>,
    /// The session that it turned out to be about.
    pub(crate) session: OnceLock<SessionId>,
    /// Its commit landed before, and nobody was told: what the commit noted of it.
    pub(crate) done: OnceLock<Value>,
}

impl Call {
    pub(crate) fn actor(&self) -> Actor {
        self.caller.actor()
    }

    pub(crate) fn part(&self, name: &str) -> &str {
        self.path.iter().find(|(n, _)| n == name).map_or("", |(_, value)| value)
    }

    /// The id in the path. A text that is none belongs to nothing: 404, as for one that is unknown.
    pub(crate) fn id<T: FromStr<Err = InvalidId>>(&self, what: &str) -> Result<T, Problem> {
        let text = self.part("id");
        text.parse().map_err(|_| Problem::absent(what, text))
    }

    pub(crate) fn asked(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// An id given as a filter.
    pub(crate) fn filter<T: FromStr<Err = InvalidId>>(&self, name: &str) -> Result<Option<T>, Problem> {
        let read = |text: &str| text.parse().map_err(|no: InvalidId| Problem::field(name, no.to_string()));
        self.asked(name).map(read).transpose()
    }

    /// The body in the form a handler wants; its fields were checked before.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        serde_json::from_value(Value::Object(self.body.clone()))
            .map_err(|no| Problem::invalid(vec![(String::new(), no.to_string())]))
    }
}

/// What a handler answers.
pub(crate) enum Reply {
    /// `kept`: the answer is stored under the request's key already.
    Json { status: StatusCode, body: Value, kept: bool },
    /// Anything that is not repeated from storage.
    Raw(Response),
}

impl Reply {
    pub(crate) fn ok(body: Value) -> Reply {
        Reply::Json { status: StatusCode::OK, body, kept: false }
    }

    pub(crate) fn kept(status: StatusCode, body: Value) -> Reply {
        Reply::Json { status, body, kept: true }
    }

    /// JSON written straight from its type: raw parts stay as they are.
    pub(crate) fn exact(body: &impl Serialize) -> Result<Reply, Problem> {
        Ok(Reply::Raw(json(StatusCode::OK, serde_json::to_string(body)?)))
    }

    pub(crate) fn text(content_type: &'static str, text: String) -> Reply {
        let mut response = text.into_response();
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        Reply::Raw(response)
    }
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        match self {
            Reply::Json { status, body, .. } => json(status, body.to_string()),
            Reply::Raw(response) => response,
        }
    }
}

pub(crate) fn json(status: StatusCode, text: String) -> Response {
    let mut response = (status, Body::from(text)).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
