//! Secrets that were planted everywhere are found nowhere: in no rune, log, trace, prompt, answer, stream,
//! archive or table, however they were written by whoever repeated them.

use anyhow::{Context, Result, ensure};
use instar_archive::Segment;
use instar_testkit::echo::base64;
use instar_testkit::model::{Refusal, Reply, Request, Script};
use instar_testkit::{nats, postgres, wait};
use instar_tests::collector::Collector;
use instar_tests::fleet::{Fleet, Setup};
use sea_orm::{ConnectionTrait, Database, DbBackend, Statement};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

const WITHIN: Duration = Duration::from_secs(60);

/// What is planted: where, and what.
const CANARIES: [(&str, &str); 16] = [
    ("password of an account", "cnry+Account/pass&0001"),
    ("token of an account", "cnry-Account-token-0002"),
    ("account of the configuration", "cnry-Config-pass-0003"),
    ("key of a model", "cnry-Model-key-0004"),
    ("header of a model", "cnry-Model-header-0005"),
    ("header of a tool", "cnry-Tool-header-0006"),
    ("variable of a command", "cnry-Command-env-0007"),
    ("secret of a tool", "cnry-Tool-secret-0008"),
    ("password of the database", "cnry-Database-pass-0009"),
    ("password of the bus", "cnry-Bus-pass-0010"),
    ("header of traces", "cnry-Trace-header-0011"),
    ("secret in a file", "cnry-File-secret-0012"),
    ("account that was refused", "cnry-Refused-pass-0013"),
    ("header of an MCP server", "cnry-Mcp-header-0014"),
    ("secret of an MCP server", "cnry-Mcp-secret-0015"),
    ("variable of an MCP server", "cnry-Mcp-env-0016"),
];
const VAULT_KEY: &str = "c0ffee0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d";

fn planted(at: usize) -> &'static str {
    CANARIES[at].1
}

const CONFIG: &str = r#"
[archive]
url = "archive"
[secrets]
key_env = "VAULT_KEY"
env = ["CONFIG_PASS"]
folder = "mounted"
[[accounts]]
name = "config-1"
pool = "config"
fields = { password = "secret://env/CONFIG_PASS", token = "secret://file/token" }
[[models]]
name = "keyed"
provider = "openai"
base_url = "MODEL_URL/v1"
model = "mock"
api_key_env = "MODEL_KEY"
headers = { x-api-key = "cnry-Model-header-0005" }
limits = { retries_max = 0 }
[[tools]]
name = "login"
kind = "http"
url = "TOOL_URL/echo/login?t=secret://account/token"
parameters = { type = "object", properties = { pin = { type = "string" } } }
headers = { authorization = "Bearer secret://account/password" }
body = { also = "secret://account/password" }
secret_arguments = ["pin"]
side_effects = true
[[tools]]
name = "login_fails"
kind = "http"
url = "TOOL_URL/echo/login_fails?fail=500&t=secret://account/token"
parameters = { type = "object", properties = {} }
headers = { authorization = "Bearer secret://account/password" }
[[tools]]
name = "login_hangs"
kind = "http"
url = "TOOL_URL/echo/login_hangs?hang&t=secret://account/token"
parameters = { type = "object", properties = {} }
headers = { authorization = "Bearer secret://account/password" }
timeout_ms = 300
[[tools]]
name = "billing"
kind = "http"
url = "TOOL_URL/echo/billing?k=secret://billing"
parameters = { type = "object", properties = {} }
headers = { authorization = "Bearer cnry-Tool-header-0006" }
[[tools]]
name = "nowhere"
kind = "http"
url = "http://127.0.0.1:9/?k=secret://billing"
parameters = { type = "object", properties = {} }
headers = { authorization = "Bearer cnry-Tool-header-0006" }
[[tools]]
name = "talk"
kind = "command"
parameters = { type = "object", properties = {} }
command = ["/bin/sh", "-c", "echo $ACCESS_TOKEN; echo told $PASS >&2; env; sleep 1.2; echo $PASS | od -c; exit 3"]
env = ["ACCESS_TOKEN"]
environment = { PASS = "secret://account/password" }
[[mcp_servers]]
name = "parrot"
transport = "http"
url = "TOOL_URL/echo/parrot?k=secret://mcp"
headers = { authorization = "Bearer cnry-Mcp-header-0014", x-more = "secret://mcp" }
[[mcp_servers]]
name = "chatty"
transport = "stdio"
command = ["/bin/sh", "-c", "echo $TOKEN; echo told $TOKEN $MCP_TOKEN >&2; env >&2; env; exit 3"]
env = ["MCP_TOKEN"]
environment = { TOKEN = "secret://mcp" }
[[mcp_servers]]
name = "keyed"
transport = "stdio"
command = ["MCP_SERVER", "stdio"]
pin = "none"
[mcp_servers.overrides.repeat]
secret_arguments = ["text"]
[mcp_servers.overrides.change]
secret_arguments = ["to"]
[mcp_servers.overrides.die]
secret_arguments = ["token"]
"#;
/// Of its tools these are given a password, and repeat it: as they answer, in their description, as they end.
const CONFIDED: [(&str, &str); 3] = [("repeat", "text"), ("change", "to"), ("die", "token")];

