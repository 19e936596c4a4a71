//! What an agent causes itself has a ceiling per day (UTC): turns that nobody asked for, or that only letters of agents
//! did, and what they cost. They are counted in the agent's row by the commits that end them. At the ceiling the agent
//! rests until the day is over, or until somebody who may approve raises it; what people say is answered all the same.

use super::nudge::{is_autonomous, nudge_later};
use super::turn::timer;
use super::{FlowError, step};
use crate::config::AgentsConfig;
use chrono::{DateTime, Days, NaiveTime, Utc};
use instar_core::budget::{Cost, Price};
use instar_core::id::{AgentId, SessionId};
use instar_core::machine::{By, agent_drive};
use instar_core::rune::payload::{AgentDriveIdled, AgentDriveStarted};
use instar_core::rune::{Actor, Draft};
use instar_store::entity::{agent, timer as timer_row};
use instar_store::{Change, Commit};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

/// Why the agent rests, as its rune and its view say it.
pub const DAILY_LIMIT: &str = "daily_limit";
/// A timer that starts an agent again that rests for the day.
pub const DAY_TIMER: &str = "day";
/// Where an agent's configuration has ceilings of its own.
pub const TURNS_PER_DAY: &str = "turns_per_day_max";
pub const COST_PER_DAY: &str = "cost_per_day_max";

/// What an agent may cause itself in a day; 0: any number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ceiling {
    pub turns: i64,
    pub cost: Cost,
}

impl Ceiling {
    /// What holds where an agent says nothing.
    pub fn usual(config: &AgentsConfig) -> Ceiling {
        let cost = config.cost_per_day_max.unwrap_or_default();
        Ceiling { turns: i64::from(config.turns_per_day_max), cost }
    }

    /// What holds for an agent, where `usual` holds for those that say nothing of it.
    pub fn of(agent: &agent::Model, usual: Ceiling) -> Ceiling {
        Ceiling {
            turns: agent.config[TURNS_PER_DAY].as_i64().unwrap_or(usual.turns),
            cost: amount(&agent.config[COST_PER_DAY]).unwrap_or(usual.cost),
        }
    }

    pub fn is_reached(self, today: Today) -> bool {
        (self.turns > 0 && today.turns >= self.turns) || (self.cost.0 > 0 && today.cost >= self.cost)
    }
}

/// A ceiling of costs as it is given: a text such as "2.50", or a whole number.
pub fn amount(value: &Value) -> Option<Cost> {
    match value {
        Value::String(text) => text.parse().ok(),
        other => other.as_i64()?.checked_mul(1_000_000).filter(|micros| *micros >= 0).map(Cost),
    }
}

/// What an agent has caused itself on a day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Today {
    /// Days since 1970.
    pub day: i64,
    pub turns: i64,
    pub cost: Cost,
    /// It rests because of that.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub rests: bool,
}

impl Today {
    /// What was counted at this moment. Whoever counted last may have been a little ahead: no day comes back.
    pub fn of(agent: &agent::Model, at: DateTime<Utc>) -> Today {
        let kept = kept(agent);
        let day = at.timestamp().div_euclid(24 * 3600);
        if kept.day >= day { kept } else { Today { day, ..Today::default() } }
    }
}

impl Today {
    /// As people read it.
    pub fn shown(agent: &agent::Model) -> Option<Value> {
        let Today { day, turns, cost, .. } = Today::deserialize(agent.today.as_ref()?).ok()?;
        let date = DateTime::from_timestamp(day.saturating_mul(24 * 3600), 0)?.date_naive();
        Some(json!({"day": date, "turns": turns, "cost": cost}))
    }
}

fn kept(agent: &agent::Model) -> Today {
    agent.today.as_ref().and_then(|kept| Today::deserialize(kept).ok()).unwrap_or_default()
}

/// Whether the agent rests because of what it caused itself.
pub fn rests_for_today(agent: &agent::Model) -> bool {
    agent.drive == "idle" && kept(agent).rests
}

/// What the end of a turn needs to know of the day.
#[derive(Clone, Copy, Debug, Default)]
pub struct Day {
    pub ceiling: Ceiling,
    /// The turn is one that agents have caused.
    pub counts: bool,
    pub price: Option<Price>,
    /// A person's word is among what waits.
    pub asked: bool,
}

