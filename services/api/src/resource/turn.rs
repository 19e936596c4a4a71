//! Turns: listed, looked at, interrupted.

use super::command::Command;
use super::find;
use super::session::known_state;
use super::wait::{self, Around, owners, waiting_for};
use crate::call::{Call, Reply};
use crate::page::Page;
use crate::problem::{Problem, runes_of};
use crate::shape::{Kind, Shape, may, must};
use crate::stream::{End, Heard};
use instar_core::id::{AgentId, MessageId, SessionId, TurnId};
use instar_core::machine::{Phase, turn as machine};
use instar_runtime::flow;
use instar_store::clock;
use instar_store::entity::{agent, message, session, tool_call, turn};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// Newest messages of an agent among which those of a turn are looked for: a turn takes up fewer.
const INPUT_ROWS_MAX: u64 = 64;
/// The longest wait for an end, in seconds: shorter than a request may take.
const WAIT_MAX: f64 = 25.0;
/// How late an end is noticed when the bus has lost its hint.
const LOOK_EVERY: Duration = Duration::from_secs(2);

pub(crate) static SAID: Shape = Shape {
    name: "Said",
    fields: &[
        must("id", Kind::Id("msg"), "The message"),
        must("role", Kind::Text(40), "Who said it"),
        must("content", Kind::Prose(usize::MAX), "What"),
    ],
};
pub(crate) static TURN: Shape = Shape {
    name: "Turn",
    fields: &[
        must("id", Kind::Id("trn"), "The turn's id"),
        must("session_id", Kind::Id("ses"), "Its session"),
        must("agent_id", Kind::Id("agt"), "Its agent"),
        must("status", Kind::State(&machine::TABLE), "Where its machine is"),
        must("cause", Kind::Text(40), "Why there is a turn"),
        must("input", Kind::List(&SAID), "Messages that it answers"),
        may("output", Kind::Prose(usize::MAX), "What the model said in the end"),
        may(
            "finish_reason",
            Kind::Text(100),
            "Why a completed turn is over: stop; length, context_window or refusal where the answer is not whole; \
             provider_calls_max, ended_by_tool",
        ),
        must("usage", Kind::Object, "Tokens so far"),
        must("attempts", Kind::Integer, "Workers that took it up"),
        must("iterations", Kind::Integer, "Calls of the model made"),
        must("open_calls", Kind::Integer, "Tool calls without a result"),
        may("error", Kind::Object, "Why it failed"),
        may(
            "waiting_for",
            Kind::Object,
            "What keeps it waiting: session, agent, turn, worker, approval, tool, runner, agents, account, \
             provider, budget, place, tools",
        ),
        must("created_at", Kind::Time, "When it was queued"),
        may("ended_at", Kind::Time, "When it ended"),
    ],
};
pub(crate) static INTERRUPT: Shape =
    Shape { name: "Interrupt", fields: &[may("reason", Kind::Text(1_000), "Why, for the log")] };

fn show(row: &turn::Model, input: Vec<Value>, waiting: Option<Value>) -> Value {
    let mut shown = summary(row);
    shown["input"] = input.into();
    shown["waiting_for"] = waiting.into();
    shown
}

/// What its own row says.
pub(crate) fn summary(row: &turn::Model) -> Value {
    json!({
        "id": TurnId::from(row.id),
        "session_id": SessionId::from(row.session_id),
        "agent_id": AgentId::from(row.agent_id),
        "status": row.status,
        "cause": row.cause,
        "output": row.output,
        "finish_reason": row.finish_reason,
        "usage": row.usage,
        "attempts": row.attempts,
        "iterations": row.iterations,
        "open_calls": row.open_calls,
        "error": row.error,
        "created_at": row.created_at,
        "ended_at": row.ended_at,
    })
}

/// The largest id that was made up to this moment; ids are in order of time.
pub(crate) fn not_after(at: chrono::DateTime<chrono::Utc>) -> Uuid {
    let ms = u64::try_from(at.timestamp_millis()).unwrap_or_default();
    Uuid::from_u64_pair(ms << 16 | 0xffff, u64::MAX)
}

