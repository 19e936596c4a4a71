//! A collector of spans: OTLP over HTTP, as an operator's would take them, kept in memory.

use anyhow::Result;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value};
use prost::Message;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinHandle;

/// A span as it was sent. Ids in hexadecimal; an empty parent where it has none.
#[derive(Clone, Debug)]
pub struct Span {
    pub service: String,
    pub name: String,
    pub trace: String,
    pub id: String,
    pub parent: String,
    pub start_ns: u64,
    pub end_ns: u64,
    pub attributes: BTreeMap<String, String>,
    /// What it points to: trace, span, and the attributes of the link.
    pub links: Vec<(String, String, BTreeMap<String, String>)>,
    /// Names and attributes of what happened within it.
    pub events: Vec<(String, BTreeMap<String, String>)>,
}

impl Span {
    pub fn get(&self, attribute: &str) -> Option<&str> {
        self.attributes.get(attribute).map(String::as_str)
    }

    /// Every text of the span that somebody with the traces can read.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let maps = std::iter::once(&self.attributes)
            .chain(self.links.iter().map(|(_, _, attributes)| attributes))
            .chain(self.events.iter().map(|(_, attributes)| attributes));
        let values = maps.flat_map(|map| map.iter().flat_map(|(key, value)| [key.as_str(), value.as_str()]));
        values.chain([self.name.as_str()]).chain(self.events.iter().map(|(name, _)| name.as_str()))
    }
}

type Kept = Arc<Mutex<Vec<Span>>>;

/// A running collector; it ends when dropped.
pub struct Collector {
    url: String,
    spans: Kept,
    task: JoinHandle<()>,
}

impl Collector {
    pub async fn start() -> Result<Collector> {
        let spans = Kept::default();
        let routes = Router::new().route("/v1/traces", post(take)).with_state(spans.clone());
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let task = tokio::spawn(async move {
            let _ = axum::serve(listener, routes).await;
        });
        Ok(Collector { url, spans, task })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// All spans so far, in the order of their starts.
    pub fn spans(&self) -> Vec<Span> {
        let mut spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner).clone();
        spans.sort_by_key(|span| span.start_ns);
        spans
    }

    pub fn of_trace(&self, trace: &str) -> Vec<Span> {
        self.spans().into_iter().filter(|span| span.trace == trace).collect()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn take(State(kept): State<Kept>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let protobuf = headers.get("content-type").is_some_and(|kind| kind == "application/x-protobuf");
    let Ok(request) = ExportTraceServiceRequest::decode(body) else { return StatusCode::BAD_REQUEST };
    if !protobuf {
        return StatusCode::UNSUPPORTED_MEDIA_TYPE;
    }
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    for resource in request.resource_spans {
        let about = attributes(resource.resource.map(|resource| resource.attributes).unwrap_or_default());
        let service = about.get("service.name").cloned().unwrap_or_default();
        for span in resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            kept.push(Span {
                service: service.clone(),
                name: span.name,
                trace: hex(&span.trace_id),
                id: hex(&span.span_id),
                parent: hex(&span.parent_span_id),
                start_ns: span.start_time_unix_nano,
                end_ns: span.end_time_unix_nano,
                attributes: attributes(span.attributes),
                links: span
                    .links
                    .into_iter()
                    .map(|link| (hex(&link.trace_id), hex(&link.span_id), attributes(link.attributes)))
                    .collect(),
                events: span.events.into_iter().map(|event| (event.name, attributes(event.attributes))).collect(),
            });
        }
    }
    StatusCode::OK
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn attributes(pairs: Vec<KeyValue>) -> BTreeMap<String, String> {
    pairs.into_iter().map(|pair| (pair.key, text(pair.value))).collect()
}

fn text(value: Option<AnyValue>) -> String {
    match value.and_then(|value| value.value) {
        None => String::new(),
        Some(Value::StringValue(text)) => text,
        Some(Value::BoolValue(flag)) => flag.to_string(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::DoubleValue(number)) => number.to_string(),
        Some(other) => format!("{other:?}"),
    }
}