fn environment(collector: &Collector) -> Vec<(&'static str, String)> {
    vec![
        ("VAULT_KEY", VAULT_KEY.into()),
        ("CONFIG_PASS", planted(2).into()),
        ("MODEL_KEY", planted(3).into()),
        ("ACCESS_TOKEN", planted(6).into()),
        ("INSTAR_SECRET_BILLING", planted(7).into()),
        ("INSTAR_SECRET_MCP", planted(14).into()),
        ("MCP_TOKEN", planted(15).into()),
        ("OTEL_EXPORTER_OTLP_HEADERS", format!("authorization=Bearer {}", planted(10))),
        ("OTEL_BSP_SCHEDULE_DELAY", "50".into()),
        ("INSTAR__TELEMETRY__LOG_FILTER", "debug".into()),
        ("INSTAR__TELEMETRY__OTLP_ENDPOINT", collector.url().to_owned()),
    ]
}

/// The first word of a message is the tool to call, or what the provider shall refuse with.
fn script() -> Script {
    Script::function(|request: &Request| {
        let text = request.user_text();
        match text.split_whitespace().next() {
            Some("refuse") => Reply::refused(Refusal::Invalid(format!("your key {} is not good", planted(3)))),
            Some("unauthorized") => Reply::refused(Refusal::Unauthorized),
            Some("say") => Reply::text("Nothing to do."),
            Some("login") if request.tool_results().is_empty() => {
                Reply::call("login", json!({"pin": "secret://account/password"}))
            }
            Some(tool) if request.tool_results().is_empty() => match CONFIDED.iter().find(|(name, _)| *name == tool) {
                Some((name, argument)) => {
                    Reply::call(&format!("keyed__{name}"), json!({*argument: "secret://account/password"}))
                }
                None => Reply::call(tool, json!({})),
            },
            _ => Reply::text("Done."),
        }
    })
}

struct House {
    fleet: Fleet,
    collector: Collector,
    http: reqwest::Client,
    /// Everything that anybody was told, with who told it.
    heard: std::sync::Mutex<Vec<(String, String)>>,
}

impl House {
    async fn start(distributed: bool) -> Result<House> {
        let collector = Collector::start().await?;
        let binary = PathBuf::from(env!("CARGO_BIN_EXE_instar-armed"));
        let (mut database, mut bus) = (String::new(), String::new());
        if distributed {
            // Neither server asks for a password; that it is there is enough for it to leak.
            database = with_password(&postgres::shared().await?, planted(8))?;
            bus = with_password(&nats::shared().await?, planted(9))?;
        }
        let mut setup = Setup::new(binary, &database, &bus, script());
        setup.config = CONFIG.replace("MCP_SERVER", env!("CARGO_BIN_EXE_mcp-server"));
        setup.environment = environment(&collector);
        let fleet = if distributed { Fleet::start(setup).await? } else { Fleet::embedded(setup).await? };
        let mounted = fleet.folder.path().join("mounted");
        std::fs::create_dir_all(&mounted)?;
        std::fs::write(mounted.join("token"), planted(11))?;
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().timeout(WITHIN).build()?;
        Ok(House { fleet, collector, http, heard: Default::default() })
    }

