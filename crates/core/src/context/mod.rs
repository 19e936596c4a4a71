//! What a model is sent: instructions, what was said before, and the current prompt with its calls.
//!
//! Pure: rows have been read, slots are text, the clock has been looked at. The context of a turn is
//! system + what was said before the prompt epoch, compressed + the epoch itself. The epoch begins with
//! the last prompt of a user and is fixed when the turn starts: what arrives later waits for the next turn.
//!
//! Must not know: providers and their formats, storage.

mod budget;
mod codec;
mod compact;
mod compress;
mod digest;
mod fit;
mod message;
mod slot;
mod statistic;
#[cfg(test)]
mod tests;

pub use budget::{ANSWER, Budget, CONTEXT_WINDOW, json_bytes, tokens_of};
pub use codec::{TextCall, Unreadable, calls_from_text, calls_to_text, result_from_text, result_to_text};
pub use compact::SnapshotKey;
pub use digest::{Digest, digest, digest_of};
pub use fit::Fit;
pub use message::{Assistant, Call, Message, Outcome, Part, Said, Source};
pub use slot::{render, slots_in};
pub use statistic::{Stage, Statistics};

use crate::id::MessageId;
use std::borrow::Cow;

/// What an agent is told that has to go on by itself. Never stored.
pub const ENCOURAGEMENT: &str =
    "Carry on with what you are working on: see what is new, coordinate with the others, and take the next step.";
/// What the user is taken to have said where nobody said anything.
pub const OPENING: &str = "Continue.";
/// The slot `LATEST_BROADCAST` when there is none.
pub const NO_BROADCAST: &str = "(there is no broadcast)";

/// Everything that a context is made from.
pub struct Input<'a> {
    /// Instructions, with slots such as `{{AGENT_NAME}}`.
    pub system: Option<&'a str>,
    /// What slots stand for, at this moment.
    pub slots: Vec<(&'a str, Cow<'a, str>)>,
    /// What earlier turns said and did, oldest first: a window, or what follows a summary.
    pub history: Vec<Message<'a>>,
    /// The same of this turn, up to now.
    pub turn: Vec<Message<'a>>,
    /// The message with which the last prompt begins; it may be one of an earlier turn.
    pub epoch: Option<MessageId>,
    /// The turn is there because nobody said anything.
    pub nudge: bool,
    /// Which earlier results a new one of this tool makes worthless.
    pub snapshot: &'a dyn Fn(&str) -> Option<SnapshotKey>,
    pub budget: Budget,
}

/// What is sent.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Composed<'a> {
    pub system: Option<Cow<'a, str>>,
    pub messages: Vec<Message<'a>>,
    pub statistics: Statistics,
    pub fit: Fit,
    /// The prompt was made up here and is stored nowhere.
    pub synthetic: bool,
}

/// The context of one provider call. The same input gives the same context, byte for byte.
///
/// - Before the epoch: texts, and the latest tool loop (the last answer with calls, and its results).
/// - From the epoch on: everything, except that a snapshot which a newer one supersedes is left out.
/// - Each call is followed by its one result, each result belongs to a call, and a user has said something.
/// - What does not fit the budget goes, the oldest of what was said before the epoch first ([`Fit`]).
pub fn compose(input: Input<'_>) -> Composed<'_> {
    let Input { system, slots, history, turn, epoch, nudge, snapshot, budget } = input;
    let system = system.filter(|text| !text.trim().is_empty()).map(|template| render(template, &slots));
    let prompted = turn.iter().any(Message::is_user);
    let at = epoch.filter(|_| !prompted).and_then(|id| history.iter().position(|m| m.id == Some(id)));
    let mut messages = compress::history(history, at);
    if !prompted {
        let made_up = if nudge { ENCOURAGEMENT } else { OPENING };
        messages.push(Message::user(Source::System, Part::Turn, made_up));
    }
    messages.extend(turn.into_iter().map(|message| Message { part: Part::Turn, ..message }));
    let composed = Stage::of(system.as_deref(), &messages);

    compact::compact(&mut messages, snapshot);
    if !messages.iter().any(Message::is_user) {
        messages.insert(0, Message::user(Source::System, Part::Turn, OPENING));
    }
    let compacted = Stage::of(system.as_deref(), &messages);

    let fit = fit::fit(&mut messages, system.as_deref(), budget);
    let sent = if fit.changed() { Stage::of(system.as_deref(), &messages) } else { compacted.clone() };
    Composed { system, messages, statistics: Statistics { composed, compacted, sent }, fit, synthetic: !prompted }
}
