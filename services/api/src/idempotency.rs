//! `Idempotency-Key`: the same request twice has one effect and one answer.
//!
//! Where this service builds the commit itself, the answer is stored by the very commit that has
//! the effect. The commit of an `Act` notes under the key that it was carried out and what shows it ([`Shown`]), and
//! its answer is stored after; should a crash come between, a repeat does nothing and is told how things stand.

use crate::call::{self, Call};
use crate::problem::Problem;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::Response;
use instar_core::id::{Entity, Kind, SessionId};
use instar_runtime::Act;
use instar_store::clock;
use instar_store::entity::idempotency_key;
use instar_store::{Commit, Repeat};
use sea_orm::sea_query::{Expr, ExprTrait, OnConflict};
use sea_orm::{EntityTrait, IntoActiveModel};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;

const HEADER: &str = "idempotency-key";
const REPLAYED: &str = "idempotent-replayed";
const KEY_BYTES_MAX: usize = 255;

/// The status of what was carried out and has no answer yet.
const CARRIED_OUT: i64 = 0;

/// What became of a request with the same key.
pub(crate) enum Before {
    Answered(Response),
    /// It landed, and its answer was lost.
    CarriedOut,
}

/// What a command answers: something as it is afterwards.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    entity: Entity,
    status: StatusCode,
}

impl Shown {
    pub(crate) fn with(status: StatusCode, entity: impl Into<Entity>) -> Shown {
        Shown { entity: entity.into(), status }
    }

    pub(crate) fn ok(entity: impl Into<Entity>) -> Shown {
        Shown::with(StatusCode::OK, entity)
    }

    pub(crate) fn created(entity: impl Into<Entity>) -> Shown {
        Shown::with(StatusCode::CREATED, entity)
    }

    fn note(self) -> Value {
        json!({"id": self.entity.to_string(), "status": self.status.as_u16()})
    }

    /// From what a commit noted; `None`: the handler knows by itself how to answer.
    pub(crate) fn of(note: &Value) -> Option<Shown> {
        let entity = note["id"].as_str()?.parse().ok()?;
        let status = u16::try_from(note["status"].as_u64()?).ok()?;
        Some(Shown { entity, status: StatusCode::from_u16(status).ok()? })
    }

    pub(crate) fn status(self) -> StatusCode {
        self.status
    }

    pub(crate) fn id(self) -> String {
        self.entity.to_string()
    }

    /// The path at which it is read; `None`: what a command on it answers is not what is read there.
    pub(crate) fn path(self) -> Option<&'static str> {
        match self.entity.kind {
            Kind::Mission => Some("/v1/missions/{id}"),
            Kind::Hop => Some("/v1/hops/{id}"),
            Kind::ToolStep => Some("/v1/steps/{id}"),
            Kind::Asset => Some("/v1/assets/{id}"),
            Kind::Plan => Some("/v1/plans/{id}"),
            Kind::Session | Kind::Agent | Kind::Turn | Kind::ToolCall | Kind::Task => None,
        }
    }
}

/// A key with what it was sent for.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) text: String,
    /// Of method, path and body.
    hash: Vec<u8>,
}

impl Key {
    /// Quoted, as the draft has it, or bare, as most send it.
    pub(crate) fn read(
        headers: &HeaderMap,
        method: &Method,
        path: &str,
        body: &Map<String, Value>,
    ) -> Result<Option<Key>, Problem> {
        let Some(value) = headers.get(HEADER).filter(|_| method == Method::POST) else { return Ok(None) };
        let text = value.to_str().unwrap_or_default().trim();
        let text = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')).unwrap_or(text);
        if text.is_empty() || text.len() > KEY_BYTES_MAX {
            return Err(Problem::field("Idempotency-Key", format!("must be 1 to {KEY_BYTES_MAX} visible characters")));
        }
        // A map is written in the order of its names, so that spelling makes no difference.
        let body = serde_json::to_string(body)?;
        let mut hash = Sha256::new();
        for part in [method.as_str(), path, &body] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Ok(Some(Key { text: text.to_owned(), hash: hash.finalize().to_vec() }))
    }
}

impl Call {
    /// Has a commit store the answer under the request's key, if there is one.
    pub(crate) fn keep(&self, commit: &mut Commit, session: SessionId, status: StatusCode, answer: &Value) {
        if let Some(row) = self.row(session.uuid(), i64::from(status.as_u16()), answer) {
            commit.insert(&idempotency_key::TABLE, row);
        }
    }

    /// Has the commit of a command note under the request's key that it was carried out, and what it answers.
    pub(crate) fn mark<'a>(&'a self, act: Act<'a>, session: SessionId, shown: Shown) -> Act<'a> {
        match self.key {
            None => act,
            Some(_) => act.also(move |commit, _| {
                self.note(commit, session, shown);
                Ok(())
            }),
        }
    }

    /// The same for a commit that is built here, and whose answer is read afterwards.
    pub(crate) fn note(&self, commit: &mut Commit, session: SessionId, shown: Shown) {
        if let Some(row) = self.row(session.uuid(), CARRIED_OUT, &shown.note()) {
            commit.insert(&idempotency_key::TABLE, row);
        }
    }

    /// What was noted of this request when it landed, if it did before and has no answer.
    pub(crate) fn carried_out(&self) -> Option<&Value> {
        self.done.get()
    }

    fn row(&self, session: Uuid, status: i64, answer: &Value) -> Option<idempotency_key::Model> {
        let key = self.key.as_ref()?;
        Some(idempotency_key::Model {
            id: Uuid::now_v7(),
            session_id: session,
            namespace: self.caller.namespace.to_string(),
            key: key.text.clone(),
            body_hash: key.hash.clone(),
            status,
            answer: answer.clone(),
            version: 0,
            created_at: clock::now(),
        })
    }

    /// The first answer, if this request was answered before.
    pub(crate) async fn repeated(&self) -> Result<Option<Before>, Problem> {
        let Some(key) = &self.key else { return Ok(None) };
        match self.api.store().repeat(&self.caller.namespace, &key.text, &key.hash).await? {
            Repeat::New => Ok(None),
            Repeat::Other => Err(Problem::key_reused()),
            Repeat::Same { status: CARRIED_OUT, answer } => {
                let _ = self.done.set(answer);
                Ok(Some(Before::CarriedOut))
            }
            Repeat::Same { status, answer } => {
                let status = u16::try_from(status).ok().and_then(|s| StatusCode::from_u16(s).ok());
                let mut response = call::json(status.unwrap_or(StatusCode::OK), answer.to_string());
                response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
                Ok(Some(Before::Answered(response)))
            }
        }
    }

    /// Stores an answer whose effect was committed elsewhere. Losing it only costs a repeat its
    /// answer, so that the caller is told of the effect in any case.
    pub(crate) async fn store_answer(&self, status: StatusCode, answer: &Value) {
        let session = self.session.get().map_or(Uuid::nil(), |id| id.uuid());
        let Some(row) = self.row(session, i64::from(status.as_u16()), answer) else { return };
        let keep = OnConflict::columns([idempotency_key::Column::Namespace, idempotency_key::Column::Key])
            .update_columns([idempotency_key::Column::Status, idempotency_key::Column::Answer])
            .action_and_where(Expr::col((idempotency_key::Entity, idempotency_key::Column::Status)).eq(CARRIED_OUT))
            .to_owned();
        let insert = idempotency_key::Entity::insert(row.into_active_model()).on_conflict(keep);
        if let Err(error) = insert.exec_without_returning(self.api.db()).await {
            tracing::warn!(%error, "an answer was not kept for its repeats");
        }
    }
}
