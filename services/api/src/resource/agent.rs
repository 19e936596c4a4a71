//! Agents: made, listed, started, stopped, ended.

use super::activity::{self, ACTIVITIES, Seen, activity, is_at_tool};
use super::budget;
use super::command::Command;
use super::session::known_state;
use super::wait::{Around, Live, agent_waits_for, owners, untold, waiting_for};
use super::{account, find, wake};
use crate::call::{Call, Reply};
use crate::page::Page;
use crate::problem::{Problem, runes_of};
use crate::server::Catalog;
use crate::settle::{raise, refuse, settle, settle_within};
use crate::shape::{Kind, Shape, Wrong, may, must};
use crate::state::Api;
use axum::http::StatusCode;
use instar_core::coordination::{attention, badge, pair_allowed};
use instar_core::decide::{PROVIDER_CALLS_LIMIT, Scope};
use instar_core::id::{AgentId, SessionId, WorkerId};
use instar_core::machine::{Refusal, agent_drive, agent_lifecycle};
use instar_core::rune::Draft;
use instar_core::rune::payload::AgentDriveStarted;
use instar_runtime::flow::{self, NewAgent};
use instar_runtime::{ActError, is_unheard};
use instar_store::clock;
use instar_store::entity::{agent, session, turn};
use instar_store::{Change, Commit};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

pub(crate) const PROMPT_BYTES_MAX: usize = 128 * 1024;
pub(crate) const TOOLS_MAX: usize = 500;
pub(crate) const APPROVAL_MODES: &[&str] = &["full_access", "auto", "read_only"];
pub(crate) const LOOPS: &[&str] = &["reactive", "autonomous"];
const ATTENTION: &[&str] = &["error", "daily_limit", "nudge_limit", "letter_limit"];
pub(crate) const TURNS_PER_DAY: &str =
    "Turns of its own in a day, with those that messages of agents cause; 0: any number; agents.turns_per_day_max";
pub(crate) const COST_PER_DAY: &str =
    "What those may cost, such as \"2.50\"; \"0\": any amount; agents.cost_per_day_max";
pub(crate) const PROVIDER_CALLS: &str = "Provider calls of one turn, 1 to 1000; worker.provider_calls_max";
pub(crate) const RELAUNCH: &str =
    "How long after a failure of its provider it is started again by itself, three times at the most; never";
/// Where a relaunch begins to be a loop, and where nobody waits for it any more.
const RELAUNCH_MS: std::ops::RangeInclusive<i64> = 100..=604_800_000;
const DELETED: &str = "deleted";
/// How often it is looked again whether there is a place: each look that came too late is a place that another process
/// has taken.
const LOOKS_MAX: usize = 64;

pub(crate) const POLICY: &str = "Paths and hosts that its calls may name: {allowed_paths, denied_paths, \
                                 network_allowlist, network_denylist}, each a list; any";

pub(crate) static AGENT: Shape = Shape {
    name: "Agent",
    fields: &[
        must("id", Kind::Id("agt"), "The agent's id"),
        must("session_id", Kind::Id("ses"), "Its session"),
        must("name", Kind::Text(200), "What people call it"),
        must("role", Kind::Text(200), "What it is for"),
        must("model", Kind::Text(200), "The model it thinks with"),
        must("lifecycle", Kind::State(&agent_lifecycle::TABLE), "Whether it exists and is in a turn"),
        must("drive", Kind::State(&agent_drive::TABLE), "Whether it takes work"),
        must("badge", Kind::Text(40), "Both in one word"),
        may(
            "activity",
            Kind::Choice(ACTIVITIES),
            "What it does now: llm, its model is asked; tool, a call of it runs; waiting, its turn waits for a person, \
             agents, an account, a provider or a worker; resting, it has no turn. Of one agent and in lists, not in \
             answers to commands",
        ),
        may("owner", Kind::Id("wrk"), "The worker that last had it"),
        may("parent_id", Kind::Id("agt"), "The agent that made it"),
        may("children", Kind::Texts(usize::MAX), "Agents that it made, oldest first; not in lists"),
        must("nudge_count", Kind::Integer, "Nudges since the last message of a person"),
        must("needs_attention", Kind::Bool, "It rests or stands still until a person looks at it"),
        may("attention", Kind::Choice(ATTENTION), "Why: daily_limit ends with the day, or when its ceiling is raised"),
        may("today", Kind::Object, "What it caused itself on the last day (UTC) on which it did: day, turns, cost"),
        may("last_error", Kind::Prose(usize::MAX), "Why its drive is errored"),
        must("usage", Kind::Object, "Tokens, tool calls and turns so far"),
        may(
            "waiting_for",
            Kind::Object,
            "Of one agent: why it does nothing: message, start, session, timer, place, tools, scheduler, or what its \
             turn waits for",
        ),
        may("system_prompt", Kind::Prose(PROMPT_BYTES_MAX), "Its instructions"),
        must("tools", Kind::Texts(TOOLS_MAX), "Tools it may use, by name or pattern"),
        must("loop", Kind::Choice(LOOPS), "Whether it goes on by itself"),
        must("approval_mode", Kind::Choice(APPROVAL_MODES), "What tools with side effects need"),
        must("tool_approvals", Kind::Object, "By tool: always or never asks a person, whatever approval_mode says"),
        may("policy", Kind::Object, POLICY),
        must("budget", Kind::Object, "Its limits; of each what is used, reserved and remaining"),
        may("provider_calls_max", Kind::Integer, "Provider calls of one turn, where it has a limit of its own"),
        may("turns_per_day_max", Kind::Integer, TURNS_PER_DAY),
        may("cost_per_day_max", Kind::Any, COST_PER_DAY),
        may("relaunch_after_ms", Kind::Integer, RELAUNCH),
        may("account", Kind::Object, "The account that it claims when a call needs one: {name} or {pool}"),
        may("holds", Kind::Text(100), "Of one agent: the account that it has now"),
        must("created_at", Kind::Time, "When it was made"),
        must("updated_at", Kind::Time, "When it last changed"),
    ],
};

