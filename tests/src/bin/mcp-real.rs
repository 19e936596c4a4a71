//! Real MCP servers, from the package registries, used through `instar dev` and through four processes: found,
//! called, killed in mid-call. Says what it saw.
//!
//! By hand, since it installs packages: `cargo xtask mcp`.

use anyhow::{Context, Result, ensure};
use instar_testkit::mcp::MARK;
use instar_testkit::model::{Reply, Request, Script};
use instar_testkit::{process, wait};
use instar_tests::fleet::{self, Fleet, Setup};
use instar_tests::mark;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

const WITHIN: Duration = Duration::from_secs(60);
const PYTHON: &str = "mcp-server-time";
const NODE: [&str; 2] = ["@modelcontextprotocol/server-everything", "@modelcontextprotocol/server-filesystem"];

#[tokio::main]
async fn main() -> Result<()> {
    let cache = std::env::current_dir()?.join(".cache/mcp");
    let (python, node) = install(&cache)?;
    let binary = fleet::binary("instar-armed")?;
    let (postgres, nats) = (instar_testkit::postgres::shared().await?, instar_testkit::nats::shared().await?);
    for distributed in [false, true] {
        println!("== {}", if distributed { "four processes" } else { "instar dev" });
        let mark = uuid::Uuid::now_v7().to_string();
        let web = Web::start(&node).await?;
        let folder = tempfile::tempdir()?;
        let (database, bus) = if distributed { (postgres.as_str(), nats.as_str()) } else { ("", "") };
        let mut setup = Setup::new(binary.clone(), database, bus, script());
        setup.config = configuration(&python, &node, folder.path(), &web.url, &mark);
        let fleet = if distributed { Fleet::start(setup).await? } else { Fleet::embedded(setup).await? };
        let mut tour = Tour { fleet, mark, distributed, http: reqwest::Client::builder().no_proxy().build()? };
        let seen = tour.all(folder.path()).await;
        if seen.is_err() {
            tour.fleet.nodes.iter().for_each(|node| println!("--- {}\n{}", node.service, node.log_tail()));
        }
        seen?;
    }
    Ok(())
}

/// Where their programs are.
fn install(cache: &Path) -> Result<(PathBuf, PathBuf)> {
    std::fs::create_dir_all(cache)?;
    let run = |program: &str, arguments: &[&str]| -> Result<()> {
        let status = std::process::Command::new(program).args(arguments).current_dir(cache).status();
        ensure!(status.with_context(|| format!("{program} is needed"))?.success(), "{program} {arguments:?} failed");
        Ok(())
    };
    let (python, node) = (cache.join("python/bin").join(PYTHON), cache.join("node/node_modules/.bin"));
    if !python.exists() {
        run("python3", &["-m", "venv", "python"])?;
        run("python/bin/pip", &["install", "-q", PYTHON])?;
    }
    if !node.exists() {
        run("npm", &["install", "--silent", "--no-fund", "--no-audit", "--prefix", "node", NODE[0], NODE[1]])?;
    }
    Ok((python, node))
}

fn configuration(python: &Path, node: &Path, folder: &Path, web: &str, mark: &str) -> String {
    let stdio = |name: &str, command: &[String]| {
        format!(
            "[[mcp_servers]]\nname = \"{name}\"\ntransport = \"stdio\"\ncommand = {}\nenvironment = {{ {MARK} = \"{mark}\" }}\n",
            json!(command)
        )
    };
    let own = |path: PathBuf| path.display().to_string();
    [
        "[lease]\nttl_ms = 1000\n".to_owned(),
        stdio("clock", &[own(python.to_owned())]),
        stdio("everything", &[own(node.join("mcp-server-everything")), "stdio".to_owned()]),
        stdio("files", &[own(node.join("mcp-server-filesystem")), own(folder.to_owned())]),
        format!("[[mcp_servers]]\nname = \"web\"\ntransport = \"http\"\nurl = \"{web}\"\n"),
    ]
    .concat()
}

/// `call NAME ARGUMENTS` makes the model call it.
fn script() -> Script {
    Script::function(|request: &Request| {
        let (text, results) = (request.user_text(), request.tool_results());
        match (results.is_empty(), text.splitn(3, ' ').collect::<Vec<_>>().as_slice()) {
            (true, ["call", name, arguments]) => Reply::call_raw(&name.replace('.', "__"), arguments),
            _ => Reply::text("Done."),
        }
    })
}

/// The reference server over HTTP, which is nobody's child but ours.
struct Web {
    url: String,
    _child: tokio::process::Child,
}

impl Web {
    async fn start(node: &Path) -> Result<Web> {
        let port = wait::free_port()?;
        let mut command = tokio::process::Command::new(node.join("mcp-server-everything"));
        command.arg("streamableHttp").env("PORT", port.to_string()).stdout(Stdio::null()).stderr(Stdio::null());
        command.kill_on_drop(true);
        let child = process::spawn_async(command)?;
        wait::until_ok(WITHIN, || async { Ok(tokio::net::TcpStream::connect(("127.0.0.1", port)).await?) }).await?;
        Ok(Web { url: format!("http://127.0.0.1:{port}/mcp"), _child: child })
    }
}

struct Tour {
    fleet: Fleet,
    mark: String,
    distributed: bool,
    http: reqwest::Client,
}

