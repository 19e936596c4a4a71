//! What commits take from budgets: an estimate set aside before a provider call, what was really used after it.
//!
//! What is set aside is kept in the turn's row, and every commit that settles it also clears it there: a worker
//! that dies in between leaves it to whoever takes the turn over or ends it, and nobody can settle it twice.

use crate::hold::Holds;
use chrono::{DateTime, Duration, Utc};
use instar_core::budget::{Kind, Limits, Reservation, Spent};
use instar_core::decide::OnBudget;
use instar_core::id::{AgentId, Entity, SessionId, TurnId};
use instar_core::rune::payload::Usage;
use instar_store::entity::{agent, budget, session, turn};
use instar_store::{Change, Commit};
use serde_json::{Value, json};
use uuid::Uuid;

use super::turn::timer;
use instar_store::entity::timer as timer_row;

/// A timer that rings when a budget's time is up.
pub const CLOCK_TIMER: &str = "budget_clock";
/// Where an agent's configuration names the others whose budgets it draws on: its parents and its session.
pub const PAYERS: &str = "payers";

/// Whose budgets an agent draws on, itself first. Empty where nothing is limited, which is known without a look.
pub fn payers(agent: &agent::Model) -> Vec<Uuid> {
    let others = agent.config.get(PAYERS).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if others.is_empty() && !Limits::any(&agent.config["budget"]) {
        return Vec::new();
    }
    let id = |text: &Value| text.as_str()?.parse::<Entity>().ok().map(|entity| entity.id);
    std::iter::once(agent.id).chain(others.iter().filter_map(id)).collect()
}

/// What becomes of an agent that has used up its own limit.
pub fn on_budget(agent: &agent::Model) -> OnBudget {
    let usual = if agent.parent_id.is_some() { OnBudget::Terminate } else { OnBudget::Stop };
    Limits::of(&agent.config["budget"]).on_budget.unwrap_or(usual)
}

/// Those besides itself whose budgets a new agent of this session draws on.
pub(super) fn payers_of(session: SessionId, budget: &Value, parent: Option<&agent::Model>) -> Option<Value> {
    let payers: Vec<Value> = match parent {
        // A parent may be given a limit later, so it is named in any case.
        Some(parent) => {
            let above = parent.config.get(PAYERS).and_then(Value::as_array).cloned().unwrap_or_default();
            std::iter::once(json!(AgentId::from(parent.id))).chain(above).collect()
        }
        None if Limits::any(budget) => vec![json!(session)],
        None => return None,
    };
    Some(json!(payers))
}

/// The limits of a new session or agent, as rows.
pub(super) fn open(commit: &mut Commit, scope: Entity, limits: &Limits) {
    let session = commit.session();
    for (kind, cap) in limits.iter() {
        let row = row(session, scope, kind, cap, commit);
        start_clock(commit, &row);
        commit.insert(&budget::TABLE, row);
    }
}

fn row(session: SessionId, scope: Entity, kind: Kind, cap: i64, commit: &Commit) -> budget::Model {
    budget::Model {
        id: Uuid::now_v7(),
        session_id: session.uuid(),
        scope: if scope.kind == instar_core::id::Kind::Session { "session" } else { "agent" }.into(),
        scope_id: scope.id,
        kind: kind.token().into(),
        cap,
        used: 0,
        reserved: 0,
        since: (kind == Kind::WallTime).then(|| commit.at()),
        version: 0,
    }
}

/// Rings when its time is up; how long the session was held by then is looked at when it rings.
fn start_clock(commit: &mut Commit, row: &budget::Model) {
    if let Some(since) = row.since {
        let (at, left) = (commit.at(), Duration::milliseconds((row.cap - row.used).max(0)));
        let entity = row.id.simple().to_string();
        commit.insert(&timer_row::TABLE, timer(row.session_id, CLOCK_TIMER, entity, (since + left).max(at), at));
    }
}

/// What is used of a limit by now: a clock that runs goes on, but for times in which the session was held.
pub fn spent(row: &budget::Model, session: &session::Model, now: DateTime<Utc>) -> i64 {
    let Some(since) = row.since else { return row.used };
    let ran = (now - since) - Holds::of(session).within(since, now);
    row.used.saturating_add(ran.num_milliseconds().max(0))
}

/// New limits in place of those of the same name; `rows` are those there are. A clock that stood runs again.
pub fn limit(
    commit: &mut Commit,
    scope: impl Into<Entity>,
    limits: &Limits,
    rows: &[budget::Model],
) -> Vec<budget::Model> {
    let (scope, mut after) = (scope.into(), rows.to_vec());
    for (kind, cap) in limits.iter() {
        match after.iter_mut().find(|row| row.kind == kind.token()) {
            Some(row) => {
                row.cap = cap;
                let mut change = Change::new(&budget::TABLE, row.id).set(budget::Column::Cap, cap);
                if kind == Kind::WallTime {
                    // Of a clock that runs out in this moment it is not known how much it has counted.
                    change = change.version(row.version);
                }
                if kind == Kind::WallTime && row.used < cap {
                    if row.since.is_none() {
                        row.since = Some(commit.at());
                        change = change.set(budget::Column::Since, row.since);
                    }
                    start_clock(commit, row);
                }
                commit.change(change);
            }
            None => {
                let row = self::row(commit.session(), scope, kind, cap, commit);
                start_clock(commit, &row);
                commit.insert(&budget::TABLE, row.clone());
                after.push(row);
            }
        }
    }
    after
}

