//! Assets: looked at, decided about, provided, traced back.

use super::command::Command;
use super::find;
use super::session::known_state;
use crate::call::{Call, Reply};
use crate::idempotency::Shown;
use crate::page::Page;
use crate::problem::{Problem, runes_of};
use crate::shape::{Kind, Shape, may, must};
use axum::http::StatusCode;
use instar_core::asset::lineage::{Made, Version, Way, lineage as trace};
use instar_core::asset::{Role, Schema, Type};
use instar_core::id::{AssetId, CallId, HopId, MissionId, SessionId, StepId};
use instar_core::machine::asset as machine;
use instar_core::vocabulary::canonical_state;
use instar_runtime::asset::{made_from, schema_of};
use instar_runtime::{Act, ActError, Row};
use instar_store::clock;
use instar_store::entity::{asset, asset_version, mission, session};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use uuid::Uuid;

/// Versions that one look goes through.
const VERSIONS_MAX: u64 = 10_000;
/// Assets that a mission may have.
const ASSETS_MAX: usize = 200;

pub(crate) static ASSET: Shape = Shape {
    name: "Asset",
    fields: &[
        must("id", Kind::Id("ast"), "The asset's id"),
        must("session_id", Kind::Id("ses"), "Its session"),
        must("mission_id", Kind::Id("mis"), "Its mission"),
        may("hop_id", Kind::Id("hop"), "The hop that proposed it, or whose scratch value it is"),
        must("scope", Kind::Text(40), "mission or hop"),
        must("role", Kind::Choice(&["input", "output", "intermediate"]), "What it is to its mission"),
        must("name", Kind::Text(200), "Its name"),
        may("description", Kind::Prose(usize::MAX), "What it is, in words"),
        must("type", Kind::Text(64), "The type of its value"),
        may("subtype", Kind::Text(200), "More about the type"),
        must("is_array", Kind::Bool, "Whether its value is a list"),
        must("schema", Kind::Object, "Fields of its value, where it has some"),
        must("status", Kind::State(&machine::TABLE), "Where its machine is"),
        must("revision", Kind::Integer, "Of its proposal"),
        must("version", Kind::Integer, "The newest version that has content; 0 before the first"),
        may("promoted_version", Kind::Integer, "The version that the mission points at"),
        may("summary", Kind::Prose(usize::MAX), "A few words about the newest version"),
        may("error", Kind::Object, "What went wrong"),
        may("ttl_ms", Kind::Integer, "How long a version is good for"),
        may("expires_at", Kind::Time, "When it expires"),
        may("metadata", Kind::Object, "More about it"),
        must("created_at", Kind::Time, "When it was proposed"),
        must("updated_at", Kind::Time, "When it last changed"),
    ],
};
pub(crate) static ASSET_VERSION: Shape = Shape {
    name: "AssetVersion",
    fields: &[
        must("asset_id", Kind::Id("ast"), "The asset"),
        must("version", Kind::Integer, "Its number, from 1"),
        must("sha256", Kind::Text(64), "Of its content, in hexadecimal digits"),
        must("bytes", Kind::Integer, "How much content there is"),
        must("tokens", Kind::Integer, "About as many tokens as a model would read"),
        must("media_type", Kind::Text(200), "Of its content"),
        may("summary", Kind::Prose(usize::MAX), "A few words about it"),
        may("step_id", Kind::Id("stp"), "The step that made it"),
        may("call_id", Kind::Id("call"), "The call that made it"),
        must("author", Kind::Text(200), "Who wrote it"),
        must("created_at", Kind::Time, "When"),
    ],
};
pub(crate) static LINEAGE: Shape = Shape {
    name: "Lineage",
    fields: &[
        must("asset_id", Kind::Id("ast"), "The asset that was asked for"),
        must("version", Kind::Integer, "The version that was asked for"),
        must("versions", Kind::Any, "Versions with who made them in which step of which hop, and out of what"),
        must("cut", Kind::Bool, "Whether there is more than this shows"),
    ],
};
pub(crate) static NEW_ASSET: Shape = Shape {
    name: "AddAsset",
    fields: &[
        must("name", Kind::Text(200), "Its name"),
        may("role", Kind::Choice(&["input", "output", "intermediate"]), "What it is to its mission; input"),
        may("description", Kind::Prose(32_000), "What it is, in words"),
        may(
            "type",
            Kind::Text(64),
            "string, number, boolean, primitive, object, file, database_entity, markdown, config, any, or a word of your domain; string",
        ),
        may("subtype", Kind::Text(200), "More about the type"),
        may("is_array", Kind::Bool, "Whether its value is a list"),
        may("schema", Kind::Object, "Fields of its value: a JSON Schema, or {type, fields}"),
        may("value", Kind::Any, "Its value; without one it waits for approval"),
        may("ttl_ms", Kind::Integer, "How long a version is good for"),
        may("metadata", Kind::Object, "More about it"),
    ],
};
pub(crate) static REASON: Shape =
    Shape { name: "Reason", fields: &[may("reason", Kind::Text(4_000), "Why, for whoever reads the log")] };
