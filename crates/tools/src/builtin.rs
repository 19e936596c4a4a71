//! Tools that come with the house.

use crate::capture::{Capture, Captured};
use crate::outcome::{Outcome, Output};
use crate::spec::{Kind, Spec};
use instar_core::rune::payload::ResultStatus;
use serde_json::{Value, json};
use std::time::Duration;

const SLEEP_MS_MAX: u64 = 3_600_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Builtin {
    Echo,
    Now,
    Sleep,
    HttpFetch,
}

impl Builtin {
    pub const ALL: [Builtin; 4] = [Builtin::Echo, Builtin::Now, Builtin::Sleep, Builtin::HttpFetch];

    pub const fn name(self) -> &'static str {
        match self {
            Builtin::Echo => "echo",
            Builtin::Now => "now",
            Builtin::Sleep => "sleep",
            Builtin::HttpFetch => "http_fetch",
        }
    }

    pub fn named(name: &str) -> Option<Builtin> {
        Builtin::ALL.into_iter().find(|builtin| builtin.name() == name)
    }

    pub fn names() -> Vec<&'static str> {
        Builtin::ALL.into_iter().map(Builtin::name).collect()
    }

    const fn description(self) -> &'static str {
        match self {
            Builtin::Echo => "Gives back the text it is given.",
            Builtin::Now => "The present time in UTC.",
            Builtin::Sleep => "Waits for a number of milliseconds.",
            Builtin::HttpFetch => "Reads a public web page or API with GET.",
        }
    }

    pub(crate) fn parameters(self) -> Value {
        let fields = match self {
            Builtin::Echo => json!({"text": {"type": "string"}}),
            Builtin::Now => json!({}),
            Builtin::Sleep => json!({"ms": {"type": "integer", "minimum": 0, "maximum": SLEEP_MS_MAX}}),
            Builtin::HttpFetch => json!({"url": {"type": "string", "maxLength": 8192}}),
        };
        let required: Vec<_> = fields.as_object().into_iter().flat_map(|fields| fields.keys().cloned()).collect();
        json!({"type": "object", "properties": fields, "required": required, "additionalProperties": false})
    }

    pub fn spec(self) -> Spec {
        let mut spec = Spec::new(self.name(), Kind::Builtin);
        self.complete(&mut spec);
        spec
    }

    /// None of them changes the world. What they take is theirs to say, not the configuration's.
    pub(crate) fn complete(self, spec: &mut Spec) {
        spec.parameters = self.parameters();
        spec.side_effects = false;
        if spec.description.is_empty() {
            spec.description = self.description().to_owned();
        }
    }

    /// All but `http_fetch`, which needs the runner's guarded client.
    pub(crate) async fn run(self, arguments: &Value, bytes_max: usize) -> Outcome {
        match self {
            Builtin::Echo | Builtin::HttpFetch => echo(arguments["text"].as_str().unwrap_or_default(), bytes_max),
            Builtin::Now => {
                #[expect(clippy::disallowed_methods, reason = "the runner's time is what the tool is asked for")]
                let now = chrono::Utc::now();
                let utc = now.to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
                Outcome::success(json!({"utc": utc, "unix_ms": now.timestamp_millis()}))
            }
            Builtin::Sleep => {
                // 5.0 is an integer to JSON Schema.
                let ms = arguments["ms"].as_f64().unwrap_or_default() as u64;
                tokio::time::sleep(Duration::from_millis(ms)).await;
                Outcome::success(json!({"slept_ms": ms}))
            }
        }
    }
}

fn echo(text: &str, bytes_max: usize) -> Outcome {
    let mut capture = Capture::new(bytes_max, std::sync::Arc::default());
    capture.push(text.as_bytes());
    let Captured { output, truncated, bytes, digest } = capture.finish();
    // What looks like JSON is still the text that was given.
    let output = if truncated { output } else { Output::Text(text.to_owned()) };
    Outcome { output, truncated, bytes, digest, ..Outcome::of(ResultStatus::Success).began() }
}
