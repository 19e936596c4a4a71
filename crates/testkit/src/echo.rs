//! A tool that tells everything it was sent, as an indiscreet service would: in plain text, in base 64, in
//! hexadecimal and as in a URL. What it received is kept for whoever asks.
//!
//! `POST /echo/{name}`; the query `fail=500` answers with that status, `hang` never answers.
//!
//! It must not know the system under test.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::post;
use serde_json::json;

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Received {
    pub name: String,
    /// Names in lower case.
    pub headers: BTreeMap<String, String>,
    pub query: String,
    pub body: String,
}

pub(crate) type Kept = Arc<Mutex<Vec<Received>>>;

pub(crate) fn routes(kept: Kept) -> Router {
    Router::new().route("/echo/{name}", post(echo)).with_state(kept)
}

pub(crate) fn all(kept: &Kept) -> Vec<Received> {
    kept.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

async fn echo(
    State(kept): State<Kept>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let headers = headers.iter().map(|(name, value)| (name.to_string(), text(value.as_bytes()))).collect();
    let received = Received { name, headers, query: query.unwrap_or_default(), body: text(&body) };
    kept.lock().unwrap_or_else(PoisonError::into_inner).push(received.clone());
    let asks = |name: &str| received.query.split('&').find_map(|pair| pair.strip_prefix(name));
    if asks("hang").is_some() {
        std::future::pending::<()>().await;
    }
    let said = json!({"headers": received.headers, "query": received.query, "body": received.body}).to_string();
    let told = json!({
        "plain": said,
        "base64": base64(said.as_bytes()),
        "hex": said.bytes().map(|byte| format!("{byte:02x}")).collect::<String>(),
        "percent": said.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>(),
    });
    match asks("fail=").and_then(|status| status.parse().ok()).and_then(|status| StatusCode::from_u16(status).ok()) {
        Some(status) => (status, Json(told)).into_response(),
        None => Json(told).into_response(),
    }
}

pub fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |chunk: &[u8]| {
        let bits = (0..3).fold(0u32, |bits, i| bits << 8 | u32::from(*chunk.get(i).unwrap_or(&0)));
        let text: String =
            (0..=chunk.len()).map(|i| char::from(ALPHABET[(bits >> (18 - 6 * i) & 63) as usize])).collect();
        format!("{text:=<4}")
    };
    bytes.chunks(3).map(group).collect()
}
