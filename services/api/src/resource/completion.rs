//! A hop that a person completes by hand, with what it should have made.

use super::{find, voyage};
use crate::call::{Call, Reply};
use crate::idempotency::Shown;
use crate::problem::Problem;
use crate::shape::{Kind, Shape, Wrong, may, must};
use instar_core::asset::content::Content;
use instar_core::cascade::Reach;
use instar_core::id::{AssetId, HopId, MissionId};
use instar_core::machine::hop as machine;
use instar_runtime::asset::schema_of;
use instar_runtime::asset_ids;
use instar_store::entity::{asset, hop};
use serde_json::{Map, Value};
use std::sync::Arc;

pub(crate) static COMPLETE: Shape = Shape {
    name: "CompleteHop",
    fields: &[
        must("reason", Kind::Text(4_000), "Why it counts as done"),
        may(
            "outputs",
            Kind::Object,
            "Values of what it should have made, by asset id or name; what is READY needs none",
        ),
    ],
};

pub(crate) async fn complete(call: Arc<Call>) -> Result<Reply, Problem> {
    let (row, _) = find::hop(&call).await?;
    let (id, hub, nothing) = (HopId::from(row.id), call.api.hub(), Map::new());
    let given = call.body.get("outputs").and_then(Value::as_object).unwrap_or(&nothing);
    let supplied = supplied(&outputs(&call, &row).await?, given)?;
    // Refused before anything is kept: an object that nobody points at helps nobody.
    crate::settle::raise(&machine::TABLE, &row.status, "mark_hop_completed")?;
    let mut act = voyage::on_hop(&call, &row, "mark_hop_completed");
    for (asset, content) in supplied {
        let asset_id = AssetId::from(asset.id);
        let kept = hub.keep(asset_id, &schema_of(&asset), content).await?;
        act = act.meaning(Reach::SuppliedOutputsOfHop, id, asset_id).writing(kept);
    }
    voyage::land(&call, act, MissionId::from(row.mission_id), Shown::ok(id)).await?;
    Ok(Reply::ok(super::hop::show(&find::hop(&call).await?.0)))
}

async fn outputs(call: &Call, hop: &hop::Model) -> Result<Vec<asset::Model>, Problem> {
    let mut found = Vec::new();
    for id in asset_ids(&hop.outputs) {
        found.extend(call.api.store().asset(AssetId::from(id)).await?);
    }
    Ok(found)
}

/// Every value with the output that it is for; every problem at once.
fn supplied(outputs: &[asset::Model], given: &Map<String, Value>) -> Result<Vec<(asset::Model, Content)>, Problem> {
    let (mut found, mut wrong): (Vec<(asset::Model, Content)>, Wrong) = (Vec::new(), Vec::new());
    for (name, value) in given {
        let at = format!("/outputs/{}", name.replace('~', "~0").replace('/', "~1"));
        let meant = |asset: &&asset::Model| asset.name == *name || AssetId::from(asset.id).to_string() == *name;
        let Some(asset) = outputs.iter().find(meant) else {
            let known: Vec<String> =
                outputs.iter().map(|asset| format!("{} ({})", asset.name, AssetId::from(asset.id))).collect();
            wrong.push((at, format!("is no output of this hop; those are: {}", known.join(", "))));
            continue;
        };
        if found.iter().any(|(known, _)| known.id == asset.id) {
            wrong.push((at, format!("{} has two values", asset.name)));
            continue;
        }
        let schema = schema_of(asset);
        match schema.check(value) {
            Ok(()) => found.push((asset.clone(), Content::of(&schema, value))),
            Err(misfits) => wrong.extend(misfits.iter().map(|misfit| {
                let place = if misfit.place == "/" { "" } else { misfit.place.as_str() };
                (format!("{at}{place}"), format!("expected {}, found {}", misfit.expected, misfit.found))
            })),
        }
    }
    if wrong.is_empty() { Ok(found) } else { Err(Problem::invalid(wrong)) }
}