/// The cap of a limit that was taken away: its row stays, since turns under way may have set something aside of it.
const NO_CAP: i64 = i64::MAX / 4;

/// Whether a limit limits anything.
pub fn is_limit(row: &budget::Model) -> bool {
    row.cap < NO_CAP
}

/// Takes limits away; what was used stays so, should they come back.
pub fn lift(commit: &mut Commit, kinds: &[Kind], rows: &mut [budget::Model]) {
    for row in rows.iter_mut().filter(|row| kinds.iter().any(|kind| kind.token() == row.kind)) {
        (row.cap, row.since) = (NO_CAP, None);
        let change = Change::new(&budget::TABLE, row.id).set(budget::Column::Cap, NO_CAP);
        commit.change(change.set(budget::Column::Since, None::<DateTime<Utc>>));
    }
}

/// Sets an estimate aside. The commit does not land where nothing is left.
pub fn reserve(commit: &mut Commit, turn: &turn::Model, made: &Reservation) {
    for line in made.lines.iter().filter(|line| matches!(line.kind, Kind::Tokens | Kind::Cost)) {
        commit.change(Change::new(&budget::TABLE, line.id).drawing(0, line.n, 1));
    }
    commit.change(Change::entity(&turn::TABLE, TurnId::from(turn.id)).set(turn::Column::Reserved, json!(made)));
}

/// Books what a call really came to and sets nothing aside any more. With tool calls for which a limit has no
/// room it does not land.
pub fn settle(commit: &mut Commit, turn: &turn::Model, spent: Spent) {
    let Some(made) = reserved(turn) else { return };
    for (line, used) in made.settled(spent) {
        let need = if line.kind == Kind::ToolCalls { used } else { 0 };
        if used != 0 || line.n != 0 {
            commit.change(Change::new(&budget::TABLE, line.id).drawing(used, -line.n, need));
        }
    }
    let cleared = Change::entity(&turn::TABLE, TurnId::from(turn.id));
    commit.change(cleared.set(turn::Column::Reserved, None::<Value>));
}

/// Books what was used beside a call that is still under way.
pub(super) fn book(commit: &mut Commit, turn: &turn::Model, spent: Spent) {
    let Some(made) = reserved(turn) else { return };
    for (line, used) in made.settled(spent).filter(|(_, used)| *used != 0) {
        commit.change(Change::new(&budget::TABLE, line.id).drawing(used, 0, 0));
    }
}

/// Sets aside what a summary may come to, beside what is set aside for the call itself; `None` where nothing is
/// limited. The commit does not land where nothing is left.
pub(super) fn with_summary(commit: &mut Commit, turn: &turn::Model, most: Usage) -> Option<Reservation> {
    let made = reserved(turn)?;
    let more = made.with_summary(most);
    for (before, line) in made.lines.iter().zip(&more.lines).filter(|(before, line)| line.n > before.n) {
        commit.change(Change::new(&budget::TABLE, line.id).drawing(0, line.n - before.n, 1));
    }
    let row = Change::entity(&turn::TABLE, TurnId::from(turn.id));
    commit.change(row.set(turn::Column::Reserved, json!(more)));
    Some(more)
}

/// Books what a summary came to; nothing is set aside for it any more.
pub(super) fn settle_summary(commit: &mut Commit, turn: &turn::Model, spent: Spent) -> Option<Reservation> {
    let made = reserved(turn)?;
    for (line, used) in made.settled(spent).filter(|(line, used)| *used != 0 || line.summary != 0) {
        commit.change(Change::new(&budget::TABLE, line.id).drawing(used, -line.summary, 0));
    }
    let left = made.without_summary();
    let row = Change::entity(&turn::TABLE, TurnId::from(turn.id));
    commit.change(row.set(turn::Column::Reserved, json!(left)));
    Some(left)
}

/// What a turn's call has used whose end nobody heard, going by what was set aside for it.
pub fn unheard(turn: &turn::Model) -> Spent {
    reserved(turn).map_or_else(Spent::default, |made| made.unheard())
}

/// What a turn has set aside.
pub fn reserved(turn: &turn::Model) -> Option<Reservation> {
    turn.reserved.clone().and_then(|made| serde_json::from_value(made).ok())
}

/// What an agent has used, with a turn that ends.
pub fn booked(agent: &agent::Model, turn: &Value) -> Value {
    let n = |of: &Value, field: &str| of.get(field).and_then(Value::as_u64).unwrap_or(0);
    let sum = |field: &str| n(&agent.usage, field) + n(turn, field);
    json!({
        "input_tokens": sum("input_tokens"),
        "output_tokens": sum("output_tokens"),
        "tool_calls": sum("tool_calls"),
        "turns": n(&agent.usage, "turns") + 1,
    })
}

/// The scope whose rows say what limits a session.
pub fn session_scope(row: &session::Model) -> Option<Uuid> {
    Limits::any(&row.budget).then_some(row.id)
}
