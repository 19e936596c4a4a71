//! Plans that could go on and do not, because a hint was lost or whoever worked on them is gone.

use crate::repeat::Why;
use crate::{BATCH, Desk};
use anyhow::Result;
use chrono::Duration;
use futures::StreamExt;
use instar_core::id::{AgentId, PlanId, SessionId};
use instar_core::machine::agent_lifecycle;
use instar_runtime::{Act, ActError, Done, flow};
use instar_store::Kin;
use instar_store::entity::timer;
use serde_json::json;
use uuid::Uuid;

/// A plan that nobody wrote for this long may have missed a hint.
const UNHEARD: i64 = 1;
/// How soon an agent that is still in its last turn is looked at again.
const BUSY_MS: i64 = 500;
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
        let due =
            due.into_iter().filter(|plan| !waits(&plan.status) || desk.repeats.due(Why::Idle, plan.id, plan.version));
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

/// A plan has ended: whoever was made for it, or for an earlier one, and worked on it ends too as soon as it rests.
/// Those that another plan counts on are left to the end of that one; those that were there before are left alone.
pub(crate) async fn dismiss(desk: &Desk, timer: &timer::Model) -> Result<bool> {
    let Ok(plan) = timer.entity.parse::<PlanId>() else { return Ok(true) };
    let (store, session) = (desk.hub.store(), SessionId::from(timer.session_id));
    let wanted = store.planned_on(session).await?;
    let mut busy = false;
    for kin in store.at_work_on(plan).await? {
        if wanted.contains(&kin.agent.id) || !is_left_over(desk, &kin, plan).await? {
            continue;
        }
        let id = kin.agent.id;
        let act = Act::new(session, AgentId::from(id), &agent_lifecycle::TABLE, "kill", desk.actor.clone());
        let act = act.reason("the plan that it was made for has ended").provided(move |snapshot| {
            // What it was given meanwhile comes first.
            let works = snapshot.turns.iter().any(|turn| turn.agent_id == id);
            if works { Err(ActError::Contended) } else { Ok(()) }
        });
        match act.carry_out(&desk.hub).await {
            Ok(Done::Moved { runes }) => desk.hub.follow(&runes),
            Ok(Done::Ignored) | Err(ActError::Refused(_) | ActError::Absent(_)) => {}
            Err(ActError::Contended) => busy = true,
            Err(error) => return Err(error.into()),
        }
    }
    if busy {
        store.put_off(timer.id, store.now().await? + Duration::milliseconds(BUSY_MS), json!({})).await?;
    }
    Ok(!busy)
}

/// Whether an agent was made for a plan that has ended.
async fn is_left_over(desk: &Desk, kin: &Kin, plan: PlanId) -> Result<bool> {
    let made = kin.agent.config[flow::MADE_FOR].as_str().and_then(|id| id.parse::<PlanId>().ok());
    Ok(match made {
        None => false,
        Some(id) if id == plan => true,
        Some(id) => desk.hub.store().plan(id).await?.is_none_or(|plan| plan.ended_at.is_some()),
    })
}

/// A plan may have had its time.
pub(crate) async fn wall_time(desk: &Desk, timer: &timer::Model) -> Result<bool> {
    let Ok(id) = timer.entity.parse::<PlanId>() else { return Ok(true) };
    desk.hub.settle_plan(id).await?;
    let live = desk.hub.store().plan(id).await?.is_some_and(|plan| plan.ended_at.is_none());
    // One of a session that is held is ended when that goes on.
    Ok(!live)
}
