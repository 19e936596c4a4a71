//! What a model was sent, worked out again from the rows and held against the digest that was noted then.

use super::find;
use super::turn::not_after;
use crate::call::{Call, Reply};
use crate::problem::Problem;
use crate::shape::{Kind, Shape, may, must};
use chrono::Duration;
use instar_core::context::{Budget, digest, json_bytes};
use instar_core::id::{AgentId, MessageId, SessionId, TurnId};
use instar_runtime::context::{self, CALLS_MAX, Facts, Frozen, Rows, Setting};
use instar_runtime::plan::Work;
use instar_store::clock;
use instar_store::entity::{agent, message, tool_call, turn};
use instar_tools::Offer;
use serde_json::{Value, json};
use std::sync::Arc;

/// Changes of an agent's configuration that are looked through.
const CHANGES_MAX: u64 = 200;
/// Resolved results that are looked behind.
const RESOLVED_MAX: usize = 16;
/// Messages that are read of a turn that saw all there were.
const UNLIMITED: u64 = 1_000;

pub(crate) static CONTEXT: Shape = Shape {
    name: "Context",
    fields: &[
        must("turn_id", Kind::Id("trn"), "The turn"),
        must("iteration", Kind::Integer, "Which of its provider calls, from 1"),
        must("exact", Kind::Bool, "Whether this is known to be what was sent, to the byte"),
        may("note", Kind::Prose(usize::MAX), "Why it is not known"),
        must("model", Kind::Text(200), "The model that was called"),
        may("prompt_epoch", Kind::Id("msg"), "The message with which the prompt begins"),
        may("system", Kind::Prose(usize::MAX), "Instructions, with their slots filled in"),
        must("messages", Kind::Any, "What was said, in order; an adapter joins neighbours of one role"),
        must("tools", Kind::Any, "What the model was offered"),
        must("synthetic", Kind::Bool, "The prompt was made up, since nobody said anything"),
        must("statistics", Kind::Object, "Messages and bytes as composed, as compacted, as sent"),
        must("fit", Kind::Object, "Estimated tokens, and what was left out"),
    ],
};

pub(crate) async fn get(call: Arc<Call>) -> Result<Reply, Problem> {
    let (turn, _) = find::turn(&call).await?;
    let number = number(&call, &turn)?;
    let store = call.api.store();
    let id = AgentId::from(turn.agent_id);
    let agent = store.agent(id).await?.ok_or_else(|| Problem::absent("agent", &id.to_string()))?;
    // A worker has looked before it offered them, and may know of some that this process does not.
    call.api.discovered.refresh_for(&names(&agent)).await;
    let mut past = Past::read(&call, &agent, turn, number).await?;
    let (now, exact) = past.sent(&call, &agent);
    if !exact && past.frozen.words(number).is_some() {
        // Its configuration may have been another then, and results that were resolved since.
        let mut agents = versions(&call, &agent).await?;
        agents.insert(0, agent);
        for _ in 0..RESOLVED_MAX {
            if let Some((then, _)) = agents.iter().map(|agent| past.sent(&call, agent)).find(|(_, exact)| *exact) {
                return Ok(Reply::ok(then));
            }
            if !past.unresolve() {
                break;
            }
        }
    }
    Ok(Reply::ok(now))
}

/// The provider call that is asked for.
fn number(call: &Call, turn: &turn::Model) -> Result<u64, Problem> {
    let answered = u64::try_from(turn.iterations).unwrap_or(0);
    let made = (answered + u64::from(turn.status == "streaming")).max(Frozen::of(turn).sent.len() as u64);
    let number = match call.asked("iteration") {
        None => made,
        Some(text) => {
            let number = text.parse::<u64>().ok().filter(|number| *number > 0);
            number.ok_or_else(|| Problem::field("iteration", "must be a whole number from 1"))?
        }
    };
    match number {
        0 => Err(Problem::conflict("not_sent", "the turn has not called its model yet; ask again when it has begun")),
        number if number > made => {
            Err(Problem::field("iteration", format!("the turn has called its model {made} times")))
        }
        number => Ok(number),
    }
}

