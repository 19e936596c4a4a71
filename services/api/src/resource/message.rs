//! Messages: what is said to an agent. Stored and, unless one is under way, given a turn by one
//! commit; the answer goes out when that is durable.

use super::find;
use crate::call::{Call, Reply};
use crate::page::Page;
use crate::problem::Problem;
use crate::settle::{raise, refuse, settle};
use crate::shape::{Kind, Shape, may, must};
use axum::http::StatusCode;
use instar_bus::message::{Queued, work_turn};
use instar_core::id::{AgentId, MessageId, SessionId, TurnId};
use instar_core::machine::{Phase, agent_lifecycle};
use instar_runtime::flow::{self, Accepted, Mode};
use instar_runtime::{INLINE_BYTES_MAX, Ready};
use instar_store::entity::{agent, message};
use instar_store::{Addressee, Landed};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use serde_json::{Value, json};
use std::sync::Arc;

pub(crate) const CONTENT_BYTES_MAX: usize = 256 * 1024;
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
        may(
            "turn",
            Kind::Object,
            "With `wait`: the turn when it ended or the time was up, without its input; not repeated",
        ),
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

pub(super) async fn look(call: &Call, agent: AgentId) -> Result<Addressee, Problem> {
    let found = call.api.store().addressee(agent).await?;
    let found = found.filter(|found| found.session.namespace == *call.caller.namespace);
    let found = found.ok_or_else(|| Problem::absent("agent", &agent.to_string()))?;
    let _ = call.session.set(SessionId::from(found.session.id));
    Ok(found)
}

pub(crate) async fn send(call: Arc<Call>) -> Result<Reply, Problem> {
    let mode = call.body.get("mode").filter(|mode| !mode.is_null()).cloned();
    let mode = mode.map(serde_json::from_value).transpose()?.unwrap_or_default();
    let agent = call.id::<AgentId>("agent")?;
    let Some(within) = super::turn::wait(&call)? else { return say(&call, agent, mode, None, |_| ()).await };
    let mut end = None;
    let watch = |turn: TurnId| end = Some((turn, call.api.feed.end_of(turn).heard_from_now()));
    let reply = say(&call, agent, mode, None, watch).await?;
    match (reply, end) {
        (Reply::Json { status, mut body, kept }, Some((turn, end))) => {
            // The message is taken, whether or not its turn can be looked at.
            match super::turn::end(&call, turn, end, within).await {
                Ok(row) => body["turn"] = super::turn::summary(&row),
                Err(problem) => tracing::debug!(%turn, code = problem.code, "the turn was not waited for"),
            }
            Ok(Reply::Json { status, body, kept })
        }
        (reply, _) => Ok(reply),
    }
}

/// New input for a turn that runs; one that has ended takes none.
pub(crate) async fn steer(call: Arc<Call>) -> Result<Reply, Problem> {
    let (turn, _) = find::turn(&call).await?;
    raise(&instar_core::machine::turn::TABLE, &turn.status, "steer")?;
    say(&call, AgentId::from(turn.agent_id), Mode::Steer, Some(TurnId::from(turn.id)), |_| ()).await
}

/// `watch` is told of the turn that will answer before anybody can take it up.
async fn say(
    call: &Call,
    agent: AgentId,
    mode: Mode,
    only: Option<TurnId>,
    watch: impl FnOnce(TurnId),
) -> Result<Reply, Problem> {
    let content = call.body.get("content").and_then(Value::as_str).unwrap_or_default();
    // Each writes the agent's row, so that they would only send each other back to look again.
    let _turn = call.api.agents.enter(agent.uuid()).await;
    let (landed, (found, accepted, answer)) = settle(
        call,
        |call| look(call, agent),
        |found| {
            let (actor, trace) = (call.actor(), call.traceparent.clone());
            let Addressee { session, agent, busy, live } = &found;
            let ended = agent_lifecycle::TABLE.phase(&agent.lifecycle) == Some(Phase::Terminal);
            if ended && flow::open_state(session).is_some() {
                return Err(terminal(agent));
            }
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
    if let Some(turn) = accepted.1 {
        watch(turn);
    }
    follow(call, &landed, &found.agent, accepted, content);
    Ok(Reply::kept(StatusCode::ACCEPTED, answer))
}

/// An agent that has ended takes nothing any more.
fn terminal(agent: &agent::Model) -> Problem {
    let refused = refuse(&agent_lifecycle::TABLE, &agent.lifecycle, "message_received", "send it to another agent");
    let state = if agent.drive == "deleted" { "deleted" } else { agent.lifecycle.as_str() };
    let refused = refused.coded("agent_terminal", format!("the agent is {state}: it takes no more messages"));
    refused.with("state", state).with("since", json!(agent.updated_at))
}

/// Tells whoever can take it up.
pub(super) fn follow(
    call: &Call,
    landed: &Landed,
    agent: &agent::Model,
    accepted: (MessageId, Option<TurnId>),
    content: &str,
) {
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