pub(crate) static EDIT_ASSET: Shape = Shape {
    name: "EditAsset",
    fields: &[
        must("revision", Kind::Integer, "The revision that was looked at"),
        may("name", Kind::Text(200), "Its name"),
        may("description", Kind::Prose(32_000), "What it is, in words"),
        may("type", Kind::Text(64), "The type of its value"),
        may("is_array", Kind::Bool, "Whether its value is a list"),
        may("schema", Kind::Object, "Fields of its value"),
        may("ttl_ms", Kind::Integer, "How long a version is good for"),
    ],
};

pub(crate) fn show(row: &asset::Model) -> Value {
    json!({
        "id": AssetId::from(row.id),
        "session_id": SessionId::from(row.session_id),
        "mission_id": MissionId::from(row.mission_id),
        "hop_id": row.hop_id.map(HopId::from),
        "scope": row.scope,
        "role": row.role,
        "name": row.name,
        "description": row.description,
        "type": row.kind,
        "subtype": row.subtype,
        "is_array": row.is_array,
        "schema": row.schema,
        "status": row.status,
        "revision": row.revision,
        "version": row.content_version,
        "promoted_version": row.promoted_version,
        "summary": row.summary,
        "error": row.error,
        "ttl_ms": row.ttl_ms,
        "expires_at": row.expires_at,
        "metadata": row.metadata,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    })
}

fn show_version(row: &asset_version::Model) -> Value {
    json!({
        "asset_id": AssetId::from(row.asset_id),
        "version": row.number,
        "sha256": row.hash,
        "bytes": row.bytes,
        "tokens": instar_core::context::tokens_of(row.bytes as usize),
        "media_type": row.media_type,
        "summary": row.summary,
        "step_id": row.step_id.map(StepId::from),
        "call_id": row.call_id.map(CallId::from),
        "author": row.author,
        "created_at": row.created_at,
    })
}

pub(crate) async fn list(call: Arc<Call>) -> Result<Reply, Problem> {
    let page = Page::of(&call)?;
    let mut query = asset::Entity::find()
        .join(sea_orm::JoinType::InnerJoin, find::to_session::<asset::Entity>())
        .filter(session::Column::Namespace.eq(&*call.caller.namespace));
    query = match call.asked("status") {
        Some(status) => {
            let status = canonical_state(machine::TABLE.name, status);
            known_state(&machine::TABLE, "status", status)?;
            query.filter(asset::Column::Status.eq(status))
        }
        None => query.filter(asset::Column::Status.ne(machine::State::Deleted.token())),
    };
    if let Some(role) = call.asked("role") {
        let role = Role::parse(role).ok_or_else(|| Problem::field("role", "must be input, output or intermediate"))?;
        query = query.filter(asset::Column::Role.eq(role.token()));
    }
    if let Some(mission) = call.filter::<MissionId>("mission")? {
        query = query.filter(asset::Column::MissionId.eq(mission.uuid()));
    }
    query = match call.filter::<HopId>("hop")? {
        Some(hop) => query.filter(asset::Column::Id.is_in(of_hop(&call, hop).await?)),
        // Scratch values are for whoever looks at their hop.
        None => query.filter(asset::Column::Scope.ne("hop")),
    };
    if let Some(session) = call.filter::<SessionId>("session")? {
        query = query.filter(asset::Column::SessionId.eq(session.uuid()));
    }
    if let Some(before) = page.before {
        query = query.filter(asset::Column::Id.lt(before));
    }
    let rows = query.order_by_desc(asset::Column::Id).limit(page.rows()).all(call.api.db()).await?;
    Ok(Reply::ok(page.answer(rows, |row| row.id, |row| show(&row))))
}