/// Rows as a provider call of the past found them.
struct Past {
    turn: turn::Model,
    frozen: Frozen,
    number: u64,
    messages: Vec<message::Model>,
    calls: Vec<tool_call::Model>,
    earlier: Vec<tool_call::Model>,
    facts: Facts,
    window: u64,
}

impl Past {
    async fn read(call: &Call, agent: &agent::Model, turn: turn::Model, number: u64) -> Result<Past, Problem> {
        let (store, config) = (call.api.store(), &call.api.context.config.worker);
        let (owner, id, frozen) = (AgentId::from(turn.agent_id), TurnId::from(turn.id), Frozen::of(&turn));
        let turns = u64::from(config.history_messages_max);
        let noted = frozen.words(number).is_some();
        let window = frozen.window.unwrap_or(if noted { UNLIMITED } else { turns });
        let latest = turn.ended_at.unwrap_or_else(clock::now) + Duration::minutes(1);
        let mut messages = store.messages_up_to(owner, id, MessageId::from(not_after(latest)), window).await?;
        let seen = store.calls_seen(owner, id, turns).await?;
        let (calls, mut earlier): (Vec<_>, Vec<_>) = seen.into_iter().partition(|c| c.turn_id == Some(turn.id));
        if !context::is_prompted(&turn, &messages) {
            earlier = store.calls_before(owner, id, turns, CALLS_MAX).await?;
            let epoch = context::epoch(&turn, &messages).filter(|id| !messages.iter().any(|m| m.id == id.uuid()));
            if let Some(epoch) = epoch {
                messages.splice(0..0, store.message(epoch).await?);
            }
        }
        let facts = match frozen.facts(number) {
            Some(facts) => facts.clone().told(store).await?,
            None if noted => Facts::default(),
            None => Facts::read(store, agent, clock::now()).await?,
        };
        Ok(Past { turn, frozen, number, messages, calls, earlier, facts, window })
    }

    /// Takes the newest resolution back: the call shows what was known of it before. False: there is none.
    fn unresolve(&mut self) -> bool {
        let at = |call: &tool_call::Model| {
            let resolution = &call.result.as_ref()?["resolution"];
            resolution["before"].is_object().then(|| resolution["at"].as_str().unwrap_or_default().to_owned())
        };
        let calls = self.calls.iter_mut().chain(&mut self.earlier);
        let Some(call) = calls.filter(|call| at(call).is_some()).max_by_key(|call| at(call)) else { return false };
        let before = call.result.as_ref().map(|result| result["resolution"]["before"].clone());
        // Only an unknown outcome is resolved.
        (call.result, call.result_status) = (before, Some("unknown".into()));
        true
    }

    /// Whether it is the last call so far of a turn that goes on.
    fn is_latest(&self) -> bool {
        let answered = u64::try_from(self.turn.iterations).unwrap_or(0);
        self.turn.ended_at.is_none() && self.number >= answered + u64::from(self.turn.status == "streaming")
    }

