//! A whole installation as processes of its own: Postgres, NATS, the four services; a model server
//! and a tool server in the process that drives it.

use anyhow::{Context, Result, ensure};
use instar_client::{Client, NewAgent, NewSession};
use instar_testkit::ledger::Ledger;
use instar_testkit::model::{Model, Reply, Request, Script};
use instar_testkit::process;
use instar_testkit::tool::{Idempotency, Tool};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

pub const SERVICES: [&str; 4] = ["api", "scheduler", "agent-worker", "tool-runner"];
const KEY: &str = "fleet-key-0123456789abcdef0123456789abcdef";
/// How long a service may take to say that it is ready.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// What a fleet is made of.
pub struct Setup {
    /// The command `instar`.
    pub binary: PathBuf,
    pub database: String,
    pub nats: String,
    /// Further lines of the configuration. `TOOL_URL` and `MODEL_URL` stand for the servers.
    pub config: String,
    pub model: Script,
    /// Another model server than the scripted one.
    pub model_url: Option<String>,
    /// What every process is told beside its configuration.
    pub environment: Vec<(&'static str, String)>,
}

impl Setup {
    pub fn new(binary: PathBuf, database: &str, nats: &str, model: Script) -> Setup {
        let (database, nats) = (database.to_owned(), nats.to_owned());
        Setup { binary, database, nats, config: String::new(), model, model_url: None, environment: Vec::new() }
    }
}

/// One process.
pub struct Node {
    pub service: &'static str,
    child: Child,
    pub address: Option<String>,
    pub log: PathBuf,
}

impl Node {
    pub fn pid(&self) -> u32 {
        self.child.id().unwrap_or_default()
    }

    pub async fn kill9(&mut self) -> Result<()> {
        self.child.start_kill()?;
        self.child.wait().await?;
        Ok(())
    }

    /// Asks it to end and says how long that took.
    pub async fn terminate(&mut self, within: Duration) -> Result<Duration> {
        let begun = std::time::Instant::now();
        process::signal(self.pid(), 15)?;
        let status = tokio::time::timeout(within, self.child.wait()).await.context("it does not end")??;
        ensure!(status.success(), "{} ended with {status}", self.service);
        Ok(begun.elapsed())
    }

    pub fn pause(&self) -> Result<()> {
        Ok(process::pause(self.pid())?)
    }

    pub fn resume(&self) -> Result<()> {
        Ok(process::resume(self.pid())?)
    }

    /// `None` while it runs.
    pub fn ended(&mut self) -> Result<Option<std::process::ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    pub fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = text.lines().rev().take(30).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

/// It killed itself before it was ready, as a crash point does.
#[derive(Debug)]
pub struct Killed(&'static str);

impl std::fmt::Display for Killed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} was killed before it was ready", self.0)
    }
}

impl std::error::Error for Killed {}

pub struct Fleet {
    pub folder: tempfile::TempDir,
    pub model: Model,
    pub tool: Tool,
    pub database: String,
    pub client: Client,
    pub nodes: Vec<Node>,
    binary: PathBuf,
    environment: Vec<(&'static str, String)>,
    config: PathBuf,
    port: u16,
    started: std::sync::atomic::AtomicU32,
}

impl Fleet {
    /// Migrates, then starts one of each service.
    pub async fn start(setup: Setup) -> Result<Fleet> {
        let mut fleet = Fleet::prepare(setup).await?;
        for service in SERVICES {
            let node = fleet.spawn(service, &[]).await?;
            fleet.nodes.push(node);
        }
        Ok(fleet)
    }

    /// All of it in one process, as `instar dev` runs it.
    pub async fn embedded(setup: Setup) -> Result<Fleet> {
        let mut fleet = Fleet::set_up(setup).await?;
        let node = fleet.spawn_dev().await?;
        fleet.nodes.push(node);
        Ok(fleet)
    }

