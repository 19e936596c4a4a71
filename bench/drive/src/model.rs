//! The model of every candidate: answers that were made once, in OpenAI's formats, at no latency; and, below `/slow`,
//! one that talks slowly to many at once.
//!
//! A conversation that ends with a tool's result gets about twenty words, any other a call of `echo`.

use crate::talk::Talk;
use crate::wire::{Line, Message, find};
use anyhow::Result;
use serde_json::{Value, json};
use std::rc::Rc;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, spawn_local};

const WORDS: &str =
    "The tool has answered, and this is what there is to say about it in about twenty short words for you.";
/// How the answer to a whole turn is known.
pub const SAID: &[u8] = b"twenty short words";

/// Whole answers with their heads.
struct Answers {
    call: Vec<u8>,
    said: Vec<u8>,
    streamed_call: Vec<u8>,
    streamed_said: Vec<u8>,
}

fn function() -> Value {
    json!({"name": "echo", "arguments": "{\"text\":\"say it back\"}"})
}

fn answer(kind: &str, body: &str) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n", body.len());
    (head + body).into_bytes()
}

fn whole(message: Value, finish: &str) -> Vec<u8> {
    let usage = json!({"prompt_tokens": 40, "completion_tokens": 20, "total_tokens": 60});
    let choice = json!({"index": 0, "message": message, "finish_reason": finish});
    let body = json!({"id": "chatcmpl-mock", "object": "chat.completion", "created": 1763263380, "model": "mock",
        "choices": [choice], "usage": usage});
    answer("application/json", &body.to_string())
}

/// One piece of a stream.
pub fn frame(delta: Value, finish: Option<&str>) -> String {
    let choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish});
    let chunk = json!({"id": "chatcmpl-mock", "object": "chat.completion.chunk", "created": 1763263380,
        "model": "mock", "choices": [choice], "usage": null});
    format!("data: {chunk}\n\n")
}

/// What a stream ends with.
pub fn ending(finish: &str) -> String {
    let usage = json!({"prompt_tokens": 40, "completion_tokens": 20, "total_tokens": 60});
    let last = json!({"id": "chatcmpl-mock", "choices": [], "usage": usage});
    format!("{}data: {last}\n\ndata: [DONE]\n\n", frame(json!({}), Some(finish)))
}

fn streamed(deltas: impl Iterator<Item = Value>, finish: &str) -> Vec<u8> {
    let begun = frame(json!({"role": "assistant", "content": ""}), None);
    let told: String = deltas.map(|delta| frame(delta, None)).collect();
    answer("text/event-stream", &(begun + &told + &ending(finish)))
}

impl Answers {
    fn new() -> Answers {
        let call = json!({"id": "call_mock", "type": "function", "function": function()});
        let mut piece = call.clone();
        piece["index"] = json!(0);
        Answers {
            call: whole(json!({"role": "assistant", "content": null, "tool_calls": [call]}), "tool_calls"),
            said: whole(json!({"role": "assistant", "content": WORDS}), "stop"),
            streamed_call: streamed(std::iter::once(json!({"tool_calls": [piece]})), "tool_calls"),
            streamed_said: streamed(WORDS.split_inclusive(' ').map(|word| json!({"content": word})), "stop"),
        }
    }

    fn to(&self, request: &Message) -> &[u8] {
        let last = |wanted: &[u8]| request.body.windows(wanted.len()).rposition(|window| window == wanted);
        let over = last(b"\"role\":\"tool\"") > last(b"\"role\":\"user\"");
        match (find(&request.body, b"\"stream\":true").is_some(), over) {
            (false, false) => &self.call,
            (false, true) => &self.said,
            (true, false) => &self.streamed_call,
            (true, true) => &self.streamed_said,
        }
    }
}

pub struct Model {
    address: String,
    pub talk: Rc<Talk>,
    server: JoinHandle<()>,
}

impl Model {
    pub async fn start() -> Result<Model> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let (answers, talk) = (Rc::new(Answers::new()), Talk::start());
        let heard = talk.clone();
        let server = spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (answers, talk) = (answers.clone(), heard.clone());
                // A caller that hangs up in the middle is a candidate that was ended.
                spawn_local(async move {
                    let Ok(line) = Line::new(stream) else { return };
                    drop(serve(line, &answers, &talk).await);
                });
            }
        });
        Ok(Model { address, talk, server })
    }

    /// Without a path.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn slow_url(&self) -> String {
        format!("http://{}/slow", self.address)
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(mut line: Line, answers: &Answers, talk: &Talk) -> Result<()> {
    while let Some(request) = line.message().await? {
        if request.head.starts_with(b"POST /slow") {
            talk.to(line.into_stream());
            return Ok(());
        }
        line.send(answers.to(&request)).await?;
    }
    Ok(())
}
