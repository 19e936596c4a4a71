//! An MCP server that misbehaves on purpose, for a program of its own: over standard input and output or
//! over HTTP, of either era of the protocol, written from the specification and without anybody's SDK.
//!
//! It must not know the system under test.

mod http;
mod stdio;
mod tool;

pub use tool::Witnessed;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// The variable that marks a server and everything it starts, for whoever counts what is left of them.
pub const MARK: &str = "MCP_TEST_MARK";

const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";

/// What is wrong from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Never says a word.
    Silent,
    /// Says nothing that is MCP.
    Garbage,
    /// Ends at once, with a last word.
    Exit,
    /// Lists ten thousand tools.
    Many,
    /// Has a description of a megabyte.
    Large,
}

#[derive(Clone, Debug)]
pub struct Options {
    pub modern: bool,
    pub fault: Option<Fault>,
    /// Where effects are written down, one line each.
    pub witness: Option<PathBuf>,
    /// What it says of its tool `now`.
    pub description: String,
    /// It says nothing until this file is there.
    pub gate: Option<PathBuf>,
}

impl Options {
    /// From arguments such as `--modern --fault silent --witness FILE --description TEXT`.
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options> {
        let mut options =
            Options { modern: false, fault: None, witness: None, description: "Says the time".into(), gate: None };
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().with_context(|| format!("{argument} needs a value"));
            match argument.as_str() {
                "--modern" => options.modern = true,
                "--witness" => options.witness = Some(value()?.into()),
                "--description" => options.description = value()?,
                "--gate" => options.gate = Some(value()?.into()),
                "--fault" => {
                    options.fault = Some(match value()?.as_str() {
                        "silent" => Fault::Silent,
                        "garbage" => Fault::Garbage,
                        "exit" => Fault::Exit,
                        "many" => Fault::Many,
                        "large" => Fault::Large,
                        other => bail!("no such fault: {other}"),
                    });
                }
                other => bail!("no such argument: {other}"),
            }
        }
        Ok(options)
    }
}

pub struct Server {
    options: Options,
    state: Mutex<State>,
}

struct State {
    description: String,
    added: bool,
    /// Requests that the client called off.
    cancelled: HashSet<String>,
}

/// What goes out: a message, or bytes that are none.
enum Out {
    Message(Value),
    Raw(String),
}

type Outbox = UnboundedSender<Out>;

impl Server {
    pub fn new(options: Options) -> Arc<Server> {
        let state = State { description: options.description.clone(), added: false, cancelled: HashSet::new() };
        Arc::new(Server { options, state: Mutex::new(state) })
    }

    /// Serves standard input until it ends.
    pub async fn serve_stdio(self: Arc<Self>) -> Result<()> {
        self.misbehave().await;
        stdio::serve(self).await
    }

    /// Serves a free port of the loopback interface for ever, and says which on standard output.
    pub async fn serve_http(self: Arc<Self>, port: u16) -> Result<()> {
        http::serve(self, port).await
    }

    async fn misbehave(&self) {
        while self.options.gate.as_ref().is_some_and(|gate| !gate.exists()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        match self.options.fault {
            Some(Fault::Silent) => std::future::pending().await,
            Some(Fault::Garbage) => {
                for n in 0.. {
                    println!("this is no message {n}");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
            Some(Fault::Exit) => {
                eprintln!("the configuration file is missing");
                std::process::exit(3);
            }
            _ => {}
        }
    }

    /// One message of the client; answers go to the outbox.
    async fn take(self: Arc<Self>, message: Value, out: Outbox) {
        let (method, id) = (message["method"].as_str().unwrap_or_default().to_owned(), message["id"].clone());
        if method == "notifications/cancelled" {
            self.witness("cancelled", &Value::Null);
            self.state().cancelled.insert(message["params"]["requestId"].to_string());
            return;
        }
        if id.is_null() {
            return;
        }
        let answer = match method.as_str() {
            "server/discover" if self.options.modern => Ok(json!({
                "supportedVersions": [MODERN], "capabilities": {"tools": {"listChanged": true}},
                "ttlMs": 0, "cacheScope": "private",
                "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "test", "version": "1"}},
            })),
            "initialize" if !self.options.modern => Ok(json!({
                "protocolVersion": LEGACY, "capabilities": {"tools": {"listChanged": true}},
                "serverInfo": {"name": "test", "version": "1"},
            })),
            "subscriptions/listen" if self.options.modern => Err((-32601, "not told here".to_owned())),
            "ping" => Ok(json!({})),
            "tools/list" => Ok(json!({"tools": self.definitions(), "ttlMs": 0, "cacheScope": "private"})),
            "tools/call" => match self.call(&message, &out).await {
                Some(answer) => answer,
                None => return,
            },
            other => Err((-32601, format!("no method {other}"))),
        };
        let mut said = json!({"jsonrpc": "2.0", "id": id});
        match answer {
            Ok(mut result) => {
                if self.options.modern {
                    result["resultType"] = json!("complete");
                }
                said["result"] = result;
            }
            Err((code, message)) => said["error"] = json!({"code": code, "message": message}),
        }
        let _ = out.send(Out::Message(said));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
