//! A message on its way out: what is stamped on it, and the receipt that comes back.
//!
//! Must not know: which implementation stores it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::error::BusError;

pub(crate) const MESSAGE_ID: &str = "Nats-Msg-Id";
pub(crate) const TRACEPARENT: &str = "traceparent";
pub(crate) const MESSAGE_TYPE: &str = "Instar-Message";
const ID_BYTES_MAX: usize = 200;

/// What goes along with a message: its id, by which repeats are recognised, and its trace.
#[derive(Debug, Clone, Copy)]
pub struct Stamp<'a> {
    id: &'a str,
    traceparent: Option<&'a str>,
}

impl<'a> Stamp<'a> {
    pub fn new(id: &'a str) -> Self {
        Self { id, traceparent: None }
    }

    /// Without an id: for hints, which may be repeated.
    pub fn nameless() -> Self {
        Self::new("")
    }

    /// Joins the trace that caused the message. An empty or malformed one is left out: tracing
    /// never stops work.
    pub fn trace(self, traceparent: &'a str) -> Self {
        Self { traceparent: Some(traceparent).filter(|it| it.len() == 55 && visible(it)), ..self }
    }
}

/// What the stream answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// Position in the stream.
    pub sequence: u64,
    /// The stream had a message with this id already and kept that one.
    pub duplicate: bool,
}

/// A message that was handed over. Await it for the receipt, or drop it: the message goes out
/// either way, and a failure is counted.
#[derive(Debug)]
pub struct Sent(State);

#[derive(Debug)]
enum State {
    Done(Option<Result<Receipt, BusError>>),
    Waiting(oneshot::Receiver<Result<Receipt, BusError>>),
}

impl Sent {
    pub(crate) fn done(result: Result<Receipt, BusError>) -> Self {
        Self(State::Done(Some(result)))
    }

    pub(crate) fn waiting(receiver: oneshot::Receiver<Result<Receipt, BusError>>) -> Self {
        Self(State::Waiting(receiver))
    }
}

impl Future for Sent {
    type Output = Result<Receipt, BusError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            State::Done(result) => Poll::Ready(result.take().unwrap_or(Err(BusError::Closed))),
            State::Waiting(receiver) => {
                Pin::new(receiver).poll(cx).map(|result| result.unwrap_or(Err(BusError::Closed)))
            }
        }
    }
}

/// A message as an implementation sees it.
#[derive(Debug, Clone)]
pub(crate) struct Outgoing {
    pub(crate) subject: String,
    pub(crate) id: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) payload: Bytes,
}

impl Outgoing {
    pub(crate) fn new(subject: &str, name: &'static str, payload: Bytes, stamp: Stamp<'_>) -> Result<Self, BusError> {
        if stamp.id.is_empty() || stamp.id.len() > ID_BYTES_MAX || !visible(stamp.id) {
            return Err(BusError::MessageId { id: stamp.id.chars().take(ID_BYTES_MAX).collect() });
        }
        let mut out = Self::nameless(subject, name, payload, stamp);
        out.headers.push((MESSAGE_ID, stamp.id.to_owned()));
        out.id = stamp.id.to_owned();
        Ok(out)
    }

    /// One that no stream can tell from a repeat, and none has to remember.
    pub(crate) fn nameless(subject: &str, name: &'static str, payload: Bytes, stamp: Stamp<'_>) -> Self {
        let mut headers = Vec::with_capacity(3);
        headers.push((MESSAGE_TYPE, name.to_owned()));
        headers.extend(stamp.traceparent.map(|it| (TRACEPARENT, it.to_owned())));
        Self { subject: subject.to_owned(), id: String::new(), headers, payload }
    }
}

/// A header value with a line break would end the header block, so only visible ASCII passes.
fn visible(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_would_break_the_headers_is_refused() {
        for id in ["", "a b", "a\r\nX: y", "ü", &"x".repeat(201)] {
            let result = Outgoing::new("s", "n", Bytes::new(), Stamp::new(id));
            assert!(matches!(result, Err(BusError::MessageId { .. })), "{id:?}");
        }
    }

    #[test]
    fn a_malformed_trace_is_left_out() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(Stamp::new("a").trace(good).traceparent, Some(good));
        assert_eq!(Stamp::new("a").trace("").traceparent, None);
        let broken = good.replace('0', "\n");
        assert_eq!(Stamp::new("a").trace(&broken).traceparent, None);
    }
}
