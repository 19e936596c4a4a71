//! The content of assets: in the version's row while it is small, else in object storage under its hash. Whoever
//! reads it holds it against the hash; what does not fit is told, and its asset is in ERROR from then on.

use crate::act::{Act, ActError};
use crate::hub::Hub;
use crate::snapshot::{Snapshot, mapped_assets};
use chrono::{DateTime, Duration, Utc};
use instar_archive::{ArchiveError, Contents};
use instar_core::asset::Schema;
use instar_core::asset::content::{self, Content};
use instar_core::asset::lineage::Version;
use instar_core::cascade::{Fact, Reach};
use instar_core::id::{AssetId, CallId, Entity, Kind, SessionId, StepId};
use instar_core::machine::asset as machine;
use instar_core::rune::Actor;
use instar_store::StoreError;
use instar_store::entity::{asset, asset_version, tool_step};
use serde_json::{Map, Value, json};
use uuid::Uuid;

/// Without object storage rows take this much, and no more.
const ROW_BYTES_MAX: usize = 4 << 20;

#[derive(Debug, thiserror::Error)]
pub enum AssetError {
    #[error("version {version} of {asset} is damaged ({why}): put it back from a copy, or make a new version")]
    Damaged { asset: AssetId, version: i64, why: &'static str },
    #[error("{asset} has no version {version}")]
    Absent { asset: AssetId, version: i64 },
    #[error("{bytes} bytes of content are over the limit of {max} bytes (assets.bytes_max)")]
    TooLarge { bytes: usize, max: usize },
    #[error("{bytes} bytes of content need object storage: set assets.url, for api and tool-runner")]
    Homeless { bytes: usize },
    #[error(transparent)]
    Storage(#[from] ArchiveError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl AssetError {
    /// Whether the same may go better another time.
    pub fn passes(&self) -> bool {
        match self {
            AssetError::Storage(_) => true,
            AssetError::Store(error) => error.retryable(),
            _ => false,
        }
    }
}

/// Where content is kept, and how much of it.
#[derive(Clone, Debug)]
pub struct Keeping {
    pub contents: Option<Contents>,
    /// What is no larger stays in its row.
    pub inline_bytes_max: usize,
    pub bytes_max: usize,
}

impl Default for Keeping {
    fn default() -> Keeping {
        Keeping { contents: None, inline_bytes_max: 64 << 10, bytes_max: 64 << 20 }
    }
}

/// A version on its way into the rows; its content is kept already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fresh {
    pub asset: AssetId,
    pub hash: String,
    pub bytes: usize,
    media_type: String,
    summary: String,
    inline: Option<Vec<u8>>,
    step: Option<StepId>,
    call: Option<CallId>,
    /// The versions it was made from.
    from: Vec<Version>,
}

impl Fresh {
    /// Made by a step's call out of these.
    pub fn made_by(mut self, step: StepId, call: Option<CallId>, from: Vec<Version>) -> Fresh {
        (self.step, self.call, self.from) = (Some(step), call, from);
        self
    }

    /// The value of a version, as that of another asset.
    pub(crate) fn same_as(asset: AssetId, row: &asset_version::Model) -> Fresh {
        let from = vec![Version { asset_id: AssetId::from(row.asset_id), version: row.number }];
        Fresh {
            asset,
            hash: row.hash.clone(),
            bytes: usize::try_from(row.bytes).unwrap_or_default(),
            media_type: row.media_type.clone(),
            summary: row.summary.clone().unwrap_or_default(),
            inline: row.content.clone(),
            step: None,
            call: None,
            from,
        }
    }

    /// Made out of these by no step.
    pub(crate) fn made_from(mut self, from: Vec<Version>) -> Fresh {
        self.from = from;
        self
    }

    /// What it does to its asset's row.
    pub(crate) fn settle(&self, row: &mut asset::Model, at: DateTime<Utc>) {
        row.content_version += 1;
        row.summary = Some(self.summary.clone());
        row.step_id = self.step.map(StepId::uuid);
        row.error = None;
        if let Some(ttl) = row.ttl_ms {
            row.expires_at = Some(at + Duration::milliseconds(ttl));
        }
    }

