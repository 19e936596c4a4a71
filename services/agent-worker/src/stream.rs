//! The provider speaks: pieces go out at once, what has come is kept now and then, and a control, a
//! deadline, a drain or a lost lease ends it where it is.

use crate::control::Flight;
use crate::held::{Held, Opening, event_of};
use crate::worker::Worker;
use crate::{compose, judge, mission, summarise, unwritten};
use futures::stream::Fuse;
use futures::{FutureExt, StreamExt};
use instar_bus::message::Delta;
use instar_core::budget::Spent;
use instar_core::context::tokens_of;
use instar_core::rune::payload::Usage;
use instar_model::{Accumulator, Event, EventStream, ModelError, Response};
use instar_runtime::context::Facts;
use instar_runtime::flow::{self, Spoken};
use instar_runtime::plan::Work;
use instar_store::Answer;
use instar_store::clock;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

/// How long nothing is heard of a provider whose answer is about to be cut off by somebody else.
const STILL: Duration = Duration::from_millis(300);

/// How a provider call went.
pub(crate) enum Said {
    Whole(Response),
    /// A control took effect; `event` is how the turn's machine calls it.
    Cut {
        event: &'static str,
        partial: Spoken,
    },
    Failed {
        error: ModelError,
        partial: Spoken,
        /// Something of the answer had come.
        broken: bool,
    },
    /// The turn's time is up.
    Late {
        partial: Spoken,
    },
    /// The process ends.
    Drained {
        partial: Spoken,
    },
    /// What was said before the turn does not fit, and is to be summarised first.
    Nothing,
    /// The lease is gone, or the turn is somebody else's.
    Lost,
}

/// What is kept every now and then, beside the stream: it never stands between two of its steps.
struct Keeping {
    task: Option<tokio::task::JoinHandle<bool>>,
    /// Bytes of the text that are kept, with what is under way.
    kept: usize,
    /// The same without.
    landed: usize,
    due: Instant,
    /// When the turn's row last said that the provider is at work, and whether more has come since.
    shown: Instant,
    heard: bool,
}

struct Listening<'a> {
    worker: &'a Worker,
    held: &'a mut Held,
    heard: Accumulator,
    keeping: Keeping,
    /// The provider has the request, as far as is known.
    reached: bool,
    /// All of it is written down, and nothing more is heard until then: somebody else is about to end the turn.
    still: Option<Instant>,
    /// The answer has begun to come.
    begun: bool,
}

pub(crate) async fn answer(worker: &Worker, held: &mut Held) -> Said {
    let (every, deadline) = (Duration::from_millis(worker.config.checkpoint_ms.max(10)), deadline(held));
    let now = Instant::now();
    let keeping = Keeping { task: None, kept: 0, landed: 0, due: now + every, shown: now, heard: false };
    let heard = Accumulator::default();
    let mut listening = Listening { worker, held, heard, keeping, reached: false, still: None, begun: false };
    let said = tokio::select! {
        biased;
        () = worker.lost.cancelled() => return Said::Lost,
        said = listening.hear_out(every) => said,
        () = sleep_until(deadline) => Ending::Late,
        () = worker.draining.cancelled() => Ending::Drained,
    };
    listening.settle().await;
    let spent = listening.spent(&said);
    let Listening { heard, held, begun, .. } = listening;
    held.unbooked = held.unbooked.and(spent);
    held.retries = if matches!(said, Ending::Failed(_)) { held.retries } else { 0 };
    let partial = |heard: &Accumulator| Spoken { text: heard.text().to_owned(), ..held.silence() };
    match said {
        Ending::Over => match heard.clone().finish() {
            Ok(response) => Said::Whole(response),
            Err(error) => Said::Failed { error, partial: partial(&heard), broken: true },
        },
        Ending::Cut(event) => Said::Cut { event, partial: partial(&heard) },
        Ending::Failed(error) => Said::Failed { error, partial: partial(&heard), broken: begun },
        Ending::Late => Said::Late { partial: partial(&heard) },
        Ending::Drained => Said::Drained { partial: partial(&heard) },
        Ending::Gone => Said::Lost,
        Ending::Crowded => Said::Nothing,
    }
}

/// Begins the provider call, in a task of its own: whoever waits for it also listens to others. `None`: what was
/// said before the turn is to be summarised first.
pub(crate) async fn open(worker: &Worker, held: &mut Held) -> anyhow::Result<Option<Opening>> {
    let facts = Facts::read(worker.hub.store(), &held.agent, clock::now()).await?;
    worker.discovered.refresh_for(&held.agent.tools()).await;
    let tools = judge::tools(&worker.tools, &held.agent, &Work::granted(&held.turn));
    let count = tools.len();
    let tools = mission::offered(worker, held, tools).await?;
    let prepared = compose::prepare(worker, held, &tools, tools.len() == count, &facts);
    if let Some(scope) = prepared.crowded.filter(|_| !summarise::is_tried(held)) {
        held.sum_up = scope;
        return Ok(None);
    }
    let models = worker.models.clone();
    held.chat = held.span(worker).in_scope(|| match models.get(&prepared.request.model) {
        Ok(model) => instar_model::attribute::chat_span(model.about(), &prepared.request),
        Err(_) => tracing::Span::none(),
    });
    compose::measure(&held.chat, &prepared);
    held.sent = prepared.tokens;
    let request = prepared.request;
    let opening = async move {
        instar_crashpoint::crash_point!("worker.provider.before");
        let opened = models.stream(request).await;
        instar_crashpoint::crash_point!("worker.provider.after");
        opened
    };
    Ok(Some(AbortOnDropHandle::new(tokio::spawn(opening.instrument(held.chat.clone())))))
}

