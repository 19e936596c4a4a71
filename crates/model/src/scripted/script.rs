//! The script of an offline model, as written in a file.
//!
//! ```toml
//! [[scene]]                      # the first scene that fits the last words of the user plays
//! when = "refund"                # fits if they contain this; without it, always
//! [[scene.reply]]                # the answers since those words, one after the other
//! text = "Let me see. "          # may contain {user} and {result}
//! delay_ms = 200                 # before the answer
//! between_ms = 20                # between its events
//! calls = [{ name = "charge", arguments = { cents = 100, note = "{user}" } }]
//! [[scene.reply]]
//! text = "It is done: {result}"
//!
//! [[fault]]                      # by number of the call in this process, retries included
//! on_call = 3                    # or: every = 10
//! kind = "overloaded"            # a class of error, or cut, or hang
//! retry_after_ms = 500
//! after_events = 2               # in the middle of the answer instead of in its place
//! ```

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::improvise;
use crate::error::ModelError;
use crate::message::{Message, Request};

const FILE_BYTES_MAX: u64 = 4 << 20;

/// No scenes: the built-in behaviour, which calls a tool and reports its result.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Script {
    scene: Vec<Scene>,
    fault: Vec<Fault>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Scene {
    #[serde(default)]
    when: Option<String>,
    reply: Vec<Line>,
}

/// One answer.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Line {
    pub(super) text: String,
    pub(super) reasoning: String,
    pub(super) calls: Vec<Call>,
    pub(super) delay_ms: u64,
    pub(super) between_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Call {
    pub(super) name: String,
    #[serde(default)]
    pub(super) arguments: Map<String, Value>,
    /// In place of arguments: text that need not be JSON.
    #[serde(default)]
    pub(super) arguments_text: Option<String>,
}

impl Call {
    pub(super) fn text(&self) -> String {
        self.arguments_text.clone().unwrap_or_else(|| Value::Object(self.arguments.clone()).to_string())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fault {
    #[serde(default)]
    on_call: Option<u64>,
    #[serde(default)]
    every: Option<u64>,
    pub(super) kind: FaultKind,
    #[serde(default)]
    pub(super) retry_after_ms: Option<u64>,
    #[serde(default)]
    pub(super) after_events: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FaultKind {
    RateLimited,
    SlowDown,
    Overloaded,
    QuotaExhausted,
    Transient,
    ContextOverflow,
    Permanent,
    /// The answer ends without its end.
    Cut,
    /// Nothing more comes.
    Hang,
}

impl Script {
    pub fn read(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let size = std::fs::metadata(path).map_err(|error| format!("script {shown} can't be read: {error}"))?.len();
        if size > FILE_BYTES_MAX {
            return Err(format!("script {shown} is larger than {FILE_BYTES_MAX} bytes"));
        }
        let text = std::fs::read_to_string(path).map_err(|error| format!("script {shown} can't be read: {error}"))?;
        Self::parse(&text).map_err(|error| format!("script {shown}: {error}"))
    }

    /// JSON begins with a brace, TOML never does.
    pub fn parse(text: &str) -> Result<Self, String> {
        let script: Self = match text.trim_start().starts_with('{') {
            true => serde_json::from_str(text).map_err(|error| error.to_string())?,
            false => toml::from_str(text).map_err(|error| error.to_string())?,
        };
        for fault in &script.fault {
            if fault.on_call.is_some() == fault.every.is_some() || fault.every == Some(0) {
                return Err("a fault needs either on_call or every, above 0".to_owned());
            }
        }
        if script.scene.iter().any(|scene| scene.reply.is_empty()) {
            return Err("a scene needs at least one reply".to_owned());
        }
        Ok(script)
    }

    pub(super) fn fault(&self, number: u64) -> Option<Fault> {
        let strikes = |fault: &&Fault| {
            fault.on_call == Some(number) || fault.every.is_some_and(|every| number.is_multiple_of(every))
        };
        self.fault.iter().find(strikes).cloned()
    }

    pub(super) fn line(&self, request: &Request) -> Result<Line, ModelError> {
        let heard = Heard::new(&request.messages);
        let words = heard.user.to_lowercase();
        let fits = |scene: &&Scene| scene.when.as_ref().is_none_or(|when| words.contains(&when.to_lowercase()));
        let Some(scene) = self.scene.iter().find(fits) else {
            return Ok(improvise::line(request, &heard));
        };
        let line = scene.reply.get(heard.answers).cloned();
        line.map(|line| line.filled(&heard)).ok_or_else(|| {
            let count = scene.reply.len();
            ModelError::permanent(format!("the script has {count} replies for this scene and was asked for another"))
                .with_code("script_over")
        })
    }
}

/// What the conversation has come to.
pub(super) struct Heard<'a> {
    /// The last words of the user.
    pub(super) user: &'a str,
    /// Answers of the model since then.
    answers: usize,
    /// Results of tools since then.
    pub(super) results: Vec<&'a str>,
}

impl<'a> Heard<'a> {
    pub(super) fn new(messages: &'a [Message]) -> Self {
        let mut heard = Self { user: "", answers: 0, results: Vec::new() };
        for message in messages {
            match message {
                Message::User { text } => heard = Self { user: text, answers: 0, results: Vec::new() },
                Message::Assistant(_) => heard.answers += 1,
                Message::Tool(result) => heard.results.push(&result.content),
            }
        }
        heard
    }
}

impl Line {
    fn filled(mut self, heard: &Heard<'_>) -> Self {
        self.text = filled(&self.text, heard);
        for argument in self.calls.iter_mut().flat_map(|call| call.arguments.values_mut()) {
            if let Value::String(text) = argument {
                *text = filled(text, heard);
            }
        }
        self
    }
}

fn filled(text: &str, heard: &Heard<'_>) -> String {
    // One pass, so that braces in what was said are not filled in turn.
    let mut parts = text.split("{user}").map(|part| part.replace("{result}", &heard.results.join(" ")));
    let first = parts.next().unwrap_or_default();
    parts.fold(first, |before, part| before + heard.user + &part)
}
