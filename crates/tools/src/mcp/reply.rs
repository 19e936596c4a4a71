//! What a server's answer to a call comes to.

use super::lost;
use crate::capture::Capture;
use crate::outcome::{Failure, Outcome, code};
use instar_core::decide::Effect;
use instar_core::rune::payload::ResultStatus;
use instar_core::secret::Redactor;
use rmcp::model::{CallToolResponse, CallToolResult, ContentBlock, ResourceContents};
use serde_json::{Value, json};
use std::sync::Arc;

/// Of a failed tool's own words in the error; all of them are in the output.
const WORDS_CHARS_MAX: usize = 1_000;

pub(super) fn outcome(reply: CallToolResponse, effect: Effect, keep_max: usize, redactor: &Arc<Redactor>) -> Outcome {
    match reply {
        CallToolResponse::Complete(result) => complete(result, keep_max, redactor),
        CallToolResponse::InputRequired(_) => {
            // Nothing was done yet: a server that asks first acts when it is answered.
            let words = "the tool asks a person for input, which cannot be given here; call another tool";
            Outcome::failed(ResultStatus::Error, Failure::new(code::MCP_ERROR, words)).began()
        }
        CallToolResponse::Task(_) | _ => lost::unclear(effect, code::MCP_ERROR, "the server answers with a task"),
    }
}

fn complete(result: CallToolResult, keep_max: usize, redactor: &Arc<Redactor>) -> Outcome {
    let failed = result.is_error == Some(true);
    let text = written(result);
    let mut capture = Capture::new(keep_max, redactor.clone());
    capture.push(text.as_bytes());
    let captured = capture.finish();
    let status = if failed { ResultStatus::Error } else { ResultStatus::Success };
    let error = failed.then(|| {
        let mut words: String = text.chars().take(WORDS_CHARS_MAX).collect();
        redactor.text(&mut words);
        let words = if words.trim().is_empty() { "the tool failed and does not say why".to_owned() } else { words };
        Failure::new(code::MCP_TOOL_ERROR, words)
    });
    // Short words of failure are said once.
    let said = failed && text.chars().count() <= WORDS_CHARS_MAX;
    let base = Outcome { error, ..Outcome::of(status) }.began();
    let output = if said { Default::default() } else { captured.output };
    Outcome { output, truncated: captured.truncated, bytes: captured.bytes, digest: captured.digest, ..base }
}

/// What was structured as JSON; else the text; else a list of what there is. Pictures and sounds are named and
/// left out: a model cannot read them here.
fn written(result: CallToolResult) -> String {
    let texts = result.content.iter().map(|block| match block {
        ContentBlock::Text(text) => Some(text.text.as_str()),
        _ => None,
    });
    let only_text: Option<Vec<&str>> = texts.collect();
    let text = only_text.as_ref().map(|parts| parts.join("\n"));
    match (&result.structured_content, text) {
        (Some(value), Some(text)) => {
            let same = text.is_empty() || serde_json::from_str::<Value>(&text).is_ok_and(|read| read == *value);
            if same { value.to_string() } else { json!({"content": text, "structured": value}).to_string() }
        }
        (None, Some(text)) => text,
        (Some(value), None) => json!({"content": blocks(&result.content), "structured": value}).to_string(),
        (None, None) => blocks(&result.content).to_string(),
    }
}

fn blocks(content: &[ContentBlock]) -> Value {
    let left_out = |kind: &str, mime: &str, data: &str| json!({"type": kind, "mimeType": mime, "bytes": data.len() / 4 * 3, "left_out": true});
    let one = |block: &ContentBlock| match block {
        ContentBlock::Text(text) => json!({"type": "text", "text": text.text}),
        ContentBlock::Image(image) => left_out("image", &image.mime_type, &image.data),
        ContentBlock::Audio(audio) => left_out("audio", &audio.mime_type, &audio.data),
        ContentBlock::Resource(resource) => match &resource.resource {
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                let mut named = left_out("resource", mime_type.as_deref().unwrap_or_default(), blob);
                named["uri"] = json!(uri);
                named
            }
            ResourceContents::TextResourceContents { uri, text, .. } => {
                json!({"type": "resource", "uri": uri, "text": text})
            }
            #[allow(unreachable_patterns)]
            _ => json!({"type": "resource"}),
        },
        other => serde_json::to_value(other).unwrap_or_default(),
    };
    Value::Array(content.iter().map(one).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Output;

    fn read(result: Value, keep_max: usize) -> Outcome {
        let result: CallToolResult = serde_json::from_value(result).unwrap();
        outcome(CallToolResponse::Complete(result), Effect::AtMostOnce, keep_max, &Arc::default())
    }

    #[test]
    fn text_is_text_and_what_is_structured_is_json() {
        let text = |text: &str| json!({"type": "text", "text": text});
        let cases = [
            (json!({"content": [text("noon")]}), Output::Text("noon".into())),
            (json!({"content": [text("a"), text("b")]}), Output::Text("a\nb".into())),
            (json!({"content": [text("{\"at\":12}")]}), Output::Json(json!({"at": 12}))),
            (json!({"content": []}), Output::Nothing),
            (
                json!({"content": [text("{ \"at\": 12 }")], "structuredContent": {"at": 12}}),
                Output::Json(json!({"at": 12})),
            ),
            (
                json!({"content": [text("it is noon")], "structuredContent": {"at": 12}}),
                Output::Json(json!({"content": "it is noon", "structured": {"at": 12}})),
            ),
            (
                json!({"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]}),
                Output::Json(json!([{"type": "image", "mimeType": "image/png", "bytes": 3, "left_out": true}])),
            ),
        ];
        for (result, expected) in cases {
            let outcome = read(result.clone(), 1_000);
            assert_eq!((outcome.status, outcome.output), (ResultStatus::Success, expected), "{result}");
        }
    }

    #[test]
    fn a_failure_of_the_tool_is_an_error_with_its_words_and_a_flood_is_cut() {
        let failed = read(json!({"content": [{"type": "text", "text": "no such zone"}], "isError": true}), 1_000);
        assert_eq!((failed.status, failed.output), (ResultStatus::Error, Output::Nothing));
        assert_eq!(failed.error.unwrap().to_string(), "mcp_tool_error: no such zone");
        let flood = read(json!({"content": [{"type": "text", "text": "x".repeat(1 << 20)}]}), 500);
        assert!(flood.truncated && flood.bytes == 1 << 20);
        assert!(matches!(flood.output, Output::Text(text) if text.len() <= 500));
    }
}
