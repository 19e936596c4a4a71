//! A model that costs as little as it can: two answers, made once, for benches that are not about it.
//!
//! OpenAI's streaming format. A conversation that ends with a tool's result gets about twenty words, any
//! other a call of `echo`; one that asks for it by `say` gets words at once.

use anyhow::Result;
use axum::Router;
use axum::body::Bytes;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::post;
use serde_json::{Value, json};
use std::sync::LazyLock;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

const WORDS: &str =
    "The tool has answered, and this is what there is to say about it in about twenty short words for you.";

fn frame(delta: Value, finish: Option<&str>) -> String {
    let choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish});
    let chunk = json!({"id": "chatcmpl-mock", "object": "chat.completion.chunk", "created": 1763263380,
        "model": "mock", "choices": [choice], "usage": null});
    format!("data: {chunk}\n\n")
}

fn answer(deltas: impl Iterator<Item = Value>, finish: &str) -> Bytes {
    let mut body = frame(json!({"role": "assistant", "content": ""}), None);
    deltas.for_each(|delta| body += &frame(delta, None));
    body += &frame(json!({}), Some(finish));
    let usage = json!({"prompt_tokens": 40, "completion_tokens": 20, "total_tokens": 60});
    body += &format!("data: {}\n\ndata: [DONE]\n\n", json!({"id": "chatcmpl-mock", "choices": [], "usage": usage}));
    body.into()
}

static SAID: LazyLock<Bytes> =
    LazyLock::new(|| answer(WORDS.split_inclusive(' ').map(|word| json!({"content": word})), "stop"));
static CALLED: LazyLock<Bytes> = LazyLock::new(|| {
    let function = json!({"name": "echo", "arguments": "{\"text\":\"say it back\"}"});
    let call = json!({"index": 0, "id": "call_mock", "type": "function", "function": function});
    answer(std::iter::once(json!({"tool_calls": [call]})), "tool_calls")
});

/// Where `wanted` last stands.
fn last(body: &[u8], wanted: &[u8]) -> Option<usize> {
    body.windows(wanted.len()).rposition(|window| window == wanted)
}

async fn serve(body: Bytes) -> impl IntoResponse {
    let asked = last(&body, b"\"role\":\"user\"");
    let said = last(&body, b"\"role\":\"tool\"") > asked
        || asked.is_some_and(|at| body[at..].windows(15).take(40).any(|w| w == b"\"content\":\"say "));
    let answer = if said { SAID.clone() } else { CALLED.clone() };
    ([(header::CONTENT_TYPE, "text/event-stream")], answer)
}

/// It ends when dropped.
pub struct Mock {
    url: String,
    _server: AbortOnDropHandle<()>,
}

impl Mock {
    pub async fn start() -> Result<Mock> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let routes = Router::new().route("/v1/chat/completions", post(serve));
        let listener = axum::serve::ListenerExt::tap_io(listener, |stream| drop(stream.set_nodelay(true)));
        let server = tokio::spawn(async move { drop(axum::serve(listener, routes).await) });
        Ok(Mock { url, _server: AbortOnDropHandle::new(server) })
    }

    pub fn url(&self) -> &str {
        &self.url
    }
}