async fn next_of(stream: &mut Option<Fuse<EventStream>>) -> Option<Result<Event, ModelError>> {
    match stream {
        Some(stream) => stream.next().await,
        None => None,
    }
}

/// Returns when somebody says that the turn's row has news.
pub(crate) async fn told(held: &Held) {
    match &held.flight {
        Some(flight) => flight.told().await,
        None => std::future::pending().await,
    }
}

enum Ending {
    Over,
    Cut(&'static str),
    Failed(ModelError),
    Late,
    Drained,
    /// The turn is not ours.
    Gone,
    Crowded,
}

pub(crate) fn usage(usage: Option<instar_model::Usage>) -> Usage {
    let usage = usage.unwrap_or_default();
    Usage { input_tokens: usage.input_tokens, output_tokens: usage.output_tokens }
}

fn deadline(held: &Held) -> Instant {
    let left = held.turn.deadline_at.map(|at| (at - clock::now()).to_std().unwrap_or(Duration::ZERO));
    Instant::now() + left.unwrap_or(Duration::from_secs(24 * 3600))
}

impl Listening<'_> {
    async fn hear_out(&mut self, every: Duration) -> Ending {
        let mut opening = match self.held.opening.take() {
            Some(opening) => opening,
            None => match open(self.worker, self.held).await {
                Ok(Some(opening)) => opening,
                Ok(None) => return Ending::Crowded,
                Err(error) => {
                    return Ending::Failed(ModelError::transient(format!("the context could not be read: {error}")));
                }
            },
        };
        self.reached = true;
        let mut stream: Option<Fuse<EventStream>> = None;
        let soon = Instant::now() + Duration::from_millis(self.worker.config.fold_ms);
        loop {
            let still = self.still;
            let next = tokio::select! {
                biased;
                // Before the provider, who may have much to say.
                () = told(self.held) => match self.called().await {
                    Some(ending) => return ending,
                    None => continue,
                },
                opened = &mut opening, if stream.is_none() => match opened {
                    // It is polled once more than needed by whoever takes all that is there.
                    Ok(Ok(opened)) => {
                        stream = Some(opened.fuse());
                        self.begun = true;
                        continue;
                    }
                    Ok(Err(error)) => {
                        self.reached = error.is_taken();
                        return Ending::Failed(error);
                    }
                    Err(error) => return Ending::Failed(ModelError::permanent(format!("the call failed: {error}"))),
                },
                next = next_of(&mut stream), if stream.is_some() && still.is_none() => next,
                () = sleep_until(soon), if self.held.unwritten.is_some() => match self.write().await {
                    Some(ending) => return ending,
                    None => continue,
                },
                () = sleep_until(still.unwrap_or_else(Instant::now)), if still.is_some() => {
                    self.still = None;
                    continue;
                }
                () = sleep_until(self.keeping.due) => {
                    self.keep(every);
                    continue;
                }
            };
            let Some(stream) = &mut stream else { continue };
            match next {
                None => return Ending::Over,
                Some(Err(error)) => return Ending::Failed(error),
                Some(Ok(event)) => {
                    if let Err(error) = self.take(event, stream) {
                        return Ending::Failed(error);
                    }
                }
            }
        }
    }

    /// Writes what records the call, if that is not written; an ending if the turn is not ours.
    async fn write(&mut self) -> Option<Ending> {
        match unwritten::write(self.worker, self.held).await {
            Ok(true) => None,
            Ok(false) => Some(Ending::Gone),
            Err(error) => {
                Some(Ending::Failed(ModelError::permanent(format!("the turn could not be recorded: {error}"))))
            }
        }
    }

    /// What the call has come to: what the provider says, or an estimate where it has not, or not all of it.
    fn spent(&self, ending: &Ending) -> Spent {
        if !self.reached {
            return Spent::default();
        }
        let told = self.heard.usage().filter(|told| told.input_tokens + told.output_tokens > 0);
        let heard = tokens_of(self.heard.bytes());
        let (input_tokens, output_tokens) = match told {
            Some(told) if matches!(ending, Ending::Over) => (told.input_tokens, told.output_tokens),
            // One that broke off has told of its beginning.
            Some(told) => (told.input_tokens, told.output_tokens.max(heard)),
            None => (self.held.sent, heard),
        };
        let cached = told.map_or(0, |told| told.cache_read_input_tokens);
        Spent { usage: Usage { input_tokens, output_tokens }, cached, calls: 0 }
    }