pub(crate) static NEW_AGENT: Shape = Shape {
    name: "NewAgent",
    fields: &[
        must("name", Kind::Text(200), "What people call it"),
        may("role", Kind::Text(200), "What it is for; worker"),
        must("model", Kind::Text(200), "The name of a configured model"),
        may("system_prompt", Kind::Prose(PROMPT_BYTES_MAX), "Its instructions"),
        may("tools", Kind::Texts(TOOLS_MAX), "Tools it may use, by name or pattern; none"),
        may("loop", Kind::Choice(LOOPS), "Whether it goes on by itself; reactive"),
        may("budget", Kind::Budget, "Its limits"),
        may("provider_calls_max", Kind::Integer, PROVIDER_CALLS),
        may("relaunch_after_ms", Kind::Integer, RELAUNCH),
        may("approval_mode", Kind::Choice(APPROVAL_MODES), "What tools with side effects need; full_access"),
        may(
            "tool_approvals",
            Kind::Object,
            "By tool: always or never asks a person, whatever approval_mode says; none",
        ),
        may("policy", Kind::Object, POLICY),
        may("account", Kind::Any, "The account it claims when a call needs one: a name, or {\"pool\": …}; none"),
    ],
};
pub(crate) static TERMINATE: Shape =
    Shape { name: "Terminate", fields: &[may("force", Kind::Bool, "Together with its turn, in one commit")] };

#[derive(Deserialize)]
pub(crate) struct Spec {
    name: String,
    role: Option<String>,
    model: String,
    system_prompt: Option<String>,
    #[serde(default)]
    tools: Option<Vec<String>>,
    #[serde(rename = "loop")]
    runs: Option<String>,
    #[serde(default)]
    budget: Value,
    provider_calls_max: Option<i64>,
    relaunch_after_ms: Option<i64>,
    approval_mode: Option<String>,
    #[serde(default)]
    tool_approvals: Value,
    #[serde(default)]
    policy: Value,
    account: Option<Value>,
}

impl Spec {
    /// What it is made of, its names checked against what there is. `at`: where its fields are in the body.
    pub(crate) async fn settle(mut self, call: &Call, at: &str) -> Result<NewAgent, Problem> {
        let wanted = self.account.take();
        let mut new = self.bind(&call.api, at).await?;
        if let Some(wanted) = account::wanted(call, wanted, at).await? {
            new.config["account"] = json!(wanted);
        }
        Ok(new)
    }

