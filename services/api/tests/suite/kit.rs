//! A house with an API in it, on either backend, and a way to ask it.

use anyhow::{Context as _, Result, bail, ensure};
use instar_api::{Catalog, Role, Serving, ensure_key, serve};
use instar_bus::{Bus, Namespace, Options as BusOptions};
use instar_core::fold;
use instar_core::id::{AgentId, CallId, TurnId, WorkerId};
use instar_core::invariant::{self, Scope};
use instar_core::rune::KINDS;
use instar_core::rune::payload::Usage;
use instar_runtime::config::Config;
use instar_runtime::drain::Drain;
use instar_runtime::flow::{self, Asked, Spoken, Verdict};
use instar_runtime::{Context, Hub};
use instar_store::entity::{agent, turn};
use instar_store::{Answer, Commit, Options, Store};
use instar_tools::Registry;
use reqwest::{Client, Method, RequestBuilder, StatusCode};
use sea_orm::EntityTrait;
use serde_json::{Value, json};
use std::sync::Arc;
use tempfile::TempDir;
use uuid::Uuid;

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Backend {
    Sqlite,
    Postgres,
}

/// Makes two tests of one body, one per backend.
macro_rules! on_both {
    ($($name:ident;)+) => {
        mod on_sqlite {$(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() -> anyhow::Result<()> {
                super::$name(crate::kit::House::on(crate::kit::Backend::Sqlite).await?).await
            }
        )+}
        mod on_postgres {$(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() -> anyhow::Result<()> {
                super::$name(crate::kit::House::on(crate::kit::Backend::Postgres).await?).await
            }
        )+}
    };
}
pub(crate) use on_both;

pub(crate) struct House {
    pub(crate) context: Context,
    pub(crate) tools: Arc<Registry>,
    pub(crate) base: String,
    pub(crate) client: Client,
    url: String,
    _serving: Serving,
    _folder: Option<TempDir>,
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) text: String,
    pub(crate) body: Value,
}

impl Got {
    #[track_caller]
    pub(crate) fn is(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        self.body
    }

    /// A problem of this status whose detail has these words.
    #[track_caller]
    pub(crate) fn refuses(self, status: u16, words: &str) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        assert_eq!(self.headers["content-type"], "application/problem+json");
        assert_eq!(self.body["status"], status);
        for field in ["type", "title", "detail", "code", "request_id"] {
            assert!(self.body[field].is_string(), "{field} is missing: {}", self.text);
        }
        assert!(self.text.contains(words), "{words:?} is not in {}", self.text);
        self.body
    }
}

impl House {
    pub(crate) async fn on(backend: Backend) -> Result<House> {
        House::with(backend, |_| {}).await
    }

    pub(crate) async fn with(backend: Backend, set: impl FnOnce(&mut Config)) -> Result<House> {
        let (url, folder) = match backend {
            Backend::Sqlite => {
                let folder = tempfile::tempdir()?;
                (format!("sqlite://{}", folder.path().join("instar.db").display()), Some(folder))
            }
            Backend::Postgres => (instar_testkit::postgres::shared().await?, None),
        };
        Store::migrate(&url).await?;
        let mut house = House::at(url, set).await?;
        house._folder = folder;
        for role in Role::ALL {
            ensure_key(house.store(), "test", role.token(), role, &key(role)).await?;
        }
        ensure_key(house.store(), "other", "admin", Role::Admin, "other-admin").await?;
        Ok(house)
    }

    /// Another process on the same database, with a bus of its own: hints never reach it.
    pub(crate) async fn twin(&self) -> Result<House> {
        let agents = self.context.config.agents.clone();
        House::at(self.url.clone(), |config| config.agents = agents).await
    }

