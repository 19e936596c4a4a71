//! The events of a session as one stream that outlives connections.

use crate::Rest;
use crate::client::Client;
use crate::error::{ClientError, reason};
use crate::page::Query;
use crate::rune::Rune;
use crate::sse::{Decoder, Frame};
use futures::stream::{BoxStream, StreamExt};
use reqwest::{Method, Response};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The server is heard from every 15 s; after three times that the connection is taken for dead.
const SILENCE_MAX: Duration = Duration::from_secs(45);
/// From the request to the first line of the answer.
const OPEN_WITHIN: Duration = Duration::from_secs(15);

#[derive(Clone, Debug)]
pub enum Event {
    /// Stored: it comes once, in order, also across reconnects.
    Rune(Box<Rune>),
    /// On its way: may be lost, or begin again with all that was said so far.
    Delta(Delta),
    /// What a tool says while it runs: may be lost.
    Progress(Progress),
    /// Runes that are not there any more.
    Gap(Gap),
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Delta {
    #[serde(default)]
    pub turn_id: String,
    #[serde(default)]
    pub agent_id: String,
    /// Position in the turn's stream, from 0. A jump means that pieces were lost.
    #[serde(default)]
    pub index: u64,
    #[serde(default)]
    pub text: String,
    #[serde(flatten)]
    pub rest: Rest,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    #[serde(default)]
    pub turn_id: String,
    #[serde(default)]
    pub call_id: String,
    /// Position among what the call says, from 0.
    #[serde(default)]
    pub index: u64,
    #[serde(default)]
    pub text: String,
    /// The output of a command that it wrote this to: `stdout` or `stderr`.
    #[serde(default)]
    pub stream: Option<String>,
    #[serde(flatten)]
    pub rest: Rest,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Gap {
    #[serde(default)]
    pub earliest_available: Option<i64>,
    #[serde(flatten)]
    pub rest: Rest,
}

/// See [`Client::events`].
pub type Events = BoxStream<'static, Result<Event, ClientError>>;

impl Client {
    /// What happens in a session after rune `after`, for as long as the caller listens. A lost
    /// connection is made again after the last rune that came. Ends with an error if the server
    /// cannot be reached to begin with, refuses, or says what is no event.
    pub fn events(&self, session: &str, after: i64) -> Events {
        let reader = Reader {
            client: self.clone(),
            session: session.to_owned(),
            last: after,
            response: None,
            decoder: Decoder::default(),
            failures: 0,
            met: false,
            over: false,
        };
        futures::stream::unfold(reader, |mut reader| async { reader.next().await.map(|item| (item, reader)) })
            .fuse()
            .boxed()
    }
}

struct Reader {
    client: Client,
    session: String,
    /// Number of the last rune that came.
    last: i64,
    response: Option<Response>,
    decoder: Decoder,
    /// Since something was heard.
    failures: u32,
    /// The server answered once.
    met: bool,
    over: bool,
}

impl Reader {
    async fn next(&mut self) -> Option<Result<Event, ClientError>> {
        while !self.over {
            let step = match self.decoder.next() {
                Some(frame) => self.read(&frame),
                None => self.hear().await.map(|()| None),
            };
            match step {
                Ok(None) => {}
                Ok(Some(event)) => return Some(Ok(event)),
                Err(error) => {
                    self.over = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }

    async fn hear(&mut self) -> Result<(), ClientError> {
        let Some(response) = &mut self.response else { return self.open().await };
        match tokio::time::timeout(SILENCE_MAX, response.chunk()).await {
            Ok(Ok(Some(bytes))) => {
                self.failures = 0;
                let large = |_| ClientError::Protocol("the server sent an event without end".into());
                self.decoder.push(&bytes).map_err(large)
            }
            // Ended, broken or silent: all the same, the next connection goes on.
            _ => {
                self.response = None;
                self.decoder = Decoder::default();
                self.failures += 1;
                Ok(())
            }
        }
    }

    /// One attempt to connect, after the pause that the failures so far ask for.
    async fn open(&mut self) -> Result<(), ClientError> {
        if self.failures > 0 {
            tokio::time::sleep(self.client.retry.pause(self.failures)).await;
        }
        let mut url = self.client.url(&["v1", "sessions", &self.session, "events"]);
        Query::new().with("after", self.last).write(&mut url);
        let mut request = self.client.request(Method::GET, url).header("accept", "text/event-stream");
        if self.met {
            request = request.header("last-event-id", self.last.to_string());
        }
        let why = match tokio::time::timeout(OPEN_WITHIN, request.send()).await {
            Ok(Ok(response)) if response.status().is_success() => return self.accept(response),
            Ok(Ok(response)) => {
                let status = response.status().as_u16();
                let refused = ClientError::refused(status, &response.bytes().await.unwrap_or_default());
                if !matches!(status, 429 | 500..=599) {
                    return Err(refused);
                }
                refused
            }
            Ok(Err(error)) => self.client.unreachable(reason(&error)),
            Err(_) => self.client.unreachable("no answer in time"),
        };
        self.failures += 1;
        if !self.met && self.failures >= self.client.retry.attempts { Err(why) } else { Ok(()) }
    }

    fn accept(&mut self, response: Response) -> Result<(), ClientError> {
        let kind = response.headers().get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
        if !kind.starts_with("text/event-stream") {
            return Err(ClientError::Protocol(format!("{} serves no events", self.client.server())));
        }
        self.met = true;
        self.response = Some(response);
        Ok(())
    }

    fn read(&mut self, frame: &Frame) -> Result<Option<Event>, ClientError> {
        match frame.event.as_deref() {
            Some("delta") => parse(frame).map(|delta| Some(Event::Delta(delta))),
            Some("progress") => parse(frame).map(|progress| Some(Event::Progress(progress))),
            Some("gap") => {
                let gap: Gap = parse(frame)?;
                // Or the next connection would hear of it again.
                self.last = gap.earliest_available.map_or(self.last, |earliest| self.last.max(earliest - 1));
                Ok(Some(Event::Gap(gap)))
            }
            _ if frame.id.is_some() => {
                let rune: Rune = parse(frame)?;
                if rune.seq <= self.last {
                    return Ok(None);
                }
                self.last = rune.seq;
                Ok(Some(Event::Rune(Box::new(rune))))
            }
            // Something that a later version tells.
            _ => Ok(None),
        }
    }
}

fn parse<'a, T: Deserialize<'a>>(frame: &'a Frame) -> Result<T, ClientError> {
    let name = frame.event.as_deref().unwrap_or("message");
    serde_json::from_str(&frame.data)
        .map_err(|error| ClientError::Protocol(format!("the server sent a {name} event that cannot be read: {error}")))
}
