//! The peer DBOS for Rust: the durable tool turn as a workflow of three steps. It is a library, so that engine and load
//! share this process: no ingress, and nobody else who could take over. Told by `DATABASE_URL` and `MODEL_URL`.
//!
//! Orders come on standard input, a line each: `start N` agents, `begin`, `end`; the last is answered with what was
//! counted in between.

use anyhow::{Context, Result, bail};
use dbos::{Config, DBOS, step};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
use tokio::io::{AsyncBufReadExt, BufReader, stdin};
use tokio::task::{JoinSet, LocalSet, spawn_local};

const CONNECTIONS_MAX: u32 = 10;

#[derive(Debug, Serialize, Deserialize)]
struct Failed(String);

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failed {}

fn failed(error: impl std::fmt::Display) -> Failed {
    Failed(error.to_string())
}

#[derive(Clone)]
struct Agent {
    http: reqwest::Client,
    model: Arc<str>,
}

impl Agent {
    async fn ask(&self, messages: &[Value]) -> Result<Value, Failed> {
        let parameters = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
        let echo = json!({"name": "echo", "description": "Says what it is told.", "parameters": parameters});
        let body = json!({"model": "mock", "messages": messages, "tools": [{"type": "function", "function": echo}]});
        let answer = self.http.post(&*self.model).json(&body).send().await.map_err(failed)?;
        let mut answer: Value = answer.json().await.map_err(failed)?;
        Ok(answer["choices"][0]["message"].take())
    }

    fn echo(&self, arguments: &str) -> Result<Value, Failed> {
        let arguments: Value = serde_json::from_str(arguments).map_err(failed)?;
        Ok(arguments["text"].clone())
    }

    async fn turn(self, text: String) -> dbos::Result<String, Failed> {
        let mut messages = vec![json!({"role": "user", "content": text})];
        let called = step("call", || async { Ok(self.ask(&messages).await?) }).await?;
        let call = called["tool_calls"][0].clone();
        messages.push(called);
        let arguments = call["function"]["arguments"].as_str().unwrap_or("{}");
        let result = step("tool", || async { Ok(self.echo(arguments)?) }).await?;
        messages.push(json!({"role": "tool", "tool_call_id": call["id"], "content": result}));
        let said = step("end", || async { Ok(self.ask(&messages).await?) }).await?;
        Ok(said["content"].as_str().unwrap_or_default().to_owned())
    }
}

/// What the loops share; they live in one thread.
#[derive(Default)]
struct Count {
    stopped: bool,
    /// Milliseconds of each turn since `begin`.
    times: Option<Vec<f64>>,
}

fn setting(name: &str) -> Result<String> {
    std::env::var(name).with_context(|| format!("{name} is not set"))
}

async fn run() -> Result<()> {
    let http = reqwest::Client::builder().no_proxy().tcp_nodelay(true).build()?;
    let agent = Agent { http, model: format!("{}/v1/chat/completions", setting("MODEL_URL")?).into() };
    let config = Config::new("bench", setting("DATABASE_URL")?);
    let config = Config { app_version: Some("1".into()), max_connections: CONNECTIONS_MAX, ..config };
    let engine = DBOS::new(config);
    let turn = engine.register_workflow("turn", move |text: String| agent.clone().turn(text)).context("turn")?;
    engine.launch().await.context("launch")?;
    println!("ready");
    let mut orders = BufReader::new(stdin()).lines();
    let (mut count, mut loops) = (Rc::new(RefCell::new(Count::default())), JoinSet::new());
    while let Some(order) = orders.next_line().await? {
        match order.split_once(' ').unwrap_or((&order, "")) {
            ("start", number) => {
                count = Rc::default();
                for n in 0..number.parse::<usize>()? {
                    let (turn, count) = (turn.clone(), count.clone());
                    loops.spawn_local(async move {
                        while !count.borrow().stopped {
                            let begun = Instant::now();
                            let said = turn.run(format!("echo {n} for me please")).await;
                            // The bench reads how many there were: none that failed.
                            let said = said.expect("a turn");
                            assert!(said.contains("twenty short words"), "{said}");
                            if let Some(times) = &mut count.borrow_mut().times {
                                times.push(begun.elapsed().as_secs_f64() * 1e3);
                            }
                        }
                    });
                }
            }
            ("begin", _) => count.borrow_mut().times = Some(Vec::new()),
            ("end", _) => {
                let times = count.borrow_mut().times.take().unwrap_or_default();
                count.borrow_mut().stopped = true;
                println!("{}", json!(times));
                while let Some(ended) = loops.join_next().await {
                    ended?;
                }
            }
            _ => bail!("{order:?} is no order"),
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async { spawn_local(run()).await? })
}
