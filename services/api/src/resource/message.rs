//! Messages: what is said to an agent. Stored and, unless one is under way, given a turn by one
//! commit; the answer goes out when that is durable.

use super::find::{self, columns};
use crate::call::{Call, Reply};
use crate::page::Page;
use crate::problem::Problem;
use crate::settle::{raise, settle};
use crate::shape::{Kind, Shape, may, must};
use axum::http::StatusCode;
use instar_bus::message::{Queued, work_turn};
use instar_core::id::{AgentId, MessageId, SessionId, TurnId};
use instar_runtime::flow::{self, Accepted, Mode};
use instar_runtime::{INLINE_BYTES_MAX, Ready};
use instar_store::Landed;
use instar_store::entity::{agent, message, session, turn};
use sea_orm::{
    ColumnTrait, ConnectionTrait, EntityTrait, FromQueryResult, QueryFilter, QueryOrder, QuerySelect, Statement,
};
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};

pub(crate) const CONTENT_BYTES_MAX: usize = 256 * 1024;
/// A turn that has not ended is among the newest of its agent; looking no further keeps the cost
/// of a message from growing with the history.
const NEWEST_TURNS: usize = 8;

pub(crate) static NEW_MESSAGE: Shape = Shape {
    name: "NewMessage",
    fields: &[
        must("content", Kind::Text(CONTENT_BYTES_MAX), "What to say"),
        may("mode", Kind::Choice(&["queue", "steer", "interrupt"]), "How a running turn is dealt with; queue"),
    ],
};
pub(crate) static STEER: Shape = Shape {
    name: "Steer",
    fields: &[must("content", Kind::Text(CONTENT_BYTES_MAX), "What the agent shall do instead")],
};
pub(crate) static ACCEPTED: Shape = Shape {
    name: "Accepted",
    fields: &[
        must("message_id", Kind::Id("msg"), "The message"),
        may("turn_id", Kind::Id("trn"), "The turn that will answer it; none while it waits behind another"),
    ],
};
pub(crate) static MESSAGE: Shape = Shape {
    name: "Message",
    fields: &[
        must("id", Kind::Id("msg"), "The message's id"),
        must("session_id", Kind::Id("ses"), "Its session"),
        must("agent_id", Kind::Id("agt"), "Whose history it is in"),
        may("turn_id", Kind::Id("trn"), "The turn that took it up"),
        must("role", Kind::Text(40), "system, user, assistant or tool"),
        must("source", Kind::Text(40), "Where it came from"),
        must("mode", Kind::Text(40), "How it wanted to be taken"),
        must("content", Kind::Prose(usize::MAX), "What was said"),
        must("created_at", Kind::Time, "When"),
    ],
};

/// An agent as a message finds it: everything in one query.
struct Found {
    session: session::Model,
    agent: agent::Model,
    busy: bool,
    live: Option<turn::Model>,
}

static FIND: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {}, {}, {}, CASE WHEN EXISTS (SELECT 1 FROM (SELECT ended_at FROM turns WHERE agent_id = a.id \
         ORDER BY id DESC LIMIT {NEWEST_TURNS}) n WHERE n.ended_at IS NULL) THEN 1 ELSE 0 END AS busy \
         FROM agents a JOIN sessions s ON s.id = a.session_id \
         LEFT JOIN turns t ON t.id = (SELECT id FROM (SELECT id, status, ended_at FROM turns WHERE agent_id = a.id \
         ORDER BY id DESC LIMIT {NEWEST_TURNS}) n WHERE n.ended_at IS NULL AND n.status <> 'queued' LIMIT 1) \
         WHERE a.id = $1 AND s.namespace = $2",
        columns::<session::Entity>("s", "s_"),
        columns::<agent::Entity>("a", "a_"),
        columns::<turn::Entity>("t", "t_"),
    )
});

async fn look(call: &Call, agent: AgentId) -> Result<Found, Problem> {
    let db = call.api.db();
    let values: [sea_orm::Value; 2] = [agent.uuid().into(), call.caller.namespace.as_ref().into()];
    let statement = Statement::from_sql_and_values(db.get_database_backend(), FIND.as_str(), values);
    let row = db.query_one_raw(statement).await?;
    let row = row.ok_or_else(|| Problem::absent("agent", &agent.to_string()))?;
    let found = Found {
        session: session::Model::from_query_result(&row, "s_")?,
        agent: agent::Model::from_query_result(&row, "a_")?,
        live: turn::Model::from_query_result_optional(&row, "t_")?,
        busy: row.try_get::<i32>("", "busy")? != 0,
    };
    let _ = call.session.set(SessionId::from(found.session.id));
    Ok(found)
}

