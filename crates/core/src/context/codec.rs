//! Calls and results as text, for import from and export to systems that store them so: an answer is
//! `[TOOL_CALLS]` and records `id:name:arguments` joined by `|`, a result is `id:text`.
//!
//! Here the arguments are read as one JSON object, after which comes `|` or the end: a `|` within them
//! splits nothing. Nothing in Instar is stored this way.

use serde_json::{Map, Value};

const MARKER: &str = "[TOOL_CALLS]";

#[derive(Clone, Debug, PartialEq)]
pub struct TextCall {
    pub id: String,
    pub name: String,
    pub arguments: Map<String, Value>,
}

/// A text, or a value for one, that does not follow the format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a record of the form {expected}: {text:?}")]
pub struct Unreadable {
    pub expected: &'static str,
    pub text: String,
}

fn unreadable(expected: &'static str, text: &str) -> Unreadable {
    Unreadable { expected, text: text.chars().take(80).collect() }
}

/// Ids and names must not hold a `:`; what would not come back is refused.
pub fn calls_to_text(calls: &[TextCall]) -> Result<String, Unreadable> {
    let mut records = Vec::with_capacity(calls.len());
    for TextCall { id, name, arguments } in calls {
        for part in [id, name] {
            if part.is_empty() || part.contains(':') {
                return Err(unreadable("id:name:arguments with no ':' in id and name", part));
            }
        }
        let arguments = serde_json::to_string(arguments).map_err(|_| unreadable("arguments as JSON", name))?;
        records.push(format!("{id}:{name}:{arguments}"));
    }
    Ok(format!("{MARKER}{}", records.join("|")))
}

/// `None`: the text is an answer without calls.
pub fn calls_from_text(text: &str) -> Option<Result<Vec<TextCall>, Unreadable>> {
    let mut rest = text.strip_prefix(MARKER)?;
    let mut calls = Vec::new();
    while !rest.is_empty() {
        match record(rest) {
            Some((call, after)) => {
                calls.push(call);
                rest = after;
            }
            None => return Some(Err(unreadable("id:name:arguments", rest))),
        }
    }
    Some(Ok(calls))
}

fn record(text: &str) -> Option<(TextCall, &str)> {
    let (id, rest) = text.split_once(':')?;
    let (name, rest) = rest.split_once(':')?;
    if id.is_empty() || name.is_empty() {
        return None;
    }
    // One object, however many '|' and ':' are in it.
    let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Map<String, Value>>();
    let (arguments, read) = match values.next() {
        Some(value) => (value.ok()?, values.byte_offset()),
        None => Default::default(),
    };
    let after = rest[read..].trim_start();
    let after = match after.strip_prefix('|') {
        Some(more) if !more.is_empty() => more,
        None if after.is_empty() => after,
        _ => return None,
    };
    Some((TextCall { id: id.to_owned(), name: name.to_owned(), arguments }, after))
}

pub fn result_to_text(id: &str, text: &str) -> Result<String, Unreadable> {
    match id.is_empty() || id.contains(':') {
        true => Err(unreadable("id:text with no ':' in the id", id)),
        false => Ok(format!("{id}:{text}")),
    }
}

/// The id and the text.
pub fn result_from_text(text: &str) -> Result<(&str, &str), Unreadable> {
    let (id, text) =
        text.split_once(':').filter(|(id, _)| !id.is_empty()).ok_or_else(|| unreadable("id:text", text))?;
    Ok((id, text))
}
