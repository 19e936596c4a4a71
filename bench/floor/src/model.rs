//! Calls of the model: OpenAI's streaming format, read as it comes.

use crate::setting;
use anyhow::{Context, Result};
use reqwest::{Client, Response};
use serde::Deserialize;

pub(crate) const HEAD: &str = "{\"model\":\"mock\",\"stream\":true,\"stream_options\":{\"include_usage\":true},\
\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"echo\",\"description\":\"Says what it is told.\",\
\"parameters\":{\"type\":\"object\",\"properties\":{\"text\":{\"type\":\"string\"}},\"required\":[\"text\"]}}}],\
\"messages\":[{\"role\":\"system\",\"content\":\"You are an agent.\"}";

#[derive(Default, Deserialize)]
pub(crate) struct Chunk {
    #[serde(default)]
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    delta: Option<Delta>,
}

#[derive(Default, Deserialize)]
pub(crate) struct Delta {
    pub(crate) content: Option<String>,
    #[serde(default)]
    tool_calls: Vec<Call>,
}

#[derive(Deserialize)]
struct Call {
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    #[serde(default)]
    arguments: String,
}

pub(crate) struct Model {
    http: Client,
    url: String,
}

/// What an answer said and called.
#[derive(Default)]
pub(crate) struct Answer {
    pub(crate) said: String,
    pub(crate) arguments: String,
}

impl Model {
    pub(crate) fn new() -> Result<Model> {
        let http = Client::builder().no_proxy().tcp_nodelay(true).build()?;
        Ok(Model { http, url: format!("{}/v1/chat/completions", setting("MODEL_URL")?) })
    }

    /// `call`: the arguments and the result of the call that was made before.
    pub(crate) async fn ask(&self, text: &str, call: Option<(&str, &str)>) -> Result<Answer> {
        let mut body = format!("{HEAD},{{\"role\":\"user\",\"content\":{text:?}}}");
        if let Some((arguments, result)) = call {
            body += &format!(
                ",{{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{{\"id\":\"call_mock\",\"type\":\"function\",\
                 \"function\":{{\"name\":\"echo\",\"arguments\":{arguments:?}}}}}]}},\
                 {{\"role\":\"tool\",\"tool_call_id\":\"call_mock\",\"content\":{result:?}}}"
            );
        }
        body += "]}";
        let mut answer = Answer::default();
        read(self.open(body).await?, |delta| {
            answer.said += delta.content.as_deref().unwrap_or_default();
            delta.tool_calls.iter().for_each(|call| answer.arguments += &call.function.arguments);
        })
        .await?;
        Ok(answer)
    }

    pub(crate) async fn open(&self, body: String) -> Result<Response> {
        let request = self.http.post(&self.url).header("content-type", "application/json").body(body);
        request.send().await.context("the model")
    }
}

/// Every piece of an answer, until it ends.
pub(crate) async fn read(mut answer: Response, mut each: impl FnMut(&Delta)) -> Result<()> {
    let mut unread = Vec::new();
    while let Some(bytes) = answer.chunk().await? {
        unread.extend_from_slice(&bytes);
        let mut from = 0;
        while let Some(length) = unread[from..].windows(2).position(|pair| pair == b"\n\n") {
            let data = unread[from..from + length].strip_prefix(b"data: ").unwrap_or_default();
            from += length + 2;
            let chunk = if data == b"[DONE]" { Chunk::default() } else { serde_json::from_slice(data)? };
            chunk.choices.iter().filter_map(|choice| choice.delta.as_ref()).for_each(&mut each);
        }
        unread.drain(..from);
    }
    Ok(())
}