    async fn bind(self, api: &Api, at: &str) -> Result<NewAgent, Problem> {
        let (tools, catalog) = (self.tools.unwrap_or_default(), &api.catalog);
        api.discovered.refresh_for(&tools).await;
        let mut wrong = unknown_model(catalog, &self.model, at);
        wrong.extend(unknown_tools(catalog, &tools, at));
        wrong.extend(bad_approvals(catalog, &self.tool_approvals, at));
        wrong.extend(bad_policy(&self.policy, at));
        wrong.extend(self.provider_calls_max.and_then(|n| too_many_calls(n, at)));
        wrong.extend(self.relaunch_after_ms.and_then(|ms| bad_relaunch(ms, at)));
        if !wrong.is_empty() {
            return Err(Problem::invalid(wrong));
        }
        let mut config = json!({
            "system_prompt": self.system_prompt,
            "tools": tools,
            "loop": self.runs.unwrap_or_else(|| "reactive".into()),
            "approval_mode": self.approval_mode.unwrap_or_else(|| "full_access".into()),
            "tool_approvals": if self.tool_approvals.is_null() { json!({}) } else { self.tool_approvals },
            "budget": if self.budget.is_null() { json!({}) } else { self.budget },
        });
        if !self.policy.is_null() {
            config["policy"] = self.policy;
        }
        if let Some(n) = self.provider_calls_max {
            config[flow::CALLS_MAX] = json!(n);
        }
        if let Some(ms) = self.relaunch_after_ms {
            config[flow::RELAUNCH_AFTER] = json!(ms);
        }
        let role = self.role.unwrap_or_else(|| "worker".into());
        let unbound = is_unheard(api.store(), &tools).await?;
        Ok(NewAgent { name: self.name, role, model: self.model, config, tools, unbound, ..NewAgent::default() })
    }
}

pub(crate) fn unknown_model(catalog: &Catalog, model: &str, at: &str) -> Wrong {
    if catalog.models.iter().any(|known| known == model) {
        return Vec::new();
    }
    let known = if catalog.models.is_empty() { "none".to_owned() } else { catalog.models.join(", ") };
    vec![(format!("{at}/model"), format!("there is no model {model:?}; configured are: {known}"))]
}

pub(crate) fn unknown_tools(catalog: &Catalog, tools: &[String], at: &str) -> Wrong {
    let mut bad = catalog.tools.allowed(tools).err().unwrap_or_default();
    let mut seen = std::collections::BTreeSet::new();
    let twice: std::collections::BTreeSet<_> = tools.iter().filter(|tool| !seen.insert(*tool)).collect();
    bad.extend(twice.into_iter().map(|tool| format!("{tool:?} is named twice")));
    bad.into_iter().map(|detail| (format!("{at}/tools"), detail)).collect()
}

/// Each names a tool that there is, and says something that can be said.
pub(crate) fn bad_approvals(catalog: &Catalog, approvals: &Value, at: &str) -> Wrong {
    let given = approvals.as_object().into_iter().flatten();
    let say = |(tool, said): (&String, &Value)| {
        let pointer = format!("{at}/tool_approvals/{}", tool.replace('~', "~0").replace('/', "~1"));
        if !matches!(said.as_str(), Some("always" | "never")) {
            return vec![(pointer, "must be \"always\" or \"never\"".to_owned())];
        }
        if tool.contains('*') {
            return vec![(pointer, "is a pattern; name each tool by itself".to_owned())];
        }
        let bad = catalog.tools.allowed(std::slice::from_ref(tool)).err().unwrap_or_default();
        bad.into_iter().map(|detail| (pointer.clone(), detail)).collect()
    };
    given.flat_map(say).collect()
}

/// What is wrong with a policy of paths and hosts.
pub(crate) fn bad_policy(policy: &Value, at: &str) -> Wrong {
    let faults = Scope::read(policy).err().unwrap_or_default();
    faults.into_iter().map(|(pointer, detail)| (format!("{at}/policy{pointer}"), detail)).collect()
}

/// What is wrong with a limit of provider calls.
pub(crate) fn too_many_calls(n: i64, at: &str) -> Option<(String, String)> {
    let fits = (1..=i64::from(PROVIDER_CALLS_LIMIT)).contains(&n);
    (!fits).then(|| (format!("{at}/{}", flow::CALLS_MAX), format!("must be 1 to {PROVIDER_CALLS_LIMIT}")))
}

pub(crate) fn bad_relaunch(ms: i64, at: &str) -> Option<(String, String)> {
    let (least, most) = (RELAUNCH_MS.start(), RELAUNCH_MS.end());
    let why = || format!("must be {least} to {most} ms");
    (!RELAUNCH_MS.contains(&ms)).then(|| (format!("{at}/{}", flow::RELAUNCH_AFTER), why()))
}

/// How many agents a session may have, if that is limited.
fn places(call: &Call) -> Option<u64> {
    Some(u64::from(call.api.context.config.agents.session_max)).filter(|max| *max > 0)
}

