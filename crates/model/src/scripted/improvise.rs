//! What the offline model says without a script: it calls a tool once for what the user said, and
//! then reports the result.

use serde_json::{Map, Value};

use super::script::{Call, Heard, Line};
use crate::message::{Request, ToolChoice, ToolSpec};

pub(super) fn line(request: &Request, heard: &Heard<'_>) -> Line {
    if !heard.results.is_empty() {
        return say(format!("The tool said: {}", heard.results.join(" ")));
    }
    let offered = if request.tool_choice == ToolChoice::None { &[] } else { request.tools.as_slice() };
    let is_echo = |tool: &&ToolSpec| tool.name == "echo" || tool.name.ends_with(".echo");
    let tools = offered.iter().filter(is_echo).chain(offered);
    let call = tools.into_iter().find_map(|tool| {
        let arguments = object(&tool.parameters, heard.user)?;
        Some(Call { name: tool.name.clone(), arguments, arguments_text: None })
    });
    match call {
        Some(call) => Line { calls: vec![call], ..Line::default() },
        None => say(format!("You said: {}", heard.user)),
    }
}

fn say(text: String) -> Line {
    Line { text, ..Line::default() }
}

/// Arguments made of what the user said; `None` if the schema is more than can be guessed. Without
/// required properties the first that takes text gets it.
fn object(schema: &Value, said: &str) -> Option<Map<String, Value>> {
    let Some(properties) = schema["properties"].as_object() else {
        return schema["required"].as_array().is_none_or(Vec::is_empty).then(Map::new);
    };
    let mut names: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if names.is_empty() {
        let takes_text = |(_, schema): &(&String, &Value)| kind(schema) == Some("string");
        names.extend(properties.iter().find(takes_text).map(|(name, _)| name.as_str()));
    }
    names.into_iter().map(|name| Some((name.to_owned(), value(properties.get(name)?, said)?))).collect()
}

fn value(schema: &Value, said: &str) -> Option<Value> {
    if let Some(given) = [&schema["const"], &schema["default"], &schema["enum"][0]].into_iter().find(|v| !v.is_null()) {
        return Some(given.clone());
    }
    Some(match kind(schema)? {
        "string" => {
            let length_max = schema["maxLength"].as_u64().unwrap_or(u64::MAX);
            Value::from(said.chars().take(usize::try_from(length_max).unwrap_or(usize::MAX)).collect::<String>())
        }
        "integer" => Value::from(number(schema, said).round() as i64),
        "number" => Value::from(number(schema, said)),
        "boolean" => Value::from(true),
        "array" if schema["minItems"].as_u64().unwrap_or(0) == 0 => Value::Array(Vec::new()),
        "array" => Value::Array(vec![value(&schema["items"], said)?]),
        "object" => Value::Object(object(schema, said)?),
        _ => return None,
    })
}

/// The first number in what was said, within the bounds.
fn number(schema: &Value, said: &str) -> f64 {
    let found = said.split(|c: char| !c.is_ascii_digit() && c != '.').find_map(|word| word.parse::<f64>().ok());
    let number = found.unwrap_or(1.0);
    let number = schema["minimum"].as_f64().map_or(number, |minimum| number.max(minimum));
    schema["maximum"].as_f64().map_or(number, |maximum| number.min(maximum))
}

fn kind(schema: &Value) -> Option<&str> {
    match &schema["type"] {
        Value::String(kind) => Some(kind),
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null"),
        _ => None,
    }
}
