//! What is kept of the time before the epoch: what was said, and the latest tool loop.

use super::message::{Message, Part, Said};
use std::borrow::Cow;

/// `epoch`: where in the history it begins; none of it if it begins with the turn itself.
pub(super) fn history(mut history: Vec<Message<'_>>, epoch: Option<usize>) -> Vec<Message<'_>> {
    let end = epoch.unwrap_or(history.len());
    let after = history.split_off(end);
    let latest = latest_loop(&history);
    let mut kept: Vec<Message<'_>> = Vec::with_capacity(history.len() + after.len() + 8);
    for (at, mut message) in history.into_iter().enumerate() {
        message.part = Part::Before;
        let in_loop = latest.contains(&at);
        if !in_loop {
            match &mut message.said {
                Said::User { text } if text.trim().is_empty() => continue,
                Said::User { .. } => {}
                Said::Tool(_) => continue,
                Said::Assistant(assistant) => {
                    assistant.calls.clear();
                    assistant.blocks.clear();
                    if assistant.text.trim().is_empty() {
                        continue;
                    }
                }
            }
            // A window that begins with an answer would show the model half an exchange.
            if kept.is_empty() && !message.is_user() {
                continue;
            }
        }
        kept.push(message);
    }
    kept.extend(after.into_iter().map(|message| Message { part: Part::Epoch, ..without_blocks(message) }));
    kept
}

/// A provider wants its blocks back within a turn, not beyond.
fn without_blocks(mut message: Message<'_>) -> Message<'_> {
    if let Said::Assistant(assistant) = &mut message.said {
        assistant.blocks = Vec::new();
        if assistant.text.trim().is_empty() {
            assistant.text = Cow::Borrowed("");
        }
    }
    message
}

/// The last answer with calls and the results that follow it without interruption.
fn latest_loop(history: &[Message<'_>]) -> std::ops::Range<usize> {
    let Some(begin) = history.iter().rposition(|message| !message.calls().is_empty()) else { return 0..0 };
    let results = history[begin + 1..].iter().take_while(|message| message.is_result()).count();
    begin..begin + 1 + results
}
