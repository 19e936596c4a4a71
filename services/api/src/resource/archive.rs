//! Sessions on their way to cold storage, and in from elsewhere.

use super::find;
use super::session::show;
use crate::call::{Call, Reply};
use crate::problem::Problem;
use axum::http::StatusCode;
use chrono::Duration;
use instar_core::id::SessionId;
use instar_core::machine::By;
use instar_runtime::ARCHIVE_TIMER;
use instar_store::clock;
use instar_store::entity::timer;
use std::sync::Arc;

/// When a scheduler takes a request up whose process has died: later than it takes, in most cases.
const MADE_GOOD_AFTER: Duration = Duration::seconds(30);

/// The request is written down first, so that it is carried out even if this process dies on the way.
pub(crate) async fn archive(call: Arc<Call>) -> Result<Reply, Problem> {
    let row = find::session(&call).await?;
    let (id, hub) = (SessionId::from(row.id), call.api.hub().clone());
    hub.may_archive(&row, By::User)?;
    let now = clock::now();
    let request = timer::Model {
        id: row.id,
        session_id: row.id,
        kind: ARCHIVE_TIMER.to_owned(),
        entity: id.to_string(),
        due_at: now + MADE_GOOD_AFTER,
        claimed_until: None,
        payload: None,
        version: 0,
        created_at: now,
    };
    hub.store().set_timer(request).await?;
    let (actor, traceparent) = (call.actor(), call.traceparent.clone());
    // It goes on to its end even if the caller stops waiting.
    let task = tokio::spawn(async move {
        let done = hub.archive_session(id, actor, traceparent).await;
        if done.is_ok() {
            hub.store().forget_timers(vec![id.uuid()]).await?;
        }
        done
    });
    task.await.map_err(|error| Problem::internal(&error))??;
    Ok(Reply::ok(show(&find::session_by(&call, id).await?)))
}

pub(crate) async fn import(call: Arc<Call>) -> Result<Reply, Problem> {
    let row = call.api.hub().import(&call.raw, &call.caller.namespace, call.actor()).await?;
    Ok(Reply::Json { status: StatusCode::CREATED, body: show(&row), kept: false })
}
