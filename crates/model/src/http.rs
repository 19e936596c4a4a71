//! One request to a provider: sent, retried while nobody has seen anything of the answer, and read.
//!
//! Must not know: what the bodies mean; a dialect makes the request and reads the answer.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::{FutureExt, StreamExt};
use instar_core::secret::Redactor;
use reqwest::header::HeaderMap;
use reqwest::{Client, Response, Url};
use tokio::time::{Instant, timeout, timeout_at};

use crate::circuit::{Caller, Gate, UNREACHABLE};
use crate::classify::Signal;
use crate::error::ModelError;
use crate::event::{Event, EventStream};
use crate::message::Dialect;
use crate::options::Options;
use crate::reader::{Decode, Reader};
use crate::retry::{chance, retry_after};

const ERROR_BYTES_MAX: usize = 64 * 1024;
const ERROR_WITHIN: Duration = Duration::from_secs(10);
/// What may follow the last event before its connection is given up instead of reused.
const REST_WITHIN: Duration = Duration::from_secs(1);
const REST_CHUNKS_MAX: usize = 16;

/// A provider's address with everything that is the same for each request.
pub(crate) struct Http {
    pub(crate) client: Client,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) dialect: Dialect,
    pub(crate) options: Options,
    pub(crate) gate: Gate,
    /// Providers have been seen repeating the key in their error text.
    pub(crate) redactor: Arc<Redactor>,
}

impl Http {
    /// Returns once something of the answer is there: until then, failures can be retried unseen.
    pub(crate) async fn stream(
        &self,
        caller: Caller,
        body: Vec<u8>,
        decode: impl Fn() -> Box<dyn Decode>,
    ) -> Result<EventStream, ModelError> {
        let body = Bytes::from(body);
        let attempt = || async {
            let pass = self.gate.enter(caller)?;
            let outcome = self.attempt(caller, body.clone(), decode()).await;
            pass.told(&outcome);
            outcome
        };
        let answer = self.options.retry.run(attempt).await?;
        Ok(futures::stream::unfold(answer, |mut answer| async { answer.next().await.map(|item| (item, answer)) })
            .boxed())
    }

    async fn attempt(&self, caller: Caller, body: Bytes, decode: Box<dyn Decode>) -> Result<Answer, ModelError> {
        let patience = self.options.first_event_timeout;
        // For everything before the answer begins: a line can be kept warm without ever saying a word of it.
        let until = Instant::now() + patience;
        let send = self.client.post(self.url.clone()).headers(self.headers.clone()).body(body).send();
        let response = match timeout_at(until, send).await {
            Ok(response) => response.map_err(transport)?,
            Err(_) => return Err(silence(patience)),
        };
        let request_id = request_id(response.headers());
        if let Some(error) = self.refusal(response.status().as_u16(), response.headers()) {
            return Err(self.refused(response, error, request_id).await);
        }
        let Options { response_bytes_max, frame_bytes_max, idle_timeout, .. } = self.options;
        let reader = Reader::new(decode, response_bytes_max, frame_bytes_max);
        let backoff = self.options.retry.backoff(0, chance());
        let redactor = self.redactor.clone();
        let gate = self.gate.clone();
        let response = Some(response);
        let mut answer = Answer { response, reader, patience, backoff, request_id, caller, gate, redactor };
        while !answer.reader.has_content() && !answer.reader.is_over() {
            answer.read(until).await;
        }
        if !answer.reader.has_content()
            && let Some(error) = answer.reader.take_error()
        {
            return Err(answer.explain(error));
        }
        answer.patience = idle_timeout;
        Ok(answer)
    }

    /// Whether the head of the response already says that no stream follows.
    fn refusal(&self, status: u16, headers: &HeaderMap) -> Option<Refusal> {
        let kind = header(headers, "content-type").unwrap_or_default();
        match status {
            200..=299 if kind.starts_with("text/html") || kind.starts_with("application/json") => {
                Some(Refusal::NotAStream)
            }
            200..=299 => None,
            status => Some(Refusal::Status(status)),
        }
    }

