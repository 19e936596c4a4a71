//! A tool call as a model made it, with arguments that may be nonsense.
//!
//! Must not know: tools and their schemas. Here only "is it a JSON object" is decided.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The provider's id; unique within its answer, not beyond.
    pub id: String,
    pub name: String,
    pub arguments: Arguments,
}

/// Arguments as text, not as a parsed tree: numbers keep all their digits, and what is sent back in
/// the history is what the model wrote, which provider caches depend on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arguments {
    /// The text of a JSON object.
    Json(String),
    /// Text that is not. The call can't run; the model can be told by [`Arguments::problem`].
    Invalid { text: String, reason: Flaw },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Flaw {
    NotJson,
    NotAnObject,
    /// The answer ran into its token limit inside the arguments.
    Truncated,
}

impl Arguments {
    /// Nothing at all, and `null`, mean no arguments: servers send both for tools that take none.
    pub fn from_text(text: &str) -> Self {
        let trimmed = text.trim();
        if trimmed.is_empty() || trimmed == "null" {
            return Self::Json("{}".to_owned());
        }
        match serde_json::from_str::<&serde_json::value::RawValue>(trimmed) {
            Ok(_) if trimmed.starts_with('{') => Self::Json(trimmed.to_owned()),
            Ok(_) => Self::Invalid { text: text.to_owned(), reason: Flaw::NotAnObject },
            Err(_) => Self::Invalid { text: text.to_owned(), reason: Flaw::NotJson },
        }
    }

    /// For a call that the token limit cut off. A whole object ends itself; anything else, above
    /// all the empty text that would otherwise mean "no arguments", must not run.
    pub fn from_truncated(text: &str) -> Self {
        match Self::from_text(text) {
            Self::Json(json) if !text.trim().is_empty() => Self::Json(json),
            _ => Self::Invalid { text: text.to_owned(), reason: Flaw::Truncated },
        }
    }

    pub fn from_map(map: &Map<String, Value>) -> Self {
        Self::Json(serde_json::to_string(map).unwrap_or_else(|_| "{}".to_owned()))
    }

    pub fn json(&self) -> Option<&str> {
        match self {
            Self::Json(json) => Some(json),
            Self::Invalid { .. } => None,
        }
    }

    /// The arguments as a tree, for checking and for builders of requests.
    pub fn value(&self) -> Option<Value> {
        self.json().and_then(|json| serde_json::from_str(json).ok())
    }

    /// What to tell the model about arguments that can't be used.
    pub fn problem(&self) -> Option<String> {
        let Self::Invalid { text, reason } = self else { return None };
        Some(match reason {
            Flaw::NotJson => {
                let why = serde_json::from_str::<&serde_json::value::RawValue>(text).err();
                let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
                format!("the arguments are not valid JSON{why}: call again with a JSON object")
            }
            Flaw::NotAnObject => "the arguments are not a JSON object: call again with one".to_owned(),
            Flaw::Truncated => {
                "the answer reached its token limit inside the arguments: call again with shorter ones".to_owned()
            }
        })
    }

    /// What goes back to a provider. Invalid text is wrapped, since some servers parse the history
    /// and refuse the whole conversation because of it.
    pub(crate) fn for_history(&self) -> String {
        match self {
            Self::Json(json) => json.clone(),
            Self::Invalid { text, .. } => serde_json::json!({ "invalid_arguments": text }).to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(arguments: Arguments) -> Option<Flaw> {
        match arguments {
            Arguments::Json(_) => None,
            Arguments::Invalid { reason, .. } => Some(reason),
        }
    }

    #[test]
    fn arguments_keep_their_digits_and_their_order() {
        let text = r#"{"b":12345678901234567890123,"a":1.10}"#;
        assert_eq!(Arguments::from_text(text).json(), Some(text));
    }

    #[test]
    fn no_arguments_are_an_empty_object() {
        for text in ["", "  ", "null", "{}"] {
            assert_eq!(Arguments::from_text(text).json(), Some("{}"), "{text:?}");
        }
    }

    #[test]
    fn what_is_not_an_object_is_kept_and_explained() {
        let rows = [("{\"a\":", Flaw::NotJson), ("[1]", Flaw::NotAnObject), ("hello", Flaw::NotJson)];
        for (text, expected) in rows {
            let arguments = Arguments::from_text(text);
            assert!(arguments.problem().is_some_and(|problem| problem.contains("call again")));
            assert!(serde_json::from_str::<Value>(&arguments.for_history()).unwrap().is_object());
            assert_eq!(reason(arguments), Some(expected), "{text}");
        }
    }

    #[test]
    fn a_truncated_call_without_text_is_not_a_call_without_arguments() {
        assert_eq!(reason(Arguments::from_truncated("")), Some(Flaw::Truncated));
        assert_eq!(reason(Arguments::from_truncated("{\"a\"")), Some(Flaw::Truncated));
        assert_eq!(reason(Arguments::from_truncated("{\"a\":1}")), None);
    }
}
