//! How much a model can read, by estimate.
//!
//! A token is taken for four bytes of UTF-8, and each message costs four more. That is near the truth for
//! English and source code with the tokenizers of today, and cheap; the provider has the last word, and a
//! conversation that it finds too long is summarised.

use serde_json::Value;

/// The context window of a model whose configuration does not say, in tokens.
pub const CONTEXT_WINDOW: u32 = 128_000;
/// Kept free for the answer when the configuration does not limit it.
pub const ANSWER: u32 = 8_192;
const BYTES_PER_TOKEN: usize = 4;
pub(super) const TOKENS_PER_MESSAGE: u64 = 4;

/// Tokens that instructions and messages may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget(pub u64);

impl Budget {
    /// The window of the model, less the answer's part (half of the window at the most) and what describes
    /// the tools.
    pub fn of(context_window: Option<u32>, max_tokens: Option<u32>, tools_bytes: usize) -> Budget {
        let window = context_window.unwrap_or(CONTEXT_WINDOW);
        let answer = max_tokens.unwrap_or(ANSWER).min(window / 2);
        Budget(u64::from(window - answer).saturating_sub(tokens_of(tools_bytes)))
    }
}

/// What so many bytes come to.
pub const fn tokens_of(bytes: usize) -> u64 {
    bytes.div_ceil(BYTES_PER_TOKEN) as u64
}

/// About as many bytes as a value has as JSON, without writing it.
pub fn json_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 4,
        Value::Number(_) => 6,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => 2 + items.iter().map(|item| json_bytes(item) + 1).sum::<usize>(),
        Value::Object(fields) => {
            2 + fields.iter().map(|(name, value)| name.len() + 4 + json_bytes(value)).sum::<usize>()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_and_the_tools_have_their_part() {
        assert_eq!(Budget::of(None, None, 0), Budget(128_000 - 8_192));
        assert_eq!(Budget::of(Some(10_000), Some(1_000), 400), Budget(10_000 - 1_000 - 100));
        assert_eq!(Budget::of(Some(4_096), None, 0), Budget(2_048));
        assert_eq!(Budget::of(Some(100), Some(1_000_000), 1_000_000), Budget(0));
    }
}
