//! Keys to this API, and whose key a caller has.

use crate::auth::{self, KEY_PREFIX, Role, key_id};
use crate::call::{Call, Reply};
use crate::page::Page;
use crate::problem::Problem;
use crate::shape::{Kind, Shape, may, must};
use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use instar_store::NewKey;
use instar_store::clock;
use instar_store::entity::api_key;
use serde_json::{Value, json};
use std::io::Read;
use std::sync::Arc;
use uuid::Uuid;

const ROLES: &[&str] = &["viewer", "operator", "approver", "admin"];

pub(crate) static KEY: Shape = Shape {
    name: "Key",
    fields: &[
        must("id", Kind::Id(KEY_PREFIX), "The key's id; runes name it as their actor"),
        must("namespace", Kind::Text(200), "What it can reach"),
        must("name", Kind::Text(200), "What people call it"),
        must("role", Kind::Choice(ROLES), "What it may do"),
        must("created_at", Kind::Time, "When it was made"),
        may("last_used_at", Kind::Time, "When it was last used, to about a minute"),
        may("revoked_at", Kind::Time, "Since when it opens nothing"),
        may("expires_at", Kind::Time, "From when on it opens nothing; never, if absent"),
        may("key", Kind::Text(200), "The key itself: only in the first answer to its making, and never stored"),
    ],
};
pub(crate) static NEW_KEY: Shape = Shape {
    name: "NewKey",
    fields: &[
        must("name", Kind::Text(200), "What people call it"),
        must("role", Kind::Choice(ROLES), "What it may do"),
        may("expires_at", Kind::Time, "From when on it opens nothing; never, if absent"),
    ],
};
pub(crate) static WHOAMI: Shape = Shape {
    name: "Whoami",
    fields: &[
        must("key_id", Kind::Id(KEY_PREFIX), "The caller's key"),
        must("name", Kind::Text(200), "What people call it"),
        must("namespace", Kind::Text(200), "What it can reach"),
        must("role", Kind::Choice(ROLES), "What it may do"),
    ],
};

fn show(row: &api_key::Model) -> Value {
    json!({
        "id": key_id(row.id),
        "namespace": row.namespace,
        "name": row.name,
        "role": row.role,
        "created_at": row.created_at,
        "last_used_at": row.last_used_at,
        "revoked_at": row.revoked_at,
        "expires_at": row.expires_at,
    })
}

pub(crate) async fn whoami(call: Arc<Call>) -> Result<Reply, Problem> {
    let caller = &call.caller;
    Ok(Reply::ok(json!({
        "key_id": caller.key_id(),
        "name": &*caller.name,
        "namespace": &*caller.namespace,
        "role": caller.role.token(),
    })))
}

/// 256 bits from the kernel.
fn fresh_key() -> std::io::Result<String> {
    let mut bytes = [0u8; 32];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().fold("isk_".to_owned(), |text, byte| text + &format!("{byte:02x}")))
}

pub(crate) async fn create(call: Arc<Call>) -> Result<Reply, Problem> {
    let text = |name: &str| call.body.get(name).and_then(Value::as_str).unwrap_or_default();
    let role = Role::parse(text("role")).ok_or_else(|| Problem::field("role", "is not a role"))?;
    let expires_at = match call.body.get("expires_at").and_then(Value::as_str).map(str::parse::<DateTime<Utc>>) {
        Some(Err(_)) => return Err(Problem::field("expires_at", "is no time as in 2030-01-31T12:00:00Z")),
        Some(Ok(at)) if at <= clock::now() => return Err(Problem::field("expires_at", "is not in the future")),
        given => given.transpose().ok().flatten(),
    };
    let key = fresh_key().map_err(|error| Problem::internal(&error))?;
    let (namespace, hash) = (&*call.caller.namespace, auth::hash(&key));
    let new = NewKey { namespace, name: text("name"), role: role.token(), hash, expires_at };
    let mut answer = show(&call.api.store().add_key(&new).await?);
    // A repeat is told of the key, but the key itself must not be stored for its sake.
    call.store_answer(StatusCode::CREATED, &answer).await;
    answer["key"] = json!(key);
    Ok(Reply::kept(StatusCode::CREATED, answer))
}

pub(crate) async fn list(call: Arc<Call>) -> Result<Reply, Problem> {
    let page = Page::of(&call)?;
    let rows = call.api.store().keys(&call.caller.namespace, page.before, page.rows()).await?;
    Ok(Reply::ok(page.answer(rows, |row| row.id, |row| show(&row))))
}

pub(crate) async fn revoke(call: Arc<Call>) -> Result<Reply, Problem> {
    let text = call.part("id");
    let absent = || Problem::absent("key", text);
    let hex = text.strip_prefix(KEY_PREFIX).and_then(|rest| rest.strip_prefix('_')).ok_or_else(absent)?;
    let id = Uuid::try_parse(hex).map_err(|_| absent())?;
    let row = call.api.store().revoke_key(&call.caller.namespace, id).await?.ok_or_else(absent)?;
    call.api.keys.forget(id);
    Ok(Reply::ok(show(&row)))
}
