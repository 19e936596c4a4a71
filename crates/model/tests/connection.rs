//! What only a server of one's own making sends: headers, odd bodies, and the sight of a client that
//! went away.

use std::time::{Duration, Instant};

use futures::StreamExt;
use instar_model::{Class, Kind, Message, ModelConfig, ModelError, Models, Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Answers one connection after the other with these bytes, and closes each.
async fn serve(answers: Vec<String>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    tokio::spawn(async move {
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            read_request(&mut stream).await;
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
        }
    });
    url
}

/// A request of this crate ends with the brace of its body; more than that need not be known.
async fn read_request(stream: &mut TcpStream) -> String {
    let mut seen = Vec::new();
    while !seen.ends_with(b"}") {
        let mut part = [0; 4096];
        let count = stream.read(&mut part).await.unwrap();
        assert_ne!(count, 0, "the client went away");
        seen.extend_from_slice(&part[..count]);
    }
    String::from_utf8(seen).unwrap()
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{headers}connection: close\r\n\r\n{body}")
}

const SSE: &str = "content-type: text/event-stream\r\n";
const FINE: &str = "data: {\"id\":\"r\",\"choices\":[{\"delta\":{\"content\":\"ok\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

fn models(url: &str) -> Models {
    let mut config = ModelConfig::new("m", Kind::Vllm);
    config.base_url = Some(url.to_owned());
    config.model = Some("q".to_owned());
    config.api_key_env = Some("KEY".to_owned());
    config.limits.retry_first_ms = 5;
    Models::with_environment(&[config], &|_| Some("sk-secret".to_owned())).unwrap()
}

/// That wait for the beginning of an answer no longer than this, and call once.
fn models_within(kind: Kind, url: &str, within: Duration) -> Models {
    let mut config = ModelConfig::new("m", kind);
    config.base_url = Some(url.to_owned());
    config.model = Some("q".to_owned());
    config.api_key_env = Some("KEY".to_owned());
    config.limits.first_event_timeout_ms = within.as_millis() as u64;
    config.limits.retries_max = 0;
    Models::with_environment(&[config], &|_| Some("sk-secret".to_owned())).unwrap()
}

fn question() -> Request {
    Request { model: "m".to_owned(), messages: vec![Message::user("hi")], ..Request::default() }
}

async fn ask(answers: Vec<String>) -> Result<Response, ModelError> {
    models(&serve(answers).await).complete(question()).await
}

#[tokio::test]
async fn the_provider_may_forbid_or_demand_a_retry() {
    let forbidden = answer("500 X", "x-should-retry: false\r\n", "{}");
    let error = ask(vec![forbidden, answer("200 OK", SSE, FINE)]).await.unwrap_err();
    assert!(error.class == Class::Transient && !error.retryable() && error.retry_in.is_none());
    let demanded = answer("400 X", "x-should-retry: true\r\n", "{}");
    assert_eq!(ask(vec![demanded, answer("200 OK", SSE, FINE)]).await.unwrap().text, "ok");
}

#[tokio::test]
async fn milliseconds_count_before_seconds() {
    let limited = answer("429 X", "retry-after-ms: 30\r\nretry-after: 60\r\n", "{}");
    assert_eq!(ask(vec![limited, answer("200 OK", SSE, FINE)]).await.unwrap().text, "ok");
    let dated = answer("429 X", "retry-after: Fri, 31 Dec 9999 23:59:59 GMT\r\n", "{}");
    let error = ask(vec![dated]).await.unwrap_err();
    assert_eq!(error.wait(), Some(Duration::from_secs(86_400)), "as long as a day, no longer");
}

#[tokio::test]
async fn a_stream_without_its_end_is_an_error_even_if_the_connection_closed_in_order() {
    let half = "data: {\"id\":\"r\",\"choices\":[{\"delta\":{\"content\":\"o\"}}]}\n\n";
    let error = ask(vec![answer("200 OK", SSE, half)]).await.unwrap_err();
    assert_eq!((error.class, error.code.as_deref()), (Class::Transient, Some("stream_ended_early")));
}

#[tokio::test]
async fn a_page_instead_of_a_stream_is_told_as_what_it_is() {
    let page = answer("200 OK", "content-type: text/html\r\n", "<html>welcome</html>");
    let error = ask(vec![page]).await.unwrap_err();
    assert_eq!((error.class, error.code.as_deref()), (Class::Permanent, Some("not_a_stream")));
    let hidden = r#"{"error":{"code":"context_length_exceeded","message":"too long"}}"#;
    let error = ask(vec![answer("200 OK", "content-type: application/json\r\n", hidden)]).await.unwrap_err();
    assert_eq!(error.class, Class::ContextOverflow);
}

