//! An installation that scenarios share, and what a scenario does with it.

use anyhow::{Context, Result, ensure};
use instar_store::entity::session;
use instar_store::{Options, Store};
use instar_testkit::model::{Reply, Request, Script};
use instar_testkit::wait;
use instar_tests::audit;
use instar_tests::dev::Got;
use instar_tests::fleet::{Fleet, Node, Setup};
use sea_orm::EntityTrait;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long anything may take on a machine that does other things as well.
pub(crate) const WITHIN: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Embedded,
    Distributed,
}

type Choose = Arc<dyn Fn(&Request) -> Reply + Send + Sync>;
type Scripts = Arc<Mutex<HashMap<String, Choose>>>;

struct Installation {
    mode: Mode,
    fleet: Fleet,
    nodes: tokio::sync::Mutex<Vec<Node>>,
    http: reqwest::Client,
    scripts: Scripts,
    /// Rows that leave no rune: a scenario says that it saw them refused or ignored.
    seen: Mutex<BTreeSet<String>>,
}

/// What a scenario is given.
#[derive(Clone)]
pub(crate) struct World {
    shared: Arc<Installation>,
    /// The scenario's name: the model follows the script of the same name.
    pub(crate) name: &'static str,
}

impl World {
    pub(crate) async fn start(mode: Mode, group: &crate::Group) -> Result<World> {
        let scripts = Scripts::default();
        let by_name = scripts.clone();
        let script = Script::function(move |request| {
            let system = request.messages().iter().find(|m| m["role"] == "system").map(|m| m["content"].to_string());
            let known = by_name.lock().unwrap();
            let own = known.iter().find(|(name, _)| system.as_ref().is_some_and(|s| s.contains(&format!("[{name}]"))));
            let choose = own.map(|(_, choose)| choose.clone());
            drop(known);
            choose.map_or_else(|| Reply::text("Nothing was asked of me."), |choose| choose(request))
        });
        let binary = env!("CARGO_BIN_EXE_instar-armed").into();
        let (database, nats) = match mode {
            Mode::Embedded => (String::new(), String::new()),
            Mode::Distributed => (instar_testkit::postgres::shared().await?, instar_testkit::nats::shared().await?),
        };
        let mut setup = Setup::new(binary, &database, &nats, script);
        setup.config = group.config.to_owned();
        setup.environment = group.environment.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let mut fleet = match mode {
            Mode::Embedded => Fleet::embedded(setup).await?,
            Mode::Distributed => Fleet::start(setup).await?,
        };
        let nodes = tokio::sync::Mutex::new(std::mem::take(&mut fleet.nodes));
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().timeout(WITHIN).build()?;
        let shared = Installation { mode, fleet, nodes, http, scripts, seen: Mutex::default() };
        Ok(World { shared: Arc::new(shared), name: "" })
    }

    pub(crate) fn for_scenario(&self, name: &'static str) -> World {
        World { shared: self.shared.clone(), name }
    }

    pub(crate) fn is_embedded(&self) -> bool {
        self.shared.mode == Mode::Embedded
    }

    pub(crate) fn fleet(&self) -> &Fleet {
        &self.shared.fleet
    }

    /// What the model answers agents of this scenario.
    pub(crate) fn script(&self, choose: impl Fn(&Request) -> Reply + Send + Sync + 'static) {
        self.shared.scripts.lock().unwrap().insert(self.name.to_owned(), Arc::new(choose));
    }

    /// A row that leaves no rune was seen to be refused or ignored.
    pub(crate) fn saw(&self, row: &str) {
        self.shared.seen.lock().unwrap().insert(row.to_owned());
    }

    pub(crate) async fn request(&self, method: &str, path: &str, body: Option<Value>) -> Result<Got> {
        let got = self.answer(method, path, body).await?;
        ensure!(got.status != 500, "our fault: {path}: {}\n{}", got.text, self.log_tails());
        Ok(got)
    }

    /// The same where the fault may be ours.
    pub(crate) async fn answer(&self, method: &str, path: &str, body: Option<Value>) -> Result<Got> {
        self.request_as(self.shared.fleet.key(), method, path, body).await
    }

    /// The same with another key.
    pub(crate) async fn request_as(&self, key: &str, method: &str, path: &str, body: Option<Value>) -> Result<Got> {
        let method = reqwest::Method::from_bytes(method.as_bytes())?;
        let url = format!("http://127.0.0.1:{}{path}", self.shared.fleet.port());
        let mut request = self.shared.http.request(method, url).bearer_auth(key);
        if let Some(body) = &body {
            request = request.json(body);
        }
        let answer = request.send().await?;
        let (status, text) = (answer.status().as_u16(), answer.text().await?);
        Ok(Got { status, body: serde_json::from_str(&text).unwrap_or_default(), text })
    }

