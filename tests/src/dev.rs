//! `instar dev` as a process, asked over HTTP and by its own command line; a model server and a tool
//! server in the process that asks.

use anyhow::{Context, Result, ensure};
use instar_testkit::ledger::Ledger;
use instar_testkit::model::{Model, Script};
use instar_testkit::process;
use instar_testkit::tool::{Idempotency, Tool};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

const KEY: &str = "dev-key-0123456789abcdef0123456789abcdef";
const READY_WITHIN: Duration = Duration::from_secs(60);

pub struct Dev {
    pub folder: tempfile::TempDir,
    pub model: Model,
    pub tool: Tool,
    pub base: String,
    pub http: reqwest::Client,
    binary: PathBuf,
    _child: Child,
    _talker: Talker,
}

/// A tool that says a megabyte.
struct Talker {
    address: std::net::SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl Talker {
    async fn start() -> Result<Talker> {
        let listener = tokio::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let routes = axum::Router::new().fallback(|| async { "word ".repeat(200_000) });
        let task = tokio::spawn(async move {
            let _ = axum::serve(listener, routes).await;
        });
        Ok(Talker { address, task })
    }
}

impl Drop for Talker {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An answer, read to its end.
#[derive(Debug)]
pub struct Got {
    pub status: u16,
    pub text: String,
    pub body: Value,
}

impl Got {
    #[track_caller]
    pub fn is(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        self.body
    }

    /// A problem of this status that has these words, and says nothing that only we should know.
    #[track_caller]
    pub fn refuses(self, status: u16, words: &str) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        for field in ["type", "title", "detail", "code", "request_id"] {
            assert!(self.body[field].is_string(), "{field} is missing: {}", self.text);
        }
        assert!(self.text.contains(words), "{words:?} is not in {}", self.text);
        for secret in [KEY, "SELECT", "INSERT", "sqlx", "panicked", "postgres://", ".rs:"] {
            assert!(!self.text.contains(secret), "{secret:?} is in {}", self.text);
        }
        self.body
    }
}

impl Dev {
    /// `database`: a Postgres that is there; else a SQLite file. `config`: further lines.
    pub async fn start(binary: &str, database: Option<String>, script: Script, config: &str) -> Result<Dev> {
        let folder = tempfile::tempdir()?;
        let model = Model::start(script).await?;
        let tool = Tool::start(Ledger::open(folder.path().join("ledger"))?, Idempotency::None).await?;
        let file = folder.path().join("instar.toml");
        let talker = Talker::start().await?;
        let text = configuration(&model, &tool, &talker, database.as_deref());
        std::fs::write(&file, format!("{config}\n{text}"))?;
        let mut command = command(Path::new(binary), folder.path());
        command.args(["dev", "--port", "0", "--data-dir", "data", "--api-key", KEY]);
        command.stdout(Stdio::piped()).stderr(std::fs::File::create(folder.path().join("log"))?);
        let mut child = process::spawn_async(command)?;
        let mut lines = BufReader::new(child.stdout.take().context("no standard output")?).lines();
        let line = tokio::time::timeout(READY_WITHIN, lines.next_line()).await;
        let log = || std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
        let line = line.with_context(log)??.with_context(log)?;
        let base = line.strip_prefix("ready ").with_context(|| format!("it said {line:?}"))?.to_owned();
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().build()?;
        Ok(Dev { folder, model, tool, base, http, binary: binary.into(), _child: child, _talker: talker })
    }

    pub fn key(&self) -> &'static str {
        KEY
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    pub fn request(&self, method: &str, path: &str) -> Result<reqwest::RequestBuilder> {
        let method = reqwest::Method::from_bytes(method.as_bytes())?;
        Ok(self.http.request(method, format!("{}{path}", self.base)))
    }

    pub async fn send(&self, request: reqwest::RequestBuilder) -> Result<Got> {
        let answer = request.send().await?;
        let (status, text) = (answer.status().as_u16(), answer.text().await?);
        ensure!(status != 500, "our fault: {text}\n{}", self.log());
        Ok(Got { status, body: serde_json::from_str(&text).unwrap_or_default(), text })
    }

