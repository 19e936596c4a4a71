//! Accounts: named credentials that agents claim. What is secret in one goes in and never comes out.

use crate::call::{Call, Reply};
use crate::page::Page;
use crate::problem::Problem;
use crate::shape::{Kind, Shape, Wrong, may, must};
use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use instar_core::id::{AccountId, AgentId};
use instar_core::secret::SECRET_BYTES_MIN;
use instar_runtime::config::{Secret, is_word};
use instar_store::clock;
use instar_store::entity::account;
use instar_store::{NewAccount, RELEASES, StoreError, Wanted};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

const FIELDS_MAX: usize = 20;
const SECRET_BYTES_MAX: usize = 16 * 1024;
const POOL: &str = "default";

pub(crate) static ACCOUNT: Shape = Shape {
    name: "Account",
    fields: &[
        must("id", Kind::Id("acc"), "The account's id"),
        must("name", Kind::Text(100), "What people call it"),
        must("pool", Kind::Text(100), "Accounts that serve the same purpose"),
        may("username", Kind::Text(1_000), "Who it is for the service behind it; no secret"),
        must("fields", Kind::Texts(FIELDS_MAX), "Names of its secrets; never what they are"),
        must("release_on", Kind::Texts(5), "When its holder gives it back: stop, error, terminate, delete, idle"),
        must("origin", Kind::Choice(&["api", "config"]), "Who brought it"),
        may("holder", Kind::Id("agt"), "The agent that has it"),
        may("held_until", Kind::Time, "When its holder loses it unless it is used before"),
        may("released_at", Kind::Time, "When it was last given back"),
        must("created_at", Kind::Time, "When it was stored"),
    ],
};
pub(crate) static NEW_ACCOUNT: Shape = Shape {
    name: "NewAccount",
    fields: &[
        must("name", Kind::Text(100), "What people call it"),
        may("pool", Kind::Text(100), "Accounts that serve the same purpose; default"),
        may("username", Kind::Text(1_000), "Who it is for the service behind it; no secret"),
        must("fields", Kind::Secrets, "Its secrets by name, such as password"),
        may("release_on", Kind::Texts(5), "When its holder gives it back; stop, error, terminate, delete"),
    ],
};

fn show(row: &account::Model, now: DateTime<Utc>) -> Value {
    let references = row.refs.as_ref().and_then(Value::as_object);
    let named = |names: &serde_json::Map<String, Value>| names.keys().cloned().collect::<Vec<_>>();
    let holder = row.holder.filter(|_| row.held_until.is_some_and(|until| until > now));
    json!({
        "id": AccountId::from(row.id),
        "name": row.name,
        "pool": row.pool,
        "username": row.username,
        "fields": references.map(named).unwrap_or_default(),
        "release_on": row.releases(),
        "origin": row.origin,
        "holder": holder.map(AgentId::from),
        "held_until": row.held_until.filter(|_| holder.is_some()),
        "released_at": row.released_at,
        "created_at": row.created_at,
    })
}

pub(crate) async fn create(call: Arc<Call>) -> Result<Reply, Problem> {
    let text = |name: &str| call.body.get(name).and_then(Value::as_str).map(str::to_owned);
    let (name, pool) = (text("name").unwrap_or_default(), text("pool").unwrap_or_else(|| POOL.into()));
    let (fields, mut wrong) = secrets(call.body.get("fields"));
    for (place, word) in [("/name", &name), ("/pool", &pool)] {
        if !is_word(word) {
            wrong.push((place.into(), "must be up to 100 letters, digits, _, - and ., and not begin with one".into()));
        }
    }
    let given = call.body.get("release_on").and_then(Value::as_array);
    let release_on: Vec<String> = match given {
        Some(words) => words.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        None => RELEASES.iter().filter(|release| release.default).map(|release| release.token.to_owned()).collect(),
    };
    let known = |word: &String| RELEASES.iter().any(|release| release.token == word);
    if let Some(at) = release_on.iter().position(|word| !known(word)) {
        let words = RELEASES.map(|release| release.token).join(", ");
        wrong.push((format!("/release_on/{at}"), format!("must be one of: {words}")));
    }
    if !wrong.is_empty() {
        return Err(Problem::invalid(wrong));
    }
    let Some(vault) = &call.api.vault else {
        let detail = "this installation has no key to seal accounts with: set secrets.key_env or secrets.key_file, or \
                      give the account in the configuration, by reference";
        return Err(Problem::conflict("no_secrets_key", detail));
    };
    let id = Uuid::now_v7();
    let sealed = vault.seal(id, &fields).map_err(|error| Problem::internal(&error))?;
    // Names alone: what is at each is in what is sealed.
    let names: serde_json::Map<String, Value> = fields.keys().map(|name| (name.clone(), Value::Null)).collect();
    let new = NewAccount {
        id,
        namespace: call.caller.namespace.to_string(),
        name: name.clone(),
        pool,
        username: text("username"),
        sealed: Some(sealed),
        refs: Some(Value::Object(names)),
        release_on,
        origin: "api",
    };
    let row = call.api.store().add_account(new).await.map_err(|error| match error {
        StoreError::Duplicate(_) => {
            Problem::conflict("name_taken", format!("there is an account {name:?}: choose another name, or remove it"))
        }
        error => error.into(),
    })?;
    call.api.hub().accounts_changed();
    let answer = show(&row, clock::now());
    call.store_answer(StatusCode::CREATED, &answer).await;
    Ok(Reply::kept(StatusCode::CREATED, answer))
}