    async fn at(url: String, set: impl FnOnce(&mut Config)) -> Result<House> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut config = Config::default();
        config.api.listen.set_port(0);
        set(&mut config);
        let store = Store::open(Options::new(&url)).await?;
        let space = Namespace::new("t", KINDS.iter().map(|kind| kind.token))?;
        let hub = Hub::new(store, Bus::local(space, BusOptions::default()));
        let context = Context { config: Arc::new(config), hub, drain: Drain::new() };
        let models = vec!["default".to_owned(), "fast".to_owned()];
        let tools = Arc::new(Registry::with_builtins());
        let catalog = Catalog { tools: tools.clone(), models };
        let serving = serve(context.clone(), catalog).await?;
        let base = format!("http://{}", serving.address);
        let client = Client::builder().no_proxy().build()?;
        Ok(House { context, tools, base, client, url, _serving: serving, _folder: None })
    }

    pub(crate) fn store(&self) -> &Store {
        self.context.hub.store()
    }

    pub(crate) fn request(&self, method: &str, path: &str, key: &str) -> RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let request = self.client.request(method, format!("{}{path}", self.base));
        if key.is_empty() { request } else { request.bearer_auth(key) }
    }

    pub(crate) async fn send(&self, request: RequestBuilder) -> Result<Got> {
        let response = request.send().await?;
        let (status, headers) = (response.status(), response.headers().clone());
        let text = response.text().await?;
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        ensure!(status != StatusCode::INTERNAL_SERVER_ERROR, "our fault: {text}");
        Ok(Got { status: status.as_u16(), headers, text, body })
    }

    pub(crate) async fn as_role(&self, role: Role, method: &str, path: &str, body: Option<Value>) -> Result<Got> {
        let request = self.request(method, path, &key(role));
        self.send(match body {
            Some(body) => request.json(&body),
            None => request,
        })
        .await
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Got> {
        self.as_role(Role::Admin, "GET", path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Result<Got> {
        self.as_role(Role::Admin, "POST", path, Some(body)).await
    }

    pub(crate) async fn keyed(&self, path: &str, key: &str, body: &Value) -> Result<Got> {
        let request = self.request("POST", path, &self::key(Role::Admin));
        self.send(request.header("Idempotency-Key", key).json(body)).await
    }

    /// A session with its root agent; their ids.
    pub(crate) async fn fleet(&self) -> Result<(String, String)> {
        let body = json!({"name": "fleet", "root_agent": {"name": "ada", "model": "default", "tools": ["echo"]}});
        let session = self.post("/v1/sessions", body).await?.is(201);
        Ok((text(&session["id"]), text(&session["root_agent_id"])))
    }

    pub(crate) async fn say(&self, agent: &str, content: &str) -> Result<Value> {
        Ok(self.post(&format!("/v1/agents/{agent}/messages"), json!({"content": content})).await?.is(202))
    }

    pub(crate) async fn land(&self, commit: Commit) -> Result<instar_store::Landed> {
        match self.context.hub.commit(commit).await? {
            Answer::Moved(landed) => Ok(landed),
            other => bail!("did not land: {other:?}"),
        }
    }

    /// The session's log keeps every invariant and tells what the rows say.
    pub(crate) async fn sound(&self, session: &str) -> Result<()> {
        let id = session.parse()?;
        let runes = self.store().runes(id, 0, 1_000).await?;
        let violations = invariant::check(&runes, Scope::default());
        ensure!(violations.is_empty(), "{violations:?}");
        let (states, illegal) = fold::fold(runes.iter());
        let rows = self.store().states(id).await?;
        let differences = states.diff(rows.iter().map(|(machine, entity, state)| (*machine, *entity, state.as_str())));
        ensure!(illegal.is_empty() && differences.is_empty(), "{illegal:?} {differences:?}");
        Ok(())
    }

    pub(crate) async fn agent_row(&self, id: &str) -> Result<agent::Model> {
        let id: AgentId = id.parse()?;
        agent::Entity::find_by_id(id.uuid()).one(self.store().db()).await?.context("an agent")
    }

    pub(crate) async fn turn_row(&self, id: &str) -> Result<turn::Model> {
        let id: TurnId = id.parse()?;
        turn::Entity::find_by_id(id.uuid()).one(self.store().db()).await?.context("a turn")
    }

    /// A worker takes the turn up.
    pub(crate) async fn claim(&self, agent: &str, turn: &str) -> Result<WorkerId> {
        let worker = WorkerId::from(Uuid::now_v7());
        let (agent, turn) = (self.agent_row(agent).await?, self.turn_row(turn).await?);
        self.land(flow::claim(&agent, &turn, &[], None, worker, chrono::Duration::minutes(5), Vec::new())?).await?;
        Ok(worker)
    }

    /// A message, a claimed turn for it, and calls that the model asks for.
    pub(crate) async fn calls(&self, agent: &str, verdicts: &[Verdict]) -> Result<(String, Vec<String>)> {
        let turn = text(&self.say(agent, "use a tool").await?["turn_id"]);
        let worker = self.claim(agent, &turn).await?;
        let ids: Vec<CallId> = verdicts.iter().map(|_| CallId::from(Uuid::now_v7())).collect();
        let asked = ids.iter().zip(verdicts).map(|(id, verdict)| Asked {
            id: *id,
            provider_call_id: None,
            name: "echo".into(),
            arguments: json!({"text": "hi"}),
            digest: "d1".into(),
            effect: "at_most_once",
            verdict: verdict.clone(),
        });
        let commit = flow::calls(&self.turn_row(&turn).await?, worker, &spoken(""), asked.collect())?;
        self.land(commit).await?;
        Ok((turn, ids.iter().map(ToString::to_string).collect()))
    }
}

pub(crate) fn key(role: Role) -> String {
    format!("test-{}", role.token())
}

pub(crate) fn ask() -> Verdict {
    Verdict::Ask { reason: "side effects".into(), expires_at: None }
}

pub(crate) fn spoken(text: &str) -> Spoken {
    Spoken { text: text.into(), usage: Usage { input_tokens: 3, output_tokens: 2 }, ..Spoken::default() }
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// What an action answered is found again; what only a reading of one resource says may come on top.
pub(crate) fn shows(found: &Value, answered: &Value) {
    let fields = answered.as_object().expect("an answer is an object");
    assert!(!fields.is_empty(), "the answer is empty");
    for (field, value) in fields {
        assert_eq!(&found[field], value, "{field}");
    }
}