    /// `instar dev` on this fleet's folder and port.
    pub async fn spawn_dev(&self) -> Result<Node> {
        let n = self.started.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let log = self.folder.path().join(format!("{n:03}-dev.log"));
        let mut command = self.command();
        command.args(["dev", "--port", &self.port.to_string(), "--api-key", KEY, "--config"]).arg(&self.config);
        command.arg("--data-dir").arg(self.data());
        ready("dev", command, log).await
    }

    /// Where `instar dev` keeps what it knows.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Everything but the services.
    pub async fn prepare(setup: Setup) -> Result<Fleet> {
        let fleet = Fleet::set_up(setup).await?;
        let migrated = fleet.command().args(["migrate", "--config"]).arg(&fleet.config).output().await?;
        ensure!(migrated.status.success(), "migrate: {}", String::from_utf8_lossy(&migrated.stderr));
        Ok(fleet)
    }

    /// The configuration, the model and the tool server.
    async fn set_up(setup: Setup) -> Result<Fleet> {
        let folder = tempfile::tempdir()?;
        let model = Model::start(setup.model.clone()).await?;
        let tool = Tool::start(Ledger::open(folder.path().join("ledger"))?, Idempotency::None).await?;
        let port = instar_testkit::wait::free_port()?;
        let config = folder.path().join("instar.toml");
        let prefix = format!("f{}", uuid::Uuid::now_v7().simple());
        std::fs::write(&config, configuration(&setup, &model, &tool, port, &prefix))?;
        let client = Client::new(&format!("http://127.0.0.1:{port}"), Some(KEY))?;
        Ok(Fleet {
            folder,
            model,
            tool,
            database: setup.database,
            client,
            nodes: Vec::new(),
            binary: setup.binary,
            environment: setup.environment,
            config,
            port,
            started: Default::default(),
        })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn key(&self) -> &'static str {
        KEY
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.binary);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("FLEET_KEY", KEY);
        command.envs(self.environment.iter().map(|(name, value)| (*name, value)));
        command.current_dir(self.folder.path()).stdin(Stdio::null()).kill_on_drop(true);
        process::bind(command.as_std_mut());
        command
    }

