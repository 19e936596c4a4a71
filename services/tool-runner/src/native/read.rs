//! `read_asset`: the value of an asset of the mission that the caller's turn works for, page by page.

use super::{Caller, Failed, Plan, error_of, success};
use instar_core::id::{AssetId, HopId, MissionId};
use instar_core::rune::Actor;
use instar_runtime::asset::{AssetError, schema_of};
use instar_runtime::mission::mission_of;
use instar_runtime::plan::Work;
use instar_store::StoreError;
use instar_store::entity::asset;
use serde_json::json;

/// Left of a result for what stands around the page.
const FRAME_BYTES: usize = 1_024;

pub(super) async fn plan(caller: &Caller<'_>) -> Result<Plan, Failed> {
    let refuse = |why: String| Ok(Plan::Answer(error_of(why)));
    let Some(mission) = mission(caller).await? else {
        return refuse("this turn works for no mission: it has no assets to read".into());
    };
    let (hub, wanted) = (&caller.runner.hub, caller.call.arguments["asset"].as_str().unwrap_or_default());
    let assets = hub.store().assets_of(mission).await?;
    let is_meant = |row: &&asset::Model| AssetId::from(row.id).to_string() == wanted || row.name == wanted;
    let Some(row) = assets.iter().find(is_meant) else {
        let names: Vec<&str> = assets.iter().map(|row| row.name.as_str()).collect();
        return refuse(format!("{wanted:?} is no asset of your mission; it has: {}", names.join(", ")));
    };
    if schema_of(row).is_secret() {
        return refuse(format!("{} is a credential: tools are given it, and nobody reads it", row.name));
    }
    let id = AssetId::from(row.id);
    let version = match read_version(caller, row).await? {
        Some(number) => hub.store().asset_version(id, number).await?,
        None => None,
    };
    let Some(version) = version else { return refuse(format!("{} has no value yet: it is {}", row.name, row.status)) };
    let content = match hub.content(&version).await {
        Ok(content) => content,
        Err(damage @ AssetError::Damaged { .. }) => {
            let actor = Actor::system(&caller.runner.id.to_string());
            hub.damaged(row, version.number, &damage.to_string(), actor).await;
            return refuse(damage.to_string());
        }
        Err(error) => return Err(error.into()),
    };
    let Ok(text) = std::str::from_utf8(&content.bytes) else {
        let (bytes, kind) = (content.bytes.len(), &content.media_type);
        return refuse(format!("{} is {kind} of {bytes} bytes, which is no text: have a tool work on it", row.name));
    };
    // 5.0 is an integer to JSON Schema.
    let offset = caller.call.arguments["offset"].as_f64().map_or(0, |n| n as usize);
    let Some((page, next)) =
        page(text, offset, caller.spec.max_output_bytes.saturating_sub(FRAME_BYTES).max(FRAME_BYTES))
    else {
        return refuse(format!("offset {offset} is behind the end: {} has {} bytes", row.name, text.len()));
    };
    Ok(Plan::Answer(success(json!({
        "asset_id": id,
        "name": row.name,
        "version": version.number,
        "media_type": content.media_type,
        "bytes": text.len(),
        "offset": offset,
        "content": page,
        "next_offset": next,
    }))))
}

/// Who asks is known from the turn: of other missions nothing is read.
async fn mission(caller: &Caller<'_>) -> Result<Option<MissionId>, StoreError> {
    let store = caller.runner.hub.store();
    let Some(turn) = caller.turn() else { return Ok(None) };
    let Some(turn) = store.turn(turn).await? else { return Ok(None) };
    if let Some(id) = mission_of(&turn) {
        return Ok(store.mission_of(caller.agent(), id).await?.map(|mission| MissionId::from(mission.id)));
    }
    Ok(hop(caller, &turn).await?.map(|hop| MissionId::from(hop.mission_id)))
}

async fn hop(
    caller: &Caller<'_>,
    turn: &instar_store::entity::turn::Model,
) -> Result<Option<instar_store::entity::hop::Model>, StoreError> {
    let store = caller.runner.hub.store();
    let Some(work) = Work::of(turn) else { return Ok(None) };
    match store.plan(work.plan).await?.and_then(|plan| plan.hop_id) {
        Some(hop) => store.hop(HopId::from(hop)).await,
        None => Ok(None),
    }
}

/// A hop's execution reads the versions that it was begun with, everybody else the newest.
async fn read_version(caller: &Caller<'_>, row: &asset::Model) -> Result<Option<i64>, StoreError> {
    let newest = (row.content_version > 0).then_some(row.content_version);
    let Some(turn) = caller.turn() else { return Ok(newest) };
    let Some(turn) = caller.runner.hub.store().turn(turn).await? else { return Ok(newest) };
    let pinned = hop(caller, &turn).await?.and_then(|hop| {
        let versions = hop.input_versions?;
        versions.get(AssetId::from(row.id).to_string())?.as_i64().filter(|number| *number > 0)
    });
    Ok(pinned.or(newest))
}

/// What fits of a text from a place on, as JSON writes it, and where the rest begins. `None`: there is no such place.
fn page(text: &str, offset: usize, bytes_max: usize) -> Option<(&str, Option<usize>)> {
    let rest = text.get(text.floor_char_boundary(offset)..).filter(|_| offset <= text.len())?;
    let mut room = bytes_max;
    for (at, c) in rest.char_indices() {
        let width = match c {
            '"' | '\\' | '\n' | '\r' | '\t' => 2,
            c if (c as u32) < 0x20 => 6,
            c => c.len_utf8(),
        };
        if width > room {
            return (at > 0).then(|| (&rest[..at], Some(text.len() - rest.len() + at)));
        }
        room -= width;
    }
    Some((rest, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_of_a_text_are_the_text() {
        let text = "depth: 3 fathoms\n\"å\" over the bar\u{1}".repeat(40);
        for bytes_max in [8, 61, 4_000] {
            let (mut whole, mut at) = (String::new(), Some(0));
            while let Some(offset) = at {
                let (page, next) = page(&text, offset, bytes_max).expect("a page");
                assert!(json!(page).to_string().len() <= bytes_max + 2, "{page:?}");
                whole.push_str(page);
                at = next;
            }
            assert_eq!(whole, text);
        }
    }

    #[test]
    fn a_place_behind_the_end_is_none() {
        assert_eq!(page("ab", 2, 9), Some(("", None)));
        assert_eq!(page("ab", 3, 9), None);
        assert_eq!(page("", 0, 9), Some(("", None)));
    }
}
