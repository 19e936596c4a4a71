//! This product, driven over its public API alone.

use super::{Candidate, Ground};
use anyhow::{Context, Result, ensure};
use bench_drive::child::{Child, command};
use bench_drive::load::Entry;
use bench_drive::wire::{Line, request};
use instar_testkit::wait::free_port;
use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use tokio::task::JoinSet;

const SERVICES: [&str; 4] = ["api", "scheduler", "agent-worker", "tool-runner"];
const KEY: &str = "bench-key-0123456789abcdef0123456789abcdef";
/// Turns that the worker takes at once, where there are fewer agents.
const CONCURRENCY: usize = 512;
/// Who makes agents at the same time.
const MAKERS: usize = 16;

#[derive(Clone, Debug)]
pub(crate) struct Product {
    /// The command `instar`.
    pub(crate) binary: PathBuf,
    /// It was built to count allocations.
    pub(crate) counts: bool,
}

/// An agent with a session of its own, as fleets of strangers have it.
pub(crate) struct Agent {
    pub(crate) session: String,
    pub(crate) agent: String,
}

pub(crate) fn headers() -> String {
    format!("authorization: Bearer {KEY}\r\n")
}

impl Product {
    fn command(&self) -> Command {
        let mut command = command(&self.binary);
        // One thread each: services, database, broker and load share few cores.
        command.env("BENCH_KEY", KEY).env("TOKIO_WORKER_THREADS", "1");
        command
    }

    /// The four services, and where the API is.
    pub(crate) async fn services(&self, ground: &Ground, concurrency: usize) -> Result<(Candidate, String)> {
        let mut house = Candidate::new()?;
        let (database, nats) = (house.with_database(ground).await?, house.with_nats().await?);
        let address = format!("127.0.0.1:{}", free_port()?);
        let servers = format!(
            "[database]\nurl = \"{database}\"\n[nats]\nurl = \"{nats}\"\n[auth]\nbootstrap_key_env = \"BENCH_KEY\"\n\
             [api]\nlisten = \"{address}\"\nstreams_max = 20000\n"
        );
        let config = self.configure(house.folder(), &servers, &ground.model, concurrency)?;
        let migrated = self.command().args(["migrate", "--config"]).arg(&config).output()?;
        ensure!(migrated.status.success(), "migrate: {}", String::from_utf8_lossy(&migrated.stderr));
        for service in SERVICES {
            let page = if service == "api" { address.clone() } else { format!("127.0.0.1:{}", free_port()?) };
            let mut serve = self.command();
            serve.args(["serve", service, "--config"]).arg(&config);
            if service != "api" {
                serve.env("INSTAR__HEALTH__LISTEN", &page);
            }
            let child = Child::ready(service, serve, house.folder()).await?;
            house.children.push(child);
            if self.counts {
                house.pages.push((service.to_owned(), page));
            }
        }
        Ok((house, address))
    }

    pub(super) async fn start(&self, ground: &Ground, agents: usize) -> Result<Candidate> {
        let (mut house, address) = self.services(ground, CONCURRENCY).await?;
        house.entry = entry(address, agents).await?;
        Ok(house)
    }

    pub(super) async fn embedded(&self, ground: &Ground, agents: usize) -> Result<Candidate> {
        let mut house = Candidate::new()?;
        let port = free_port()?.to_string();
        let config = self.configure(house.folder(), "", &ground.model, CONCURRENCY)?;
        let mut dev = self.command();
        dev.args(["dev", "--port", &port, "--api-key", KEY, "--config"]).arg(config);
        dev.arg("--data-dir").arg(house.folder().join("data"));
        let child = Child::ready("dev", dev, house.folder()).await?;
        house.children.push(child);
        house.entry = entry(format!("127.0.0.1:{port}"), agents).await?;
        Ok(house)
    }

    fn configure(&self, folder: &Path, servers: &str, model: &str, concurrency: usize) -> Result<PathBuf> {
        let path = folder.join("instar.toml");
        // Few agents have many turns here: their summaries would be measured with them.
        let text = format!(
            "{servers}[worker]\nconcurrency = {concurrency}\nhistory_summaries = false\n\
             [[models]]\nname = \"default\"\nprovider = \"openai\"\nbase_url = \"{model}/v1\"\nmodel = \"mock\"\n"
        );
        std::fs::write(&path, text)?;
        Ok(path)
    }
}

async fn entry(address: String, agents: usize) -> Result<Entry> {
    let made = make(&address, agents, "[\"echo\"]").await?;
    let requests = made.iter().map(|made| message(&made.agent, "?wait=20", "echo 7 for me please")).collect();
    Ok(Entry::Http { address, requests })
}

/// A request that sends a message.
pub(crate) fn message(agent: &str, query: &str, text: &str) -> Vec<u8> {
    let body = format!("{{\"content\":\"{text}\"}}");
    request("POST", &format!("/v1/agents/{agent}/messages{query}"), &headers(), &body)
}

/// Agents, each in a session of its own.
pub(crate) async fn make(address: &str, agents: usize, tools: &str) -> Result<Vec<Agent>> {
    let (made, left) = (Rc::new(RefCell::new(Vec::new())), Rc::new(Cell::new(agents)));
    let mut makers = JoinSet::new();
    for _ in 0..MAKERS.min(agents) {
        let (mut line, tools) = (Line::connect(address).await?, tools.to_owned());
        let (made, left) = (made.clone(), left.clone());
        makers.spawn_local(async move {
            while let Some(less) = left.get().checked_sub(1) {
                left.set(less);
                let session = id(&mut line, "/v1/sessions", "{}").await?;
                let body = format!("{{\"name\":\"a\",\"model\":\"default\",\"tools\":{tools}}}");
                let agent = id(&mut line, &format!("/v1/sessions/{session}/agents"), &body).await?;
                made.borrow_mut().push(Agent { session, agent });
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = makers.join_next().await {
        ended??;
    }
    Ok(made.take())
}

/// Makes one thing; its id.
async fn id(line: &mut Line, path: &str, body: &str) -> Result<String> {
    let answer = line.ask(&request("POST", path, &headers(), body)).await?;
    let answer: serde_json::Value = serde_json::from_slice(&answer.body)?;
    Ok(answer["id"].as_str().with_context(|| format!("no id: {answer}"))?.to_owned())
}