    /// Its own row; `asset` is as it stands after it.
    pub(crate) fn row(&self, asset: &asset::Model, author: &str, at: DateTime<Utc>) -> asset_version::Model {
        let from = self.from.iter().map(|from| (from.asset_id.to_string(), json!(from.version)));
        asset_version::Model {
            id: Uuid::now_v7(),
            session_id: asset.session_id,
            asset_id: asset.id,
            number: asset.content_version,
            hash: self.hash.clone(),
            bytes: self.bytes as i64,
            media_type: self.media_type.clone(),
            summary: Some(self.summary.clone()),
            content: self.inline.clone(),
            content_of: None,
            step_id: self.step.map(StepId::uuid),
            call_id: self.call.map(CallId::uuid),
            author: author.to_owned(),
            lineage: Value::Object(from.collect::<Map<String, Value>>()),
            created_at: at,
            version: 0,
        }
    }
}

/// Completes the command by which an asset is lost: what reads it is no longer valid, and can be repaired.
pub fn lose(act: Act<'_>, asset: AssetId) -> Act<'_> {
    let reason = act.reason.to_owned();
    act.given(Fact::Repairable)
        .preparing(move |snapshot| {
            let broken: Vec<(Entity, Entity)> = broken(snapshot, asset.uuid())
                .map(|step| (Entity::new(Kind::Hop, step.hop_id), Entity::new(Kind::ToolStep, step.id)))
                .collect();
            for (hop, step) in broken {
                snapshot.relations.push((Reach::BrokenStepsOfHop, hop, step));
            }
            Ok(())
        })
        .editing(move |snapshot| {
            let reopened: Vec<Uuid> =
                broken(snapshot, asset.uuid()).filter(|s| s.status == "READY_TO_CONFIGURE").map(|s| s.id).collect();
            for id in reopened {
                if let Some(step) = snapshot.missions.step_mut(id) {
                    step.validation_errors = Some(json!([reason]));
                }
            }
        })
}

/// Whether a version is the newest of its asset, or one that a hop in execution reads.
fn counts(snapshot: &Snapshot, asset: AssetId, version: i64) -> bool {
    let newest = snapshot.missions.assets.get(&asset.uuid()).is_some_and(|row| row.content_version == version);
    let executing = snapshot.missions.hops.values().filter(|hop| hop.status == "EXECUTING");
    let mut pins = executing.filter_map(|hop| hop.input_versions.as_ref()?.get(asset.to_string())?.as_i64());
    newest || pins.any(|pinned| pinned == version)
}

/// Steps that read an asset and are not done.
fn broken(snapshot: &Snapshot, asset: Uuid) -> impl Iterator<Item = &tool_step::Model> {
    let live = |step: &&tool_step::Model| !matches!(step.status.as_str(), "COMPLETED" | "CANCELLED" | "deleted");
    let steps = snapshot.missions.steps.iter().filter(live);
    steps.filter(move |step| mapped_assets(&step.parameter_mapping).contains(&asset))
}

/// The type of an asset's value.
pub fn schema_of(row: &asset::Model) -> Schema {
    Schema::of_asset(&row.kind, row.is_array, &row.schema)
}

/// The versions that one was made from.
pub fn made_from(row: &asset_version::Model) -> Vec<Version> {
    let entries = row.lineage.as_object().into_iter().flatten();
    let read =
        |(id, number): (&String, &Value)| Some(Version { asset_id: id.parse().ok()?, version: number.as_i64()? });
    entries.filter_map(read).collect()
}

impl Hub {
    /// Keeps content; what is large is in object storage when this returns.
    pub async fn keep(&self, asset: AssetId, schema: &Schema, content: Content) -> Result<Fresh, AssetError> {
        let (keeping, bytes) = (self.keeping(), content.bytes.len());
        if bytes > keeping.bytes_max {
            return Err(AssetError::TooLarge { bytes, max: keeping.bytes_max });
        }
        let (hash, summary) = (content.hash(), content.summary(schema));
        let Content { media_type, bytes: held } = content;
        let inline = match &keeping.contents {
            _ if bytes <= keeping.inline_bytes_max => Some(held),
            Some(contents) => {
                contents.put(&hash, held).await?;
                None
            }
            None if bytes <= ROW_BYTES_MAX => Some(held),
            None => return Err(AssetError::Homeless { bytes }),
        };
        Ok(Fresh { asset, hash, bytes, media_type, summary, inline, step: None, call: None, from: Vec::new() })
    }

    /// The content of a version, held against its hash.
    pub async fn content(&self, row: &asset_version::Model) -> Result<Content, AssetError> {
        let (asset, version) = (AssetId::from(row.asset_id), row.number);
        let damaged = |why| AssetError::Damaged { asset, version, why };
        let bytes = match (&row.content, &self.keeping().contents) {
            (Some(inline), _) => inline.clone(),
            (None, Some(contents)) => match contents.get(&row.hash).await? {
                Some(bytes) => bytes.to_vec(),
                None => return Err(damaged("its object is gone")),
            },
            (None, None) => return Err(AssetError::Homeless { bytes: row.bytes as usize }),
        };
        if content::hash(&bytes) != row.hash {
            return Err(damaged("its hash does not fit"));
        }
        Ok(Content { media_type: row.media_type.clone(), bytes })
    }

    /// The whole value of a version. What is found damaged puts its asset in ERROR, if anybody still builds on it.
    pub async fn value(&self, version: Version, actor: Actor) -> Result<Value, AssetError> {
        let absent = || AssetError::Absent { asset: version.asset_id, version: version.version };
        let asset = self.store().asset(version.asset_id).await?.ok_or_else(absent)?;
        let row = self.store().asset_version(version.asset_id, version.version).await?.ok_or_else(absent)?;
        let content = match self.content(&row).await {
            Err(damage @ AssetError::Damaged { .. }) => {
                self.damaged(&asset, row.number, &damage.to_string(), actor).await;
                return Err(damage);
            }
            other => other?,
        };
        let misread = |_| AssetError::Damaged {
            asset: version.asset_id,
            version: version.version,
            why: "it does not fit its schema any more",
        };
        content.value(&schema_of(&asset)).map_err(misread)
    }

    /// Notes that an asset's content is not what was written. An old version that no hop reads says so to its readers,
    /// and nobody else has to care: what counts is the newest.
    pub async fn damaged(&self, asset: &asset::Model, version: i64, why: &str, actor: Actor) {
        let (session, id) = (SessionId::from(asset.session_id), AssetId::from(asset.id));
        let told = json!({"reason": "corrupted", "error": {"message": why}});
        let act = Act::new(session, id, &machine::TABLE, "corruption_detected", actor);
        let act = act.reason(why).telling("asset.error", told).provided(move |snapshot| {
            let counts = counts(snapshot, id, version);
            counts.then_some(()).ok_or_else(|| ActError::Unfit("it is an old version".into()))
        });
        match lose(act, id).carry_out(self).await {
            Ok(crate::Done::Moved { runes }) => self.follow(&runes),
            // It is no longer READY, or the version no longer matters: somebody was faster.
            Ok(crate::Done::Ignored) | Err(ActError::Refused(_) | ActError::Unfit(_)) => {}
            Err(error) => tracing::warn!(asset = %id, %error, "the damage could not be noted; the next reader will"),
        }
    }
}