/// What a hop reads, makes, or has proposed.
async fn of_hop(call: &Call, hop: HopId) -> Result<Vec<Uuid>, Problem> {
    let Some(row) = call.api.store().hop(hop).await? else { return Ok(Vec::new()) };
    let own = asset::Entity::find().select_only().column(asset::Column::Id);
    let own = own.filter(asset::Column::HopId.eq(row.id)).into_tuple::<Uuid>().all(call.api.db()).await?;
    let named = [instar_runtime::asset_ids(&row.inputs), instar_runtime::asset_ids(&row.outputs)].concat();
    Ok(own.into_iter().chain(named).collect())
}

pub(crate) async fn get(call: Arc<Call>) -> Result<Reply, Problem> {
    Ok(Reply::ok(show(&find::asset(&call).await?.0)))
}

pub(crate) async fn versions(call: Arc<Call>) -> Result<Reply, Problem> {
    let (row, _) = find::asset(&call).await?;
    let limit = crate::page::limit(&call)?;
    let rows = call.api.store().versions_of(AssetId::from(row.id), limit).await?;
    let data: Vec<Value> = rows.iter().map(show_version).collect();
    Ok(Reply::ok(json!({"data": data, "next_cursor": null})))
}

/// The version that a query names, or the one that readers get: the newest.
pub(crate) fn version_asked(call: &Call, row: &asset::Model) -> Result<i64, Problem> {
    let Some(text) = call.asked("version") else { return Ok(row.content_version) };
    let good = text.parse::<i64>().ok().filter(|n| *n > 0);
    good.ok_or_else(|| Problem::field("version", "must be a number from 1"))
}

/// Which step of which hop made which version out of what.
pub(crate) async fn lineage(call: Arc<Call>) -> Result<Reply, Problem> {
    let (row, _) = find::asset(&call).await?;
    let way = match call.asked("direction") {
        None | Some("up") => Way::Up,
        Some("down") => Way::Down,
        Some(_) => return Err(Problem::field("direction", "must be up or down")),
    };
    let root = Version { asset_id: AssetId::from(row.id), version: version_asked(&call, &row)? };
    let store = call.api.store();
    let rows = store.versions_in(MissionId::from(row.mission_id), VERSIONS_MAX).await?;
    let steps: Vec<Uuid> = rows.iter().filter_map(|row| row.step_id).collect();
    let hops: HashMap<Uuid, Uuid> = store.hops_of_steps(steps).await?.into_iter().collect();
    let known: Vec<Made> = rows
        .iter()
        .map(|row| Made {
            what: Version { asset_id: AssetId::from(row.asset_id), version: row.number },
            by: row.author.clone(),
            hop_id: row.step_id.and_then(|step| hops.get(&step)).copied().map(HopId::from),
            step_id: row.step_id.map(StepId::from),
            call_id: row.call_id.map(CallId::from),
            from: made_from(row),
        })
        .collect();
    let names: BTreeMap<Uuid, String> = store
        .assets_of(MissionId::from(row.mission_id))
        .await?
        .into_iter()
        .map(|asset| (asset.id, asset.name))
        .collect();
    let graph = trace(root, &known, way);
    let named = |made: &Made| {
        let mut shown = json!(made);
        shown["name"] = json!(names.get(&made.what.asset_id.uuid()));
        shown
    };
    let versions: Vec<Value> = graph.versions.iter().map(named).collect();
    let cut = graph.cut && row.content_version > 0;
    Ok(Reply::ok(json!({"asset_id": root.asset_id, "version": root.version, "versions": versions, "cut": cut})))
}

