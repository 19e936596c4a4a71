//! Scheduler, worker and runner inside the test's own process, on either backend: for scenarios that
//! kill nothing.

use crate::stage::{self, Stage};
use anyhow::{Context as _, Result};
use instar_bus::message::Queued;
use instar_bus::message::work_turn::News;
use instar_core::id::{AgentId, SessionId, TurnId};
use instar_model::{ModelConfig, Models};
use instar_runtime::config::Config;
use instar_runtime::drain::Drain;
use instar_runtime::flow::{self, Mode};
use instar_runtime::{Context, Hub, Ready};
use instar_store::Answer;
use instar_store::entity::{session, tool_call, turn};
use instar_testkit::ledger::Ledger;
use instar_testkit::model::{Model, Script};
use instar_testkit::tool::{Idempotency, Tool};
use instar_testkit::wait;
use instar_tools::Registry;
use sea_orm::EntityTrait;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

pub const WITHIN: Duration = Duration::from_secs(20);

pub struct Troupe {
    pub context: Context,
    pub model: Model,
    pub tool: Tool,
    pub tools: Arc<Registry>,
    pub models: Arc<Models>,
    _folder: tempfile::TempDir,
}

impl Troupe {
    pub async fn start(stage: &Stage, script: Script, config: Config) -> Result<Troupe> {
        let folder = tempfile::tempdir()?;
        let model = Model::start(script).await?;
        let tool = Tool::start(Ledger::open(folder.path().join("ledger"))?, Idempotency::None).await?;
        let mut config = config;
        let port: u16 = tool.url().rsplit(':').next().context("a port")?.parse()?;
        config.runner.egress = json!({"allow": ["127.0.0.1"], "ports": [port]});
        for (name, idempotent) in [("charge", false), ("put", true)] {
            config.tools.push(json!({
                "name": name, "kind": "http", "method": "POST", "url": tool.effect_url(name),
                "parameters": {"type": "object", "properties": {"token": {"type": "string"}}, "required": ["token"]},
                "side_effects": true, "idempotent": idempotent,
            }));
        }
        let first = config.models.first().cloned().unwrap_or_default();
        let (provider, place) = match first.provider.as_str() {
            "anthropic" => ("anthropic", model.url().to_owned()),
            _ => ("openai", format!("{}/v1", model.url())),
        };
        let entry = json!({"name": "default", "provider": provider, "base_url": place, "model": "mock",
            "limits": first.limits, "context_window": first.context_window, "max_tokens": first.max_tokens, "price": first.price});
        let _ = rustls::crypto::ring::default_provider().install_default();
        let models = Arc::new(Models::from_config(&[serde_json::from_value::<ModelConfig>(entry)?])?);
        let tools = Arc::new(instar_tool_runner::registry(&config)?);
        let hub = Hub::new(stage.store.clone(), stage::bus(stage).await?).knowing(tools.clone());
        let context = Context { config: Arc::new(config), hub, drain: Drain::new() };
        instar_scheduler::start(context.clone()).await?;
        instar_agent_worker::start(context.clone(), models.clone(), tools.clone()).await?;
        instar_tool_runner::start(context.clone(), tools.clone()).await?;
        Ok(Troupe { context, model, tool, tools, models, _folder: folder })
    }

    /// As the API does it: retried when overtaken, the turn told of.
    pub async fn send(&self, agent: AgentId, text: &str, mode: Mode) -> Result<Option<TurnId>> {
        let (hub, store) = (&self.context.hub, self.context.hub.store());
        for _ in 0..20 {
            let row = store.agent(agent).await?.context("agent")?;
            let session = session::Entity::find_by_id(row.session_id).one(store.db()).await?.context("session")?;
            let live = self.live_turn(agent).await?;
            let actor = crate::cast::person();
            let sent = match &live {
                Some(live) if mode != Mode::Queue && live.status != "queued" => {
                    flow::steer(&session, &row, live, text, mode, actor, None)?
                }
                _ => flow::message(&session, &row, live.is_some(), text, actor, None)?,
            };
            if let Answer::Moved(landed) = hub.commit(sent.commit).await? {
                let Some(turn) = sent.turn else {
                    hub.follow(&landed.runes);
                    return Ok(None);
                };
                let session = SessionId::from(row.session_id);
                let (agent_version, message_id) = (row.version + 1, sent.message.to_string());
                let news = News::Queued(Queued { agent_version, message_id, content: text.to_owned() });
                let ready = Ready { session, agent, turn, epoch: row.epoch, reason: "queued", news: Some(news) };
                hub.wake_turn(ready, row.owner, None);
                return Ok(Some(turn));
            }
        }
        anyhow::bail!("overtaken twenty times")
    }

    pub async fn live_turn(&self, agent: AgentId) -> Result<Option<turn::Model>> {
        use sea_orm::{ColumnTrait, QueryFilter};
        let live = turn::Entity::find()
            .filter(turn::Column::AgentId.eq(agent.uuid()))
            .filter(turn::Column::EndedAt.is_null())
            .one(self.context.hub.store().db())
            .await?;
        Ok(live)
    }

    pub async fn turn(&self, id: TurnId) -> Result<turn::Model> {
        self.context.hub.store().turn(id).await?.context("turn")
    }

    pub async fn calls(&self, id: TurnId) -> Result<Vec<tool_call::Model>> {
        Ok(self.context.hub.store().calls_of(id).await?)
    }

    /// The turn when it has ended.
    pub async fn ended(&self, id: TurnId) -> Result<turn::Model> {
        wait::until_ok(WITHIN, || async {
            let turn = self.turn(id).await?;
            anyhow::ensure!(turn.ended_at.is_some(), "turn is {} with {} open", turn.status, turn.open_calls);
            Ok(turn)
        })
        .await
    }

    /// The turn when it is in this state.
    pub async fn in_state(&self, id: TurnId, state: &str) -> Result<turn::Model> {
        wait::until_ok(WITHIN, || async {
            let turn = self.turn(id).await?;
            anyhow::ensure!(turn.status == state, "turn is {}", turn.status);
            Ok(turn)
        })
        .await
    }

    /// Everything that is wrong with a session at rest.
    pub async fn audit(&self, session: SessionId) -> Result<()> {
        let wrong = crate::audit::session(self.context.hub.store(), session).await?;
        anyhow::ensure!(wrong.is_empty(), "{wrong:#?}");
        Ok(())
    }
}

impl Drop for Troupe {
    fn drop(&mut self) {
        self.context.drain.begin();
    }
}
