//! The content of assets on its way in and out: as bytes, held against their hash.

use super::asset::{act, carry, version_asked};
use super::find;
use crate::auth::Role;
use crate::call::{Call, Reply};
use crate::problem::Problem;
use crate::shape::{Kind, Shape, must};
use crate::strict::Strict;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};
use instar_archive::ArchiveError;
use instar_core::asset::Schema;
use instar_core::asset::content::{Content, JSON};
use instar_core::id::AssetId;
use instar_core::rune::Actor;
use instar_runtime::asset::schema_of;
use instar_runtime::{AssetError, Hub};
use instar_store::entity::{asset, asset_version};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::io;
use std::sync::Arc;

const MEDIA_TYPE_BYTES_MAX: usize = 200;

pub(crate) static PROVIDE: Shape = Shape {
    name: "Provide",
    fields: &[must("value", Kind::Any, "The value; or send the content itself, under a type other than JSON")],
};

impl From<AssetError> for Problem {
    fn from(error: AssetError) -> Problem {
        let said = error.to_string();
        match error {
            AssetError::Damaged { asset, version, .. } => {
                let title = "The content is damaged";
                Problem::new(StatusCode::BAD_GATEWAY, "content_damaged", title, said)
                    .with("asset_id", asset.to_string())
                    .with("version", version)
            }
            AssetError::Absent { asset, version } => Problem::absent("version", &format!("{version} of {asset}")),
            AssetError::TooLarge { max, .. } => Problem::too_large(max),
            AssetError::Homeless { .. } => Problem::conflict("no_storage", said),
            AssetError::Storage(reason) => {
                tracing::warn!(%reason, "object storage does not answer");
                Problem::busy("object storage does not answer; try again")
            }
            AssetError::Store(error) => error.into(),
        }
    }
}

/// What a request gives as a value of this type: `{"value": …}`, or content of any other type.
pub(crate) fn given(call: &Call, schema: &Schema) -> Result<Content, Problem> {
    let kind = call.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let plain = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if plain.is_empty() || kind.len() > MEDIA_TYPE_BYTES_MAX {
        return Err(Problem::field("", "send the content with its type, or {\"value\": …} as application/json"));
    }
    if plain == JSON {
        let body = serde_json::from_slice::<Strict>(&call.raw);
        let Strict(body) = body.map_err(|error| Problem::field("", format!("not JSON: {error}")))?;
        let fields = body.as_object().ok_or_else(|| Problem::field("", "the body must be a JSON object"))?;
        PROVIDE.check(fields).map_err(Problem::invalid)?;
        return checked(schema, fields.get("value").unwrap_or(&Value::Null));
    }
    let content = Content { media_type: kind.to_owned(), bytes: call.raw.to_vec() };
    content.value(schema).map_err(|why| Problem::field("value", why.to_string()))?;
    Ok(content)
}

pub(crate) fn checked(schema: &Schema, value: &Value) -> Result<Content, Problem> {
    schema.check(value).map_err(|misfits| {
        let at = |place: &str| if place == "/" { "/value".to_owned() } else { format!("/value{place}") };
        Problem::invalid(
            misfits.iter().map(|m| (at(&m.place), format!("expected {}, found {}", m.expected, m.found))).collect(),
        )
    })?;
    Ok(Content::of(schema, value))
}

/// A person gives the value.
pub(crate) async fn provide(call: Arc<Call>) -> Result<Reply, Problem> {
    let (row, _) = find::asset(&call).await?;
    let schema = schema_of(&row);
    let content = given(&call, &schema)?;
    // Refused before anything is kept: an object that nobody points at helps nobody.
    crate::settle::raise(&instar_core::machine::asset::TABLE, &row.status, "provide_value")?;
    let kept = call.api.hub().keep(AssetId::from(row.id), &schema, content).await?;
    carry(&call, act(&call, &row, "provide_value").reason("provided").writing(kept)).await
}