#[derive(Deserialize)]
struct New {
    name: String,
    role: Option<String>,
    description: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    subtype: Option<String>,
    #[serde(default)]
    is_array: bool,
    schema: Option<Value>,
    value: Option<Value>,
    ttl_ms: Option<i64>,
    metadata: Option<Value>,
}

impl New {
    fn row(&self, mission: &mission::Model, author: &str) -> asset::Model {
        let at = clock::now();
        asset::Model {
            id: Uuid::now_v7(),
            session_id: mission.session_id,
            mission_id: mission.id,
            hop_id: None,
            scope: "mission".into(),
            author: author.to_owned(),
            traceparent: None,
            created_at: at,
            status: String::new(),
            epoch: 0,
            version: 0,
            revision: 1,
            role: self.role.clone().unwrap_or_else(|| Role::Input.token().into()),
            name: self.name.clone(),
            description: self.description.clone(),
            kind: self.kind.clone().unwrap_or_else(|| "string".into()),
            subtype: self.subtype.clone(),
            is_array: self.is_array,
            schema: self.schema.clone().unwrap_or_else(|| json!({})),
            metadata: self.metadata.clone(),
            content_version: 0,
            promoted_version: None,
            step_id: None,
            summary: None,
            error: None,
            ttl_ms: self.ttl_ms,
            expires_at: None,
            updated_at: at,
            ended_at: None,
        }
    }
}

/// Whether an asset's row describes a type there can be.
fn sound(row: &asset::Model) -> Result<Schema, Problem> {
    if Type::parse(&row.kind).is_none() {
        let why = "must be a type, or a word of your own in lower-case letters, digits and _";
        return Err(Problem::field("type", why));
    }
    let schema = schema_of(row);
    Schema::parse(&json!(schema)).map_err(|why| Problem::field("schema", why))?;
    if row.ttl_ms.is_some_and(|ttl| ttl < 1) {
        return Err(Problem::field("ttl_ms", "must be at least 1"));
    }
    Ok(schema)
}

/// An asset that a person adds to a mission: with its value, or to be decided about.
pub(crate) async fn create(call: Arc<Call>) -> Result<Reply, Problem> {
    let (mission, _) = find::mission(&call).await?;
    let new: New = call.read()?;
    let row = new.row(&mission, &call.caller.key_id());
    let schema = sound(&row)?;
    let (id, of, hub) = (AssetId::from(row.id), MissionId::from(mission.id), call.api.hub());
    let content = new.value.as_ref().map(|value| super::content::checked(&schema, value)).transpose()?;
    let event = if content.is_some() { "register_asset" } else { "propose_asset" };
    let born = Command {
        call: &call,
        session: SessionId::from(row.session_id),
        entity: id.into(),
        machine: &machine::TABLE,
        event,
    };
    let mut act =
        born.answering(Shown::created(id)).within(of).reason("added").bringing(Row::Asset(row)).provided(move |rows| {
            let found = rows.missions.missions.get(&of.uuid());
            if !found.is_some_and(|mission| matches!(mission.status.as_str(), "AWAITING_APPROVAL" | "IN_PROGRESS")) {
                return Err(ActError::Unfit("the mission is over: it takes no further assets".into()));
            }
            match rows.missions.assets.len() > ASSETS_MAX {
                true => Err(ActError::Unfit(format!("a mission has at most {ASSETS_MAX} assets"))),
                false => Ok(()),
            }
        });
    if let Some(content) = content {
        act = act.writing(hub.keep(id, &schema, content).await?);
    }
    hub.follow(&runes_of(act.carry_out(hub).await?));
    let row = call.api.store().asset(id).await?.ok_or_else(|| Problem::absent("asset", &id.to_string()))?;
    Ok(Reply::Json { status: StatusCode::CREATED, body: show(&row), kept: false })
}