/// No problem repeats a value.
fn secrets(given: Option<&Value>) -> (BTreeMap<String, Secret>, Wrong) {
    let (mut fields, mut wrong) = (BTreeMap::new(), Vec::new());
    let given = given.and_then(Value::as_object).into_iter().flatten();
    for (at, (name, value)) in given.enumerate() {
        let text = value.as_str().unwrap_or_default();
        let problem = match () {
            () if at >= FIELDS_MAX => format!("an account has {FIELDS_MAX} fields at the most"),
            () if !is_word(name) || name == "username" => {
                wrong.push(("/fields".into(), "have names of letters, digits, _, - and ., other than username".into()));
                continue;
            }
            () if text.len() < SECRET_BYTES_MIN => {
                format!("must be a text of {SECRET_BYTES_MIN} bytes or more: a shorter one cannot be kept secret")
            }
            () if text.len() > SECRET_BYTES_MAX => format!("is longer than {SECRET_BYTES_MAX} bytes"),
            () if text.starts_with("secret://") => {
                "must be the secret itself; references are for the configuration".into()
            }
            () => {
                fields.extend(Secret::exact(text).map(|secret| (name.clone(), secret)));
                continue;
            }
        };
        wrong.push((format!("/fields/{name}"), problem));
    }
    if fields.is_empty() && wrong.is_empty() {
        wrong.push(("/fields".into(), "is empty: give at least one secret, such as password".into()));
    }
    (fields, wrong)
}

pub(crate) async fn list(call: Arc<Call>) -> Result<Reply, Problem> {
    let (page, now) = (Page::of(&call)?, call.api.store().now().await?);
    let store = call.api.store();
    let rows = store.accounts(&call.caller.namespace, call.asked("pool"), page.before, page.rows()).await?;
    Ok(Reply::ok(page.answer(rows, |row| row.id, |row| show(&row, now))))
}

pub(crate) async fn get(call: Arc<Call>) -> Result<Reply, Problem> {
    let now = call.api.store().now().await?;
    Ok(Reply::ok(show(&find(&call).await?, now)))
}

pub(crate) async fn remove(call: Arc<Call>) -> Result<Reply, Problem> {
    let row = find(&call).await?;
    let now = call.api.store().now().await?;
    let gone =
        call.api.store().remove_account(row).await?.ok_or_else(|| Problem::absent("account", call.part("id")))?;
    Ok(Reply::ok(show(&gone, now)))
}

/// By its id or by its name.
async fn find(call: &Call) -> Result<account::Model, Problem> {
    let (namespace, text) = (&*call.caller.namespace, call.part("id"));
    let found = match text.parse::<AccountId>() {
        Ok(id) => {
            use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};
            let own = account::Entity::find_by_id(id.uuid()).filter(account::Column::Namespace.eq(namespace));
            own.one(call.api.db()).await?
        }
        Err(_) => call.api.store().account(namespace, text).await?,
    };
    found.ok_or_else(|| Problem::absent("account", text))
}

/// The account that an agent is to have: its name, or `{"pool": …}`. It must be there.
pub(crate) async fn wanted(call: &Call, given: Option<Value>, at: &str) -> Result<Option<Wanted>, Problem> {
    let Some(given) = given.filter(|given| !given.is_null()) else { return Ok(None) };
    let wanted = match given {
        Value::String(name) => Some(Wanted::Name(name)),
        Value::Object(_) => serde_json::from_value(given).ok(),
        _ => None,
    };
    let wrong = |detail: String| Problem::invalid(vec![(format!("{at}/account"), detail)]);
    let wanted = wanted.ok_or_else(|| wrong("must be the name of an account, or {\"pool\": …}".into()))?;
    match call.api.store().has_account(&call.caller.namespace, &wanted).await? {
        true => Ok(Some(wanted)),
        false => Err(wrong(format!("there is no such thing as {wanted}: store it first with POST /v1/accounts"))),
    }
}
