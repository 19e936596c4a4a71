//! The peer Restate: the durable tool turn as a handler of a virtual object, three durable steps. Its server does the
//! rest. Told by `LISTEN` and `MODEL_URL`.

use anyhow::{Context, Result};
use restate_sdk::prelude::*;
use serde_json::{Value, json};
use tokio::net::TcpSocket;

const BACKLOG: u32 = 1024;

struct Agent {
    http: reqwest::Client,
    model: String,
}

async fn ask(http: reqwest::Client, model: String, messages: Value) -> Result<Json<Value>, HandlerError> {
    let parameters = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
    let echo = json!({"name": "echo", "description": "Says what it is told.", "parameters": parameters});
    let body = json!({"model": "mock", "messages": messages, "tools": [{"type": "function", "function": echo}]});
    let mut answer: Value = http.post(&model).json(&body).send().await?.json().await?;
    Ok(Json(answer["choices"][0]["message"].take()))
}

async fn echo(arguments: String) -> Result<Json<Value>, HandlerError> {
    let arguments: Value = serde_json::from_str(&arguments)?;
    Ok(Json(arguments["text"].clone()))
}

#[object]
impl Agent {
    #[handler]
    async fn turn(&self, ctx: ObjectContext<'_>, text: String) -> Result<String, HandlerError> {
        let model = || (self.http.clone(), self.model.clone());
        let mut messages = vec![json!({"role": "user", "content": text})];
        let ((http, url), told) = (model(), json!(messages));
        let called = ctx.run(|| ask(http, url, told)).name("call").await?.into_inner();
        let call = &called["tool_calls"][0];
        let (id, arguments) = (call["id"].clone(), call["function"]["arguments"].as_str().unwrap_or("{}").to_owned());
        messages.push(called);
        let result = ctx.run(|| echo(arguments)).name("tool").await?.into_inner();
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": result}));
        let ((http, url), told) = (model(), json!(messages));
        let said = ctx.run(|| ask(http, url, told)).name("end").await?.into_inner();
        Ok(said["content"].as_str().unwrap_or_default().to_owned())
    }
}

fn setting(name: &str) -> Result<String> {
    std::env::var(name).with_context(|| format!("{name} is not set"))
}

#[tokio::main]
async fn main() -> Result<()> {
    let http = reqwest::Client::builder().no_proxy().tcp_nodelay(true).build()?;
    let agent = Agent { http, model: format!("{}/v1/chat/completions", setting("MODEL_URL")?) };
    // Its SDK leaves small packets waiting for acknowledgements; accepted connections inherit from the listener.
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.set_nodelay(true)?;
    socket.bind(setting("LISTEN")?.parse()?)?;
    let listener = socket.listen(BACKLOG)?;
    println!("ready");
    HttpServer::new(Endpoint::builder().bind(agent).build()).serve(listener).await;
    Ok(())
}
