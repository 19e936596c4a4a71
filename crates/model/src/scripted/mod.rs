//! The offline model: it says what a script tells it, with the delays and the faults of the script,
//! and without a script it exercises the tools it is offered.
//!
//! What it says depends on the conversation alone, so that a turn that is repeated after a crash, or
//! run by another worker, gets the same answer. Only faults count calls: those of this process.
//!
//! Must not know: HTTP. Faults pass through the same retries as those of real providers.

mod improvise;
mod script;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
pub use script::Script;
use script::{Fault, FaultKind, Line};

use crate::call::Arguments;
use crate::error::{Class, ModelError};
use crate::event::{Event, EventStream, Finish, Usage};
use crate::history::{Names, repair};
use crate::message::{Dialect, Message, Request};
use crate::provider::{About, Provider};
use crate::retry::Retry;

pub struct Scripted {
    about: About,
    script: Script,
    retry: Retry,
    calls: AtomicU64,
}

impl Scripted {
    pub fn new(about: About, script: Script, retry: Retry) -> Self {
        Self { about, script, retry, calls: AtomicU64::new(0) }
    }

    async fn attempt(&self, request: &Request) -> Result<EventStream, ModelError> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let fault = self.script.fault(number);
        let line = self.script.line(request)?;
        tokio::time::sleep(Duration::from_millis(line.delay_ms)).await;
        let mut end = None;
        if let Some(fault) = fault {
            match fault.after_events {
                None => return Err(fault.strike().await),
                Some(events) => end = Some((events, fault)),
            }
        }
        let events = events(&line, request, number, &self.about.model);
        Ok(play(events, Duration::from_millis(line.between_ms), end, self.retry.first))
    }
}

impl Provider for Scripted {
    fn about(&self) -> &About {
        &self.about
    }

    fn stream(&self, mut request: Request) -> BoxFuture<'_, Result<EventStream, ModelError>> {
        Box::pin(async move {
            Names::new(&request.tools)?;
            request.messages = repair(std::mem::take(&mut request.messages), Dialect::OpenAi);
            self.retry.run(|| self.attempt(&request)).await
        })
    }
}

impl Fault {
    async fn strike(&self) -> ModelError {
        let class = match self.kind {
            FaultKind::Hang => std::future::pending().await,
            FaultKind::Cut => {
                return ModelError::transient("the answer ended before it was whole").with_code("stream_ended_early");
            }
            FaultKind::RateLimited => Class::RateLimited,
            FaultKind::SlowDown => Class::SlowDown,
            FaultKind::Overloaded => Class::Overloaded,
            FaultKind::QuotaExhausted => Class::QuotaExhausted,
            FaultKind::Transient => Class::Transient,
            FaultKind::ContextOverflow => Class::ContextOverflow,
            FaultKind::Permanent => Class::Permanent,
        };
        let mut error = ModelError::new(class, "as the script says").with_code("scripted");
        error.retry_after = self.retry_after_ms.map(Duration::from_millis);
        error
    }
}

fn events(line: &Line, request: &Request, number: u64, model: &str) -> VecDeque<Event> {
    let mut events = VecDeque::new();
    events.push_back(Event::Started { response_id: format!("scripted-{number}"), model: model.to_owned() });
    let words = |text: &str| text.split_inclusive(' ').map(str::to_owned).collect::<Vec<_>>();
    events.extend(words(&line.reasoning).into_iter().map(|text| Event::ReasoningDelta { text }));
    events.extend(words(&line.text).into_iter().map(|text| Event::TextDelta { text }));
    for (index, call) in line.calls.iter().enumerate() {
        // Like those of real providers, unique within the conversation; unlike them, the same again
        // when the turn is repeated.
        let id = format!("call_{}_{index}", request.messages.len());
        let (name, text) = (call.name.clone(), call.text());
        events.push_back(Event::ToolCallStarted { index, id: id.clone(), name: name.clone() });
        events.push_back(Event::ToolCallDelta { index, fragment: text.clone() });
        events.push_back(Event::ToolCall { index, id, name, arguments: Arguments::from_text(&text) });
    }
    let said = line.text.len() + line.calls.iter().map(|call| call.text().len()).sum::<usize>();
    events.push_back(Event::Usage(Usage {
        input_tokens: tokens(request.messages.iter().map(size).sum()),
        output_tokens: tokens(said),
        ..Usage::default()
    }));
    let finish = if line.calls.is_empty() { Finish::Stop } else { Finish::ToolCalls };
    events.push_back(Event::Done { finish });
    events
}

/// About four bytes to a token.
fn tokens(bytes: usize) -> u64 {
    bytes.div_ceil(4) as u64
}

fn size(message: &Message) -> usize {
    match message {
        Message::User { text } => text.len(),
        Message::Assistant(assistant) => assistant.text.len(),
        Message::Tool(result) => result.content.len(),
    }
}

fn play(events: VecDeque<Event>, between: Duration, fault: Option<(usize, Fault)>, backoff: Duration) -> EventStream {
    let state = (events, 0usize, fault);
    futures::stream::unfold(state, move |(mut events, place, fault)| async move {
        if let Some((after, fault)) = &fault
            && (place >= *after || events.len() <= 1)
        {
            // Like any broken stream it ends with the error, before its last event.
            if events.is_empty() {
                return None;
            }
            let error = fault.strike().await.parked(backoff);
            return Some((Err(error), (VecDeque::new(), place, Some((*after, fault.clone())))));
        }
        let event = events.pop_front()?;
        if place > 0 && !between.is_zero() {
            tokio::time::sleep(between).await;
        }
        Some((Ok(event), (events, place + 1, fault)))
    })
    .boxed()
}

#[cfg(test)]
mod tests;