/// The session that shall have `more` agents; refused where it would have more than it may.
async fn roomy(call: &Call, more: usize) -> Result<session::Model, Problem> {
    let session = find::session(call).await?;
    if let Some(max) = places(call)
        && call.api.store().count_agents(session.id.into(), max).await? + more as u64 > max
    {
        let why =
            format!("a session may have {max} agents that have not ended: terminate some, or raise agents.session_max");
        return Err(Problem::conflict("too_many_agents", why));
    }
    Ok(session)
}

/// Has new agents join the session, with the answer that `tell` makes of them.
pub(crate) async fn admit(
    call: &Call,
    new: Vec<NewAgent>,
    at: impl Fn(usize) -> String,
    tell: impl Fn(&[agent::Model]) -> Value,
) -> Result<(Vec<agent::Model>, Value), Problem> {
    let (id, limited) = (call.id::<SessionId>("session")?, places(call).is_some());
    // Where places are counted, those who want one would only have each other look again.
    let _turn = match limited {
        true => Some(call.api.agents.enter(id.uuid()).await),
        false => None,
    };
    let more = new.len();
    let (_, told) = settle_within(
        call,
        LOOKS_MAX,
        |call| roomy(call, more),
        |session| {
            let unpriced = new.iter().enumerate().flat_map(|(n, new)| {
                budget::unpriced(call, &new.model, &new.config["budget"], &session.budget, &at(n))
            });
            let wrong: Wrong = unpriced.collect();
            if !wrong.is_empty() {
                return Err(Problem::invalid(wrong));
            }
            let mut born = flow::join(&session, new.clone(), call.actor(), call.traceparent.clone())?;
            if limited {
                flow::counted(&mut born.commit, &session);
            }
            let answer = tell(&born.agents);
            call.keep(&mut born.commit, id, StatusCode::CREATED, &answer);
            Ok((born.commit, (born.agents, answer)))
        },
    )
    .await?;
    Ok(told)
}

pub(crate) fn show(row: &agent::Model) -> Value {
    let attention = attention(&row.drive, flow::rests_for_today(row), row.nudge_count, row.letter_count.unwrap_or(0));
    let config = |name: &str, absent: Value| match row.config.get(name) {
        Some(value) if !value.is_null() => value.clone(),
        _ => absent,
    };
    json!({
        "id": AgentId::from(row.id),
        "session_id": SessionId::from(row.session_id),
        "name": row.name,
        "role": row.role,
        "model": row.model,
        "lifecycle": row.lifecycle,
        "drive": row.drive,
        "badge": badge(&row.lifecycle, &row.drive),
        "owner": row.owner.map(WorkerId::from),
        "parent_id": row.parent_id.map(AgentId::from),
        "nudge_count": row.nudge_count,
        "needs_attention": attention.is_some(),
        "attention": attention,
        "today": flow::Today::shown(row),
        "last_error": row.last_error,
        "usage": row.usage,
        "system_prompt": config("system_prompt", Value::Null),
        "tools": config("tools", json!([])),
        "loop": config("loop", json!("reactive")),
        "approval_mode": config("approval_mode", json!("full_access")),
        "tool_approvals": config("tool_approvals", json!({})),
        "policy": config("policy", Value::Null),
        "budget": config("budget", json!({})),
        "provider_calls_max": config(flow::CALLS_MAX, Value::Null),
        "turns_per_day_max": config(flow::TURNS_PER_DAY, Value::Null),
        "cost_per_day_max": config(flow::COST_PER_DAY, Value::Null),
        "relaunch_after_ms": config(flow::RELAUNCH_AFTER, Value::Null),
        "account": config("account", Value::Null),
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    })
}

pub(crate) async fn create(call: Arc<Call>) -> Result<Reply, Problem> {
    let new = call.read::<Spec>()?.settle(&call, "").await?;
    let told = |agents: &[agent::Model]| agents.first().map(show).unwrap_or_default();
    let (_, answer) = admit(&call, vec![new], |_| String::new(), told).await?;
    Ok(Reply::kept(StatusCode::CREATED, answer))
}

