//! Names and ids as providers allow them, and back.
//!
//! The wire form depends on nothing but the name, so that a conversation replayed years later shows
//! the model the same names without anything stored beside it.

use std::borrow::Cow;
use std::collections::HashMap;

use sha2::{Digest, Sha256};

use crate::error::ModelError;
use crate::message::ToolSpec;

const NAME_CHARS_MAX: usize = 64;
/// Anthropic says nothing of a length; OpenAI refuses more.
const ID_CHARS_MAX: usize = 40;
const DIGEST_CHARS: usize = 10;

/// A tool's name as `^[a-zA-Z0-9_-]{1,64}$`. Dots become two underscores, which keeps the names of
/// MCP tools readable (`clock.now` → `clock__now`); where that would not tell names apart, a digest of
/// the whole name is added. Allowed names stay as they are.
pub fn wire_name(name: &str) -> Cow<'_, str> {
    conform(name, NAME_CHARS_MAX)
}

/// A call's id with the letters and the length that both providers take.
pub fn wire_id(id: &str) -> Cow<'_, str> {
    conform(id, ID_CHARS_MAX)
}

fn allowed(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

fn conform(token: &str, length_max: usize) -> Cow<'_, str> {
    if (1..=length_max).contains(&token.len()) && token.chars().all(allowed) {
        return Cow::Borrowed(token);
    }
    let mut plain = String::with_capacity(token.len() + 8);
    // An underscore beside a dot could be taken for a part of it.
    let mut tells_apart = !token.is_empty() && !["__", "_.", "._"].iter().any(|pair| token.contains(pair));
    for c in token.chars() {
        match c {
            '.' => plain.push_str("__"),
            c if allowed(c) => plain.push(c),
            _ => {
                tells_apart = false;
                plain.push('_');
            }
        }
    }
    if !tells_apart || plain.len() > length_max {
        plain.truncate(length_max - DIGEST_CHARS - 1);
        plain.push('_');
        let digest = Sha256::digest(token.as_bytes());
        plain.extend(digest.iter().flat_map(|byte| [byte >> 4, byte & 15]).take(DIGEST_CHARS).map(hex));
    }
    Cow::Owned(plain)
}

fn hex(nibble: u8) -> char {
    char::from_digit(u32::from(nibble), 16).unwrap_or('0')
}

/// From wire names back to the names of the tools that one request offers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names(HashMap<String, String>);

impl Names {
    pub(crate) fn new(tools: &[ToolSpec]) -> Result<Self, ModelError> {
        let mut names = HashMap::with_capacity(tools.len());
        for tool in tools {
            let before = names.insert(wire_name(&tool.name).into_owned(), tool.name.clone());
            if let Some(before) = before {
                let message = format!(
                    "tools {before:?} and {:?} have the same name for the provider: rename one of them",
                    tool.name
                );
                return Err(ModelError::permanent(message).with_code("tool_name_conflict"));
            }
        }
        Ok(Self(names))
    }

    /// A name that no tool has is the model's invention and stays as it is.
    pub(crate) fn original(&self, wire: &str) -> String {
        self.0.get(wire).map_or(wire, String::as_str).to_owned()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tool(name: &str) -> ToolSpec {
        ToolSpec { name: name.to_owned(), description: String::new(), parameters: serde_json::Value::Null }
    }

    #[test]
    fn names_stay_readable_where_they_can() {
        assert_eq!(wire_name("echo"), "echo");
        assert_eq!(wire_name("clock.now"), "clock__now");
        assert!(wire_name("a b").starts_with("a_b_"));
        assert!(wire_name("a__b.c").starts_with("a__b__c_"));
        assert_eq!(wire_name(&"x".repeat(128)).len(), 64);
        assert_ne!(wire_name("a b"), wire_name("a/b"));
        assert_eq!(wire_name("").len(), 11);
    }

    #[test]
    fn names_come_back_and_inventions_stay() {
        let names = Names::new(&[tool("clock.now"), tool("echo")]).unwrap();
        assert_eq!(names.original("clock__now"), "clock.now");
        assert_eq!(names.original("echo"), "echo");
        assert_eq!(names.original("made_up"), "made_up");
    }

    #[test]
    fn two_tools_with_one_wire_name_are_refused() {
        let error = Names::new(&[tool("clock.now"), tool("clock__now")]).unwrap_err();
        assert!(error.message.contains("clock.now") && error.message.contains("clock__now"), "{error}");
    }

    proptest! {
        #[test]
        fn wire_names_are_allowed_stable_and_distinct(a in "[a-zé._ -]{0,80}", b in "[a-c._-]{0,4}", c in "[a-c._-]{0,4}") {
            let wire = wire_name(&a).into_owned();
            prop_assert!((1..=64).contains(&wire.len()) && wire.chars().all(allowed));
            prop_assert_eq!(wire_name(&wire).into_owned(), wire.clone());
            prop_assert!((1..=40).contains(&wire_id(&a).len()));
            // Names that need a change never meet each other; meeting an allowed one is caught above.
            let changed = |name: &str| wire_name(name) != name;
            if b != c && changed(&b) && changed(&c) {
                prop_assert_ne!(wire_name(&b), wire_name(&c));
            }
        }
    }
}