    /// Takes an event and whatever is there already; pieces of text that come together go out
    /// together.
    fn take(&mut self, first: Event, stream: &mut Fuse<EventStream>) -> Result<(), ModelError> {
        let (mut text, mut next) = (String::new(), Some(Ok(first)));
        let mut outcome = Ok(());
        self.keeping.heard = true;
        while let Some(event) = next {
            match event {
                Ok(event) => {
                    if let Event::TextDelta { text: piece } = &event {
                        text.push_str(piece);
                    }
                    self.heard.push(event);
                }
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
            next = stream.next().now_or_never().flatten();
        }
        if !text.is_empty() {
            self.send(text);
        }
        outcome
    }

    fn send(&mut self, text: String) {
        let index = self.held.deltas;
        self.held.deltas += 1;
        self.worker.hub.cast_delta(Delta {
            session_id: self.held.session_id().to_string(),
            agent_id: self.held.agent_id().to_string(),
            turn_id: self.held.turn_id().to_string(),
            index,
            text,
            kind: "text".into(),
        });
    }

    /// Somebody said that the row has news: an ending, if it asks for one.
    async fn called(&mut self) -> Option<Ending> {
        if let Some(ending) = self.write().await {
            return Some(ending);
        }
        if self.held.flight.as_ref().is_some_and(Flight::keeps) {
            self.keep_all().await;
        }
        match self.worker.hub.store().turn(self.held.turn_id()).await {
            Ok(Some(row)) if row.epoch == self.held.turn.epoch && row.status == "streaming" => {
                self.held.turn.control = row.control;
                let event = event_of(&self.held.turn)?;
                // Whoever asked has written rows, and may have left a message: the end is worked out from what is there.
                self.held.waiting = true;
                Some(Ending::Cut(event))
            }
            // Ended or taken over.
            Ok(_) => Some(Ending::Gone),
            Err(error) => {
                tracing::debug!(%error, "the row could not be looked at");
                None
            }
        }
    }

    /// Writes down all that has come, for whoever is about to end the turn, and listens no more for a moment: what would
    /// come now nobody would ever see again.
    async fn keep_all(&mut self) {
        self.settle().await;
        self.still = Some(Instant::now() + STILL);
        self.kept_from_here();
        self.settle().await;
    }

    /// Keeps what has come since the last time.
    fn keep(&mut self, every: Duration) {
        self.keeping.due = Instant::now() + every;
        let busy = !self.reap();
        let text = self.heard.text();
        // A model that thinks, or writes the arguments of a call, says no text. It is not stuck for that.
        let shows = self.keeping.heard && self.keeping.shown.elapsed() >= self.worker.shows_every;
        if busy || (text.len() <= self.keeping.kept && !shows) || self.held.unwritten.is_some() {
            return;
        }
        self.kept_from_here();
    }

    fn kept_from_here(&mut self) {
        (self.keeping.shown, self.keeping.heard) = (Instant::now(), false);
        let text = self.heard.text();
        let piece = &text[self.keeping.kept..];
        let commit = flow::checkpoint(&self.held.turn, self.worker.id, piece, self.keeping.kept as i64);
        let Ok(commit) = commit else { return };
        self.keeping.kept = text.len();
        let hub = self.worker.hub.clone();
        self.keeping.task = Some(tokio::spawn(async move { matches!(hub.commit(commit).await, Ok(Answer::Moved(_))) }));
    }

    /// Takes note of a checkpoint that is over; whether none is under way.
    fn reap(&mut self) -> bool {
        let Some(task) = &mut self.keeping.task else { return true };
        let Some(landed) = task.now_or_never() else { return false };
        self.keeping.over(landed.unwrap_or(false), &mut self.held.turn.version);
        true
    }

    async fn settle(&mut self) {
        if let Some(task) = &mut self.keeping.task {
            let landed = task.await.unwrap_or(false);
            self.keeping.over(landed, &mut self.held.turn.version);
        }
    }
}

impl Keeping {
    /// A checkpoint that landed wrote the row once; what one that did not should have kept, the next one does.
    fn over(&mut self, landed: bool, version: &mut i64) {
        self.task = None;
        if landed {
            *version += 1;
            self.landed = self.kept;
        } else {
            self.kept = self.landed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_land_is_kept_with_what_follows() {
        let now = Instant::now();
        let mut keeping = Keeping { task: None, kept: 0, landed: 0, due: now, shown: now, heard: true };
        let mut version = 7;
        for (kept, landed, next) in [(5, true, 5), (9, false, 5), (12, true, 12)] {
            keeping.kept = kept;
            keeping.over(landed, &mut version);
            assert_eq!(keeping.kept, next);
        }
        assert_eq!(version, 9, "two have landed");
    }
}