impl Tour {
    async fn all(&mut self, folder: &Path) -> Result<()> {
        let tools = self.servers().await?;
        self.shows("clock.get_current_time", json!({"timezone": "UTC"})).await?;
        self.shows("everything.echo", json!({"message": "over a pipe"})).await?;
        self.shows("web.echo", json!({"message": "over HTTP"})).await?;
        let file = folder.join("note.txt").display().to_string();
        self.shows("files.write_file", json!({"path": file, "content": "kept"})).await?;
        self.shows("files.read_text_file", json!({"path": file})).await?;
        self.shows("files.read_text_file", json!({"path": "/etc/passwd"})).await?;
        let long = tools.iter().find(|name| name.starts_with("everything.") && name.contains("long"));
        let long = long.context("the reference server has no long operation")?.clone();
        self.shows(&long, json!({"duration": 2, "steps": 4})).await?;

        println!("-- the server is killed in mid-call");
        let turn = self.begin(&long, json!({"duration": 60, "steps": 60})).await?;
        self.progress(&turn).await?;
        let node = mark::marked(&self.mark).into_iter().filter(|(_, name)| name.starts_with("node"));
        for (process, _) in node {
            process::signal(process, 9)?;
        }
        self.ended(&turn, &long).await?;
        self.shows("everything.echo", json!({"message": "back again"})).await?;

        println!("-- the runner is killed in mid-call");
        let turn = self.begin(&long, json!({"duration": 60, "steps": 60})).await?;
        self.progress(&turn).await?;
        let service = if self.distributed { "tool-runner" } else { "dev" };
        let before = mark::marked(&self.mark).len();
        let killed = Instant::now();
        self.fleet.node(service)?.kill9().await?;
        mark::none_is_left(&self.mark, WITHIN).await?;
        println!("   {before} processes of servers were gone after {} ms", killed.elapsed().as_millis());
        let again =
            if self.distributed { self.fleet.spawn(service, &[]).await? } else { self.fleet.spawn_dev().await? };
        *self.fleet.node(service)? = again;
        self.ended(&turn, &long).await?;
        self.shows("everything.echo", json!({"message": "and back again"})).await?;

        println!("-- everything is asked to end");
        for node in &mut self.fleet.nodes {
            let took = node.terminate(WITHIN).await?;
            println!("   {} ended after {} ms", node.service, took.as_millis());
        }
        println!("   {} processes of servers are left", mark::marked(&self.mark).len());
        ensure!(mark::marked(&self.mark).is_empty());
        Ok(())
    }

    async fn get(&self, path: &str) -> Result<Value> {
        let url = format!("http://127.0.0.1:{}{path}", self.fleet.port());
        Ok(self.http.get(url).bearer_auth(self.fleet.key()).send().await?.json().await?)
    }

    async fn servers(&self) -> Result<Vec<String>> {
        let servers = self.get("/v1/mcp-servers").await?;
        for server in servers["data"].as_array().into_iter().flatten() {
            let field = |name: &str| server[name].as_str().unwrap_or("-").to_owned();
            let (name, tools) = (field("name"), &server["tools"]);
            println!("   {name}: {}, MCP {}, {tools} tools, {}", field("status"), field("protocol"), field("about"));
            ensure!(server["status"] == "ready", "{server}");
        }
        let tools = self.get("/v1/tools").await?;
        let names = tools["data"].as_array().into_iter().flatten().filter(|tool| tool["available"] == true);
        Ok(names.filter_map(|tool| tool["name"].as_str().map(str::to_owned)).collect())
    }

    async fn begin(&self, tool: &str, arguments: Value) -> Result<String> {
        let (_, agents) = self.fleet.agents(1, &[tool]).await?;
        let url = format!("http://127.0.0.1:{}/v1/agents/{}/messages", self.fleet.port(), agents[0]);
        let body = json!({"content": format!("call {tool} {arguments}")});
        let sent: Value = self.http.post(url).bearer_auth(self.fleet.key()).json(&body).send().await?.json().await?;
        sent["turn_id"].as_str().map(str::to_owned).with_context(|| format!("{sent}"))
    }

    async fn progress(&self, turn: &str) -> Result<()> {
        wait::until_ok(WITHIN, || async {
            let turn = self.get(&format!("/v1/turns/{turn}")).await?;
            let session = turn["session_id"].as_str().context("session")?;
            let runes = self.get(&format!("/v1/sessions/{session}/runes?limit=200")).await?;
            let progress =
                runes["data"].as_array().into_iter().flatten().filter(|rune| rune["kind"] == "tool.progress");
            ensure!(progress.count() > 0, "no progress yet");
            Ok(())
        })
        .await
    }

    async fn shows(&self, tool: &str, arguments: Value) -> Result<()> {
        let turn = self.begin(tool, arguments).await?;
        self.ended(&turn, tool).await
    }

    async fn ended(&self, turn: &str, tool: &str) -> Result<()> {
        let ended = wait::until_ok(WITHIN, || async {
            let turn = self.get(&format!("/v1/turns/{turn}")).await?;
            ensure!(turn["ended_at"].is_string(), "it is {}", turn["status"]);
            Ok(turn)
        })
        .await?;
        let calls = self.get(&format!("/v1/tool-calls?turn={turn}")).await?;
        let call = &calls["data"][0];
        let said = match (&call["result"]["error"], &call["result"]["output"]) {
            (Value::String(error), _) => error.clone(),
            (_, Value::String(text)) => text.clone(),
            (_, other) => other.to_string(),
        };
        let short: String = said.replace('\n', " ").chars().take(110).collect();
        println!("   {tool}: {}: {short}", call["result_status"]);
        ensure!(ended["status"] == "completed", "{ended}");
        Ok(())
    }
}