impl Day {
    /// The day with the turn that ends.
    pub fn after(&self, agent: &agent::Model, usage: &Value, at: DateTime<Utc>) -> Today {
        let mut today = Today::of(agent, at);
        if self.counts {
            let tokens = |field: &str| usage[field].as_u64().unwrap_or(0);
            let cost = self.price.map(|price| price.of(tokens("input_tokens"), 0, tokens("output_tokens")));
            today.turns += 1;
            today.cost.0 = today.cost.0.saturating_add(cost.unwrap_or_default().0);
            today.rests = false;
        }
        today
    }
}

/// The moment at which the day is over.
fn tomorrow(at: DateTime<Utc>) -> DateTime<Utc> {
    let midnight = at.date_naive().checked_add_days(Days::new(1)).map(|day| day.and_time(NaiveTime::MIN).and_utc());
    midnight.unwrap_or(at)
}

/// The agent rests until the day is over.
pub(super) fn rest(
    commit: &mut Commit,
    agent: &agent::Model,
    change: Change,
    drive: &str,
    today: Today,
) -> Result<Change, FlowError> {
    let (id, at) = (AgentId::from(agent.id), commit.at());
    let mut change = change.set(agent::Column::Today, json!(Today { rests: true, ..today }));
    if drive == "running" {
        let rests = step(&agent_drive::TABLE, drive, "nudge_limit_reached", By::System)?;
        change = change.moving(rests).set(agent::Column::LastError, None::<String>);
        let told = AgentDriveIdled { reason: DAILY_LIMIT.into(), needs_attention: true };
        commit.rune(Draft::new(id, &told)?.agent(id));
    }
    // One that a person has woken in between has its timer.
    if !kept(agent).rests || kept(agent).day != today.day {
        commit.insert(&timer_row::TABLE, timer(agent.session_id, DAY_TIMER, id.to_string(), tomorrow(at), at));
    }
    Ok(change)
}

/// The same instead of a turn of its own, for one that is free. `fired` as for a nudge.
pub fn rest_for_today(agent: &agent::Model, fired: Option<Uuid>, actor: Actor) -> Result<Commit, FlowError> {
    let id = AgentId::from(agent.id);
    let mut commit = Commit::new(SessionId::from(agent.session_id), actor);
    let change = Change::entity(&agent::TABLE, id).expecting("agent_lifecycle", "idle").version(agent.version);
    let today = Today::of(agent, commit.at());
    let change = rest(&mut commit, agent, change, &agent.drive, today)?;
    commit.change(change);
    if let Some(timer) = fired {
        commit.delete(&timer_row::TABLE, timer);
    }
    Ok(commit)
}

/// An agent that rests for the day goes on. What it has caused stays counted, and so do its nudges.
pub fn go_on_today(
    commit: &mut Commit,
    agent: &agent::Model,
    change: Change,
    by: By,
    today: Today,
) -> Result<Change, FlowError> {
    let id = AgentId::from(agent.id);
    let starts = step(&agent_drive::TABLE, &agent.drive, "start", by)?;
    let told = AgentDriveStarted { reason: Some(DAILY_LIMIT.into()), relaunched_from: None };
    commit.rune(Draft::new(id, &told)?.agent(id));
    if is_autonomous(agent) {
        let now = commit.at();
        nudge_later(commit, agent, agent.epoch, now);
    }
    Ok(change.moving(starts).set(agent::Column::Today, json!(Today { rests: false, ..today })))
}

/// The day is over for an agent that has rested for it, by the clock of whoever fired its timer.
pub fn new_day(agent: &agent::Model, actor: Actor) -> Result<Commit, FlowError> {
    let mut commit = Commit::new(SessionId::from(agent.session_id), actor);
    let change = Change::entity(&agent::TABLE, AgentId::from(agent.id)).version(agent.version);
    let change = change.expecting("agent_lifecycle", "idle");
    let day = Today::of(agent, commit.at()).day.max(kept(agent).day + 1);
    let today = Today { day, ..Today::default() };
    let change = go_on_today(&mut commit, agent, change, By::System, today)?;
    commit.change(change);
    Ok(commit)
}
