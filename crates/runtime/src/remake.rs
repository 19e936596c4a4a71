//! A person wants a new version of an asset: only who made it can make it again.
//!
//! Steps run within their hop, so that what a step makes is made again by its hop. What nobody but a person gives is
//! opened for the next value; nothing is left in the making that nobody makes.

use crate::act::{Act, ActError};
use crate::snapshot::{Snapshot, asset_ids, is_by_plan, mapped_assets};
use instar_core::id::AssetId;
use instar_core::machine::{By, Refusal, asset as machine, hop as hop_machine};
use instar_store::entity::{asset, hop};

/// `act` is the person's `reprocess` of the asset.
pub fn reprocess(act: Act<'_>, id: AssetId) -> Act<'_> {
    act.provided(move |snapshot| {
        let row = snapshot.missions.assets.get(&id.uuid()).ok_or(ActError::Absent(id.into()))?;
        let event = machine::Event::Reprocess.token();
        let mut allowed = machine::TABLE.allowed(machine::TABLE.state(&row.status), By::User);
        let legal = allowed.contains(&event);
        allowed.retain(|other| *other != event);
        match maker(snapshot, row).filter(|_| legal) {
            Some(advice) => {
                let (machine, from, event) = (machine::TABLE.name, row.status.clone(), event.to_owned());
                Err(ActError::Refused(Box::new(Refusal { machine, from, event, allowed, advice })))
            }
            // Anything else is for the table to say.
            None => Ok(()),
        }
    })
    .then(id, &machine::TABLE, "cancel_processing")
}

/// Who else than a person makes it, and what to do to have it made; `None`: nobody does.
fn maker(snapshot: &Snapshot, asset: &asset::Model) -> Option<String> {
    let rows = &snapshot.missions;
    let hop = rows.missions.get(&asset.mission_id).and_then(|mission| rows.current_hop(mission));
    let made = hop.and_then(|hop| by_hop(snapshot, hop, asset));
    let over = "a step of a hop that has ended made it: plan another hop with it as the output";
    made.or(asset.step_id.map(|_| over.to_owned()))
}

fn by_hop(snapshot: &Snapshot, hop: &hop::Model, asset: &asset::Model) -> Option<String> {
    let ended = matches!(hop.status.as_str(), "COMPLETED" | "CANCELLED" | "deleted");
    let live = |status: &str| !matches!(status, "CANCELLED" | "deleted");
    let step = snapshot
        .missions
        .steps_of(hop.id)
        .find(|step| live(&step.status) && mapped_assets(&step.result_mapping).contains(&asset.id));
    let planned = is_by_plan(hop) && asset_ids(&hop.outputs).contains(&asset.id);
    let who = match step {
        Some(step) => format!("step {} of hop {} makes it", step.name, hop.sequence),
        None if planned => format!("the plan of hop {} makes it", hop.sequence),
        None => return None,
    };
    let again = if step.is_some_and(|step| step.status == "COMPLETED") { ", with restart" } else { "" };
    let how = match hop_machine::State::parse(&hop.status) {
        _ if ended => return None,
        Some(hop_machine::State::Failed) => format!("retry that hop{again}"),
        Some(hop_machine::State::Executing) => "wait for it, or stop that hop".to_owned(),
        _ => "have that hop executed".to_owned(),
    };
    Some(format!("{who}: {how}"))
}
