//! The way of every request: span, key, role, query, body, idempotency, handler, answer.

use crate::call::{Call, Reply};
use crate::idempotency::{Before, Key, Shown};
use crate::listen::Peer;
use crate::problem::Problem;
use crate::route::{ROUTES, Route};
use crate::state::Api;
use crate::strict::Strict;
use axum::body::Body;
use axum::extract::{ConnectInfo, FromRequestParts, Query, RawPathParams};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use instar_runtime::telemetry::{self, name::metric};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tracing::Instrument;
use uuid::Uuid;

pub(crate) const REQUESTS: &str = "instar.http.requests";
pub(crate) const DURATION: &str = metric::HTTP_DURATION;
const REQUEST_ID: &str = "x-request-id";
const REQUEST_ID_BYTES_MAX: usize = 128;
/// How long a refused repeat looks for the answer that another process may be storing.
const REPEAT_LOOKS: usize = 4;
const REPEAT_PAUSE: Duration = Duration::from_millis(25);

/// Takes a request to one path through; `routes` are what the path can do.
pub(crate) async fn take(api: Arc<Api>, routes: &'static [&'static Route], request: Request<Body>) -> Response {
    let (parts, body) = request.into_parts();
    let started = Instant::now();
    let path = routes.first().map_or("unmatched", |route| route.path);
    let method = method_label(&parts.method);
    let request_id = request_id(&parts.headers);
    let span = tracing::info_span!(
        "request",
        otel.name = format!("{method} {path}"),
        otel.kind = "server",
        http.request.method = method,
        http.route = path,
        http.response.status_code = tracing::field::Empty,
        request.id = request_id,
    );
    if let Some(parent) = parts.headers.get("traceparent").and_then(|value| value.to_str().ok()) {
        telemetry::set_parent(&span, parent);
    }
    let traceparent = telemetry::traceparent_of(&span);
    let answer = answer(api, routes, parts, body, traceparent).instrument(span.clone()).await;
    let mut response = answer.unwrap_or_else(|problem| span.in_scope(|| problem.response(&request_id)));
    span.record("http.response.status_code", response.status().as_u16());
    if let Ok(id) = HeaderValue::try_from(request_id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    let status = response.status().as_u16().to_string();
    metrics::counter!(REQUESTS, "route" => path, "method" => method, "status" => status.clone()).increment(1);
    metrics::histogram!(DURATION, "route" => path, "method" => method, "status" => status)
        .record(started.elapsed().as_secs_f64());
    response
}

async fn answer(
    api: Arc<Api>,
    routes: &'static [&'static Route],
    parts: Parts,
    body: Body,
    traceparent: Option<String>,
) -> Result<Response, Problem> {
    if routes.is_empty() {
        return Err(Problem::no_route());
    }
    let Some(route) = routes.iter().find(|route| route.method == parts.method.as_str()) else {
        let allowed: Vec<&str> = routes.iter().map(|route| route.method).collect();
        return Err(Problem::method(&allowed));
    };
    let limit_ms = api.context.config.api.request_timeout_ms;
    let limit = Duration::from_millis(limit_ms);
    let work = carry(api, route, parts, body, traceparent);
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err(Problem::timeout(limit_ms)))
}

async fn carry(
    api: Arc<Api>,
    route: &'static Route,
    mut parts: Parts,
    body: Body,
    traceparent: Option<String>,
) -> Result<Response, Problem> {
    let from = parts.extensions.get::<ConnectInfo<Peer>>().map(|from| from.0.0);
    let caller = api.keys.caller(api.store(), &parts.headers, from).await?;
    api.pace.take(caller.key, Instant::now()).map_err(|wait| {
        let most = api.pace.most();
        Problem::too_many(&format!("this key may make {most} requests a second; wait a moment"), wait)
    })?;
    if caller.role < route.role {
        return Err(Problem::forbidden(caller.role.token(), route.role.token()));
    }
    let params = RawPathParams::from_request_parts(&mut parts, &()).await.map_err(|_| Problem::no_route())?;
    let path = params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let query = query(route, &parts)?;
    let mut raw = Bytes::new();
    let body = match route.reads_body() {
        true if route.raw || route.content => {
            let config = &api.context.config;
            let limit = if route.raw { config.archive.import_bytes_max } else { config.assets.bytes_max };
            raw = whole(&api, &parts.headers, body, limit as usize).await?;
            // Stands for the body where the same key must mean the same request.
            Map::from_iter([("sha256".to_owned(), sha256(&raw).into())])
        }
        true => self::body(&api, route, &parts.headers, body).await?,
        false => Map::new(),
    };
    let key = Key::read(&parts.headers, &parts.method, parts.uri.path(), &route.masked(&body, api.vault.as_ref()))?;
    let call = Call {
        api,
        caller,
        path,
        query,
        headers: parts.headers,
        body,
        raw,
        key,
        traceparent,
        session: OnceLock::new(),
        done: OnceLock::new(),
    };
    if call.key.is_none() {
        return (route.run)(Arc::new(call)).await.map(IntoResponse::into_response);
    }
    once(route, Arc::new(call)).await
}