    fn hear(&self, who: impl Into<String>, what: impl Into<String>) {
        self.heard.lock().unwrap().push((who.into(), what.into()));
    }

    async fn ask(&self, method: &str, path: &str, body: Option<Value>) -> Result<(u16, Value)> {
        let url = format!("http://127.0.0.1:{}{path}", self.fleet.port());
        let mut request = self.http.request(reqwest::Method::from_bytes(method.as_bytes())?, url);
        request = request.bearer_auth(self.fleet.key());
        if let Some(body) = body {
            request = request
                .header("content-type", "application/json")
                .header("idempotency-key", uuid::Uuid::now_v7().to_string());
            request = request.body(body.as_str().map_or_else(|| body.to_string(), str::to_owned));
        }
        let answer = request.send().await?;
        let (status, headers) = (answer.status().as_u16(), format!("{:?}", answer.headers()));
        let text = answer.text().await?;
        self.hear(format!("answer to {method} {path}"), format!("{headers}\n{text}"));
        Ok((status, serde_json::from_str(&text).unwrap_or_default()))
    }

    async fn post(&self, path: &str, body: Value) -> Result<Value> {
        let (status, got) = self.ask("POST", path, Some(body)).await?;
        ensure!((200..300).contains(&status), "{path}: {status} {got}");
        Ok(got)
    }

    async fn agent(&self, session: &str, more: Value) -> Result<String> {
        let mut agent = json!({"name": "ada", "model": "keyed", "system_prompt": "You are {{ACCOUNT}}."});
        if let (Some(agent), Value::Object(more)) = (agent.as_object_mut(), more) {
            agent.extend(more);
        }
        Ok(self.post(&format!("/v1/sessions/{session}/agents"), agent).await?["id"].as_str().context("id")?.to_owned())
    }

    async fn turn(&self, agent: &str, content: &str) -> Result<Value> {
        let sent = self.post(&format!("/v1/agents/{agent}/messages"), json!({"content": content})).await?;
        let turn = sent["turn_id"].as_str().context("a turn")?.to_owned();
        wait::until_ok(WITHIN, || async {
            let turn = self.ask("GET", &format!("/v1/turns/{turn}"), None).await?.1;
            if turn["waiting_for"]["kind"] == "approval" {
                let call = turn["waiting_for"]["call_ids"][0].as_str().context("a call")?.to_owned();
                self.ask("POST", &format!("/v1/tool-calls/{call}/deny"), Some(json!({"reason": "no"}))).await?;
            }
            ensure!(turn["ended_at"].is_string(), "{content}: {turn}");
            Ok(turn)
        })
        .await
    }

