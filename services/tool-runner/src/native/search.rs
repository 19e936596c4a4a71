//! `search_messages`, `search_reasoning`, `search_broadcasts`: what the caller itself was told and said.

use super::{Caller, Failed, Plan, error_of, success};
use instar_core::id::SessionId;
use instar_runtime::flow::{self, Outcome};
use instar_store::{EXCERPT_CHARS_MAX, Match, Place, SEARCHED_MAX};
use instar_tools::{FOUND_DEFAULT, FOUND_MAX, Native};
use serde_json::{Value, json};
use uuid::Uuid;

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
    let mut found = caller.runner.hub.store().search(caller.agent(), place, query, limit).await?;
    if place == Place::Broadcasts {
        found.extend(unsent(caller, query).await?);
        found.sort_by_key(|one| one.at);
        let surplus = found.len().saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX));
        found.drain(..surplus);
    }
    Ok(Plan::Answer(shown(found, caller.spec.max_output_bytes)))
}

/// What still stands and was said before the caller was there to be sent it.
async fn unsent(caller: &Caller<'_>, query: &str) -> Result<Vec<Match>, Failed> {
    let (store, agent) = (caller.runner.hub.store(), caller.agent());
    let session = SessionId::from(caller.call.session_id);
    let standing = store.standing_broadcasts(session, store.now().await?, FOUND_MAX).await?;
    let sent = |id: Uuid| flow::message_of(id, agent.uuid()).uuid();
    let ids: Vec<Uuid> = standing.iter().map(|row| sent(row.id)).collect();
    let there = store.existing_messages(&ids).await?;
    let unsent = standing.iter().filter(|row| !there.contains(&sent(row.id)));
    Ok(unsent.filter_map(|row| Match::within(&row.content, query, "broadcast", row.created_at)).collect())
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