    /// The answer as it comes, with its headers; `tag`: only if it is not this one any more.
    pub(crate) async fn fetch(&self, path: &str, tag: Option<&str>) -> Result<reqwest::Response> {
        let url = format!("http://127.0.0.1:{}{path}", self.shared.fleet.port());
        let mut request = self.shared.http.get(url).bearer_auth(self.shared.fleet.key());
        if let Some(tag) = tag {
            request = request.header("if-none-match", tag);
        }
        Ok(request.send().await?)
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value> {
        Ok(self.request("GET", path, None).await?.is(200))
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Result<Got> {
        self.request("POST", path, Some(body)).await
    }

    /// A command that must be taken.
    pub(crate) async fn act(&self, path: &str, body: Value) -> Result<Value> {
        let got = self.post(path, body).await?;
        ensure!((200..300).contains(&got.status), "{path}: {} {}", got.status, got.text);
        Ok(got.body)
    }

    /// A command that the machine must refuse, with these words.
    pub(crate) async fn refused(&self, path: &str, body: Value, words: &str) -> Result<Value> {
        Ok(self.post(path, body).await?.refuses(409, words))
    }

    /// A session without agents.
    pub(crate) async fn session(&self) -> Result<String> {
        text(&self.act("/v1/sessions", json!({"name": self.name})).await?, "id")
    }

    /// An agent that follows this scenario's script; `more` adds to or replaces its fields.
    pub(crate) async fn agent(&self, session: &str, more: Value) -> Result<String> {
        text(&self.act(&format!("/v1/sessions/{session}/agents"), self.described(more)).await?, "id")
    }

    /// An agent's fields, for whoever makes one in another way.
    pub(crate) fn described(&self, more: Value) -> Value {
        let mut agent = json!({"name": "ada", "model": "default", "system_prompt": format!("[{}]", self.name)});
        if let (Some(agent), Value::Object(more)) = (agent.as_object_mut(), more) {
            agent.extend(more);
        }
        agent
    }

    pub(crate) async fn send(&self, agent: &str, content: &str) -> Result<Value> {
        self.act(&format!("/v1/agents/{agent}/messages"), json!({"content": content})).await
    }

    /// Sends a message and gives the id of the turn that was queued for it.
    pub(crate) async fn begin(&self, agent: &str, content: &str) -> Result<String> {
        text(&self.send(agent, content).await?, "turn_id")
    }

    /// Sends a message and gives its turn when that has ended.
    pub(crate) async fn turn(&self, agent: &str, content: &str) -> Result<Value> {
        let turn = self.begin(agent, content).await?;
        self.ended(&turn).await
    }

    pub(crate) async fn ended(&self, turn: &str) -> Result<Value> {
        self.until(&format!("/v1/turns/{turn}"), |turn| turn["ended_at"].is_string()).await
    }

    pub(crate) async fn turn_is(&self, turn: &str, status: &str) -> Result<Value> {
        self.until(&format!("/v1/turns/{turn}"), |turn| turn["status"] == status).await
    }

    /// What is there, once it is as wanted.
    pub(crate) async fn until(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        wait::until_ok(WITHIN, || async {
            let found = self.get(path).await?;
            ensure!(wanted(&found), "{path} is {found}");
            Ok(found)
        })
        .await
    }

    /// The calls of a turn in the order they were made, once there are so many and all are as wanted.
    pub(crate) async fn calls(&self, turn: &str, wanted: impl Fn(&[Value]) -> bool) -> Result<Vec<Value>> {
        let list = |found: &Value| found["data"].as_array().cloned().unwrap_or_default();
        let found = self.until(&format!("/v1/tool-calls?turn={turn}"), |found| wanted(&list(found))).await?;
        let mut calls = list(&found);
        calls.reverse();
        Ok(calls)
    }

    /// The id of the only call of a turn, once it is in this state.
    pub(crate) async fn call_is(&self, turn: &str, status: &str) -> Result<String> {
        let calls = self.calls(turn, |calls| calls.len() == 1 && calls[0]["status"] == status).await?;
        text(&calls[0], "id")
    }

    pub(crate) async fn runes(&self, session: &str) -> Result<Vec<Value>> {
        let (mut runes, mut after) = (Vec::new(), 0);
        loop {
            let page = self.get(&format!("/v1/sessions/{session}/runes?limit=200&after={after}")).await?;
            let page = page["data"].as_array().cloned().unwrap_or_default();
            match page.last() {
                Some(last) => after = last["seq"].as_i64().context("seq")?,
                None => return Ok(runes),
            }
            runes.extend(page);
        }
    }

    /// The runes of a kind, once there are so many.
    pub(crate) async fn runes_of(&self, session: &str, kind: &str, count: usize) -> Result<Vec<Value>> {
        wait::until_ok(WITHIN, || async {
            let mut runes = self.runes(session).await?;
            runes.retain(|rune| rune["kind"] == kind);
            ensure!(runes.len() >= count, "{} of {kind}", runes.len());
            Ok(runes)
        })
        .await
    }

    /// Kills the process that runs this service, as hard as can be, and starts it again: embedded, that is
    /// the one process there is. Only for a scenario that is alone in its group.
    pub(crate) async fn kill(&self, service: &'static str) -> Result<()> {
        let mut nodes = self.shared.nodes.lock().await;
        let service = if self.shared.mode == Mode::Embedded { "dev" } else { service };
        let node = nodes.iter_mut().find(|node| node.service == service).context("no such node")?;
        node.kill9().await?;
        *node = match self.shared.mode {
            Mode::Embedded => self.shared.fleet.spawn_dev().await?,
            Mode::Distributed => self.shared.fleet.spawn(service, &[]).await?,
        };
        Ok(())
    }

    /// Whether each service is a process of its own.
    pub(crate) fn is_distributed(&self) -> bool {
        self.shared.mode == Mode::Distributed
    }

    /// Has the process that runs this service hear and do nothing any more, until it is killed.
    pub(crate) async fn freeze(&self, service: &'static str) -> Result<()> {
        let nodes = self.shared.nodes.lock().await;
        nodes.iter().find(|node| node.service == service).context("no such node")?.pause()
    }

    /// The database itself, for what the API does not show.
    pub(crate) async fn store(&self) -> Result<Store> {
        let fleet = &self.shared.fleet;
        let url = match self.shared.mode {
            Mode::Embedded => format!("sqlite://{}", fleet.data().join("instar.db").display()),
            Mode::Distributed => fleet.database.clone(),
        };
        Ok(Store::open(Options::new(&url)).await?)
    }

    /// The command line, told of this installation: how it ended and what it printed.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Result<(i32, String)> {
        let fleet = &self.shared.fleet;
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_instar-armed"));
        command.env_clear().current_dir(fleet.folder.path());
        instar_testkit::process::bind(command.as_std_mut());
        command.args(["--server", &format!("http://127.0.0.1:{}", fleet.port()), "--key", fleet.key()]);
        let output = command.args(arguments).output().await?;
        let said = [output.stdout, output.stderr].concat();
        Ok((output.status.code().unwrap_or(-1), String::from_utf8(said)?))
    }

    pub(crate) fn log_tails(&self) -> String {
        let Ok(nodes) = self.shared.nodes.try_lock() else { return String::new() };
        nodes.iter().map(|node| format!("--- {}\n{}\n", node.service, node.log_tail())).collect()
    }

    /// Ends every process in order, holds every log against the invariants and the rows, and gives the
    /// rows of the machines that were exercised.
    pub(crate) async fn end(self) -> Result<BTreeSet<String>> {
        for node in self.shared.nodes.lock().await.iter_mut() {
            node.terminate(WITHIN).await?;
        }
        let store = self.store().await?;
        for session in session::Entity::find().all(store.db()).await? {
            if session.status == "archived" {
                continue;
            }
            let (_, wrong) = audit::log(&store, session.id.into()).await?;
            ensure!(wrong.is_empty(), "session {:?}: {wrong:#?}", session.name);
        }
        let mut rows = crate::coverage::rows(&store).await?;
        rows.extend(crate::coverage::implied(&store).await?);
        rows.extend(self.shared.seen.lock().unwrap().iter().cloned());
        Ok(rows)
    }
}

/// A field that must be text.
pub(crate) fn text(found: &Value, field: &str) -> Result<String> {
    found[field].as_str().map(str::to_owned).with_context(|| format!("no {field} in {found}"))
}

/// A model that asks for this tool once, then says that it is done.
pub(crate) fn calls_once(tool: &'static str, arguments: Value) -> impl Fn(&Request) -> Reply + Send + Sync {
    move |request| match request.tool_results().is_empty() {
        true => Reply::call(tool, arguments.clone()),
        false => Reply::text("Done."),
    }
}

/// The workload of the benches, by message.
pub(crate) fn plain() -> impl Fn(&Request) -> Reply + Send + Sync {
    |request| {
        let text = request.user_text();
        match text.split_whitespace().next() {
            Some(tool @ ("charge" | "put")) if request.tool_results().is_empty() => {
                Reply::call(tool, json!({"token": text}))
            }
            Some("echo") if request.tool_results().is_empty() => Reply::call("echo", json!({"text": text})),
            _ => Reply::text("Done."),
        }
    }
}
