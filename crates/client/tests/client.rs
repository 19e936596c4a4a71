//! The client against a small server that answers as the contract says, and one that does not.

use axum::extract::{Path, Query as Asked, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures::StreamExt;
use instar_client::{Client, ClientError, Event, Mode, NewSession, Query, Retry, Session};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;

type Log = Arc<Mutex<Vec<String>>>;

async fn serve(routes: Router) -> Client {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let retry = Retry { first: Duration::from_millis(1), ..Retry::default() };
    Client::new(&server, Some("secret")).unwrap().with_retry(retry)
}

fn rune(seq: i64) -> String {
    json!({"id": format!("run_{seq}"), "session_id": "ses_1", "seq": seq, "kind": "turn.started", "machine": "turn",
        "entity_id": "trn_1", "actor": {"type": "system", "id": "x"}, "visibility": "public", "payload": {"attempt": 1},
        "at": "2026-11-16T06:00:00.123456Z", "hash": "00", "later": true})
    .to_string()
}

#[tokio::test]
async fn a_request_carries_the_key_and_unknown_fields_are_kept() {
    let create = |headers: HeaderMap, Json(body): Json<Value>| async move {
        assert_eq!(headers["authorization"], "Bearer secret");
        assert!(headers.contains_key("idempotency-key"));
        let answer = json!({"id": "ses_1", "name": body["name"], "status": "created", "mood": "good"});
        (StatusCode::CREATED, Json(answer))
    };
    let client = serve(Router::new().route("/v1/sessions", post(create))).await;
    let new = NewSession { name: Some("one".into()), ..NewSession::default() };
    let session = client.create_session(&new).await.unwrap();
    assert_eq!((session.name.as_deref(), session.status.as_str()), (Some("one"), "created"));
    assert_eq!(serde_json::to_value(&session).unwrap()["mood"], "good");
}

#[tokio::test]
async fn a_refusal_is_a_problem_with_its_exit_code() {
    let refused = || async {
        let body = json!({"title": "refused", "status": 409, "detail": "it is closed", "machine": "session",
            "from": "closed", "event": "pause_requested", "allowed": ["archive_requested"]});
        (StatusCode::CONFLICT, Json(body))
    };
    let client = serve(Router::new().route("/v1/sessions/{id}/pause", post(refused))).await;
    let error = client.pause_session("ses_1", None).await.unwrap_err();
    assert_eq!((error.exit_code(), error.status()), (4, Some(409)));
    assert_eq!(error.to_string(), "refused: it is closed (allowed now: archive_requested)");
    assert_eq!(client.session("ses_1").await.unwrap_err().exit_code(), 3);
}

#[tokio::test]
async fn a_post_is_repeated_with_the_same_key_until_the_server_is_there() {
    let busy_twice = |State(log): State<Log>, headers: HeaderMap| async move {
        let mut log = log.lock().unwrap();
        log.push(headers["idempotency-key"].to_str().unwrap().to_owned());
        match log.len() {
            1 | 2 => StatusCode::SERVICE_UNAVAILABLE.into_response(),
            _ => (StatusCode::ACCEPTED, Json(json!({"message_id": "msg_1", "turn_id": "trn_1"}))).into_response(),
        }
    };
    let log = Log::default();
    let routes = Router::new().route("/v1/agents/{id}/messages", post(busy_twice)).with_state(log.clone());
    let client = serve(routes).await;
    let sent = client.send_message("agt_1", "hi", Mode::Queue).await.unwrap();
    assert_eq!(sent.turn_id.as_deref(), Some("trn_1"));
    client.send_message("agt_1", "hi", Mode::Queue).await.unwrap();
    let keys = log.lock().unwrap().clone();
    assert_eq!(keys.len(), 4);
    assert!(keys[0] == keys[1] && keys[1] == keys[2] && keys[2] != keys[3], "{keys:?}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unreachable_after_the_last_attempt() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let retry = Retry { first: Duration::from_millis(1), ..Retry::default() };
    let client = Client::new(&format!("http://{free}"), None).unwrap().with_retry(retry);
    let error = client.session("ses_1").await.unwrap_err();
    assert!(matches!(&error, ClientError::Unreachable { .. }), "{error}");
    assert_eq!(error.exit_code(), 5);
    let first = client.events("ses_1", 0).next().await.unwrap().unwrap_err();
    assert_eq!(first.exit_code(), 5);
}

#[tokio::test]
async fn an_answer_that_is_not_ours_says_so() {
    let client = serve(Router::new().route("/v1/sessions/{id}", get(|| async { "hello" }))).await;
    let error = client.session("x").await.unwrap_err();
    assert!(error.to_string().contains("is this an Instar server?"), "{error}");
}

#[tokio::test]
async fn every_page_of_a_list_is_read() {
    let list = |Asked(query): Asked<HashMap<String, String>>| async move {
        assert_eq!(query["status"], "active");
        let from: usize = query.get("cursor").map_or(0, |c| c.parse().unwrap());
        let data: Vec<Value> =
            (from..from + 2).map(|n| json!({"id": format!("ses_{n}"), "status": "active"})).collect();
        Json(json!({"data": data, "next_cursor": (from < 4).then(|| (from + 2).to_string())}))
    };
    let client = serve(Router::new().route("/v1/sessions", get(list))).await;
    let query = || Query::new().with("status", "active");
    let all: Vec<Session> = client.every(&["v1", "sessions"], query(), 100).await.unwrap();
    assert_eq!(
        all.iter().map(|s| s.id.as_str()).collect::<Vec<_>>(),
        ["ses_0", "ses_1", "ses_2", "ses_3", "ses_4", "ses_5"]
    );
    let some: Vec<Session> = client.every(&["v1", "sessions"], query(), 3).await.unwrap();
    assert_eq!(some.len(), 3);
}

#[tokio::test]
async fn the_payload_of_a_rune_keeps_its_very_text() {
    let text = rune(1).replace(r#"{"attempt":1}"#, r#"{ "z": 1.0, "a":"\u0061" }"#);
    let page = format!(r#"{{"data": [{text}], "next_cursor": null}}"#);
    let runes = move |Asked(query): Asked<HashMap<String, String>>| async move {
        if query["after"] == "0" { page } else { r#"{"data": []}"#.to_owned() }
    };
    let client = serve(Router::new().route("/v1/sessions/{id}/runes", get(runes))).await;
    let runes = client.every_rune("ses_1", 0).await.unwrap();
    assert_eq!(runes.len(), 1);
    assert_eq!(runes[0].payload.get(), r#"{ "z": 1.0, "a":"\u0061" }"#);
    assert_eq!(runes[0].at.timestamp_micros() % 1_000_000, 123_456);
    assert!(runes[0].moves.is_none());
    assert!(serde_json::to_string(&runes[0]).unwrap().contains(r#"{ "z": 1.0, "a":"\u0061" }"#));
}

/// Serves two runes per connection and then hangs up.
async fn two_at_a_time(
    State(log): State<Log>,
    Path(id): Path<String>,
    Asked(query): Asked<HashMap<String, String>>,
    headers: HeaderMap,
) -> Response {
    if id != "ses_1" {
        return (StatusCode::NOT_FOUND, Json(json!({"title": "no such session", "status": 404}))).into_response();
    }
    let resumed = headers.get("last-event-id").map_or("-", |v| v.to_str().unwrap());
    log.lock().unwrap().push(format!("{} {resumed}", query["after"]));
    let after: i64 = query["after"].parse().unwrap();
    let mut body = String::from(": hello\n\n");
    // The last one once more: it must not be told twice.
    for seq in after.max(1)..=after + 2 {
        body += &format!("id: {seq}\nevent: turn.started\ndata: {}\n\n", rune(seq));
    }
    body += "event: delta\ndata: {\"turn_id\":\"trn_1\",\"agent_id\":\"agt_1\",\"index\":0,\"text\":\"hi\"}\n\n";
    body += "event: news\ndata: {}\n\n";
    if after == 4 {
        body += "event: gap\ndata: {\"earliest_available\": 10}\n\n";
    }
    ([("content-type", "text/event-stream")], body).into_response()
}

#[tokio::test]
async fn a_stream_goes_on_after_the_last_rune_across_connections() {
    let log = Log::default();
    let routes = Router::new().route("/v1/sessions/{id}/events", get(two_at_a_time)).with_state(log.clone());
    let client = serve(routes).await;
    let (mut seqs, mut deltas, mut gaps) = (Vec::new(), 0, 0);
    let mut events = client.events("ses_1", 0);
    while seqs.last() != Some(&11) {
        match events.next().await.unwrap().unwrap() {
            Event::Rune(rune) => seqs.push(rune.seq),
            Event::Delta(delta) => {
                assert_eq!(delta.text, "hi");
                deltas += 1;
            }
            Event::Progress(said) => panic!("{said:?}"),
            Event::Gap(gap) => {
                assert_eq!(gap.earliest_available, Some(10));
                gaps += 1;
            }
        }
    }
    assert_eq!(seqs, [1, 2, 3, 4, 5, 6, 10, 11]);
    assert_eq!((deltas, gaps), (3, 1));
    assert_eq!(*log.lock().unwrap(), ["0 -", "2 2", "4 4", "9 9"]);
}

#[tokio::test]
async fn a_stream_that_is_refused_ends_with_the_refusal() {
    let routes = Router::new().route("/v1/sessions/{id}/events", get(two_at_a_time)).with_state(Log::default());
    let mut events = serve(routes).await.events("ses_2", 0);
    assert_eq!(events.next().await.unwrap().unwrap_err().exit_code(), 3);
    assert!(events.next().await.is_none());
}