    /// What an agent of this configuration was sent, and whether that is what was noted.
    fn sent(&self, call: &Call, agent: &agent::Model) -> (Value, bool) {
        let mut tools = call.api.catalog.tools.offered(&names(agent)).0;
        tools.extend(Work::granted(&self.turn).iter().filter_map(|name| call.api.catalog.tools.get(name)));
        if let Some(names) = self.frozen.offered(self.number) {
            tools.retain(|tool| names.iter().any(|name| name == tool.name()));
        }
        let offers: Vec<Offer> = tools.iter().map(|tool| tool.offer()).collect();
        let bytes = |offer: &Offer| offer.name.len() + offer.description.len() + json_bytes(&offer.parameters);
        let model = call.api.context.config.models.iter().find(|model| model.name == agent.model);
        let (limit, answer) = model.map_or((None, None), |model| (model.context_window, model.max_tokens));
        let usual = Budget::of(limit, answer, offers.iter().map(bytes).sum());
        let noted = self.frozen.words(self.number);
        let budget = match (noted, self.frozen.budget(self.number)) {
            (Some(_), Some(tokens)) => Budget(tokens),
            // What did not have to be cut fitted, whatever the budget was.
            (Some(_), None) => Budget(u64::MAX),
            (None, _) => usual,
        };
        let snapshot = |name: &str| call.api.catalog.tools.get(name).and_then(|tool| tool.spec().snapshot_key());
        let window = usize::try_from(self.window).unwrap_or(usize::MAX);
        let setting = Setting { facts: &self.facts, snapshot: &snapshot, budget, window };
        let rows = Rows {
            agent,
            turn: &self.turn,
            messages: &self.messages,
            calls: &self.calls,
            earlier: &self.earlier,
            answers: i64::try_from(self.number).unwrap_or(1) - 1,
        };
        let composed = context::compose(rows, &setting);
        let same_words = noted == Some(digest(&composed).as_str());
        let offered = context::tools_digest(&agent.model, tools.iter().map(|tool| tool.definition_hash()));
        let same_tools = self.frozen.tools(self.number) == offered.as_deref();
        let note = match (noted, same_words, same_tools) {
            (None, ..) if self.is_latest() => {
                Some("what was sent is noted when the turn goes on or ends: ask again then")
            }
            (None, ..) => Some(
                "another process went on with the turn, or ended it, before the worker that made the call had noted what it sent",
            ),
            (Some(_), true, true) => None,
            (Some(_), true, false) => Some("instructions and messages are exact; a tool or the model is another now"),
            (Some(_), false, _) => {
                Some("something that was sent has changed since, such as a result that was resolved")
            }
        };
        let mut shown = json!(composed);
        if budget.0 == u64::MAX {
            shown["fit"]["budget"] = json!(usual.0);
        }
        shown["turn_id"] = json!(TurnId::from(self.turn.id));
        shown["iteration"] = json!(self.number);
        shown["exact"] = json!(note.is_none());
        shown["note"] = json!(note);
        shown["model"] = json!(agent.model);
        shown["prompt_epoch"] = json!(context::epoch(&self.turn, &self.messages));
        let offer = |offer: Offer| json!({"name": offer.name, "description": offer.description, "parameters": offer.parameters});
        shown["tools"] = offers.into_iter().map(offer).collect();
        (shown, note.is_none())
    }
}

fn names(agent: &agent::Model) -> Vec<String> {
    let names = agent.config["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
    names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect()
}

/// The agent as it was before each change of its configuration, newest first.
async fn versions(call: &Call, agent: &agent::Model) -> Result<Vec<agent::Model>, Problem> {
    let (session, id) = (SessionId::from(agent.session_id), AgentId::from(agent.id));
    let kinds = ["agent.spawning", "config.updated"];
    let mut runes = call.api.store().runes_of(session, id, &kinds, CHANGES_MAX).await?;
    runes.reverse();
    let mut versions: Vec<agent::Model> = Vec::new();
    for rune in runes {
        let told: Value = serde_json::from_str(rune.payload.get()).unwrap_or_default();
        let mut version = versions.last().unwrap_or(agent).clone();
        let text = |value: &Value, now: &str| value.as_str().unwrap_or(now).to_owned();
        let changes = if rune.kind == "agent.spawning" { &told } else { &told["changes"] };
        version.name = text(&changes["name"], &version.name);
        version.model = text(&changes["model"], &version.model);
        version.role = text(&changes["role"], &version.role);
        match (rune.kind.as_str(), changes, version.config.as_object_mut()) {
            ("agent.spawning", ..) => version.config = told["config"].clone(),
            (_, Value::Object(changes), Some(config)) => {
                let changed = changes.iter().filter(|(field, _)| !["name", "model", "role"].contains(&field.as_str()));
                config.extend(changed.map(|(field, value)| (field.clone(), value.clone())));
            }
            _ => {}
        }
        versions.push(version);
    }
    versions.reverse();
    Ok(versions)
}
