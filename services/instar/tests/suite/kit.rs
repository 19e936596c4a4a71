//! A server with a few sessions, a log that is whole, and the command.

use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use instar_core::id::{CommandId, Entity, Kind, RuneId, SessionId};
use instar_core::machine::By;
use instar_core::rune::{Actor, Draft, Hash, Moved, Seal, chain};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::Path as File;
use std::process::{Command, Output};
use std::sync::Arc;
use tempfile::TempDir;
use tokio::net::TcpListener;
use uuid::Uuid;

pub(crate) const KEY: &str = "right";

/// What the command printed and how it ended.
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }

    #[track_caller]
    pub(crate) fn with(self, code: i32) -> Ended {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }
}

pub(crate) fn command(folder: &File, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_instar"));
    command.args(arguments).current_dir(folder);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("INSTAR") {
            command.env_remove(name);
        }
    }
    command
}

pub(crate) fn ended(output: Output) -> Ended {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code().unwrap_or(-1), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// A server, and a folder to work in.
pub(crate) struct Kit {
    pub(crate) server: String,
    pub(crate) folder: TempDir,
}

impl Kit {
    pub(crate) async fn new() -> Kit {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, routes()).await });
        Kit { server, folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) async fn run(&self, arguments: &[&str]) -> Ended {
        self.run_with(arguments, |command| _ = command.env("INSTAR_API_KEY", KEY)).await
    }

    pub(crate) async fn run_with(&self, arguments: &[&str], change: impl FnOnce(&mut Command)) -> Ended {
        let mut command = command(self.folder.path(), arguments);
        command.env("INSTAR_SERVER", &self.server);
        change(&mut command);
        tokio::task::spawn_blocking(move || ended(command.output().unwrap())).await.unwrap()
    }
}

/// Made, closed: three commits, as the API serves them.
pub(crate) fn log() -> Vec<String> {
    let session = SessionId::from(Uuid::from_u128(0x5e5));
    let user = Actor::new(By::User, "key");
    let system = Actor::system("scheduler");
    [
        ("session.created", "S1", None, "created", &user),
        ("session.closing", "S15", Some("created"), "closing", &user),
        ("session.closed", "S16", Some("closing"), "closed", &system),
    ]
    .into_iter()
    .zip(1i64..)
    .map(|((kind, row, from, to, actor), seq)| {
        let entity = Entity::new(Kind::Session, session.uuid());
        let payload = RawValue::from_string("{ }".into()).unwrap();
        let mut draft = Draft::raw(kind, entity, payload).unwrap();
        draft.moves = vec![Moved { row: row.into(), entity, from: from.map(Into::into), to: to.into() }];
        let (id, command) = (Uuid::from_u128(seq as u128), Uuid::from_u128(100 + seq as u128));
        let (id, command, at_us) = (RuneId::from(id), CommandId::from(command), 1_700_000_000_000_000 + seq);
        let hash = draft.hash(id, session, actor, 0, None, at_us, command);
        let at = chrono::DateTime::from_timestamp_micros(at_us).unwrap();
        format!(
            r#"{{"id":"{id}","session_id":"{session}","seq":{seq},"kind":"{kind}","machine":"session","entity_id":"{session}","actor":{{"type":"{}","id":"{}"}},"visibility":"public","payload":{{ }},"moves":"{}","epoch":0,"command_id":"{command}","at":"{}","hash":"{}"}}"#,
            actor.by.token(), actor.id, draft.encoded_moves(), at.to_rfc3339(), hash.to_hex(),
        )
    })
    .collect()
}

/// The session of [`log`].
pub(crate) fn logged() -> String {
    SessionId::from(Uuid::from_u128(0x5e5)).to_string()
}

fn routes() -> Router {
    let runes = Arc::new(log());
    Router::new()
        .route("/v1/sessions", get(sessions).post(create))
        .route("/v1/sessions/{id}", get(session))
        .route("/v1/sessions/{id}/pause", post(refuse))
        .route("/v1/sessions/{id}/runes", get(page))
        .route("/v1/sessions/{id}/seals", get(seals))
        .route("/v1/sessions/{id}/events", get(events))
        .route("/v1/agents", get(nothing))
        .route("/v1/turns", get(nothing))
        .route("/v1/tool-calls", get(nothing))
        .route("/v1/missions", get(nothing))
        .route("/v1/hops", get(nothing))
        .route("/v1/assets", get(nothing))
        .route("/v1/plans", get(nothing))
        .route("/v1/agents/{id}", get(agent))
        .route("/v1/agents/{id}/messages", post(message))
        .route("/v1/turns/{id}", get(turn))
        .route("/v1/tool-calls/{id}/approve", post(approve))
        .with_state(runes)
}

fn problem(status: StatusCode, more: Value) -> Response {
    let mut body = json!({"type": "about:blank", "title": status.canonical_reason(), "status": status.as_u16()});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    (status, [("content-type", "application/problem+json")], body.to_string()).into_response()
}

async fn sessions(headers: HeaderMap) -> Response {
    if headers.get("authorization").is_none_or(|key| key != &format!("Bearer {KEY}")) {
        return problem(StatusCode::UNAUTHORIZED, json!({"detail": "no such key"}));
    }
    let data = [("ses_1", "active", "one\u{1b}[31m"), ("ses_22", "paused", "")]
        .map(|(id, status, name)| json!({"id": id, "status": status, "name": name, "head_seq": 7}));
    Json(json!({"data": data, "next_cursor": null})).into_response()
}

