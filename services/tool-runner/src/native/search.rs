//! `search_messages`, `search_reasoning`, `search_broadcasts`: what the caller itself was told and said.

use super::{Caller, Failed, Plan, error_of, success};
use instar_runtime::flow::Outcome;
use instar_store::{EXCERPT_CHARS_MAX, Match, Place, SEARCHED_MAX};
use instar_tools::{FOUND_DEFAULT, FOUND_MAX, Native};
use serde_json::{Value, json};

pub(super) async fn plan(native: Native, caller: &Caller<'_>) -> Result<Plan, Failed> {
    let arguments = &caller.call.arguments;
    let query = arguments["query"].as_str().unwrap_or_default();
    if query.trim().is_empty() {
        return Ok(Plan::Answer(error_of("query is empty: say what to look for")));
    }
    // 5.0 is an integer to JSON Schema.
    let limit = arguments["limit"].as_f64().map_or(FOUND_DEFAULT, |n| n as u64).clamp(1, FOUND_MAX);
    let place = match native {
        Native::SearchReasoning => Place::Reasoning,
        Native::SearchBroadcasts => Place::Broadcasts,
        _ => Place::Messages,
    };
    let found = caller.runner.hub.store().search(caller.agent(), place, query, limit).await?;
    Ok(Plan::Answer(shown(found, caller.spec.max_output_bytes)))
}

/// Nothing found is an answer like any other. What is too long for the result loses its oldest.
fn shown(found: Vec<Match>, bytes_max: usize) -> Outcome {
    let mut shown: Vec<Value> = found.iter().map(show).collect();
    let whole = shown.len();
    while shown.len() > 1 && shown.iter().map(|m| m.to_string().len() + 1).sum::<usize>() > bytes_max {
        shown.remove(0);
    }
    let truncated = shown.len() < whole;
    let output = json!({"matches": shown, "searched": format!("your newest {SEARCHED_MAX} messages")});
    Outcome { truncated, ..success(output) }
}

fn show(found: &Match) -> Value {
    let mut shown = json!({"role": found.role, "source": found.source, "content": found.excerpt, "at": found.at});
    if found.chars > EXCERPT_CHARS_MAX {
        shown["cut"] = json!(format!("{EXCERPT_CHARS_MAX} of {} characters, around the first hit", found.chars));
    }
    shown
}