    async fn refused(&self, response: Response, refusal: Refusal, request_id: Option<String>) -> ModelError {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = timeout(ERROR_WITHIN, read_some(response)).await.unwrap_or_default();
        let mut error = match refusal {
            Refusal::Status(status) => Signal::from_status(status, &body).into_error(self.dialect),
            // Gateways answer 200 with an error in the body.
            Refusal::NotAStream if body.contains("\"error\"") => {
                Signal::from_status(500, &body).into_error(self.dialect)
            }
            Refusal::NotAStream => {
                ModelError::permanent("the server answered with a page, not a stream: is base_url right?")
                    .with_code("not_a_stream")
            }
        };
        let now = said_at(&headers);
        error.retry_after = retry_after(header(&headers, "retry-after-ms"), header(&headers, "retry-after"), now);
        error.should_retry = header(&headers, "x-should-retry").and_then(|value| value.trim().parse().ok());
        error.request_id = request_id;
        error.status = Some(status);
        error.tidy(&self.redactor)
    }
}

enum Refusal {
    Status(u16),
    NotAStream,
}

/// An answer that is being read.
struct Answer {
    response: Option<Response>,
    reader: Reader,
    patience: Duration,
    backoff: Duration,
    request_id: Option<String>,
    caller: Caller,
    gate: Gate,
    redactor: Arc<Redactor>,
}

impl Answer {
    async fn next(&mut self) -> Option<Result<Event, ModelError>> {
        loop {
            match self.reader.next() {
                Some(Ok(event)) => {
                    if matches!(event, Event::Done { .. })
                        && let Some(response) = self.response.take()
                    {
                        release(response);
                    }
                    return Some(Ok(event));
                }
                Some(Err(error)) => {
                    self.response = None;
                    let error = self.explain(error);
                    self.gate.failed(&error, self.caller);
                    return Some(Err(error.parked(self.backoff)));
                }
                None if self.reader.is_over() => return None,
                None => self.read(Instant::now() + self.patience).await,
            }
        }
    }

    async fn read(&mut self, until: Instant) {
        let Some(response) = &mut self.response else {
            return self.reader.end(ModelError::transient("the answer was already read"));
        };
        match timeout_at(until, response.chunk()).await {
            Ok(Ok(Some(bytes))) => self.reader.push(&bytes),
            Ok(Ok(None)) => {
                let error = ModelError::transient("the answer ended before it was whole");
                self.reader.end(error.with_code("stream_ended_early"));
            }
            Ok(Err(error)) => self.reader.end(transport(error).with_code("connection_lost")),
            Err(_) => self.reader.end(silence(self.patience)),
        }
    }

    fn explain(&self, mut error: ModelError) -> ModelError {
        error.request_id = error.request_id.or_else(|| self.request_id.clone());
        error.tidy(&self.redactor)
    }
}

/// Reads what is left, most often a mark of five bytes: a connection can be used again only after the
/// end of the body, and a new one costs several round trips.
fn release(mut response: Response) {
    if let Some(Ok(None)) = response.chunk().now_or_never() {
        return;
    }
    tokio::spawn(timeout(REST_WITHIN, async move {
        for _ in 0..REST_CHUNKS_MAX {
            if !matches!(response.chunk().await, Ok(Some(_))) {
                return;
            }
        }
    }));
}

async fn read_some(mut response: Response) -> String {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        body.extend_from_slice(&chunk);
        if body.len() > ERROR_BYTES_MAX {
            body.truncate(ERROR_BYTES_MAX);
            break;
        }
    }
    String::from_utf8_lossy(&body).into_owned()
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// When the answer was sent, by the clock of whoever says until when to wait: two clocks may be minutes apart.
#[expect(clippy::disallowed_methods, reason = "a server that does not say has no other clock than ours")]
fn said_at(headers: &HeaderMap) -> SystemTime {
    let said = header(headers, "date").and_then(|date| httpdate::parse_http_date(date.trim()).ok());
    said.unwrap_or_else(SystemTime::now)
}

fn request_id(headers: &HeaderMap) -> Option<String> {
    header(headers, "request-id").or_else(|| header(headers, "x-request-id")).map(str::to_owned)
}

/// The whole chain of reasons, without the address: it may hold a password.
fn transport(error: reqwest::Error) -> ModelError {
    let cannot_be_sent = error.is_builder();
    let error = error.without_url();
    let mut words = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(inner) = source {
        words.push_str(": ");
        words.push_str(&inner.to_string());
        source = inner.source();
    }
    if cannot_be_sent {
        return ModelError::permanent(words);
    }
    ModelError::transient(words).with_code(UNREACHABLE)
}

fn silence(patience: Duration) -> ModelError {
    ModelError::transient(format!("the provider said nothing of its answer for {patience:?}")).with_code("timeout")
}