async fn create(Json(body): Json<Value>) -> Response {
    let answer = json!({"id": "ses_new", "status": "created", "name": body["name"], "budget": body["budget"]});
    (StatusCode::CREATED, Json(answer)).into_response()
}

async fn session(Path(id): Path<String>) -> Response {
    let status = match id.as_str() {
        "ses_0" => return problem(StatusCode::NOT_FOUND, json!({"detail": "there is no session ses_0"})),
        id if id == logged() => "closed",
        _ => "active",
    };
    let head_seq = if id == logged() { 3 } else { 0 };
    Json(json!({"id": id, "status": status, "head_seq": head_seq})).into_response()
}

async fn refuse() -> Response {
    let more = json!({"detail": "it is closed", "machine": "session", "from": "closed", "event": "pause_requested",
        "allowed": ["archive_requested"]});
    problem(StatusCode::CONFLICT, more)
}

async fn page(
    State(runes): State<Arc<Vec<String>>>,
    Path(id): Path<String>,
    Query(query): Query<HashMap<String, String>>,
) -> Response {
    if id != logged() {
        return problem(StatusCode::NOT_FOUND, json!({}));
    }
    let after: usize = query["after"].parse().unwrap();
    let served: Vec<&str> = runes.iter().skip(after).take(2).map(String::as_str).collect();
    let body = format!(r#"{{"data":[{}],"next_cursor":null}}"#, served.join(","));
    ([("content-type", "application/json")], body).into_response()
}

/// One over the first two runes.
async fn seals(State(runes): State<Arc<Vec<String>>>) -> Json<Value> {
    let hashes = runes.iter().take(2).zip(1i64..).map(|(rune, seq)| {
        let rune: Value = serde_json::from_str(rune).unwrap();
        let hex = rune["hash"].as_str().unwrap();
        let bytes: Vec<u8> = (0..64).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
        (seq, Hash::from_slice(&bytes).unwrap())
    });
    let seal = chain(Seal::EMPTY, hashes).unwrap();
    Json(json!({"data": [{"seq": seal.seq, "hash": seal.hash.to_hex()}], "next_cursor": null}))
}

async fn nothing() -> Json<Value> {
    Json(json!({"data": [], "next_cursor": null}))
}

/// The agent's name decides what becomes of its turn.
async fn agent(Path(id): Path<String>) -> Json<Value> {
    let session = id.replace("agt_", "ses_");
    Json(json!({"id": id, "session_id": session, "name": "a", "lifecycle": "idle", "drive": "running"}))
}

async fn message(Path(id): Path<String>, Json(body): Json<Value>) -> Response {
    assert_eq!(body["mode"], "queue");
    let turn = (id != "agt_late").then_some("trn_1");
    (StatusCode::ACCEPTED, Json(json!({"message_id": "msg_1", "turn_id": turn}))).into_response()
}

async fn turn(Path(id): Path<String>) -> Json<Value> {
    Json(json!({"id": id, "status": "completed", "output": "done"}))
}

async fn approve(Path(id): Path<String>, Json(body): Json<Value>) -> Response {
    if body["digest"] == "other" {
        return problem(StatusCode::CONFLICT, json!({"detail": "the digest is another"}));
    }
    Json(json!({"id": id, "name": "charge", "status": "executing", "arguments": {"cents": 5}})).into_response()
}

async fn events(Path(id): Path<String>, Query(query): Query<HashMap<String, String>>) -> Response {
    let told: &[(&str, &str, Value)] = &match id.as_str() {
        "ses_bad" => vec![("turn.error", "trn_1", json!({"error_type": "provider", "message": "gone"}))],
        _ => vec![
            ("turn.completed", "trn_0", json!({"final_output": "another's"})),
            ("turn.queued", "trn_1", json!({"cause": "user", "message_ids": ["msg_1"]})),
            ("turn.tool_calls_received", "trn_1", json!({"call_ids": ["call_1"], "content": "Let me see."})),
            ("tool.call", "call_1", json!({"tool_name": "echo", "arguments": {"text": "hi"}})),
            ("tool.approval_requested", "call_1", json!({"policy_reason": "side effects"})),
            ("tool.result", "call_1", json!({"status": "success", "output": "hi"})),
            ("turn.assistant_final", "trn_1", json!({"content": "It said hi."})),
            ("turn.completed", "trn_1", json!({"usage": {}})),
            ("session.closed", "ses_1", json!({})),
        ],
    };
    let after: usize = query["after"].parse().unwrap();
    let mut body = String::new();
    for (index, (kind, entity, payload)) in told.iter().enumerate().skip(after) {
        let seq = index + 1;
        let turn = if *entity == "trn_0" { "trn_0" } else { "trn_1" };
        let rune = json!({"id": format!("run_{seq}"), "session_id": id, "seq": seq, "kind": kind, "machine": "turn",
            "entity_id": entity, "agent_id": "agt_1", "turn_id": turn, "actor": {"type": "system", "id": "w"},
            "visibility": "public", "payload": payload, "at": "2026-11-16T06:00:00Z", "hash": "00"});
        if *kind == "turn.assistant_final" {
            body += "event: delta\ndata: {\"turn_id\":\"trn_1\",\"agent_id\":\"agt_1\",\"index\":0,\"text\":\"It said\"}\n\n";
            body +=
                "event: delta\ndata: {\"turn_id\":\"trn_0\",\"agent_id\":\"agt_1\",\"index\":0,\"text\":\"wrong\"}\n\n";
        }
        body += &format!("id: {seq}\nevent: {kind}\ndata: {rune}\n\n");
    }
    ([("content-type", "text/event-stream")], body).into_response()
}
