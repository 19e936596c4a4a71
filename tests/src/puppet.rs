//! A model that does what the message says: for scenarios in which several agents act.
//!
//! A message is a list of steps joined by ` ;; `, one per provider call of its turn:
//! `call TOOL JSON`, `calls [[TOOL, {…}], …]`, `slow MS TEXT`, anything else is said as it is.

use instar_testkit::model::{Reply, Request, Script};
use serde_json::Value;
use std::time::Duration;

pub fn script() -> Script {
    Script::function(reply)
}

pub fn reply(request: &Request) -> Reply {
    let text = request.user_text();
    // What another agent says comes with its name on top.
    let text = match text.split_once(":\n") {
        Some((from, rest)) if from.starts_with("Message from ") => rest.to_owned(),
        _ => text,
    };
    let messages = request.messages();
    let last = messages.iter().rposition(|message| message["role"] == "user").unwrap_or(0);
    let step = messages[last..].iter().filter(|message| message["role"] == "assistant").count();
    let Some(step) = text.split(" ;; ").nth(step) else { return Reply::text("done") };
    let (word, rest) = step.split_once(' ').unwrap_or((step, ""));
    let json = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    match word {
        "call" => {
            let (tool, arguments) = rest.split_once(' ').unwrap_or((rest, "{}"));
            Reply::call(tool, json(arguments))
        }
        "calls" => {
            let calls = json(rest).as_array().cloned().unwrap_or_default();
            let calls = calls.iter().map(|call| Reply::call(call[0].as_str().unwrap_or_default(), call[1].clone()));
            calls.reduce(Reply::and).unwrap_or_else(|| Reply::text("nothing to call"))
        }
        "slow" => {
            let (ms, rest) = rest.split_once(' ').unwrap_or((rest, "slowly done"));
            Reply::text(rest).slow(Duration::from_millis(ms.parse().unwrap_or(100)), Duration::ZERO)
        }
        _ => Reply::text(step),
    }
}
