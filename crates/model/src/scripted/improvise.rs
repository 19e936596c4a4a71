//! What the offline model says without a script: it calls a tool once for what the user said, and
//! then reports the result.

use serde_json::{Map, Value, json};

use super::script::{Call, Heard, Line};
use crate::message::{Request, ToolChoice, ToolSpec};

pub(super) fn line(request: &Request, heard: &Heard<'_>) -> Line {
    if !heard.results.is_empty() {
        return say(format!("The tool said: {}", heard.results.join(" ")));
    }
    let offered = if request.tool_choice == ToolChoice::None { &[] } else { request.tools.as_slice() };
    if let Some(call) = proposal(offered, heard.user) {
        return Line { calls: vec![call], ..Line::default() };
    }
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

/// Tools that are there to answer a mission, not to carry it out.
const ANSWERS: [&str; 6] =
    ["propose_mission", "propose_hop_plan", "propose_hop_impl", "ask_person", "fail_hop", "replan_hop"];

/// What a mission asks for, made of the words in which it asks: a first hop that makes something new, then the one
/// that makes what the mission promises out of that and of what the mission reads. The first hop tries a tool that needs
/// nothing to be told, if there is one; where something went wrong, and in the end, it echoes, one step for each asset
/// that the hop reads.
fn proposal(offered: &[ToolSpec], said: &str) -> Option<Call> {
    let has = |name: &str| offered.iter().any(|tool| tool.name == name);
    let (name, arguments) = if has("propose_hop_impl") {
        let to = json!({"type": "asset_field", "state_asset_id": id_after(said, "and makes ", "ast_")?});
        let needs_nothing = |tool: &&ToolSpec| {
            !ANSWERS.contains(&tool.name.as_str()) && object(&tool.parameters, "").is_some_and(|given| given.is_empty())
        };
        let tries = said.contains("Hop 1:") && !said.contains("What went wrong");
        let step = |tool: &str, parameters: Value, to: &Value| json!({"tool_id": tool, "parameter_mapping": parameters, "result_mapping": {"output": to}});
        let echo = |of: Value, to: &Value| step("echo", json!({"text": of}), to);
        let read =
            said.split_once("It reads ").and_then(|(_, rest)| rest.split_once(" and makes ")).map(|(read, _)| read);
        let mut read: Vec<Value> = read.map(|read| ids(read, "ast_")).unwrap_or_default();
        let last = read.pop();
        let mut steps: Vec<Value> = read.into_iter().map(|of| echo(of, &json!({"type": "discard"}))).collect();
        steps.push(match (offered.iter().find(needs_nothing).filter(|_| tries), last) {
            (Some(tool), _) => step(&tool.name, json!({}), &to),
            (None, Some(of)) => echo(of, &to),
            (None, None) => echo(json!({"type": "literal", "value": "Made by the offline model."}), &to),
        });
        ("propose_hop_impl", json!({"steps": steps}))
    } else if has("propose_hop_plan") {
        let last = !said.contains("Hop 1:");
        let promised = said.lines().find(|line| line.contains(", output, ") && !line.contains(", READY:"));
        let output = match promised.filter(|_| last) {
            Some(line) => json!({"asset_id": id_after(line, "(", "ast_")?}),
            None => json!({"asset": {"name": "draft", "description": "what the next hop builds on"}}),
        };
        let name = if last { "finish" } else { "draft" };
        // The last hop builds on what there is: texts, which a step can echo.
        let reads = |line: &&str| {
            (line.contains(", input, string, ") || line.contains(", intermediate, string, ")) && line.starts_with("- ")
        };
        let inputs = said.lines().filter(reads).filter(|_| last).filter_map(|line| id_after(line, "(", "ast_"));
        let inputs: Vec<String> = inputs.collect();
        ("propose_hop_plan", json!({"name": name, "inputs": inputs, "output": output, "is_final": last}))
    } else {
        return None;
    };
    let arguments = arguments.as_object().cloned()?;
    Some(Call { name: name.to_owned(), arguments, arguments_text: None })
}

/// Every asset that is named here, as where a parameter comes from.
fn ids(said: &str, prefix: &str) -> Vec<Value> {
    let words = said.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words
        .filter(|word| word.starts_with(prefix))
        .map(|id| json!({"type": "asset_field", "state_asset_id": id}))
        .collect()
}

/// The first id with this prefix behind these words.
fn id_after(said: &str, words: &str, prefix: &str) -> Option<String> {
    let (_, rest) = said.split_once(words)?;
    let at = rest.find(prefix)?;
    Some(rest[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect())
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
