//! What a turn's row keeps of its contexts: a few bytes, from which they can be worked out again.

use super::Facts;
use instar_core::context::Fit;
use instar_core::id::MessageId;
use instar_store::entity::turn;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// In `turns.input`, beside what others keep there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Frozen {
    /// Per provider call: a digest of what was said, and behind a dot one of the tools offered and the
    /// model, if it was not the same as in the call before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sent: Vec<String>,
    /// The message with which the prompt begins, where that is not one of the turn's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<MessageId>,
    /// How many messages of earlier turns it saw at the most, where there were more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// The budget in tokens, where something had to be left out for it: from which call on, and how many.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<(u64, u64)>,
    /// What slots stood for, where there are any: from which call on, and what.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub slots: Vec<(u64, Facts)>,
    /// Names of the tools offered, where those were not all of the agent's: from which call on, and which; none: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub offered: Vec<(u64, Option<Vec<String>>)>,
    /// A summary was tried in this turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<Tried>,
}

/// One try per attempt at the turn: only who cannot know what came of it tries again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried {
    /// Which attempt at the turn.
    pub attempt: i64,
    /// How many tokens it was to stand for, if what came was no shorter: later turns know better than to try again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_vain: Option<u64>,
}

/// What one provider call is remembered by.
pub struct Sent<'a> {
    /// From 1.
    pub number: u64,
    pub words: String,
    pub tools: Option<String>,
    pub facts: &'a Facts,
    pub fit: Fit,
    /// Set if earlier messages were beyond it.
    pub window: Option<u64>,
    /// Names of the tools offered, if those were not all of the agent's.
    pub offered: Option<Vec<String>>,
}

impl Frozen {
    pub fn of(turn: &turn::Model) -> Frozen {
        match &turn.input {
            Value::Object(fields) if !fields.is_empty() => Frozen::deserialize(&turn.input).unwrap_or_default(),
            _ => Frozen::default(),
        }
    }

    /// Notes a call, in place of one of the same number that came to nothing.
    pub fn note(&mut self, sent: Sent<'_>) {
        let at = usize::try_from(sent.number.max(1) - 1).unwrap_or(usize::MAX);
        self.sent.truncate(at);
        self.tokens.retain(|(from, _)| *from < sent.number);
        self.slots.retain(|(from, _)| *from < sent.number);
        self.offered.retain(|(from, _)| *from < sent.number);
        if self.offered(sent.number) != sent.offered.as_deref() {
            self.offered.push((sent.number, sent.offered));
        }
        let same = sent.tools.as_deref() == self.tools(sent.number);
        let mut entry = sent.words;
        if !same {
            entry.push('.');
            entry.push_str(sent.tools.as_deref().unwrap_or_default());
        }
        self.sent.resize(at, String::new());
        self.sent.push(entry);
        if sent.fit.dropped + sent.fit.shortened > 0 && self.budget(sent.number) != Some(sent.fit.budget) {
            self.tokens.push((sent.number, sent.fit.budget));
        }
        if sent.facts.date.is_some() && !self.facts(sent.number).is_some_and(|known| known.same(sent.facts)) {
            self.slots.push((sent.number, sent.facts.clone()));
        }
        self.window = sent.window.or(self.window);
    }

    /// Puts it where it belongs, leaving what others keep there.
    pub fn write(&self, turn: &mut turn::Model) {
        let Ok(Value::Object(own)) = serde_json::to_value(self) else { return };
        match &mut turn.input {
            Value::Object(fields) => {
                for gone in ["sent", "epoch", "window", "tokens", "slots", "offered", "summary"] {
                    fields.remove(gone);
                }
                fields.extend(own);
            }
            other => *other = Value::Object(own),
        }
    }

    /// The digest of what was said in a call.
    pub fn words(&self, number: u64) -> Option<&str> {
        let entry = self.sent.get(usize::try_from(number.checked_sub(1)?).ok()?)?;
        Some(entry.split('.').next().unwrap_or(entry)).filter(|words| !words.is_empty())
    }

    /// The digest of what was offered in a call.
    pub fn tools(&self, number: u64) -> Option<&str> {
        let calls = self.sent.iter().take(usize::try_from(number).unwrap_or(usize::MAX));
        calls.rev().find_map(|entry| entry.split_once('.')).map(|(_, tools)| tools).filter(|tools| !tools.is_empty())
    }

    /// The budget it had to fit, if it did not fit by itself.
    pub fn budget(&self, number: u64) -> Option<u64> {
        self.tokens.iter().rfind(|(from, _)| *from <= number).map(|(_, tokens)| *tokens)
    }

    /// Which of the agent's tools were offered in a call; `None`: all of them.
    pub fn offered(&self, number: u64) -> Option<&[String]> {
        self.offered.iter().rfind(|(from, _)| *from <= number).and_then(|(_, names)| names.as_deref())
    }

    pub fn facts(&self, number: u64) -> Option<&Facts> {
        self.slots.iter().rfind(|(from, _)| *from <= number).map(|(_, facts)| facts)
    }
}
