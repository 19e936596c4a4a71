//! From a reply to an HTTP response, with its delays and its way of breaking.
//!
//! It must not know the formats beyond choosing between them.

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::http::Response;
use bytes::Bytes;
use futures::stream::{self, StreamExt};

use super::reply::{Break, Outcome, Refusal, Reply};
use super::{Dialect, Hearing, Request, chat, messages};

type Item = Result<Bytes, io::Error>;

/// What is sent next, one after the other.
enum Step {
    Bytes(String),
    Cut,
    Hang,
}

pub(super) async fn response(reply: &Reply, request: &Request, mut hearing: Hearing) -> Response<Body> {
    pause(reply.first_after).await;
    match &reply.outcome {
        Outcome::Answer => return answer(reply, request, hearing),
        Outcome::Never(Break::Hang) => std::future::pending().await,
        Outcome::Refusal(_) | Outcome::Never(_) => hearing.over(),
    }
    match &reply.outcome {
        Outcome::Refusal(refusal) => refused(refusal, request.dialect),
        _ => crate::http::cut_connection(),
    }
}

fn answer(reply: &Reply, request: &Request, mut hearing: Hearing) -> Response<Body> {
    let streaming = request.is_streaming();
    let steps = match (streaming, request.dialect) {
        (true, Dialect::Chat) => broken(chat::frames(reply, request), reply, chat::error_frame),
        (true, Dialect::Messages) => broken(messages::frames(reply, request), reply, messages::error_frame),
        (false, Dialect::Chat) => halved(chat::whole(reply, request).to_string(), reply),
        (false, Dialect::Messages) => halved(messages::whole(reply, request).to_string(), reply),
    };
    let (between, last) = (reply.between, steps.len().saturating_sub(1));
    let body = stream::iter(steps).enumerate().then(move |(place, step)| {
        // With the last of it the reply is whole, whether or not its end is waited for.
        if place == last && !matches!(step, Step::Hang) {
            hearing.over();
        }
        async move {
            if place > 0 {
                pause(between).await;
            }
            let sent: Item = match step {
                Step::Bytes(text) => Ok(Bytes::from(text)),
                // An error of the body makes the server close the connection in the middle of it.
                Step::Cut => {
                    // Let what was sent before leave first.
                    tokio::task::yield_now().await;
                    Err(io::Error::other("cut by the script"))
                }
                Step::Hang => std::future::pending().await,
            };
            sent
        }
    });
    let kind = if streaming { "text/event-stream; charset=utf-8" } else { "application/json" };
    build(200, kind, request.dialect, &[], Body::from_stream(body))
}

fn broken(frames: Vec<String>, reply: &Reply, error_frame: fn() -> String) -> Vec<Step> {
    let Some((after, how)) = reply.broken else {
        return frames.into_iter().map(Step::Bytes).collect();
    };
    // The terminal event is never sent by a stream that is to break.
    let kept = after.min(frames.len().saturating_sub(1));
    let mut frames = frames.into_iter().map(Step::Bytes);
    let mut steps: Vec<Step> = frames.by_ref().take(kept).collect();
    match how {
        Break::Cut => steps.push(Step::Cut),
        Break::Hang => steps.push(Step::Hang),
        Break::Error => steps.push(Step::Bytes(error_frame())),
        Break::Malformed => {
            steps.push(Step::Bytes("data: {\"id\":\"broken\",\"choices\":[{\"ind\n\n".to_owned()));
            steps.extend(frames);
        }
    }
    steps
}

fn halved(body: String, reply: &Reply) -> Vec<Step> {
    let Some((_, how)) = reply.broken else {
        return vec![Step::Bytes(body)];
    };
    let half = (0..=body.len() / 2).rev().find(|at| body.is_char_boundary(*at)).unwrap_or(0);
    let first = Step::Bytes(body[..half].to_owned());
    match how {
        Break::Cut | Break::Error => vec![first, Step::Cut],
        Break::Hang => vec![first, Step::Hang],
        Break::Malformed => vec![first],
    }
}

pub(super) fn refused(refusal: &Refusal, dialect: Dialect) -> Response<Body> {
    let (status, body) = match dialect {
        Dialect::Chat => chat::refusal(refusal),
        Dialect::Messages => messages::refusal(refusal),
    };
    let mut headers = Vec::new();
    if let Refusal::RateLimited { retry_after: Some(wait) } = refusal {
        // Fractions are allowed, and keep tests short.
        headers.push(("retry-after", wait.as_secs_f64().to_string()));
    }
    build(status, "application/json", dialect, &headers, Body::from(body.to_string()))
}

fn build(status: u16, kind: &str, dialect: Dialect, headers: &[(&str, String)], body: Body) -> Response<Body> {
    let id = format!("req_{}", token());
    let mut response = Response::builder().status(status).header("content-type", kind);
    response = match dialect {
        Dialect::Chat => response
            .header("x-request-id", id)
            .header("x-ratelimit-limit-requests", "10000")
            .header("x-ratelimit-remaining-requests", "9999")
            .header("x-ratelimit-reset-requests", "6ms"),
        Dialect::Messages => response
            .header("request-id", id)
            .header("anthropic-ratelimit-requests-limit", "10000")
            .header("anthropic-ratelimit-requests-remaining", "9999"),
    };
    for (name, value) in headers {
        response = response.header(*name, value);
    }
    response.body(body).unwrap_or_else(|_| Response::new(Body::empty()))
}

async fn pause(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

/// A name that no other has, of the length and letters that ids of providers have.
pub(super) fn token() -> String {
    uuid::Uuid::now_v7().simple().to_string()
}

pub(super) fn call_id(given: &Option<String>, prefix: &str) -> String {
    given.clone().unwrap_or_else(|| format!("{prefix}{}", token()))
}

pub(super) fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map(|since| since.as_secs()).unwrap_or_default()
}
