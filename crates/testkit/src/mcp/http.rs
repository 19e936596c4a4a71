//! Streamable HTTP: each request a POST, answered by a stream of its own. There is no stream besides.

use super::{Fault, Out, Server};
use anyhow::{Context, Result};
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::sync::Arc;
use tokio::net::TcpListener;

/// The session of the older era; there is one.
const SESSION: &str = "the-only-session";

pub(super) async fn serve(server: Arc<Server>, port: u16) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.context("no port")?;
    println!("listening http://{}/mcp", listener.local_addr()?);
    let routes = Router::new().route("/mcp", post(take)).with_state(server);
    Ok(axum::serve(listener, routes).await?)
}

async fn take(State(server): State<Arc<Server>>, headers: HeaderMap, body: Bytes) -> Response {
    if server.options.fault == Some(Fault::Silent) {
        std::future::pending::<()>().await;
    }
    if server.options.fault == Some(Fault::Garbage) {
        return ([(header::CONTENT_TYPE, "text/html")], "<html>It works!</html>").into_response();
    }
    let Ok(message) = serde_json::from_slice::<Value>(&body) else { return StatusCode::BAD_REQUEST.into_response() };
    let method = message["method"].as_str().unwrap_or_default().to_owned();
    let (modern, begins) = (server.options.modern, method == "initialize");
    if !modern && !begins && headers.get("mcp-session-id").is_none_or(|id| id != SESSION) {
        let error = json!({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32000, "message": "no session"}});
        return (StatusCode::BAD_REQUEST, axum::Json(error)).into_response();
    }
    let (out, mut outgoing) = tokio::sync::mpsc::unbounded_channel();
    let request = !message["id"].is_null();
    let task = tokio::spawn(server.take(message, out));
    if !request {
        let _ = task.await;
        return StatusCode::ACCEPTED.into_response();
    }
    if method != "tools/call" {
        let _ = task.await;
        let Some(Out::Message(answer)) = outgoing.recv().await else {
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        };
        let mut response = axum::Json(answer).into_response();
        if begins {
            response.headers_mut().insert("mcp-session-id", axum::http::HeaderValue::from_static(SESSION));
        }
        return response;
    }
    let events = futures::stream::poll_fn(move |cx| {
        outgoing.poll_recv(cx).map(|said| {
            let data = match said? {
                Out::Message(message) => message.to_string(),
                Out::Raw(text) => text,
            };
            Some(Ok::<_, std::convert::Infallible>(format!("event: message\ndata: {data}\n\n")))
        })
    });
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(events)).into_response()
}
