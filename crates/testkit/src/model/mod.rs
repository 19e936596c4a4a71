//! A model that says what a script tells it, in the wire formats of two providers.
//!
//! `POST /v1/chat/completions` speaks OpenAI Chat Completions, `POST /v1/messages` Anthropic
//! Messages, both streamed and whole. Requests that the real provider would refuse are refused.
//! Without a word from the script there is no artificial delay.
//!
//! It must not know the product's adapters: it is written from the providers' formats.

mod chat;
mod encode;
mod messages;
mod reply;
mod request;
mod script;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use anyhow::Result;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, Response};
use axum::routing::post;
use serde_json::Value;

pub use reply::{Break, Finish, Part, Refusal, Reply, Usage};
pub use request::{Dialect, Request, ToolResult};
pub use script::Script;

use crate::http::Listening;

/// Older requests are forgotten, not counted out.
const RECORDED_MAX: usize = 10_000;
const BODY_BYTES_MAX: usize = 64 << 20;

/// How often what happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub requests: u64,
    /// Replies of the script that were answers, whole or broken.
    pub answered: u64,
    /// Replies of the script that were errors or silence.
    pub refused: u64,
    /// Requests that broke the format and never reached the script.
    pub invalid: u64,
    /// Most requests whose reply was being prepared at one time.
    pub together_max: u64,
    /// Replies that the client did not wait for to the end.
    pub given_up: u64,
}

/// A reply whose client closed the connection before it was whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenUp {
    /// The number of its request.
    pub request: u64,
    pub at: Instant,
}

struct Inner {
    script: Script,
    recorded: VecDeque<Request>,
    given_up: VecDeque<GivenUp>,
    counts: Counts,
    together: u64,
}

type Shared = Arc<Mutex<Inner>>;

/// A running model server; it ends when dropped.
pub struct Model {
    inner: Shared,
    listening: Listening,
}

impl Model {
    pub async fn start(script: Script) -> Result<Self> {
        let (recorded, given_up, counts) = (VecDeque::new(), VecDeque::new(), Counts::default());
        let inner = Arc::new(Mutex::new(Inner { script, recorded, given_up, counts, together: 0 }));
        let routes = Router::new()
            .route("/v1/chat/completions", post(|state, headers, body| serve(Dialect::Chat, state, headers, body)))
            .route("/v1/messages", post(|state, headers, body| serve(Dialect::Messages, state, headers, body)))
            .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
            .with_state(inner.clone());
        Ok(Self { inner, listening: Listening::start(routes).await? })
    }

    /// `http://127.0.0.1:port`, without the version that clients of one provider expect in it and
    /// those of the other do not.
    pub fn url(&self) -> &str {
        self.listening.url()
    }

    /// Replaces the script for requests to come.
    pub fn set_script(&self, script: Script) {
        lock(&self.inner).script = script;
    }

    /// The requests so far, oldest first; at most the last ten thousand.
    pub fn requests(&self) -> Vec<Request> {
        lock(&self.inner).recorded.iter().cloned().collect()
    }

    /// The replies so far that a client gave up, in that order; at most the last ten thousand.
    pub fn given_up(&self) -> Vec<GivenUp> {
        lock(&self.inner).given_up.iter().copied().collect()
    }

    pub fn counts(&self) -> Counts {
        lock(&self.inner).counts
    }
}

fn lock(inner: &Shared) -> MutexGuard<'_, Inner> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts a request out when its reply is ready, or when the client has gone.
struct Together(Shared);

impl Drop for Together {
    fn drop(&mut self) {
        lock(&self.0).together -= 1;
    }
}

/// Goes with a reply to its last byte; dropped before that, the client has gone.
pub(crate) struct Hearing {
    request: u64,
    shared: Option<Shared>,
}

impl Hearing {
    /// What ends from here on is not the client's doing.
    pub(crate) fn over(&mut self) {
        self.shared = None;
    }
}

impl Drop for Hearing {
    fn drop(&mut self) {
        let Some(shared) = self.shared.take() else { return };
        let mut inner = lock(&shared);
        inner.counts.given_up += 1;
        if inner.given_up.len() == RECORDED_MAX {
            inner.given_up.pop_front();
        }
        inner.given_up.push_back(GivenUp { request: self.request, at: Instant::now() });
    }
}

async fn serve(dialect: Dialect, State(shared): State<Shared>, headers: HeaderMap, body: Bytes) -> Response<Body> {
    let text = |value: &axum::http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let headers = headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value)));
    let parsed = serde_json::from_slice::<Value>(&body);
    let body_problem = parsed.as_ref().err().map(|error| format!("the body is not JSON: {error}"));
    let mut request = Request {
        number: 0,
        dialect,
        at: SystemTime::now(),
        headers: headers.collect(),
        body: parsed.unwrap_or_default(),
    };
    let problem = body_problem.or_else(|| request.problem());
    let (script, _together) = {
        let mut inner = lock(&shared);
        inner.counts.requests += 1;
        inner.together += 1;
        inner.counts.together_max = inner.counts.together_max.max(inner.together);
        request.number = inner.counts.requests;
        if inner.recorded.len() == RECORDED_MAX {
            inner.recorded.pop_front();
        }
        inner.recorded.push_back(request.clone());
        (inner.script.clone(), Together(shared.clone()))
    };
    if let Some(problem) = problem {
        lock(&shared).counts.invalid += 1;
        return encode::refused(&Refusal::Invalid(problem), dialect);
    }
    let reply = script.reply(&request);
    let answers = matches!(reply.outcome, reply::Outcome::Answer);
    {
        let counts = &mut lock(&shared).counts;
        *(if answers { &mut counts.answered } else { &mut counts.refused }) += 1;
    }
    let hearing = Hearing { request: request.number, shared: Some(shared) };
    encode::response(&reply, &request, hearing).await
}