/// What is shown beside the rows themselves, for a whole page with one query per table.
async fn shown(call: &Call, turns: &[turn::Model]) -> Result<Vec<Value>, Problem> {
    let db = call.api.db();
    let ids: Vec<Uuid> = turns.iter().map(|turn| turn.id).collect();
    let live: Vec<&turn::Model> = turns.iter().filter(|turn| turn.ended_at.is_none()).collect();
    // By agent, up to the end of the turns: there is no index by turn, and none is wanted on the hot path.
    let of = turns.iter().map(|turn| turn.agent_id);
    let latest = turns.iter().map(|turn| turn.ended_at.unwrap_or_else(clock::now)).max().unwrap_or_default();
    let rows_max = INPUT_ROWS_MAX * turns.len() as u64;
    let said = message::Entity::find()
        .filter(message::Column::AgentId.is_in(of))
        .filter(message::Column::Id.lte(not_after(latest)))
        .filter(message::Column::TurnId.is_not_null())
        // The agent's own words are the turn's output.
        .filter(message::Column::Role.ne("assistant"))
        .order_by_desc(message::Column::Id)
        .limit(rows_max)
        .all(db)
        .await?;
    let said = said.into_iter().rev().filter(|row| row.turn_id.is_some_and(|turn| ids.contains(&turn)));
    let mut inputs: HashMap<Uuid, Vec<Value>> = HashMap::new();
    for row in said {
        let shown = json!({"id": MessageId::from(row.id), "role": row.role, "content": row.content});
        inputs.entry(row.turn_id.unwrap_or_default()).or_default().push(shown);
    }
    let (mut agents, mut sessions, mut calls, mut begun) = (HashMap::new(), HashMap::new(), Vec::new(), HashMap::new());
    let mut budgets = Vec::new();
    if !live.is_empty() {
        let of = |pick: fn(&turn::Model) -> Uuid| live.iter().map(|turn| pick(turn)).collect::<Vec<_>>();
        let rows = agent::Entity::find().filter(agent::Column::Id.is_in(of(|t| t.agent_id))).all(db).await?;
        let payers: BTreeSet<Uuid> = rows.iter().flat_map(flow::payers).collect();
        budgets = call.api.store().budgets(&payers.into_iter().collect::<Vec<_>>()).await?;
        agents.extend(rows.into_iter().map(|row| (row.id, row)));
        let rows = session::Entity::find().filter(session::Column::Id.is_in(of(|t| t.session_id))).all(db).await?;
        sessions.extend(rows.into_iter().map(|row| (row.id, row)));
        calls = tool_call::Entity::find().filter(tool_call::Column::TurnId.is_in(of(|t| t.id))).all(db).await?;
        let rows = turn::Entity::find()
            .filter(turn::Column::AgentId.is_in(of(|t| t.agent_id)))
            .filter(turn::Column::EndedAt.is_null())
            .filter(turn::Column::Status.ne("queued"))
            .all(db)
            .await?;
        begun.extend(rows.into_iter().map(|row| (row.agent_id, row.id)));
    }
    let (alive, now) = (call.api.store().alive_among(&owners(agents.values(), calls.iter())).await?, clock::now());
    let untold = if live.is_empty() { Vec::new() } else { wait::untold(call.api.hub()).await? };
    let show = |turn: &turn::Model| {
        let waiting = agents.get(&turn.agent_id).zip(sessions.get(&turn.session_id)).and_then(|(agent, session)| {
            let own: Vec<tool_call::Model> = calls.iter().filter(|c| c.turn_id == Some(turn.id)).cloned().collect();
            let busy = begun.get(&turn.agent_id).copied().filter(|id| *id != turn.id);
            let payers = flow::payers(agent);
            let limits: Vec<_> = budgets.iter().filter(|row| payers.contains(&row.scope_id)).cloned().collect();
            let (budgets, alive, untold) = (&limits[..], &alive, &untold[..]);
            waiting_for(&Around { session, agent, busy, budgets, alive, untold, now }, turn, &own)
        });
        show(turn, inputs.get(&turn.id).cloned().unwrap_or_default(), waiting)
    };
    Ok(turns.iter().map(show).collect())
}