    /// The command line, told of this fleet: whether it ended well, and what it said.
    pub async fn run(&self, arguments: &[&str]) -> Result<(bool, String)> {
        let mut command = self.command();
        command.args(["--server", &format!("http://127.0.0.1:{}", self.port), "--key", KEY]).args(arguments);
        let output = command.output().await?;
        let said = [output.stdout, output.stderr].concat();
        Ok((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
    }

    /// Starts a service and waits until it says that it is ready.
    pub async fn spawn(&self, service: &'static str, environment: &[(&str, &str)]) -> Result<Node> {
        let n = self.started.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let log = self.folder.path().join(format!("{n:03}-{service}.log"));
        let mut command = self.command();
        command.args(["serve", service, "--config"]).arg(&self.config).envs(environment.iter().copied());
        ready(service, command, log).await
    }

    pub fn node(&mut self, service: &str) -> Result<&mut Node> {
        self.nodes.iter_mut().find(|node| node.service == service).with_context(|| format!("no {service}"))
    }

    /// A session with `n` agents that have these tools.
    pub async fn agents(&self, n: usize, tools: &[&str]) -> Result<(String, Vec<String>)> {
        let session = self.client.create_session(&NewSession::default()).await?.id;
        let mut agents = Vec::new();
        for i in 0..n {
            let agent = NewAgent {
                name: format!("agent-{i}"),
                model: "default".into(),
                tools: tools.iter().map(|t| (*t).to_owned()).collect(),
                ..NewAgent::default()
            };
            agents.push(self.client.create_agent(&session, &agent).await?.id);
        }
        Ok((session, agents))
    }
}

/// Starts a process and waits until it says that it is ready.
async fn ready(service: &'static str, mut command: Command, log: PathBuf) -> Result<Node> {
    command.stdout(Stdio::piped()).stderr(std::fs::File::create(&log)?);
    let mut child = process::spawn_async(command)?;
    let out = child.stdout.take().context("no standard output")?;
    let mut lines = BufReader::new(out).lines();
    let said = tokio::time::timeout(READY_WITHIN, lines.next_line()).await;
    let line = match said {
        Ok(Ok(Some(line))) if line.starts_with("ready ") => line,
        other => {
            let ended = tokio::time::timeout(READY_WITHIN, child.wait()).await;
            if let Ok(Ok(status)) = &ended
                && std::os::unix::process::ExitStatusExt::signal(status) == Some(9)
            {
                return Err(Killed(service).into());
            }
            let told = std::fs::read_to_string(&log).unwrap_or_default();
            anyhow::bail!("{service} said {other:?} and ended with {ended:?}:\n{told}")
        }
    };
    let address = line.split_whitespace().find(|word| word.starts_with("http")).map(str::to_owned);
    Ok(Node { service, child, address, log })
}

fn configuration(setup: &Setup, model: &Model, tool: &Tool, port: u16, prefix: &str) -> String {
    let schema = "{ type = \"object\", properties = { token = { type = \"string\" } }, required = [\"token\"] }";
    let http = |name: &str, extra: &str| {
        let asks = match name.split_once('_') {
            Some(("slow", _)) => "?delay_ms=2500",
            Some(("fail", _)) => "?fail=500",
            _ => "",
        };
        format!(
            "[[tools]]\nname = \"{name}\"\nkind = \"http\"\nmethod = \"POST\"\nurl = \"{}{asks}\"\nparameters = {schema}\n{extra}\n",
            tool.effect_url(name)
        )
    };
    let servers = match setup.nats.is_empty() {
        true => String::new(),
        false => format!(
            "[database]\nurl = \"{}\"\n[nats]\nurl = \"{}\"\nprefix = \"{prefix}\"\n",
            setup.database, setup.nats
        ),
    };
    let url = setup.model_url.as_deref().unwrap_or(model.url());
    format!(
        "{servers}[api]\nlisten = \"127.0.0.1:{port}\"\n\
         [auth]\nbootstrap_key_env = \"FLEET_KEY\"\n[runner]\negress = {{ allow = [\"127.0.0.1\"], ports = [{}] }}\n\
         [telemetry]\nlog_filter = \"info\"\n{}\n\
         [[models]]\nname = \"default\"\nprovider = \"openai\"\nbase_url = \"{url}/v1\"\nmodel = \"mock\"\n\
         [[models]]\nname = \"priced\"\nprovider = \"openai\"\nbase_url = \"{url}/v1\"\nmodel = \"mock\"\nmax_tokens = 50\n\
         price = {{ input_per_mtok = \"1000\", output_per_mtok = \"2000\" }}\n{}{}{}{}{}",
        tool.url().rsplit(':').next().unwrap_or("80"),
        setup.config.replace("TOOL_URL", tool.url()).replace("MODEL_URL", model.url()),
        http("charge", "side_effects = true\nidempotent = false\n"),
        http("put", "side_effects = true\nidempotent = true\n"),
        http("slow_charge", "side_effects = true\nidempotent = false\n"),
        http("slow_put", "side_effects = true\nidempotent = true\n"),
        http("fail_charge", "side_effects = true\nidempotent = false\n"),
    )
}

/// The workload: a message that names a tool gets a call of it with the message as its token; its
/// result gets twenty words.
pub fn tool_turn() -> Script {
    Script::function(|request: &Request| {
        if !request.tool_results().is_empty() {
            return Reply::text(
                "The tool has answered, and this is what there is to say about it in about twenty short words for you.",
            );
        }
        let text = request.user_text();
        let tool = text.split_whitespace().next().unwrap_or("echo").to_owned();
        match tool.as_str() {
            "echo" => Reply::call("echo", json!({"text": text})),
            "say" => Reply::text("Nothing to do."),
            _ => Reply::call(&tool, json!({"token": text})),
        }
    })
}

/// Where the commands of this workspace's build are.
pub fn binary(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let folder = own.ancestors().find(|p| p.join(name).is_file()).map(Path::to_path_buf);
    Ok(folder.with_context(|| format!("{name} is not built: cargo build"))?.join(name))
}