/// The content of a version, with its hash as the entity tag.
pub(crate) async fn content(call: Arc<Call>) -> Result<Reply, Problem> {
    let (asset, _) = find::asset(&call).await?;
    if schema_of(&asset).is_secret() && call.caller.role < Role::Admin {
        return Err(Problem::forbidden(call.caller.role.token(), Role::Admin.token()));
    }
    let number = version_asked(&call, &asset)?;
    let found = call.api.store().asset_version(AssetId::from(asset.id), number).await?;
    let Some(version) = found else {
        let detail = format!("{} has no version {number}: it is {}", asset.name, asset.status);
        return Err(Problem::conflict("no_content", detail).with("asset_status", asset.status.as_str()));
    };
    let tag = format!("\"{}\"", version.hash);
    let asked = call.headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    if asked.is_some_and(|asked| asked.split(',').any(|one| one.trim().trim_start_matches("W/") == tag)) {
        return Ok(Reply::Raw(dressed(StatusCode::NOT_MODIFIED.into_response(), &version, &tag)));
    }
    let hub = call.api.hub();
    let body = match (&version.content, &hub.keeping().contents) {
        (None, Some(contents)) => match contents.stream(&version.hash).await.map_err(AssetError::from)? {
            Some(stream) => Body::from_stream(witnessed(stream, hub.clone(), asset, version.clone(), call.actor())),
            None => return Err(damage(hub, &asset, &version, call.actor()).await),
        },
        _ => match hub.content(&version).await {
            Err(AssetError::Damaged { .. }) => return Err(damage(hub, &asset, &version, call.actor()).await),
            content => Body::from(content?.bytes),
        },
    };
    let mut response = dressed(body.into_response(), &version, &tag);
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(version.bytes));
    Ok(Reply::Raw(response))
}

fn dressed(mut response: Response, version: &asset_version::Model, tag: &str) -> Response {
    let headers = response.headers_mut();
    let kind = HeaderValue::try_from(version.media_type.as_str());
    let kind = kind.unwrap_or(HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::CONTENT_TYPE, kind);
    if let Ok(tag) = HeaderValue::try_from(tag) {
        headers.insert(header::ETAG, tag);
    }
    // Whatever somebody uploaded, no browser shall take it for a page of ours.
    headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert("instar-version", HeaderValue::from(version.number));
    response
}

async fn damage(hub: &Hub, asset: &asset::Model, version: &asset_version::Model, actor: Actor) -> Problem {
    let why = "its object is gone or its hash does not fit";
    let error = AssetError::Damaged { asset: AssetId::from(asset.id), version: version.number, why };
    hub.damaged(asset, version.number, &error.to_string(), system(actor)).await;
    error.into()
}

/// Whoever reads finds the damage; the system notes it.
fn system(reader: Actor) -> Actor {
    Actor::new(instar_core::machine::By::System, reader.id)
}

struct Witness {
    stream: BoxStream<'static, Result<Bytes, ArchiveError>>,
    hash: Sha256,
    /// Held back until the hash of all is known.
    last: Option<Bytes>,
    over: bool,
}

/// Pieces as they come, the last one only if the hash of all fits: a reader of damaged content never gets all the
/// bytes that were promised, and so knows.
fn witnessed(
    stream: BoxStream<'static, Result<Bytes, ArchiveError>>,
    hub: Hub,
    asset: asset::Model,
    version: asset_version::Model,
    actor: Actor,
) -> impl futures::Stream<Item = Result<Bytes, io::Error>> + Send + 'static {
    let begun = Witness { stream, hash: Sha256::new(), last: None, over: false };
    futures::stream::unfold((begun, Arc::new((hub, asset, version, actor))), |(mut witness, about)| async move {
        if witness.over {
            return None;
        }
        loop {
            match witness.stream.next().await {
                Some(Ok(piece)) => {
                    witness.hash.update(&piece);
                    if let Some(before) = witness.last.replace(piece) {
                        return Some((Ok(before), (witness, about)));
                    }
                }
                Some(Err(error)) => {
                    witness.over = true;
                    return Some((Err(io::Error::other(error.to_string())), (witness, about)));
                }
                None => {
                    witness.over = true;
                    let (hub, asset, version, actor) = &*about;
                    let found: String =
                        witness.hash.clone().finalize().iter().map(|byte| format!("{byte:02x}")).collect();
                    if found != version.hash {
                        let problem = damage(hub, asset, version, actor.clone()).await;
                        return Some((Err(io::Error::other(problem.code)), (witness, about)));
                    }
                    let last = witness.last.take()?;
                    return Some((Ok(last), (witness, about)));
                }
            }
        }
    })
}
