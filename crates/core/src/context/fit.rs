//! What does not fit goes: the oldest of what was said before the epoch first, then the middle of old tool
//! results, then old answers of the epoch. A prompt is never cut.

use super::budget::{Budget, TOKENS_PER_MESSAGE, tokens_of};
use super::message::{Message, Part, Said, Source};
use serde::Serialize;
use std::borrow::Cow;

/// A result is not shortened below this many bytes.
const RESULT_BYTES_MIN: usize = 1_000;

/// How a context fits its model, in estimated tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Fit {
    pub tokens: u64,
    pub budget: u64,
    /// Messages that were left out.
    pub dropped: u64,
    /// Results that were cut, each with a note that says so.
    pub shortened: u64,
    /// It is still too long; the provider may refuse it.
    pub over: bool,
}

impl Fit {
    pub(super) fn changed(&self) -> bool {
        self.dropped > 0 || self.shortened > 0
    }
}

pub(super) fn fit(messages: &mut Vec<Message<'_>>, system: Option<&str>, budget: Budget) -> Fit {
    let mut tokens = system.map_or(0, |text| tokens_of(text.len()) + TOKENS_PER_MESSAGE);
    tokens += messages.iter().map(weigh).sum::<u64>();
    let mut fit = Fit { tokens, budget: budget.0, ..Fit::default() };
    if tokens <= budget.0 {
        return fit;
    }
    let before = |message: &Message<'_>| message.part == Part::Before && message.source != Source::Summary;
    drop_oldest(messages, &mut fit, true, before);
    shorten(messages, &mut fit);
    // The words of a user stay, and so does everything of the turn that runs.
    drop_oldest(messages, &mut fit, false, |message| message.part == Part::Epoch && !message.is_user());
    fit.over = fit.tokens > fit.budget;
    fit
}

fn weigh(message: &Message<'_>) -> u64 {
    TOKENS_PER_MESSAGE + tokens_of(message.content_bytes() + message.reasoning_bytes())
}

/// Leaves out from the front what may go; an answer goes together with the results of its calls. `whole`:
/// an answer whose question has gone goes as well.
fn drop_oldest(messages: &mut Vec<Message<'_>>, fit: &mut Fit, whole: bool, may_go: impl Fn(&Message<'_>) -> bool) {
    let mut goes = vec![false; messages.len()];
    let (mut at, mut dropped) = (0, false);
    while at < messages.len() {
        let message = &messages[at];
        let results = messages[at + 1..].iter().take_while(|next| next.is_result()).count();
        let unit = at..at + 1 + if message.is_user() { 0 } else { results };
        let may = unit.clone().all(|at| may_go(&messages[at]));
        let half = whole && dropped && !message.is_user() && message.calls().is_empty();
        if fit.tokens <= fit.budget && !(half && may) {
            break;
        }
        for at in unit.clone().filter(|_| may) {
            goes[at] = true;
            fit.tokens -= weigh(&messages[at]);
            fit.dropped += 1;
            dropped = true;
        }
        at = unit.end;
    }
    let mut goes = goes.into_iter();
    messages.retain(|_| !goes.next().unwrap_or(false));
}

/// Cuts the largest results, those of the latest answer last.
fn shorten(messages: &mut [Message<'_>], fit: &mut Fit) {
    let latest = messages.iter().rposition(|message| !message.calls().is_empty()).unwrap_or(messages.len());
    for old in [true, false] {
        let mut sizes: Vec<(usize, usize)> = messages
            .iter()
            .enumerate()
            .filter(|(at, _)| (*at < latest) == old)
            .filter_map(|(at, message)| match &message.said {
                Said::Tool(outcome) if outcome.content.len() > RESULT_BYTES_MIN => Some((outcome.content.len(), at)),
                _ => None,
            })
            .collect();
        sizes.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        for (_, at) in sizes {
            if fit.tokens <= fit.budget {
                return;
            }
            let excess = usize::try_from(fit.tokens - fit.budget).unwrap_or(usize::MAX);
            let was = weigh(&messages[at]);
            let Said::Tool(outcome) = &mut messages[at].said else { continue };
            if let Some(cut) = cut(&outcome.content, excess) {
                outcome.content = Cow::Owned(cut);
                fit.tokens = fit.tokens - was + weigh(&messages[at]);
                fit.shortened += 1;
            }
        }
    }
}

/// The text without its middle, so that it is `excess` tokens shorter if it can be.
fn cut(text: &str, excess: usize) -> Option<String> {
    const NOTE_BYTES: usize = 120;
    let wanted = text.len().saturating_sub(excess.saturating_mul(4).saturating_add(NOTE_BYTES));
    let kept = wanted.max(RESULT_BYTES_MIN - NOTE_BYTES);
    let head = text.floor_char_boundary(kept * 3 / 4);
    let tail = text.ceil_char_boundary(text.len() - kept / 4);
    let left_out = tail.checked_sub(head).filter(|bytes| *bytes > NOTE_BYTES)?;
    let note = format!("\n[... {left_out} bytes of this result were left out to fit the model's context ...]\n");
    Some([&text[..head], &note, &text[tail..]].concat())
}