/// A request with an Idempotency-Key.
async fn once(route: &'static Route, call: Arc<Call>) -> Result<Response, Problem> {
    let _turn = match &call.key {
        // Its commit refuses a repeat by itself.
        Some(key) if !route.keeps => {
            let turn = call.api.repeats.enter((call.caller.namespace.clone(), key.text.clone())).await;
            if let Some(Before::Answered(answer)) = call.repeated().await? {
                return Ok(answer);
            }
            Some(turn)
        }
        _ => None,
    };
    match answered(route, &call).await {
        // Whatever stands against it now: if it was answered before, that answer stands.
        Err(problem) => {
            // Another process may have carried it out and be about to store its answer.
            let looks = if !route.keeps && problem.status == StatusCode::CONFLICT { REPEAT_LOOKS } else { 1 };
            for look in 0..looks {
                if look > 0 {
                    tokio::time::sleep(REPEAT_PAUSE).await;
                }
                match call.repeated().await {
                    Ok(Some(Before::Answered(answer))) => return Ok(answer),
                    Err(other) if other.status == StatusCode::UNPROCESSABLE_ENTITY => return Err(other),
                    _ => {}
                }
            }
            match problem.code {
                // It was carried out, and nobody is left to store an answer.
                "duplicate" if call.carried_out().is_some() => answered(route, &call).await,
                "duplicate" => Err(Problem::busy("the same request is under way; try again")),
                _ => Err(problem),
            }
        }
        done => done,
    }
}

async fn answered(route: &'static Route, call: &Arc<Call>) -> Result<Response, Problem> {
    let reply = match reread(call).await? {
        Some(reply) => reply,
        None => (route.run)(call.clone()).await?,
    };
    if let Reply::Json { status, body, kept: false } = &reply
        && status.is_success()
    {
        call.store_answer(*status, body).await;
    }
    Ok(reply.into_response())
}

/// The answer to what has landed before: what it was done to, as it is now. Whatever would stand in its way by now is
/// not looked at, since nothing is left to do.
async fn reread(call: &Call) -> Result<Option<Reply>, Problem> {
    let Some(shown) = call.carried_out().and_then(Shown::of) else { return Ok(None) };
    let found = |path| ROUTES.iter().find(|route| route.method == Method::GET.as_str() && route.path == path);
    let Some(route) = shown.path().and_then(found) else { return Ok(None) };
    let read = Call {
        api: call.api.clone(),
        caller: call.caller.clone(),
        path: vec![("id".to_owned(), shown.id())],
        query: Vec::new(),
        headers: HeaderMap::new(),
        body: Map::new(),
        raw: Bytes::new(),
        key: None,
        traceparent: call.traceparent.clone(),
        session: OnceLock::new(),
        done: OnceLock::new(),
    };
    match (route.run)(Arc::new(read)).await? {
        Reply::Json { body, .. } => Ok(Some(Reply::Json { status: shown.status(), body, kept: false })),
        Reply::Raw(_) => Ok(None),
    }
}

fn query(route: &Route, parts: &Parts) -> Result<Vec<(String, String)>, Problem> {
    let bad = |_| Problem::invalid(vec![(String::new(), "the query cannot be read".into())]);
    let Query(query) = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri).map_err(bad)?;
    let known = |name: &str| route.query.iter().any(|param| param.name == name);
    let unknown = query.iter().filter(|(name, _)| !known(name));
    let list = route.query.iter().map(|param| param.name).collect::<Vec<_>>().join(", ");
    let list = if list.is_empty() { "none".to_owned() } else { list };
    let wrong: Vec<(String, String)> = unknown
        .map(|(name, _)| (format!("/{name}"), format!("there is no such parameter; known are: {list}")))
        .collect();
    if wrong.is_empty() { Ok(query) } else { Err(Problem::invalid(wrong)) }
}

/// Reads and checks the body: an object, or nothing where nothing is needed.
async fn body(api: &Api, route: &Route, headers: &HeaderMap, body: Body) -> Result<Map<String, Value>, Problem> {
    let bytes = whole(api, headers, body, api.context.config.api.body_bytes_max as usize).await?;
    let map = if bytes.is_empty() {
        Map::new()
    } else {
        if !is_json(headers) {
            return Err(Problem::content_type());
        }
        let unreadable = |no: serde_json::Error| {
            let said = if no.is_data() { no.to_string() } else { format!("not JSON: {no}") };
            Problem::invalid(vec![(String::new(), said)])
        };
        match serde_json::from_slice(&bytes).map_err(unreadable)? {
            Strict(Value::Object(map)) => map,
            _ => return Err(Problem::invalid(vec![(String::new(), "the body must be a JSON object".into())])),
        }
    };
    if let Some(shape) = route.takes {
        shape.check(&map).map_err(Problem::invalid)?;
    }
    Ok(map)
}

/// Whoever sends slowly is told before the time of the whole request is over: nothing was begun yet.
async fn whole(api: &Api, headers: &HeaderMap, body: Body, limit: usize) -> Result<Bytes, Problem> {
    let told = headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()).and_then(|v| v.parse::<usize>().ok());
    if told.is_some_and(|length| length > limit) {
        return Err(Problem::too_large(limit));
    }
    let within_ms = api.context.config.api.request_timeout_ms * 9 / 10;
    let read = tokio::time::timeout(Duration::from_millis(within_ms), axum::body::to_bytes(body, limit)).await;
    read.map_err(|_| Problem::slow_body(within_ms))?.map_err(|_| Problem::too_large(limit))
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(kind) = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()) else { return false };
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}

/// What the caller calls his request, if it can be repeated in a header; else a new name.
fn request_id(headers: &HeaderMap) -> String {
    let given = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok());
    match given.filter(|id| !id.is_empty() && id.len() <= REQUEST_ID_BYTES_MAX) {
        Some(id) => id.to_owned(),
        None => Uuid::now_v7().simple().to_string(),
    }
}

/// Metrics must not grow a label per invented method.
fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::PUT => "PUT",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}