#[tokio::test]
async fn a_redirect_is_not_followed_with_the_key() {
    let error = ask(vec![answer("307 X", "location: http://127.0.0.1:1/steal\r\n", "")]).await.unwrap_err();
    assert_eq!((error.class, error.status), (Class::Permanent, Some(307)));
}

#[tokio::test]
async fn a_key_that_the_provider_repeats_is_not_shown() {
    let body = r#"{"error":{"message":"Incorrect API key provided: sk-secret.","code":"invalid_api_key"}}"#;
    let error = ask(vec![answer("401 X", "", body)]).await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains("sk-secret"), "{error}");
    assert!(error.to_string().contains("[redacted]"));
}

#[tokio::test]
async fn dropping_the_stream_ends_the_request() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await;
        let half = "data: {\"id\":\"r\",\"choices\":[{\"delta\":{\"content\":\"o\"}}]}\n\n";
        stream.write_all(answer("200 OK", SSE, half).as_bytes()).await.unwrap();
        // Nothing more is sent: the end of reading is the client's doing.
        let mut rest = [0; 16];
        stream.read(&mut rest).await.unwrap_or(0)
    });
    let mut stream = models(&url).stream(question()).await.unwrap();
    stream.next().await.unwrap().unwrap();
    drop(stream);
    let read = tokio::time::timeout(Duration::from_secs(5), server).await.expect("the connection stayed open");
    assert_eq!(read.unwrap(), 0);
}

#[tokio::test]
async fn a_connection_is_kept_even_if_the_end_of_the_body_comes_late() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let (told, mut reused) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let told = told.clone();
            tokio::spawn(async move {
                for number in 1.. {
                    read_request(&mut stream).await;
                    let head = format!("HTTP/1.1 200 OK\r\n{SSE}transfer-encoding: chunked\r\n\r\n");
                    let chunk = format!("{head}{:x}\r\n{FINE}\r\n", FINE.len());
                    stream.write_all(chunk.as_bytes()).await.unwrap();
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    stream.write_all(b"0\r\n\r\n").await.unwrap();
                    told.send(number).unwrap();
                }
            });
        }
    });
    let models = models(&url);
    let second = async {
        loop {
            models.complete(question()).await.unwrap();
            if reused.recv().await == Some(2) {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(5), second).await.expect("no connection was used twice");
}

/// Answers one request: the head after a while, then `beat` for ever, and no word of an answer.
async fn warm(late: Duration, beat: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await;
        tokio::time::sleep(late).await;
        let mut next = answer("200 OK", SSE, "");
        while stream.write_all(next.as_bytes()).await.is_ok() {
            next = beat.to_owned();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    url
}

#[tokio::test]
async fn a_line_that_is_kept_warm_is_no_answer() {
    let ping = "event: ping\ndata: {\"type\": \"ping\"}\n\n";
    let empty = "data: {\"id\":\"r\",\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\n";
    let rows =
        [(Kind::Vllm, ": ping\n\n"), (Kind::Vllm, empty), (Kind::Anthropic, ": ping\n\n"), (Kind::Anthropic, ping)];
    for (kind, beat) in rows {
        let models = models_within(kind, &warm(Duration::ZERO, beat).await, Duration::from_millis(500));
        let error = tokio::time::timeout(Duration::from_secs(20), models.complete(question())).await;
        let error = error.unwrap_or_else(|_| panic!("{kind:?} {beat:?} is waited for")).unwrap_err();
        assert_eq!((error.class, error.code.as_deref()), (Class::Transient, Some("timeout")), "{beat:?} {error}");
    }
}

#[tokio::test]
async fn a_late_head_gets_an_answer_no_more_time() {
    let (within, late) = (Duration::from_millis(2_000), Duration::from_millis(1_700));
    let models = models_within(Kind::Vllm, &warm(late, "").await, within);
    let begun = Instant::now();
    let error = models.complete(question()).await.unwrap_err();
    assert_eq!(error.code.as_deref(), Some("timeout"));
    // Half way between what is allowed and twice nearly that.
    assert!(begun.elapsed() < within + late / 2, "{:?}", begun.elapsed());
}