pub(crate) async fn list(call: Arc<Call>) -> Result<Reply, Problem> {
    let page = Page::of(&call)?;
    let mut query = agent::Entity::find()
        .join(sea_orm::JoinType::InnerJoin, find::to_session::<agent::Entity>())
        .filter(session::Column::Namespace.eq(&*call.caller.namespace));
    if let Some(session) = call.filter::<SessionId>("session")? {
        query = query.filter(agent::Column::SessionId.eq(session.uuid()));
    }
    if let Some(lifecycle) = call.asked("lifecycle") {
        known_state(&agent_lifecycle::TABLE, "lifecycle", lifecycle)?;
        query = query.filter(agent::Column::Lifecycle.eq(lifecycle));
    }
    query = match call.asked("drive") {
        Some(drive) => {
            known_state(&agent_drive::TABLE, "drive", drive)?;
            query.filter(agent::Column::Drive.eq(drive))
        }
        None => query.filter(agent::Column::Drive.ne(DELETED)),
    };
    if let Some(before) = page.before {
        query = query.filter(agent::Column::Id.lt(before));
    }
    let rows = activity::beside(query)
        .order_by_desc(agent::Column::Id)
        .limit(page.rows())
        .select_also(session::Entity)
        .into_model::<Seen, session::Model>()
        .all(call.api.db())
        .await?;
    let agents: Vec<agent::Model> = rows.iter().map(|(seen, _)| seen.agent.clone()).collect();
    let (limits, now) = (budget::of_agents(&call, &agents).await?, clock::now());
    let with_limits = |(seen, session): (Seen, Option<session::Model>)| {
        let Seen { agent: row, live_turn, at_tool } = seen;
        let mut shown = show(&row);
        shown["activity"] = activity(live_turn.as_deref(), row.owner.is_some(), at_tool).into();
        let own: Vec<_> = limits.iter().filter(|limit| limit.scope_id == row.id).cloned().collect();
        if let Some(session) = session {
            budget::add_state(&mut shown, &own, &session, now);
        }
        shown
    };
    Ok(Reply::ok(page.answer(rows, |(seen, _)| seen.agent.id, with_limits)))
}

pub(crate) async fn get(call: Arc<Call>) -> Result<Reply, Problem> {
    let (row, session, limits) = budget::of_agent(&call).await?;
    let mut shown = show(&row);
    budget::add_state(&mut shown, &limits, &session, clock::now());
    let children = agent::Entity::find().filter(agent::Column::ParentId.eq(row.id));
    let children = children.filter(agent::Column::Drive.ne(DELETED)).order_by_asc(agent::Column::Id);
    let children: Vec<Uuid> = children.select_only().column(agent::Column::Id).into_tuple().all(call.api.db()).await?;
    shown["children"] = json!(children.into_iter().map(AgentId::from).collect::<Vec<_>>());
    let held = call.api.store().account_of(AgentId::from(row.id)).await?;
    shown["holds"] = json!(held.map(|account| account.name));
    let (activity, waiting) = doing(&call, &row, &session).await?;
    shown["activity"] = activity.into();
    shown["waiting_for"] = waiting.into();
    Ok(Reply::ok(shown))
}

/// What it does, and why it does nothing if it could.
async fn doing(
    call: &Call,
    row: &agent::Model,
    session: &session::Model,
) -> Result<(&'static str, Option<Value>), Problem> {
    let (db, id, now) = (call.api.db(), AgentId::from(row.id), clock::now());
    let live = turn::Entity::find()
        .filter(turn::Column::SessionId.eq(row.session_id))
        .filter(turn::Column::AgentId.eq(row.id))
        .filter(turn::Column::EndedAt.is_null())
        .order_by_asc(turn::Column::Id)
        .one(db)
        .await?;
    let budgets = call.api.store().budgets(&flow::payers(row)).await?;
    let mut does = activity(None, false, false);
    let live = match live {
        Some(turn) => {
            let calls = call.api.store().calls_of(turn.id.into()).await?;
            let alive = call.api.store().alive_among(&owners(std::iter::once(row), calls.iter())).await?;
            let untold = untold(call.api.hub()).await?;
            let (busy, budgets, alive, untold) = (None, &budgets[..], &alive, &untold[..]);
            let around = Around { session, agent: row, busy, budgets, alive, untold, now };
            let waiting = waiting_for(&around, &turn, &calls);
            let at_tool = calls.iter().any(is_at_tool);
            does = activity(Some(&turn.status), row.owner.is_some(), at_tool);
            Some(Live { id: turn.id.into(), waiting })
        }
        None => None,
    };
    let letters = live.is_none() && !call.api.store().waiting(id).await?.is_empty();
    let pause = chrono::Duration::from_std(call.api.context.config.scheduler.nudge_pause()).unwrap_or_default();
    Ok((does, agent_waits_for(session, row, live, letters, pause, &budgets, now)))
}

