//! Plans that could go on and do not, because a hint was lost or whoever worked on them is gone.

use crate::{BATCH, Desk};
use anyhow::Result;
use chrono::Duration;
use futures::StreamExt;
use instar_core::id::PlanId;
use instar_store::entity::timer;
use uuid::Uuid;

/// A plan that nobody wrote for this long may have missed a hint.
const UNHEARD: i64 = 1;
/// Plans looked at side by side.
const AT_ONCE: usize = 8;

pub(crate) async fn sweep(desk: Desk) -> Result<()> {
    let (store, mut from) = (desk.hub.store(), Uuid::nil());
    let now = store.now().await?;
    let timeout = i64::try_from(desk.config.plans.start_timeout_ms).unwrap_or(i64::MAX / 2);
    loop {
        let (before, late) = (now - Duration::seconds(UNHEARD), now - Duration::milliseconds(timeout));
        let due = store.due_plans(before, late, from, BATCH).await?;
        let all = due.len() as u64 == BATCH;
        from = due.last().map_or(from, |plan| plan.id);
        // What waits for an agent or a person is not looked at again and again.
        let waits = |status: &str| ["goal_received", "blocked"].contains(&status);
        let due = due.into_iter().filter(|plan| !waits(&plan.status) || desk.repeats.due(plan.id, plan.version));
        let looks = futures::stream::iter(due).map(|plan| {
            let desk = &desk;
            async move {
                // One plan that cannot be helped must not keep the others from it.
                if let Err(error) = desk.hub.settle_plan(PlanId::from(plan.id)).await {
                    tracing::warn!(plan = %PlanId::from(plan.id), %error, "it could not go on now; it is tried again");
                }
            }
        });
        looks.buffer_unordered(AT_ONCE).collect::<()>().await;
        if !all {
            return Ok(());
        }
    }
}

/// A plan may have had its time.
pub(crate) async fn wall_time(desk: &Desk, timer: &timer::Model) -> Result<bool> {
    let Ok(id) = timer.entity.parse::<PlanId>() else { return Ok(true) };
    desk.hub.settle_plan(id).await?;
    let live = desk.hub.store().plan(id).await?.is_some_and(|plan| plan.ended_at.is_none());
    // One of a session that is held is ended when that goes on.
    Ok(!live)
}