pub(crate) async fn send(call: Arc<Call>) -> Result<Reply, Problem> {
    let mode = call.body.get("mode").filter(|mode| !mode.is_null()).cloned();
    let mode = mode.map(serde_json::from_value).transpose()?.unwrap_or_default();
    let agent = call.id::<AgentId>("agent")?;
    say(&call, agent, mode, None).await
}

/// New input for a turn that runs; one that has ended takes none.
pub(crate) async fn steer(call: Arc<Call>) -> Result<Reply, Problem> {
    let (turn, _) = find::turn(&call).await?;
    raise(&instar_core::machine::turn::TABLE, &turn.status, "steer")?;
    say(&call, AgentId::from(turn.agent_id), Mode::Steer, Some(TurnId::from(turn.id))).await
}

async fn say(call: &Call, agent: AgentId, mode: Mode, only: Option<TurnId>) -> Result<Reply, Problem> {
    let content = call.body.get("content").and_then(Value::as_str).unwrap_or_default();
    // Each writes the agent's row, so that they would only send each other back to look again.
    let _turn = call.api.agents.enter(agent.uuid()).await;
    let (landed, (found, accepted, answer)) = settle(
        call,
        |call| look(call, agent),
        |found| {
            let (actor, trace) = (call.actor(), call.traceparent.clone());
            let Found { session, agent, busy, live } = &found;
            let live = live.as_ref().filter(|_| mode != Mode::Queue);
            let mut accepted = match (live, only) {
                (Some(live), None) => flow::steer(session, agent, live, content, mode, actor, trace)?,
                (Some(live), Some(only)) if live.id == only.uuid() => {
                    flow::steer(session, agent, live, content, mode, actor, trace)?
                }
                (_, Some(_)) => return Err(Problem::conflict("moved_on", "the turn no longer runs: look at it again")),
                (None, None) => flow::message(session, agent, *busy, content, actor, trace)?,
            };
            let answer = json!({"message_id": accepted.message, "turn_id": accepted.turn});
            call.keep(&mut accepted.commit, SessionId::from(session.id), StatusCode::ACCEPTED, &answer);
            let Accepted { commit, turn, message } = accepted;
            Ok((commit, (found, (message, turn), answer)))
        },
    )
    .await?;
    follow(call, &landed, &found.agent, accepted, content);
    Ok(Reply::kept(StatusCode::ACCEPTED, answer))
}

/// Tells whoever can take it up.
fn follow(call: &Call, landed: &Landed, agent: &agent::Model, accepted: (MessageId, Option<TurnId>), content: &str) {
    let hub = call.api.hub();
    let (message, turn) = accepted;
    match turn {
        Some(turn) => {
            let (session, agent_id) = (SessionId::from(agent.session_id), AgentId::from(agent.id));
            // The commit wrote the agent's row once.
            let news = (content.len() <= INLINE_BYTES_MAX).then(|| {
                let (agent_version, message_id) = (agent.version + 1, message.to_string());
                work_turn::News::Queued(Queued { agent_version, message_id, content: content.to_owned() })
            });
            let ready = Ready { session, agent: agent_id, turn, epoch: agent.epoch, reason: "queued", news };
            hub.wake_turn(ready, agent.owner, call.traceparent.as_deref());
        }
        None => hub.follow(&landed.runes),
    }
}

pub(crate) fn show(row: &message::Model) -> Value {
    json!({
        "id": MessageId::from(row.id),
        "session_id": SessionId::from(row.session_id),
        "agent_id": AgentId::from(row.agent_id),
        "turn_id": row.turn_id.map(TurnId::from),
        "role": row.role,
        "source": row.source,
        "mode": row.mode,
        "content": row.content,
        "created_at": row.created_at,
    })
}

pub(crate) async fn list(call: Arc<Call>) -> Result<Reply, Problem> {
    let page = Page::of(&call)?;
    let (agent, _) = find::agent(&call).await?;
    let mut query = message::Entity::find().filter(message::Column::AgentId.eq(agent.id));
    if let Some(part) = call.asked("query").filter(|part| !part.is_empty()) {
        // The words as they are: what LIKE would read as a pattern is meant literally.
        query = query.filter(sea_orm::sea_query::Expr::cust_with_values(
            if call.api.store().is_postgres() { "strpos(content, $1) > 0" } else { "instr(content, ?) > 0" },
            [part.to_owned()],
        ));
    }
    if let Some(before) = page.before {
        query = query.filter(message::Column::Id.lt(before));
    }
    let rows = query.order_by_desc(message::Column::Id).limit(page.rows()).all(call.api.db()).await?;
    Ok(Reply::ok(page.answer(rows, |row| row.id, |row| show(&row))))
}