/// Built here rather than from the cascades: it has none, and must see both of the agent's states
/// in the version that it was judged by.
pub(crate) async fn start(call: Arc<Call>) -> Result<Reply, Problem> {
    let table = &agent_drive::TABLE;
    let (_, (id, answer)) = settle(&call, find::agent, |(row, _)| {
        let (id, session) = (AgentId::from(row.id), SessionId::from(row.session_id));
        if !pair_allowed(&row.lifecycle, "running") {
            return Err(refuse(table, &row.drive, "start", &format!("the agent is {}: it has ended", row.lifecycle)));
        }
        let moved = raise(table, &row.drive, "start")?;
        let mut commit = Commit::new(session, call.actor()).traced(call.traceparent.clone());
        let mut change = Change::entity(&agent::TABLE, id)
            .version(row.version)
            .set(agent::Column::NudgeCount, 0i64)
            .set(agent::Column::LetterCount, None::<i64>)
            .set(agent::Column::LateCount, None::<i64>)
            .set(agent::Column::LastError, None::<String>);
        let before = (row.drive != "idle").then(|| row.drive.clone());
        let mut after = agent::Model {
            nudge_count: 0,
            letter_count: None,
            late_count: None,
            last_error: None,
            updated_at: commit.at(),
            ..row
        };
        if let Some(moved) = moved {
            change = change.moving(moved);
            after.drive = moved.to().into();
        }
        commit.change(change);
        let told = AgentDriveStarted { reason: Some("start".into()), relaunched_from: before };
        commit.rune(Draft::new(id, &told)?.agent(id));
        if flow::is_autonomous(&after) {
            let now = commit.at();
            flow::nudge_later(&mut commit, &after, after.epoch, now);
        }
        let answer = show(&after);
        call.keep(&mut commit, session, StatusCode::OK, &answer);
        Ok((commit, (id, answer)))
    })
    .await?;
    wake::agent(&call, id.uuid()).await;
    Ok(Reply::kept(StatusCode::OK, answer))
}

async fn command(
    call: &Call,
    machine: &'static instar_core::machine::Table,
    event: &str,
    reason: &str,
) -> Result<Reply, Problem> {
    let (row, session) = find::agent(call).await?;
    let (id, session) = (AgentId::from(row.id), SessionId::from(session.id));
    let act = Command { call, session, entity: id.into(), machine, event }.act().reason(reason);
    let hub = call.api.hub();
    hub.follow(&runes_of(act.carry_out(hub).await?));
    Ok(Reply::ok(show(&find::agent(call).await?.0)))
}

pub(crate) async fn stop(call: Arc<Call>) -> Result<Reply, Problem> {
    command(&call, &agent_drive::TABLE, "stop", "stop").await
}

pub(crate) async fn hold(call: Arc<Call>) -> Result<Reply, Problem> {
    command(&call, &agent_drive::TABLE, "hold", "hold").await
}

pub(crate) async fn terminate(call: Arc<Call>) -> Result<Reply, Problem> {
    let force = call.body.get("force").and_then(Value::as_bool).unwrap_or(false);
    command(&call, &agent_lifecycle::TABLE, if force { "kill_forced" } else { "kill" }, "terminate").await
}

/// Removes it from the fleet. It stays readable by its id, like everything that its runes tell of.
pub(crate) async fn delete(call: Arc<Call>) -> Result<Reply, Problem> {
    let (row, session) = find::agent(&call).await?;
    let (id, session) = (AgentId::from(row.id), SessionId::from(session.id));
    let machine = &agent_drive::TABLE;
    let act = Command { call: &call, session, entity: id.into(), machine, event: "delete" }.act();
    // A log that has had its last rune takes no other: the session must be open when it lands.
    let act = act.reason("delete").also(|commit, snapshot| {
        let Some(open) = flow::open_state(&snapshot.session) else {
            let advice = format!("its session is {}: everything in it has ended", snapshot.session.status);
            return Err(ActError::Refused(Box::new(Refusal {
                machine: machine.name,
                from: row.drive.clone(),
                event: "delete".into(),
                allowed: Vec::new(),
                advice,
            })));
        };
        commit.change(Change::entity(&session::TABLE, session).expecting("session", open));
        Ok(())
    });
    let hub = call.api.hub();
    hub.follow(&runes_of(act.carry_out(hub).await?));
    Ok(Reply::ok(show(&find::agent(&call).await?.0)))
}