    /// Everything that happens, however it ends.
    async fn live(&self) -> Result<String> {
        let fields = json!({"password": planted(0), "token": planted(1)});
        self.post("/v1/accounts", json!({"name": "api-1", "pool": "api", "username": "ada", "fields": fields})).await?;
        let refused = [
            json!({"name": "bad name", "fields": {"password": planted(12)}}),
            json!({"name": "x", "fields": {"password": planted(12), "pin": "short"}}),
            json!({"name": "x", "fields": planted(12)}),
            json!({"name": "x", "fields": [planted(12)]}),
            json!({"name": planted(12), "secret": planted(12), "fields": {}}),
            json!({"name": "api-1", "fields": {"password": planted(12)}}),
            // No JSON at all.
            json!(format!("{{\"name\": \"x\", \"fields\": {{\"password\": \"{}\"}}", planted(12))),
        ];
        for body in refused {
            let (status, got) = self.ask("POST", "/v1/accounts", Some(body)).await?;
            ensure!([409, 422].contains(&status), "{status} {got}");
        }
        let session =
            self.post("/v1/sessions", json!({"name": "canary"})).await?["id"].as_str().context("id")?.to_owned();
        let stream =
            self.http.get(format!("http://127.0.0.1:{}/v1/sessions/{session}/events?after=0", self.fleet.port()));
        let mut stream = stream.bearer_auth(self.fleet.key()).timeout(Duration::from_secs(600)).send().await?;
        let tools = json!(["login", "login_fails", "login_hangs", "billing", "nowhere", "talk", "echo", "keyed.*"]);
        let agent = self.agent(&session, json!({"tools": tools, "account": {"pool": "api"}})).await?;
        for tool in ["login", "login_fails", "login_hangs", "billing", "nowhere", "talk"] {
            let turn = self.turn(&agent, tool).await?;
            ensure!(turn["status"] == "completed", "{tool}: {turn}");
        }
        self.confide(&agent).await?;
        ensure!(self.turn(&agent, "refuse").await?["status"] == "error");
        self.ask("POST", &format!("/v1/agents/{agent}/start"), Some(json!({}))).await?;
        let other = self.agent(&session, json!({"tools": ["login"], "account": "config-1"})).await?;
        ensure!(self.turn(&other, "login").await?["status"] == "completed");
        let asked =
            self.agent(&session, json!({"tools": ["login"], "account": "config-1", "approval_mode": "auto"})).await?;
        ensure!(self.turn(&asked, "login").await?["status"] == "completed", "it is denied");
        ensure!(self.turn(&other, "unauthorized").await?["status"] == "error");
        for path in [
            "/v1/accounts",
            "/v1/accounts/api-1",
            "/v1/tools",
            "/v1/mcp-servers",
            "/v1/models",
            "/v1/tool-calls?limit=200",
        ] {
            self.ask("GET", path, None).await?;
        }
        for path in
            [format!("/v1/agents/{agent}/messages?query=cnry"), format!("/v1/agents/{agent}"), "/metrics".into()]
        {
            self.ask("GET", &path, None).await?;
        }
        self.look_at_contexts(&session).await?;
        self.post(&format!("/v1/sessions/{session}/close"), json!({})).await?;
        let closed = wait::until_ok(WITHIN, || async {
            let found = self.ask("GET", &format!("/v1/sessions/{session}"), None).await?.1;
            ensure!(found["status"] == "closed", "{found}");
            Ok(found)
        })
        .await?;
        let last = format!("id: {}\n", closed["head_seq"]);
        let mut said = String::new();
        while !said.contains(&last) {
            let piece = tokio::time::timeout(WITHIN, stream.chunk()).await.with_context(|| said.clone())??;
            said += &String::from_utf8_lossy(&piece.context("the stream ended")?);
        }
        ensure!(said.contains("tool.result") && said.contains("[redacted]"), "{said}");
        self.hear("the event stream", said);
        Ok(session)
    }

    /// A password goes to a server's tool as an argument. That it was really told shows in what is blotted out.
    async fn confide(&self, agent: &str) -> Result<()> {
        for (tool, _) in CONFIDED {
            let turn = self.turn(agent, tool).await?;
            ensure!(turn["status"] == "completed", "{tool}: {turn}");
            let path = format!("/v1/tool-calls?turn={}", turn["id"].as_str().context("id")?);
            let call = self.ask("GET", &path, None).await?.1["data"][0].clone();
            match tool {
                "repeat" => {
                    let told = &call["result"]["output"];
                    ensure!(
                        told["structured"]["told"] == "[redacted]" && told["content"] == "I was told [redacted].",
                        "{call}"
                    );
                }
                "change" => {
                    ensure!(call["result_status"] == "success", "{call}");
                    wait::until_ok(WITHIN, || async {
                        let tools = self.ask("GET", "/v1/tools", None).await?.1;
                        let tools = tools["data"].as_array().context("tools")?.clone();
                        let now = tools.iter().find(|tool| tool["name"] == "keyed.now").context("no keyed.now")?;
                        ensure!(now["description"] == "[redacted]", "{now}");
                        Ok(())
                    })
                    .await?;
                }
                _ => ensure!(call["result_status"] == "unknown", "{call}"),
            }
        }
        Ok(())
    }

    async fn look_at_contexts(&self, session: &str) -> Result<()> {
        let turns = self.ask("GET", &format!("/v1/turns?session={session}&limit=200"), None).await?.1;
        for turn in turns["data"].as_array().context("turns")? {
            self.ask("GET", &format!("/v1/turns/{}/context", turn["id"].as_str().unwrap_or_default()), None).await?;
        }
        Ok(())
    }

    async fn run(&self, arguments: &[&str], config: bool) -> Result<()> {
        let (ended, said) = self.tell(arguments, config).await?;
        ensure!(ended, "{arguments:?}: {said}");
        Ok(())
    }

