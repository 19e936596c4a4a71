//! A bucket that speaks as much S3 as a client of the standard library of objects needs: `PUT`, `GET` with ranges,
//! `HEAD`, `DELETE`, listing by prefix, and deletion of many. Requests must be signed; the signature is not judged.
//!
//! It must not know the system under test.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};

/// Its name, the first part of every path.
pub const BUCKET: &str = "bucket";
/// An object never changes here without a name of its own, so that one moment is as good as another.
const MODIFIED: &str = "Wed, 18 Nov 2026 00:00:00 GMT";
const MODIFIED_ISO: &str = "2026-11-18T00:00:00.000Z";

pub(crate) type Objects = Arc<Mutex<BTreeMap<String, Bytes>>>;

pub(crate) fn routes(objects: Objects) -> Router {
    Router::new()
        .route(&format!("/{BUCKET}"), get(list).post(delete_many))
        .route(&format!("/{BUCKET}/{{*key}}"), put(keep).get(read).delete(remove))
        .layer(middleware::from_fn(signed))
        .layer(DefaultBodyLimit::disable())
        .with_state(objects)
}

pub(crate) fn lock(objects: &Objects) -> MutexGuard<'_, BTreeMap<String, Bytes>> {
    objects.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn signed(request: Request, next: Next) -> Response {
    let authorization = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    match authorization.is_some_and(|value| value.starts_with("AWS4-HMAC-SHA256 Credential=")) {
        true => next.run(request).await,
        false => error(StatusCode::FORBIDDEN, "AccessDenied"),
    }
}

fn error(status: StatusCode, code: &str) -> Response {
    (status, xml(format!("<Error><Code>{code}</Code><Message>{code}</Message></Error>"))).into_response()
}

fn xml(body: String) -> Response {
    ([(header::CONTENT_TYPE, "application/xml")], format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>{body}"))
        .into_response()
}

fn tag(bytes: &Bytes) -> String {
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest(bytes);
    format!("\"{}\"", digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect::<String>())
}

async fn keep(State(objects): State<Objects>, Path(key): Path<String>, bytes: Bytes) -> Response {
    let tag = tag(&bytes);
    lock(&objects).insert(key, bytes);
    [(header::ETAG, tag)].into_response()
}

/// Also `HEAD`: the server leaves the body out.
async fn read(State(objects): State<Objects>, Path(key): Path<String>, headers: HeaderMap) -> Response {
    let Some(bytes) = lock(&objects).get(&key).cloned() else { return error(StatusCode::NOT_FOUND, "NoSuchKey") };
    let about = [(header::ETAG, tag(&bytes)), (header::LAST_MODIFIED, MODIFIED.to_owned())];
    let asked = headers.get(header::RANGE).and_then(|value| value.to_str().ok());
    let Some(asked) = asked else { return (about, Body::from(bytes)).into_response() };
    let size = bytes.len();
    let range = asked.strip_prefix("bytes=").and_then(|range| range.split_once('-'));
    let range = range.and_then(|(from, to)| Some((from.parse::<usize>().ok()?, to.parse::<usize>().ok()?)));
    match range.filter(|(from, to)| from <= to && *from < size) {
        Some((from, to)) => {
            let to = to.min(size - 1);
            let shown = [(header::CONTENT_RANGE, format!("bytes {from}-{to}/{size}"))];
            (StatusCode::PARTIAL_CONTENT, about, shown, Body::from(bytes.slice(from..=to))).into_response()
        }
        None => error(StatusCode::RANGE_NOT_SATISFIABLE, "InvalidRange"),
    }
}

async fn remove(State(objects): State<Objects>, Path(key): Path<String>) -> StatusCode {
    lock(&objects).remove(&key);
    StatusCode::NO_CONTENT
}

async fn list(State(objects): State<Objects>, Query(asked): Query<BTreeMap<String, String>>) -> Response {
    if asked.get("list-type").map(String::as_str) != Some("2") {
        return error(StatusCode::NOT_IMPLEMENTED, "NotImplemented");
    }
    let prefix = asked.get("prefix").map_or("", String::as_str);
    let mut found = String::new();
    for (key, bytes) in lock(&objects).iter().filter(|(key, _)| key.starts_with(prefix)) {
        let (size, tag) = (bytes.len(), tag(bytes).replace('"', "&quot;"));
        found += &format!(
            "<Contents><Key>{key}</Key><LastModified>{MODIFIED_ISO}</LastModified><ETag>{tag}</ETag>\
             <Size>{size}</Size></Contents>"
        );
    }
    xml(format!("<ListBucketResult><IsTruncated>false</IsTruncated>{found}</ListBucketResult>"))
}

async fn delete_many(State(objects): State<Objects>, body: String) -> Response {
    let keys = body.split("<Key>").skip(1).filter_map(|rest| rest.split_once("</Key>").map(|(key, _)| key));
    let mut done = String::new();
    for key in keys {
        lock(&objects).remove(key);
        done += &format!("<Deleted><Key>{key}</Key></Deleted>");
    }
    xml(format!("<DeleteResult>{done}</DeleteResult>"))
}
