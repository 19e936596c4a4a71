//! Steps that could go on and do not, attempts that are due, and assets whose time is over.

use crate::repeat::Why;
use crate::{BATCH, Desk, go_on};
use anyhow::Result;
use chrono::Duration;
use instar_core::id::{AssetId, HopId, SessionId, StepId};
use instar_core::machine::{asset as asset_machine, hop as hop_machine};
use instar_runtime::{Act, ActError, Done, asset, mapped_assets};
use instar_store::entity::{timer, tool_step};

/// A step that was ready for this long was not told of, or not heard.
const UNHEARD: i64 = 2;

pub(crate) async fn look(desk: Desk) -> Result<()> {
    let store = desk.hub.store();
    let before = store.now().await? - Duration::seconds(UNHEARD);
    for step in store.idle_steps(before, BATCH).await? {
        go_on(StepId::from(step.id), look_at(&desk, &step).await)?;
    }
    Ok(())
}

async fn look_at(desk: &Desk, step: &tool_step::Model) -> Result<()> {
    if step.status == "READY_TO_EXECUTE" && cannot_begin(desk, step).await? {
        return Ok(());
    }
    if desk.repeats.due(Why::Idle, step.id, step.version) {
        desk.hub.wake_step(SessionId::from(step.session_id), StepId::from(step.id), step.traceparent.as_deref());
    }
    Ok(())
}

/// A step whose turn has come and that cannot run: what it reads went bad or is not there, what it makes takes no
/// value.
async fn cannot_begin(desk: &Desk, step: &tool_step::Model) -> Result<bool> {
    let store = desk.hub.store();
    let mut awaited = None;
    for id in mapped_assets(&step.parameter_mapping) {
        let found = store.asset(AssetId::from(id)).await?;
        let name = found.as_ref().map_or("an asset", |asset| asset.name.as_str());
        match found.as_ref().map_or("deleted", |asset| asset.status.as_str()) {
            "READY" => {}
            status @ ("EXPIRED" | "ERROR" | "deleted") => {
                let why =
                    format!("step {} reads {name}, which is {status}: make it READY, then retry the hop", step.name);
                fail(desk, step, &why).await?;
                return Ok(true);
            }
            status => {
                let advice =
                    if status == "AWAITING_APPROVAL" { "accept it and provide its value" } else { "provide it" };
                awaited = Some(format!("step {} reads {name}, which is {status}: {advice}", step.name));
            }
        }
    }
    for id in mapped_assets(&step.result_mapping) {
        let found = store.asset(AssetId::from(id)).await?;
        let name = found.as_ref().map_or("an asset", |asset| asset.name.as_str());
        let advice = match found.as_ref().map_or("deleted", |asset| asset.status.as_str()) {
            "AWAITING_APPROVAL" => "AWAITING_APPROVAL: accept it, then retry the hop",
            "EXPIRED" => "EXPIRED: refresh it, then retry the hop",
            "deleted" => "deleted: fix the hop",
            _ => continue,
        };
        fail(desk, step, &format!("step {} makes {name}, which is {advice}", step.name)).await?;
        return Ok(true);
    }
    let Some(why) = awaited else { return Ok(false) };
    match desk.hub.miss_input(step, &why, desk.actor.clone()).await {
        Ok(()) | Err(ActError::Contended) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// The hop of a step that can never begin fails, and says what to do.
async fn fail(desk: &Desk, step: &tool_step::Model, why: &str) -> Result<()> {
    let store = desk.hub.store();
    let (session, hop) = (SessionId::from(step.session_id), HopId::from(step.hop_id));
    let mut act = Act::new(session, hop, &hop_machine::TABLE, "step_failed", desk.actor.clone()).reason(why);
    // What it would have made cannot be made.
    for output in mapped_assets(&step.result_mapping) {
        let waits = store.asset(AssetId::from(output)).await?;
        if waits.is_some_and(|asset| asset.status == "READY_FOR_PROCESSING") {
            act = act.then(AssetId::from(output), &asset_machine::TABLE, "validation_failed");
        }
    }
    settle(desk, act).await
}

/// The pause before another attempt is over.
pub(crate) async fn attempt(desk: &Desk, timer: &timer::Model) -> Result<bool> {
    if let Ok(id) = timer.entity.parse::<StepId>()
        && let Some(step) = desk.hub.store().step(id).await?
        && step.status == "EXECUTING"
    {
        desk.hub.wake_step(SessionId::from(step.session_id), id, step.traceparent.as_deref());
    }
    Ok(true)
}

pub(crate) async fn expire(desk: Desk) -> Result<()> {
    for row in desk.hub.store().expired_assets(BATCH).await? {
        let (session, id) = (SessionId::from(row.session_id), AssetId::from(row.id));
        let why = format!("{} has expired: refresh it and provide or make it again", row.name);
        let act = Act::new(session, id, &asset_machine::TABLE, "ttl_exceeded", desk.actor.clone()).reason(&why);
        go_on(id, settle(&desk, asset::lose(act, id)).await)?;
    }
    Ok(())
}

async fn settle(desk: &Desk, act: Act<'_>) -> Result<()> {
    match act.carry_out(&desk.hub).await {
        Ok(Done::Moved { runes }) => desk.hub.follow(&runes),
        // Somebody was faster, or will be.
        Ok(Done::Ignored) | Err(ActError::Refused(_) | ActError::Absent(_) | ActError::Contended) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}