    /// The command line, with the configuration and all variables of the services: whether it ended well.
    async fn tell(&self, arguments: &[&str], config: bool) -> Result<(bool, String)> {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_instar-armed"));
        command.env_clear().current_dir(self.fleet.folder.path()).envs(environment(&self.collector));
        instar_testkit::process::bind(command.as_std_mut());
        command.env("FLEET_KEY", self.fleet.key()).env("PATH", std::env::var_os("PATH").unwrap_or_default());
        if !config {
            command.args(["--server", &format!("http://127.0.0.1:{}", self.fleet.port())]);
            command.env("INSTAR_API_KEY", self.fleet.key());
        }
        let output = command.args(arguments).output().await?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        self.hear(format!("instar {}", arguments.join(" ")), said.clone());
        Ok((output.status.success(), said))
    }

    async fn look_around(&mut self, session: &str) -> Result<()> {
        for arguments in [
            &["export", session, "log.jsonl"][..],
            &["verify", session],
            &["replay", session],
            &["account", "list", "-o", "json"],
            &["agent", "list", "-o", "yaml"],
            &["tool", "calls", "-o", "json"],
            &["events", session, "-o", "json"],
        ] {
            self.run(arguments, false).await?;
        }
        // Two servers are not well, and it says so; what they said stays with it.
        let (_, said) = self.tell(&["doctor", "--config", "instar.toml", "-o", "json"], true).await?;
        ensure!(said.contains("parrot") && said.contains("chatty"), "{said}");
        self.post(&format!("/v1/sessions/{session}/archive"), json!({})).await?;
        self.run(&["verify", session], false).await?;
        let mut after = 0;
        loop {
            let page = self.ask("GET", &format!("/v1/sessions/{session}/runes?limit=200&after={after}"), None).await?.1;
            let Some(last) = page["data"].as_array().and_then(|page| page.last()) else { break };
            after = last["seq"].as_i64().context("seq")?;
        }
        let traced = |span: &instar_tests::collector::Span| span.name == "execute_tool login_hangs";
        wait::until_ok(WITHIN, || async {
            ensure!(self.collector.spans().iter().any(traced), "not traced yet");
            Ok(())
        })
        .await?;
        for node in &mut self.fleet.nodes {
            node.terminate(WITHIN).await?;
        }
        for request in self.fleet.model.requests() {
            self.hear("a prompt", request.body.to_string());
        }
        for span in self.collector.spans() {
            self.hear("a trace", span.texts().collect::<Vec<_>>().join("\n"));
        }
        self.read_files(self.fleet.folder.path().to_owned().as_path())?;
        Ok(())
    }

    /// Logs, exports, archives, and the database of `instar dev`.
    fn read_files(&self, folder: &Path) -> Result<()> {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // What the operator wrote down, and what seals the rest.
            if ["instar.toml", "mounted", "secrets-key", "api-key", "ledger"].contains(&name.as_str()) {
                continue;
            }
            if path.is_dir() {
                self.read_files(&path)?;
                continue;
            }
            let bytes = std::fs::read(&path)?;
            if let Ok((_, runes, _)) = Segment::read(&bytes) {
                ensure!(!runes.is_empty());
                self.hear(
                    format!("the segment {name}"),
                    runes.iter().map(|rune| rune.payload.get()).collect::<String>(),
                );
            }
            self.hear(format!("the file {name}"), String::from_utf8_lossy(&bytes));
        }
        Ok(())
    }

    /// Every row of every table as text; what is sealed is there too, and must be unreadable.
    async fn read_tables(&self) -> Result<usize> {
        let db = Database::connect(&self.fleet.database).await?;
        let list = "SELECT tablename::text FROM pg_tables WHERE schemaname = 'public'";
        let tables = db.query_all_raw(Statement::from_string(DbBackend::Postgres, list)).await?;
        for table in &tables {
            let table: String = table.try_get_by_index(0)?;
            let rows = format!("SELECT row_to_json(t)::text FROM \"{table}\" t");
            for row in db.query_all_raw(Statement::from_string(DbBackend::Postgres, rows)).await? {
                self.hear(format!("the table {table}"), row.try_get_by_index::<String>(0)?);
            }
        }
        Ok(tables.len())
    }

    /// Who told what.
    fn leaks(&self) -> Vec<String> {
        let heard = self.heard.lock().unwrap();
        let mut secrets: Vec<(&str, &str)> = CANARIES.to_vec();
        secrets.extend([("key that seals accounts", VAULT_KEY), ("key to the API", self.fleet.key())]);
        let mut leaks = Vec::new();
        for (place, secret) in secrets {
            for form in forms(secret) {
                for (who, what) in heard.iter().filter(|(_, what)| what.contains(&form)) {
                    let at = what.find(&form).unwrap_or_default();
                    let from = what.floor_char_boundary(at.saturating_sub(160));
                    let to = what.ceil_char_boundary((at + 160).min(what.len()));
                    leaks.push(format!("{who} tells the {place} as {form:?}: …{}…", &what[from..to]));
                }
            }
        }
        leaks
    }
}

