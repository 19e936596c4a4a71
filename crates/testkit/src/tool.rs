//! An HTTP tool whose effects are witnessed by a ledger of its own.
//!
//! `POST /effect/{name}` does one effect and answers `{"effect": number, "name": …}`. The query
//! asks for faults:
//!
//! | query | what happens |
//! |---|---|
//! | `delay_ms=50` | waits before the effect |
//! | `fail=500` | answers with that status and does no effect |
//! | `hang` | never answers, and does no effect |
//! | `drop` | does the effect, then closes the connection without answering |
//! | `when=before`, `when=after` | does the fault before or after the effect instead |
//!
//! It must not know the system under test.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::post;
use axum::{Router, extract::rejection::QueryRejection};
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::bucket;
use crate::echo::{self, Received};
use crate::http::{Listening, cut_connection};
use crate::ledger::{Effect, Ledger};

/// Says which attempt of a call this is, if the caller sends it.
pub const ATTEMPT_HEADER: &str = "instar-attempt";
const BODY_BYTES_MAX: usize = 64 << 20;

/// How the tool treats a key it has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Idempotency {
    /// Does the effect again: what most tools of the world do.
    #[default]
    None,
    /// Does no second effect and answers as the first time.
    ByKey,
}

struct Inner {
    echoed: echo::Kept,
    objects: bucket::Objects,
    ledger: Ledger,
    idempotency: Idempotency,
    requests: AtomicU64,
}

/// A running tool server; it ends when dropped.
pub struct Tool {
    inner: Arc<Inner>,
    listening: Listening,
}

impl Tool {
    pub async fn start(ledger: Ledger, idempotency: Idempotency) -> Result<Self> {
        let inner = Arc::new(Inner {
            echoed: Default::default(),
            objects: Default::default(),
            ledger,
            idempotency,
            requests: AtomicU64::new(0),
        });
        let routes = Router::new()
            .route("/effect/{name}", post(effect))
            .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
            .with_state(inner.clone())
            .merge(echo::routes(inner.echoed.clone()))
            .merge(bucket::routes(inner.objects.clone()));
        Ok(Self { inner, listening: Listening::start(routes).await? })
    }

    pub fn url(&self) -> &str {
        self.listening.url()
    }

    /// Names of the objects in its bucket ([`bucket::BUCKET`]), in order.
    pub fn objects(&self) -> Vec<String> {
        bucket::lock(&self.inner.objects).keys().cloned().collect()
    }

    /// Changes an object in the bucket behind everybody's back; false if there is none.
    pub fn spoil(&self, object: &str, with: impl FnOnce(&mut Vec<u8>)) -> bool {
        let mut objects = bucket::lock(&self.inner.objects);
        let Some(bytes) = objects.get_mut(object) else { return false };
        let mut spoilt = bytes.to_vec();
        with(&mut spoilt);
        *bytes = spoilt.into();
        true
    }

    /// The address of one effect, to which a query may be added.
    pub fn effect_url(&self, name: &str) -> String {
        format!("{}/effect/{name}", self.url())
    }

    pub fn ledger(&self) -> &Ledger {
        &self.inner.ledger
    }

    /// What `POST /echo/{name}` was sent, in order.
    pub fn echoed(&self) -> Vec<Received> {
        echo::all(&self.inner.echoed)
    }

    /// All requests, also those without an effect.
    pub fn requests(&self) -> u64 {
        self.inner.requests.load(Ordering::Relaxed)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum When {
    Before,
    After,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Faults {
    #[serde(default)]
    delay_ms: u64,
    fail: Option<u16>,
    hang: Option<String>,
    drop: Option<String>,
    when: Option<When>,
}

impl Faults {
    fn are_before(&self) -> bool {
        match self.when {
            Some(When::Before) => true,
            Some(When::After) => false,
            None => self.drop.is_none(),
        }
    }

    async fn happen(&self) -> Option<Response> {
        if self.drop.is_some() {
            cut_connection();
        }
        if self.hang.is_some() {
            std::future::pending::<()>().await;
        }
        let status = StatusCode::from_u16(self.fail?).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Some((status, Json(json!({ "error": "failed as asked" }))).into_response())
    }
}

async fn effect(
    State(inner): State<Arc<Inner>>,
    Path(name): Path<String>,
    faults: Result<Query<Faults>, QueryRejection>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    inner.requests.fetch_add(1, Ordering::Relaxed);
    let faults = match faults {
        Ok(Query(faults)) => faults,
        Err(rejection) => return rejection.into_response(),
    };
    tokio::time::sleep(Duration::from_millis(faults.delay_ms)).await;
    if faults.are_before()
        && let Some(response) = faults.happen().await
    {
        return response;
    }
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let digest: String = Sha256::digest(&body).iter().map(|byte| format!("{byte:02x}")).collect();
    let (key, attempt) = (header("idempotency-key"), header(ATTEMPT_HEADER));
    let asked = Effect { number: 0, at_ms: 0, name, key, digest, attempt };
    let once = inner.idempotency == Idempotency::ByKey;
    let (witness, done) = (inner.clone(), asked.name.clone());
    // The disk is waited for aside. The task goes on when the caller leaves: an effect is done or
    // not, never half.
    let recorded = tokio::task::spawn_blocking(move || witness.ledger.record(asked, once)).await;
    let number = match recorded {
        Ok(Ok(effect)) => effect.number,
        Ok(Err(error)) => {
            return (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response();
        }
        Err(error) => {
            return (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response();
        }
    };
    if !faults.are_before()
        && let Some(response) = faults.happen().await
    {
        return response;
    }
    Json(json!({ "effect": number, "name": done })).into_response()
}
