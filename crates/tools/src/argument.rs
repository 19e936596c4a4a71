//! Whether arguments may reach a tool, and words that a model can act on when they may not.

use crate::canonical::INTEGER_MAX;
use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{ValidationError, Validator};
use serde_json::Value;

pub const ARGUMENT_BYTES_MAX: usize = 1 << 20;
pub const ARGUMENT_DEPTH_MAX: usize = 32;
/// Elements and fields altogether: a small text can hold a great many.
const VALUES_MAX: usize = 100_000;
const PROBLEMS_MAX: usize = 10;
const QUOTE_BYTES_MAX: usize = 160;

/// Arguments that a tool never sees.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the arguments of {tool} are not valid: {}", problems.join("; "))]
pub struct Invalid {
    pub tool: String,
    /// Each names a place by JSON pointer and what is expected there.
    pub problems: Vec<String>,
}

pub(crate) fn parse(tool: &str, text: &str) -> Result<Value, Invalid> {
    let invalid = |problem: String| Invalid { tool: tool.to_owned(), problems: vec![problem] };
    if text.len() > ARGUMENT_BYTES_MAX {
        return Err(invalid(too_large(text.len())));
    }
    // Some providers send nothing for a call without arguments.
    let text = if text.trim().is_empty() { "{}" } else { text };
    let value = serde_json::from_str(text).map_err(|error| invalid(format!("not JSON: {error}")))?;
    match long_integer(text) {
        Some(literal) => Err(invalid(format!("the integer {} {LOSES_DIGITS}", cut(literal)))),
        None => Ok(value),
    }
}

const LOSES_DIGITS: &str = "lies beyond 2^53, where digits are lost: send a smaller number or a string";

fn too_large(bytes: usize) -> String {
    format!("{bytes} bytes; at most {ARGUMENT_BYTES_MAX} are allowed")
}

pub(crate) fn validate(tool: &str, schema: &Value, validator: &Validator, arguments: &Value) -> Result<(), Invalid> {
    let mut problems = Vec::new();
    if arguments.is_object() {
        let mut room = Room { bytes: ARGUMENT_BYTES_MAX, values: VALUES_MAX };
        walk(arguments, &mut String::new(), 1, &mut room, &mut problems);
    } else {
        problems.push(format!("/: expected object, got {}", kind_of(arguments)));
    }
    if problems.is_empty() {
        problems.extend(validator.iter_errors(arguments).take(PROBLEMS_MAX).map(|error| explain(schema, &error)));
    }
    if problems.is_empty() { Ok(()) } else { Err(Invalid { tool: tool.to_owned(), problems }) }
}

struct Room {
    bytes: usize,
    values: usize,
}

/// Limits come before the schema, whose cost grows with what it is given.
fn walk(value: &Value, place: &mut String, depth: usize, room: &mut Room, problems: &mut Vec<String>) {
    let here = |place: &str| if place.is_empty() { "/".to_owned() } else { cut(place) };
    if !problems.is_empty() {
        return;
    }
    let bytes = if let Value::String(text) = value { text.len() } else { 1 };
    match (room.bytes.checked_sub(bytes), room.values.checked_sub(1)) {
        (Some(bytes), Some(values)) => *room = Room { bytes, values },
        (None, _) => return problems.push(format!("{}: over {ARGUMENT_BYTES_MAX} bytes in all", here(place))),
        (_, None) => return problems.push(format!("{}: over {VALUES_MAX} values in all", here(place))),
    }
    if depth > ARGUMENT_DEPTH_MAX {
        return problems.push(format!("{}: nested deeper than {ARGUMENT_DEPTH_MAX}", here(place)));
    }
    let length = place.len();
    match value {
        Value::Number(number) => {
            let whole = number.as_u64().or_else(|| number.as_i64().map(i64::unsigned_abs));
            if whole.is_some_and(|whole| whole > INTEGER_MAX) {
                problems.push(format!("{}: {number} {LOSES_DIGITS}", here(place)));
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                place.push_str(&format!("/{index}"));
                walk(item, place, depth + 1, room, problems);
                place.truncate(length);
            }
        }
        Value::Object(fields) => {
            for (name, item) in fields {
                room.bytes = room.bytes.saturating_sub(name.len());
                place.push('/');
                place.push_str(&name.replace('~', "~0").replace('/', "~1"));
                walk(item, place, depth + 1, room, problems);
                place.truncate(length);
            }
        }
        _ => {}
    }
}

fn explain(schema: &Value, error: &ValidationError<'_>) -> String {
    let place = error.instance_path().as_str();
    let at = if place.is_empty() { "/".to_owned() } else { cut(place) };
    let quoted = |names: &[String]| names.iter().map(|name| cut(name)).collect::<Vec<_>>().join(", ");
    match error.kind() {
        ValidationErrorKind::Type { kind } => {
            let expected = match kind {
                TypeKind::Single(one) => one.to_string(),
                TypeKind::Multiple(many) => many.iter().map(|one| one.to_string()).collect::<Vec<_>>().join(" or "),
            };
            format!(
                "{at}: expected {expected}, got {} {}",
                kind_of(error.instance()),
                cut(&error.instance().to_string())
            )
        }
        ValidationErrorKind::Required { property } => {
            format!("{at}: {} is missing", property.as_str().unwrap_or_default())
        }
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            let known = schema.get("properties").and_then(Value::as_object).filter(|_| place.is_empty());
            let known: Vec<String> = known.map(|fields| fields.keys().cloned().collect()).unwrap_or_default();
            let allowed = if known.is_empty() { "none more".to_owned() } else { quoted(&known) };
            format!("{at}: unknown {}; allowed: {allowed}", quoted(unexpected))
        }
        _ => format!("{at}: {}", cut(&error.to_string())),
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Quotes what came from outside, but not all of it.
pub(crate) fn cut(text: &str) -> String {
    if text.len() <= QUOTE_BYTES_MAX {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(QUOTE_BYTES_MAX)])
}

/// The first integer literal that a reader with double-precision numbers would change. Reading
/// hides it: past 64 bits the literal becomes a float of another value without a word.
fn long_integer(text: &str) -> Option<&str> {
    let bytes = text.as_bytes();
    let mut place = 0;
    while place < bytes.len() {
        match bytes[place] {
            b'"' => {
                place += 1;
                while place < bytes.len() && bytes[place] != b'"' {
                    place += if bytes[place] == b'\\' { 2 } else { 1 };
                }
                place += 1;
            }
            b'0'..=b'9' => {
                let start = place;
                let part = |b: u8| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-');
                while place < bytes.len() && part(bytes[place]) {
                    place += 1;
                }
                let literal = &text[start..place];
                let whole = literal.bytes().all(|b| b.is_ascii_digit());
                if whole && literal.parse::<u64>().map_or(true, |number| number > INTEGER_MAX) {
                    return Some(literal);
                }
            }
            _ => place += 1,
        }
    }
    None
}