fn with_password(url: &str, password: &str) -> Result<String> {
    let (scheme, rest) = url.split_once("://").context("a URL")?;
    let (user, rest) = rest.split_once('@').unwrap_or(("someone", rest));
    let user = user.split(':').next().unwrap_or("someone");
    Ok(format!("{scheme}://{user}:{password}@{rest}"))
}

/// The ways in which somebody may write a secret down without meaning to hide it.
fn forms(secret: &str) -> Vec<String> {
    let percent = |all: bool| {
        let one = |byte: u8| match byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            true if !all => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        };
        secret.bytes().map(one).collect::<String>()
    };
    let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
    let mut forms = vec![secret.to_owned(), percent(false), percent(true), hex.to_uppercase(), hex];
    forms.push(json!(secret).to_string().trim_matches('"').to_owned());
    for before in 0..3 {
        // What depends on the secret alone, whatever stands before and after it.
        let text = base64(format!("{}{secret}", "x".repeat(before)).as_bytes());
        let inside = &text[if before == 0 { 0 } else { 4 }..text.trim_end_matches('=').len() - 2];
        forms.extend([inside.to_owned(), inside.replace('+', "-").replace('/', "_")]);
    }
    forms.sort();
    forms.dedup();
    forms
}

async fn no_secret_is_told_to_anybody(distributed: bool) -> Result<()> {
    let mut house = House::start(distributed).await?;
    let session = house.live().await?;
    // They were really used, or it would be easy to keep them.
    let echoed = house.fleet.tool.echoed();
    let sent = format!("{echoed:?}");
    for at in [0, 2, 5, 13, 14] {
        ensure!(sent.contains(planted(at)), "{} was not sent", CANARIES[at].0);
    }
    let keyed = house.fleet.model.requests();
    ensure!(keyed.iter().all(|r| r.header("authorization") == Some(&format!("Bearer {}", planted(3)))));
    house.look_around(&session).await?;
    if distributed {
        ensure!(house.read_tables().await? > 10);
    }
    let kinds = ["the event stream", "a prompt", "a trace", "the segment", "the file 00", "instar doctor", "answer to"];
    for kind in kinds {
        ensure!(
            house.heard.lock().unwrap().iter().any(|(who, _)| who.starts_with(kind)),
            "nothing was heard of {kind}"
        );
    }
    let leaks = house.leaks();
    ensure!(leaks.is_empty(), "{} leaks:\n{}", leaks.len(), leaks.join("\n"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_is_told_to_anybody_by_one_process() -> Result<()> {
    no_secret_is_told_to_anybody(false).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_is_told_to_anybody_by_four_processes() -> Result<()> {
    no_secret_is_told_to_anybody(true).await
}

#[test]
fn a_secret_that_is_told_is_found_in_every_form() {
    let secret = planted(0);
    for told in [
        secret.to_owned(),
        base64(format!("user:{secret}").as_bytes()),
        base64(format!("u:{secret}!").as_bytes()),
        format!("?p={}", "cnry%2BAccount%2Fpass%260001"),
    ] {
        assert!(forms(secret).iter().any(|form| told.contains(form.as_str())), "{told}");
    }
    assert!(!forms(secret).iter().any(|form| "cnry+Account/[redacted]".contains(form.as_str())));
}