fn reason(call: &Call) -> Option<String> {
    call.body.get("reason").and_then(Value::as_str).map(str::to_owned)
}

/// Carries a person's event out and answers the asset as it is then.
pub(crate) async fn carry(call: &Call, act: Act<'_>) -> Result<Reply, Problem> {
    let hub = call.api.hub();
    hub.follow(&runes_of(act.carry_out(hub).await?));
    Ok(Reply::ok(show(&find::asset(call).await?.0)))
}

pub(crate) fn act<'a>(call: &'a Call, row: &asset::Model, event: &'a str) -> Act<'a> {
    let (session, id) = (SessionId::from(row.session_id), AssetId::from(row.id));
    Command { call, session, entity: id.into(), machine: &machine::TABLE, event }.act()
}

async fn command(call: &Call, event: &str) -> Result<Reply, Problem> {
    let (row, _) = find::asset(call).await?;
    let reason = reason(call);
    let act = act(call, &row, event).reason(reason.as_deref().unwrap_or(event));
    carry(call, act).await
}

pub(crate) async fn accept(call: Arc<Call>) -> Result<Reply, Problem> {
    command(&call, "accept_asset").await
}

pub(crate) async fn reject(call: Arc<Call>) -> Result<Reply, Problem> {
    command(&call, "reject_asset").await
}

/// What a step makes its hop makes again; what a person gave is opened for the next value.
pub(crate) async fn reprocess(call: Arc<Call>) -> Result<Reply, Problem> {
    let (row, _) = find::asset(&call).await?;
    let reason = reason(&call);
    let act = act(&call, &row, "reprocess").reason(reason.as_deref().unwrap_or("a new value is wanted"));
    carry(&call, instar_runtime::reprocess(act, AssetId::from(row.id))).await
}

pub(crate) async fn cancel(call: Arc<Call>) -> Result<Reply, Problem> {
    command(&call, "cancel_processing").await
}

pub(crate) async fn fix(call: Arc<Call>) -> Result<Reply, Problem> {
    command(&call, "fix_asset").await
}

pub(crate) async fn refresh(call: Arc<Call>) -> Result<Reply, Problem> {
    command(&call, "refresh_asset").await
}

pub(crate) async fn delete(call: Arc<Call>) -> Result<Reply, Problem> {
    command(&call, "delete_asset").await
}

#[derive(Clone, Deserialize)]
struct Edit {
    revision: i64,
    name: Option<String>,
    description: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    is_array: Option<bool>,
    schema: Option<Value>,
    ttl_ms: Option<i64>,
}

impl Edit {
    fn apply(&self, row: &mut asset::Model) {
        let Edit { name, description, kind, is_array, schema, ttl_ms, .. } = self.clone();
        row.name = name.unwrap_or_else(|| row.name.clone());
        row.kind = kind.unwrap_or_else(|| row.kind.clone());
        row.is_array = is_array.unwrap_or(row.is_array);
        row.schema = schema.unwrap_or_else(|| row.schema.clone());
        (row.description, row.ttl_ms) = (description.or(row.description.take()), ttl_ms.or(row.ttl_ms));
    }
}

/// Another revision of a proposal that waits for approval.
pub(crate) async fn patch(call: Arc<Call>) -> Result<Reply, Problem> {
    let (row, _) = find::asset(&call).await?;
    let edit: Edit = call.read()?;
    let mut after = row.clone();
    edit.apply(&mut after);
    sound(&after)?;
    let id = row.id;
    let changes = json!({"changes": call.body});
    let act = act(&call, &row, "edit_asset")
        .reason("revised")
        .telling("asset.revised", changes)
        .at_revision(Some(edit.revision))
        .editing(move |snapshot| {
            if let Some(row) = snapshot.missions.assets.get_mut(&id) {
                edit.apply(row);
            }
        });
    carry(&call, act).await
}