    pub async fn get(&self, path: &str) -> Result<Got> {
        self.send(self.request("GET", path)?.bearer_auth(KEY)).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Result<Got> {
        self.send(self.request("POST", path)?.bearer_auth(KEY).json(&body)).await
    }

    pub async fn raw(&self, path: &str, body: impl Into<Vec<u8>>) -> Result<Got> {
        let request = self.request("POST", path)?.bearer_auth(KEY).header("content-type", "application/json");
        self.send(request.body(body.into())).await
    }

    /// A session with its root agent; their ids.
    pub async fn fleet(&self, tools: &[&str], approval_mode: &str) -> Result<(String, String)> {
        let root = json!({"name": "ada", "model": "default", "tools": tools, "approval_mode": approval_mode});
        let made = self.post("/v1/sessions", json!({"root_agent": root})).await?.is(201);
        let text = |field: &str| made[field].as_str().map(str::to_owned).context("an id");
        Ok((text("id")?, text("root_agent_id")?))
    }

    pub async fn head(&self, session: &str) -> Result<i64> {
        self.get(&format!("/v1/sessions/{session}")).await?.is(200)["head_seq"].as_i64().context("head_seq")
    }

    /// Sends a message and gives its turn when that has ended.
    pub async fn turn(&self, agent: &str, content: &str) -> Result<Value> {
        let sent = self.post(&format!("/v1/agents/{agent}/messages"), json!({"content": content})).await?.is(202);
        self.ended(sent["turn_id"].as_str().context("a turn")?).await
    }

    pub async fn ended(&self, turn: &str) -> Result<Value> {
        instar_testkit::wait::until_ok(Duration::from_secs(20), || async {
            let turn = self.get(&format!("/v1/turns/{turn}?wait=1")).await?.is(200);
            ensure!(turn["ended_at"].is_string(), "it is {} and waits for {}", turn["status"], turn["waiting_for"]);
            Ok(turn)
        })
        .await
        .with_context(|| self.log())
    }

    pub async fn calls(&self, turn: &Value) -> Result<Vec<Value>> {
        let path = format!("/v1/tool-calls?turn={}", turn["id"].as_str().unwrap_or_default());
        let mut calls = self.get(&path).await?.is(200)["data"].as_array().cloned().unwrap_or_default();
        calls.reverse();
        Ok(calls)
    }

    /// The command line, told of this server.
    pub async fn run(&self, arguments: &[&str]) -> Result<Output> {
        let mut command = command(&self.binary, self.folder.path());
        command.args(["--server", &self.base, "--key", KEY]).args(arguments);
        Ok(command.output().await?)
    }
}

/// The command in a folder of its own and with nothing of our environment.
pub fn command(binary: &Path, folder: &Path) -> Command {
    let mut command = Command::new(binary);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.current_dir(folder).stdin(Stdio::null()).kill_on_drop(true);
    process::bind(command.as_std_mut());
    command
}

fn configuration(model: &Model, tool: &Tool, talker: &Talker, database: Option<&str>) -> String {
    let schema = "{ type = \"object\", additionalProperties = false, required = [\"token\"], properties = { \
                  token = { type = \"string\" }, cents = { type = \"integer\" }, list = { type = \"array\" } } }";
    let http = |name: &str| {
        format!(
            "[[tools]]\nname = \"{name}\"\nkind = \"http\"\nmethod = \"POST\"\nurl = \"{}\"\nparameters = {schema}\n\
             side_effects = true\nidempotent = false\n",
            tool.effect_url(name)
        )
    };
    let database = database.map(|url| format!("[database]\nurl = \"{url}\"\n")).unwrap_or_default();
    format!(
        "{database}[runner]\negress = {{ allow = [\"127.0.0.1\"], ports = [{}, {}] }}\n\
         [[models]]\nname = \"default\"\nprovider = \"openai\"\nbase_url = \"{}/v1\"\nmodel = \"mock\"\n{}{}\
         [[tools]]\nname = \"big\"\nkind = \"http\"\nmethod = \"POST\"\nurl = \"http://{}/\"\n\
         parameters = {{ type = \"object\" }}\nmax_output_bytes = 2000000\n",
        tool.url().rsplit(':').next().unwrap_or("80"),
        talker.address.port(),
        model.url(),
        http("charge"),
        http("refund"),
        talker.address,
    )
}
