//! `GET /v1/sessions/{id}/events`: the runelog as it grows, and what models say as they say it.
//!
//! The bus only says that there is something new; every rune that goes out was read from the
//! database behind the reader's cursor, so that none is missing and none comes twice. Deltas are
//! lossy by design. A reader is pulled by its connection: one that does not read costs no memory.

mod channel;
mod feed;
mod frame;
mod reader;
mod talk;

pub(crate) use feed::{End, Feed, Heard};

use crate::call::{Call, Reply};
use crate::problem::Problem;
use crate::resource::{find, rune};
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use instar_core::id::SessionId;
use reader::Reader;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

const RETRY_AFTER: Duration = Duration::from_secs(4);

pub(crate) async fn events(call: Arc<Call>) -> Result<Reply, Problem> {
    let header = call.headers.get("last-event-id").map(|value| value.to_str().unwrap_or("?"));
    // The header is what a browser sends by itself when it comes back: newer than the address.
    let after = match header.filter(|text| !text.is_empty()) {
        Some(text) => rune::seq("Last-Event-ID", text)?,
        None => call.asked("after").map(|text| rune::seq("after", text)).transpose()?.unwrap_or(0),
    };
    let permit = call.api.streams.clone().try_acquire_owned();
    let permit = permit.map_err(|_| Problem::too_many("too many streams are open here", RETRY_AFTER))?;
    // Subscribed before the first look: what comes in between rings.
    let session = call.id::<SessionId>("session")?;
    let head = find::session_by(&call, session).await?.head_seq;
    if after > head {
        let detail =
            format!("the log ends at {head}: {after} is no event of it yet; ask for it whole, without a cursor");
        return Err(Problem::conflict("cursor_ahead", detail).with("head_seq", head));
    }
    let reader = Reader::new(call.api.clone(), session, call.caller.clone(), after, head, permit);
    let frames = futures::stream::unfold(reader, |mut reader| async move {
        let frame = reader.next().await?;
        Some((Ok::<_, Infallible>(frame), reader))
    });
    Ok(Reply::Raw(response(Body::from_stream(frames))))
}

fn response(body: Body) -> Response {
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
