//! Budgets as people see and set them: limits, what is used and set aside, and what keeps a turn waiting.

use crate::call::Call;
use crate::problem::Problem;
use crate::shape::Wrong;
use chrono::{DateTime, Utc};
use instar_core::budget::{Kind, Limits, shown};
use instar_core::id::SessionId;
use instar_runtime::{budget_info, flow};
use instar_store::entity::{agent, budget, session};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};
use serde_json::{Map, Value, json};

/// Agents that can be told of a limit that their session did not have before.
const TOLD_MAX: usize = 1_000;

/// Adds to a shown budget what is used, set aside and left of each of its limits.
pub(crate) fn add_state(shown_row: &mut Value, rows: &[budget::Model], session: &session::Model, now: DateTime<Utc>) {
    let Some(budget) = shown_row["budget"].as_object_mut().filter(|_| !rows.is_empty()) else { return };
    let (mut used, mut reserved, mut left) = (Map::new(), Map::new(), Map::new());
    for row in rows.iter().filter(|row| flow::is_limit(row)) {
        let Some(kind) = Kind::parse(&row.kind) else { continue };
        let spent = flow::spent(row, session, now);
        used.insert(row.kind.clone(), shown(kind, spent));
        reserved.insert(row.kind.clone(), shown(kind, row.reserved));
        left.insert(row.kind.clone(), shown(kind, (row.cap - spent).max(0)));
    }
    budget.extend([
        ("used".into(), used.into()),
        ("reserved".into(), reserved.into()),
        ("remaining".into(), left.into()),
    ]);
}

/// What of these limits keeps a call from being made, if anything does.
pub(crate) fn short(rows: &[budget::Model]) -> Option<Value> {
    let counts = |row: &&budget::Model| row.kind != Kind::ToolCalls.token();
    let spent = rows.iter().filter(counts).find(|row| row.used >= row.cap);
    let tight = || rows.iter().filter(counts).find(|row| row.used + row.reserved >= row.cap);
    let row = spent.or_else(tight)?;
    let mut told = json!({"kind": "budget"});
    if let (Some(told), Value::Object(info)) = (told.as_object_mut(), budget_info(row)) {
        told.extend(info);
        if spent.is_some() {
            let act = if row.scope == "session" { "replenish" } else { "raise its budget, then start it" };
            told.insert("act".into(), json!(act));
        }
    }
    Some(told)
}

pub(crate) fn is_priced(call: &Call, model: &str) -> bool {
    call.api.context.config.models.iter().any(|known| known.name == model && known.price.is_some())
}

/// What is wrong with a limit on cost for an agent of this model. `at`: where the agent's fields are in the body.
pub(crate) fn unpriced(call: &Call, model: &str, own: &Value, session: &Value, at: &str) -> Wrong {
    let limits = |budget: &Value| budget.get(Kind::Cost.field()).is_some_and(|limit| !limit.is_null());
    let mut wrong = Vec::new();
    if (limits(own) || limits(session)) && !is_priced(call, model) {
        let (place, whose) = match limits(own) {
            true => (format!("{at}/budget/{}", Kind::Cost.field()), "it"),
            false => (format!("{at}/model"), "what agents of this session may cost"),
        };
        let why = format!(
            "{whose} cannot be counted: model {model:?} has no price; give it one in the configuration (price of \
             [[models]]), or limit {} instead",
            Kind::Tokens.field()
        );
        wrong.push((place, why));
    }
    wrong
}

/// A session, its limits, and agents that do not know that it has any.
pub(crate) struct Limited {
    pub(crate) session: session::Model,
    pub(crate) rows: Vec<budget::Model>,
    pub(crate) untold: Vec<agent::Model>,
}

pub(crate) async fn of_session(call: &Call) -> Result<Limited, Problem> {
    let session = super::find::session(call).await?;
    let rows = call.api.store().budgets(&[session.id]).await?;
    let untold = if Limits::any(&session.budget) {
        Vec::new()
    } else {
        agent::Entity::find().filter(agent::Column::SessionId.eq(session.id)).all(call.api.db()).await?
    };
    if untold.len() > TOLD_MAX {
        let why =
            format!("the session was made without limits and has more than {TOLD_MAX} agents: it can get none now");
        return Err(Problem::field("budget", why));
    }
    Ok(Limited { session, rows, untold })
}

/// An agent, its session and its limits.
pub(crate) async fn of_agent(call: &Call) -> Result<(agent::Model, session::Model, Vec<budget::Model>), Problem> {
    let (row, session) = super::find::agent(call).await?;
    let rows = call.api.store().budgets(&[row.id]).await?;
    Ok((row, session, rows))
}

/// A budget with what is new in it; what is null is in it no more.
pub(crate) fn merged(old: &Value, new: Option<&Value>) -> Value {
    let mut budget = old.as_object().cloned().unwrap_or_default();
    if let Some(Value::Object(new)) = new {
        budget.extend(new.clone());
        budget.retain(|_, limit| !limit.is_null());
    }
    Value::Object(budget)
}

/// The limits that are taken away.
pub(crate) fn lifted(new: Option<&Value>) -> Vec<Kind> {
    let null = |kind: &Kind| new.and_then(|new| new.get(kind.field())).is_some_and(Value::is_null);
    Kind::ALL.into_iter().filter(null).collect()
}

/// The limits that what is used has reached: a session goes on only above them.
pub(crate) fn not_above_use(rows: &[budget::Model], session: &session::Model, now: DateTime<Utc>) -> Wrong {
    let mut wrong = Vec::new();
    for row in rows {
        let (spent, Some(kind)) = (flow::spent(row, session, now), Kind::parse(&row.kind)) else { continue };
        if spent >= row.cap {
            let used = shown(kind, spent).to_string().replace('"', "");
            wrong.push((format!("/budget/{}", kind.field()), format!("must be above what is used already: {used}")));
        }
    }
    wrong
}

/// An agent draws on its session's limits from now on.
pub(crate) fn told_of_session(row: &agent::Model, session: SessionId) -> Value {
    let mut config = if row.config.is_object() { row.config.clone() } else { json!({}) };
    let mut payers = config.get(flow::PAYERS).and_then(Value::as_array).cloned().unwrap_or_default();
    payers.push(json!(session));
    config[flow::PAYERS] = payers.into();
    config
}

/// The limits of whoever is shown, by one query for a whole page.
pub(crate) async fn of_agents(call: &Call, agents: &[agent::Model]) -> Result<Vec<budget::Model>, Problem> {
    let limited = agents.iter().filter(|agent| Limits::any(&agent.config["budget"]));
    let scopes: Vec<_> = limited.map(|agent| agent.id).collect();
    Ok(call.api.store().budgets(&scopes).await?)
}
