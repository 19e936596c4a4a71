//! Broadcasts: what is said to every agent of a session. Recorded and delivered by one commit where that is
//! large enough; what is left is delivered by further ones, if need be by the scheduler.

use super::find;
use crate::call::{Call, Reply};
use crate::page::Page;
use crate::problem::Problem;
use crate::resource::message::CONTENT_BYTES_MAX;
use crate::shape::{Kind, Shape, may, must};
use axum::http::StatusCode;
use chrono::{DateTime, SubsecRound, Utc};
use instar_core::id::{AgentId, BroadcastId, SessionId};
use instar_runtime::flow;
use instar_store::clock;
use instar_store::entity::broadcast;
use instar_store::{Addressee, Answer};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

/// How often it is looked again because somebody wrote the same rows.
const LOOKS_MAX: usize = 16;

pub(crate) static NEW_BROADCAST: Shape = Shape {
    name: "NewBroadcast",
    fields: &[
        must("content", Kind::Text(CONTENT_BYTES_MAX), "What to say to all"),
        may("standing", Kind::Bool, "Whether agents made later get it as a message, until it expires; true"),
        may("expires_at", Kind::Time, "From when on it fills no slot and nobody new gets it; never"),
    ],
};
pub(crate) static SKIPPED: Shape = Shape {
    name: "Skipped",
    fields: &[
        must("agent", Kind::Id("agt"), "The agent"),
        must("reason", Kind::Text(1_000), "Why it cannot take it, and what to do"),
    ],
};
pub(crate) static DELIVERED: Shape = Shape {
    name: "Delivered",
    fields: &[
        must("broadcast_id", Kind::Id("brd"), "The broadcast"),
        must("delivered", Kind::Texts(usize::MAX), "Agents that have it"),
        may("pending", Kind::Texts(usize::MAX), "Agents that get it next, unless they cannot take it by then"),
        must("skipped", Kind::List(&SKIPPED), "Agents that do not"),
    ],
};
pub(crate) static BROADCAST: Shape = Shape {
    name: "Broadcast",
    fields: &[
        must("id", Kind::Id("brd"), "The broadcast's id"),
        must("session_id", Kind::Id("ses"), "Its session"),
        must("content", Kind::Prose(usize::MAX), "What was said"),
        must("standing", Kind::Bool, "Whether agents made later get it as a message"),
        may("expires_at", Kind::Time, "From when on it fills no slot and nobody new gets it"),
        must("sender", Kind::Text(200), "Who sent it"),
        must("created_at", Kind::Time, "When"),
    ],
};

#[derive(Deserialize)]
struct New {
    content: String,
    standing: Option<bool>,
    expires_at: Option<DateTime<Utc>>,
}

fn show(row: &broadcast::Model) -> Value {
    json!({
        "id": BroadcastId::from(row.id),
        "session_id": SessionId::from(row.session_id),
        "content": row.content,
        "standing": row.standing,
        "expires_at": row.expires_at,
        "sender": row.sender,
        "created_at": row.created_at,
    })
}

pub(crate) async fn send(call: Arc<Call>) -> Result<Reply, Problem> {
    let new: New = call.read()?;
    let now = clock::now();
    if new.expires_at.is_some_and(|at| at <= now) {
        return Err(Problem::field("expires_at", "is past: give a time to come, or leave it out".to_owned()));
    }
    let (store, hub) = (call.api.store(), call.api.hub());
    let mut size = flow::recipients_max(&new.content);
    for look in 0..LOOKS_MAX {
        let session = find::session(&call).await?;
        let id = SessionId::from(session.id);
        let audience = store.audience(id).await?;
        let (takers, others): (Vec<&Addressee>, Vec<&Addressee>) =
            audience.iter().partition(|found| flow::skips(found).is_none());
        flow::may_broadcast(&session, takers.len())?;
        let row = broadcast::Model {
            id: Uuid::now_v7(),
            session_id: session.id,
            content: new.content.clone(),
            standing: new.standing.unwrap_or(true),
            expires_at: new.expires_at.map(|at| at.trunc_subsecs(6)),
            sender: call.actor().id,
            created_at: clock::now(),
            version: 0,
        };
        let skipped = |found: &&Addressee| json!({"agent": AgentId::from(found.agent.id), "reason": flow::skips(found).unwrap_or_default()});
        let (first, rest) = takers.split_at(takers.len().min(size));
        let ids = |some: &[&Addressee]| some.iter().map(|found| AgentId::from(found.agent.id)).collect::<Vec<_>>();
        // Only what lands with this answer is delivered.
        let mut answer = json!({
            "broadcast_id": BroadcastId::from(row.id),
            "delivered": ids(first),
            "skipped": others.iter().map(skipped).collect::<Vec<_>>(),
        });
        if !rest.is_empty() {
            answer["pending"] = json!(ids(rest));
        }
        let mut commit = flow::broadcast(&row, first, !rest.is_empty(), call.actor(), call.traceparent.clone())?;
        call.keep(&mut commit, id, StatusCode::ACCEPTED, &answer);
        let Answer::Moved(landed) = hub.commit(commit).await? else {
            // Fewer at once get in each other's way less; the rest comes after them.
            size = if look < 2 { size } else { (first.len() / 2).max(1) };
            continue;
        };
        hub.follow(&landed.runes);
        if !rest.is_empty()
            && let Err(error) = hub.finish_broadcast(&row).await
        {
            tracing::warn!(%error, "the broadcast has not reached everybody yet; the scheduler goes on with it");
        }
        return Ok(Reply::kept(StatusCode::ACCEPTED, answer));
    }
    Err(Problem::busy("others keep changing the same rows; try again"))
}

pub(crate) async fn list(call: Arc<Call>) -> Result<Reply, Problem> {
    let page = Page::of(&call)?;
    let session = find::session(&call).await?;
    let mut query = broadcast::Entity::find().filter(broadcast::Column::SessionId.eq(session.id));
    if let Some(before) = page.before {
        query = query.filter(broadcast::Column::Id.lt(before));
    }
    let rows = query.order_by_desc(broadcast::Column::Id).limit(page.rows()).all(call.api.db()).await?;
    Ok(Reply::ok(page.answer(rows, |row| row.id, |row| show(&row))))
}