pub(crate) async fn list(call: Arc<Call>) -> Result<Reply, Problem> {
    let page = Page::of(&call)?;
    let mut query = turn::Entity::find()
        .join(sea_orm::JoinType::InnerJoin, find::to_session::<turn::Entity>())
        .filter(session::Column::Namespace.eq(&*call.caller.namespace));
    if let Some(agent) = call.filter::<AgentId>("agent")? {
        query = query.filter(turn::Column::AgentId.eq(agent.uuid()));
    }
    if let Some(session) = call.filter::<SessionId>("session")? {
        query = query.filter(turn::Column::SessionId.eq(session.uuid()));
    }
    if let Some(status) = call.asked("status") {
        known_state(&machine::TABLE, "status", status)?;
        query = query.filter(turn::Column::Status.eq(status));
        if machine::TABLE.phase(status) == Some(Phase::Live) {
            // There is an index of what has not ended.
            query = query.filter(turn::Column::EndedAt.is_null());
        }
    }
    if let Some(before) = page.before {
        query = query.filter(turn::Column::Id.lt(before));
    }
    let rows = query.order_by_desc(turn::Column::Id).limit(page.rows()).all(call.api.db()).await?;
    let shown = shown(&call, &rows).await?;
    let rows: Vec<(Uuid, Value)> = rows.into_iter().map(|row| row.id).zip(shown).collect();
    Ok(Reply::ok(page.answer(rows, |row| row.0, |row| row.1)))
}

/// How long the caller wants to wait for an end.
pub(crate) fn wait(call: &Call) -> Result<Option<Duration>, Problem> {
    let Some(wait) = call.asked("wait") else { return Ok(None) };
    let within = wait.parse().ok().filter(|seconds| (0.0..=WAIT_MAX).contains(seconds));
    let within = within.ok_or_else(|| Problem::field("wait", format!("must be seconds, 0 to {WAIT_MAX}")))?;
    Ok(Some(Duration::from_secs_f64(within)))
}

/// At once, or with `wait` when the turn has ended or that many seconds are over.
pub(crate) async fn get(call: Arc<Call>) -> Result<Reply, Problem> {
    let within = wait(&call)?;
    let heard = within.map(|_| call.id::<TurnId>("turn")).transpose()?.map(|id| call.api.feed.end_of(id));
    let heard = heard.map(End::heard_from_now);
    let (mut row, _) = find::turn(&call).await?;
    if let (Some(within), Some(heard), None) = (within, heard, row.ended_at) {
        row = end(&call, TurnId::from(row.id), heard, within).await?;
    }
    one(&call, row).await
}

/// The row of a turn that had not ended when it began to be heard: when it has, or the time is up.
pub(crate) async fn end(call: &Call, id: TurnId, mut heard: Heard, within: Duration) -> Result<turn::Model, Problem> {
    let until = tokio::time::Instant::now() + within;
    loop {
        let look = until.min(tokio::time::Instant::now() + LOOK_EVERY);
        let told = tokio::time::timeout_at(look, heard.ended()).await.is_ok();
        let row = call.api.store().turn_among_others(id).await?;
        let row = row.ok_or_else(|| Problem::absent("turn", &id.to_string()))?;
        if row.ended_at.is_some() || tokio::time::Instant::now() >= until {
            return Ok(row);
        }
        if told {
            heard = call.api.feed.end_of(id).heard_from_now();
        }
    }
}

async fn one(call: &Call, row: turn::Model) -> Result<Reply, Problem> {
    Ok(Reply::ok(shown(call, &[row]).await?.pop().unwrap_or_default()))
}

/// One that never began ends at once; one that runs is asked to.
pub(crate) async fn interrupt(call: Arc<Call>) -> Result<Reply, Problem> {
    let reason = call.body.get("reason").and_then(Value::as_str).unwrap_or("interrupt").to_owned();
    let (row, session) = find::turn(&call).await?;
    let (id, session) = (TurnId::from(row.id), SessionId::from(session.id));
    let runs = matches!(row.status.as_str(), "streaming" | "tool_executing");
    let event = if runs { "request_control" } else { "interrupt" };
    let command = Command { call: &call, session, entity: id.into(), machine: &machine::TABLE, event };
    let act = command.act().reason(&reason).telling("turn.control_requested", json!({"action": "interrupt"}));
    let hub = call.api.hub();
    hub.follow(&runes_of(act.carry_out(hub).await?));
    one(&call, find::turn(&call).await?.0).await
}
