//! One request and its repeats.
//!
//! Repeated is what cannot act twice: a request that never reached the server, a read, and a POST,
//! whose `Idempotency-Key` is the same for every attempt.

use crate::client::Client;
use crate::error::{ClientError, reason};
use crate::page::Query;
use bytes::{Bytes, BytesMut};
use reqwest::{Method, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::time::Duration;

const ANSWER_WITHIN: Duration = Duration::from_secs(35);
const BODY_BYTES_MAX: usize = 64 << 20;
/// A server that asks for a longer wait is not waited for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(5);

const JSON: &str = "application/json";

/// What is sent, and of which form it is.
type Body = (Vec<u8>, String);

struct Answer {
    status: StatusCode,
    retry_after: Option<Duration>,
    body: Bytes,
}

enum Failed {
    /// Whether the request can have reached the server.
    Transport {
        sent: bool,
        reason: String,
    },
    Fatal(ClientError),
}

impl Client {
    /// Reads what a path names.
    pub async fn get<T: DeserializeOwned>(&self, path: &[&str], query: &Query) -> Result<T, ClientError> {
        let mut url = self.url(path);
        query.write(&mut url);
        read(&self.send(Method::GET, url, None).await?)
    }

    /// Asks for an action; an answer without a body reads as null.
    pub async fn post<B: Serialize, T: DeserializeOwned>(&self, path: &[&str], body: &B) -> Result<T, ClientError> {
        read(&self.send(Method::POST, self.url(path), Some((encode(body)?, JSON.to_owned()))).await?)
    }

    /// Sends bytes as they are.
    pub(crate) async fn post_bytes<T: DeserializeOwned>(
        &self,
        path: &[&str],
        bytes: Vec<u8>,
    ) -> Result<T, ClientError> {
        read(&self.send(Method::POST, self.url(path), Some((bytes, "application/octet-stream".to_owned()))).await?)
    }

    /// Sends content of a type.
    pub(crate) async fn post_content<T: DeserializeOwned>(
        &self,
        path: &[&str],
        bytes: Vec<u8>,
        media_type: &str,
    ) -> Result<T, ClientError> {
        read(&self.send(Method::POST, self.url(path), Some((bytes, media_type.to_owned()))).await?)
    }

    /// What a path names, as it is.
    pub(crate) async fn get_bytes(&self, path: &[&str], query: &Query) -> Result<Vec<u8>, ClientError> {
        let mut url = self.url(path);
        query.write(&mut url);
        Ok(self.send(Method::GET, url, None).await?.to_vec())
    }

    pub async fn delete<T: DeserializeOwned>(&self, path: &[&str]) -> Result<T, ClientError> {
        read(&self.send(Method::DELETE, self.url(path), None).await?)
    }

    pub(crate) async fn post_asking<B: Serialize, T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &Query,
        body: &B,
    ) -> Result<T, ClientError> {
        let mut url = self.url(path);
        query.write(&mut url);
        read(&self.send(Method::POST, url, Some((encode(body)?, JSON.to_owned()))).await?)
    }

    pub async fn patch<B: Serialize, T: DeserializeOwned>(&self, path: &[&str], body: &B) -> Result<T, ClientError> {
        read(&self.send(Method::PATCH, self.url(path), Some((encode(body)?, JSON.to_owned()))).await?)
    }

    async fn send(&self, method: Method, url: Url, body: Option<Body>) -> Result<Bytes, ClientError> {
        let new = || uuid::Uuid::now_v7().simple().to_string();
        let key = (method == Method::POST && self.keyed).then(|| self.idempotency_key.clone().unwrap_or_else(new));
        let repeatable = method == Method::GET || key.is_some();
        let mut failures = 0;
        loop {
            let outcome = self.attempt(&method, &url, body.as_ref(), key.as_deref()).await;
            failures += 1;
            let left = failures < self.retry.attempts;
            let pause = match outcome {
                Ok(answer) if answer.status.is_success() => return Ok(answer.body),
                Ok(answer) => match answer.wait(repeatable, self.retry.pause(failures)) {
                    Some(pause) if left => pause,
                    _ => return Err(ClientError::refused(answer.status.as_u16(), &answer.body)),
                },
                Err(Failed::Transport { sent, .. }) if left && (repeatable || !sent) => self.retry.pause(failures),
                Err(Failed::Transport { reason, .. }) => return Err(self.unreachable(reason)),
                Err(Failed::Fatal(error)) => return Err(error),
            };
            tokio::time::sleep(pause).await;
        }
    }

    async fn attempt(
        &self,
        method: &Method,
        url: &Url,
        body: Option<&Body>,
        key: Option<&str>,
    ) -> Result<Answer, Failed> {
        let mut request = self.request(method.clone(), url.clone()).timeout(ANSWER_WITHIN);
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        if let Some((body, kind)) = body {
            request = request.header(reqwest::header::CONTENT_TYPE, kind).body(body.clone());
        }
        let mut response = request.send().await.map_err(transport)?;
        let (status, retry_after) = (response.status(), retry_after(&response));
        let mut body = BytesMut::new();
        while let Some(chunk) = response.chunk().await.map_err(transport)? {
            if body.len() + chunk.len() > BODY_BYTES_MAX {
                let text = format!("the answer is larger than {BODY_BYTES_MAX} bytes: ask for less with limit");
                return Err(Failed::Fatal(ClientError::Protocol(text)));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Answer { status, retry_after, body: body.freeze() })
    }
}

impl Answer {
    /// How long to wait before the same may be asked again; `None` if it would be in vain.
    fn wait(&self, repeatable: bool, pause: Duration) -> Option<Duration> {
        let passing = match self.status.as_u16() {
            // Nothing was done. Without a word when, it may be a quota of a day.
            429 => self.retry_after.is_some(),
            502..=504 => repeatable,
            _ => false,
        };
        let wait = self.retry_after.unwrap_or(pause);
        (passing && wait <= RETRY_AFTER_MAX).then_some(wait)
    }
}

fn retry_after(response: &reqwest::Response) -> Option<Duration> {
    let text = response.headers().get(reqwest::header::RETRY_AFTER)?.to_str().ok()?;
    text.trim().parse().ok().map(Duration::from_secs)
}

fn transport(error: reqwest::Error) -> Failed {
    let reason = if error.is_timeout() { "no answer in time".to_owned() } else { reason(&error) };
    Failed::Transport { sent: !error.is_connect(), reason }
}

fn encode<B: Serialize>(body: &B) -> Result<Vec<u8>, ClientError> {
    serde_json::to_vec(body).map_err(|error| ClientError::Protocol(format!("the request cannot be written: {error}")))
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, ClientError> {
    let text: &[u8] = if body.is_empty() { b"null" } else { body };
    serde_json::from_slice(text).map_err(|error| {
        let kind =
            if serde_json::from_slice::<Value>(text).is_ok() { "not as this version knows it" } else { "no JSON" };
        ClientError::Protocol(format!("the server's answer is {kind} ({error}): is this an Instar server?"))
    })
}
