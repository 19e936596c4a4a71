//! A model that makes the same call again and again is told so, and in the end stopped.

use instar_core::decide::{Repeated, repeated};
use instar_core::rune::payload::ResultStatus;
use instar_runtime::flow::{Asked, Verdict};
use instar_store::entity::tool_call;
use instar_tools::Native;
use serde_json::Value;

/// What a call is told that is one too many begins so.
const TOLD: &str = "this is the same call for the ";

/// Whether a later call has told more than one right before it. Of one that was not made nothing new was told.
fn is_news(before: &tool_call::Model, after: &tool_call::Model) -> bool {
    let result = |call: &tool_call::Model| {
        let part = |part: &str| call.result.as_ref().map(|result| result[part].clone()).unwrap_or_default();
        (call.result_status.clone(), part("output"), part("error"))
    };
    let told = |call: &tool_call::Model| {
        call.result.as_ref().and_then(|result| result["error"].as_str()).is_some_and(|why| why.starts_with(TOLD))
    };
    !told(before) && !told(after) && result(before) != result(after)
}

fn waits(name: &str) -> bool {
    Native::named(name).is_some_and(Native::waits)
}

/// How many of the last calls are the same with the same result.
fn run_of(before: &[tool_call::Model]) -> u32 {
    let Some(last) = before.last().filter(|last| !waits(&last.name)) else { return 0 };
    let same = |call: &tool_call::Model| call.name == last.name && call.arguments == last.arguments;
    let pairs = before.windows(2).rev();
    let more = pairs.take_while(|pair| same(&pair[0]) && !is_news(&pair[0], &pair[1])).count();
    u32::try_from(more + 1).unwrap_or(u32::MAX)
}

/// Refuses calls that repeat those right before them too often; `before` are those of the turn so far, in order.
/// The same: the same tool with the same arguments, however they are written, and nothing new in what came of it.
/// To wait is no repetition. `Some`: why the turn must end.
pub(crate) fn brake(before: &[tool_call::Model], asked: &mut [Asked], max: u32) -> Option<String> {
    let key = |call: &tool_call::Model| (call.name.clone(), call.arguments.clone());
    let mut last: Option<(String, Value)> = before.last().map(key);
    let mut run = run_of(before);
    for call in asked {
        let again = last.as_ref().is_some_and(|(name, arguments)| call.name == *name && call.arguments == *arguments);
        run = if again { run.saturating_add(1) } else { 1 };
        if !again {
            last = Some((call.name.clone(), call.arguments.clone()));
        }
        if waits(&call.name) {
            continue;
        }
        match repeated(run, max) {
            Repeated::Fine => {}
            Repeated::TooOften => {
                let why = format!(
                    "{TOLD}{run}th time in a row, with the same arguments; it was not made. \
                     Its earlier results stand: use them, change the arguments, or do something else"
                );
                call.verdict = Verdict::Refused { status: ResultStatus::Error, why };
            }
            Repeated::Endless => {
                return Some(format!(
                    "the model made the same call of {:?} {run} times in a row, although it was told that it was not \
                     made any more; look at its instructions, or raise worker.repeated_calls_max",
                    call.name
                ));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use instar_core::id::CallId;
    use serde_json::json;

    fn asked(name: &str, arguments: Value) -> Asked {
        Asked {
            id: CallId::from(uuid::Uuid::now_v7()),
            provider_call_id: None,
            name: name.into(),
            arguments,
            digest: String::new(),
            effect: "read_only",
            verdict: Verdict::Free,
        }
    }

    #[test]
    fn the_same_call_is_refused_after_so_many_and_another_one_in_between_starts_anew() {
        let same = || asked("look", json!({"a": 1, "b": 2}));
        let mut calls: Vec<Asked> = (0..4).map(|_| same()).collect();
        assert_eq!(brake(&[], &mut calls, 3), None);
        let open: Vec<bool> = calls.iter().map(Asked::is_open).collect();
        assert_eq!(open, [true, true, true, false]);
        let mut calls = vec![same(), same(), same(), asked("look", json!({"a": 1})), same()];
        assert_eq!(brake(&[], &mut calls, 3), None);
        assert!(calls.iter().all(Asked::is_open));
        let mut calls: Vec<Asked> = (0..7).map(|_| same()).collect();
        assert!(brake(&[], &mut calls, 3).is_some_and(|why| why.contains("look")));
        let mut calls: Vec<Asked> = (0..50).map(|_| same()).collect();
        assert_eq!(brake(&[], &mut calls, 0), None, "0 switches it off");
    }

    fn made(call: &Asked, result: Value, status: &str) -> tool_call::Model {
        let turn = uuid::Uuid::now_v7();
        let at = instar_store::clock::now();
        tool_call::Model {
            id: call.id.uuid(),
            session_id: turn,
            agent_id: turn,
            turn_id: Some(turn),
            step_id: None,
            status: "executing".into(),
            epoch: 0,
            version: 0,
            owner: None,
            iteration: 1,
            position: 0,
            name: call.name.clone(),
            provider_call_id: None,
            arguments: call.arguments.clone(),
            digest: String::new(),
            effect: "read_only".into(),
            attempts: 0,
            approval: None,
            result_status: Some(status.into()),
            result: Some(result),
            waits_for: None,
            expires_at: None,
            traceparent: None,
            created_at: at,
            updated_at: at,
            ended_at: Some(at),
        }
    }

    /// Makes a call so often, one per answer; what became of the last one.
    fn repeat(name: &str, times: usize, result: impl Fn(usize) -> Value) -> (usize, bool) {
        let (mut before, mut refused) = (Vec::new(), 0);
        for n in 0..times {
            let mut calls = vec![asked(name, json!({"timeout_ms": 1_000}))];
            if brake(&before, &mut calls, 3).is_some() {
                return (refused, true);
            }
            let row = match &calls[0].verdict {
                Verdict::Refused { why, .. } => {
                    refused += 1;
                    made(&calls[0], json!({"output": null, "error": why}), "error")
                }
                _ => made(&calls[0], result(n), "success"),
            };
            before.push(row);
        }
        (refused, false)
    }

    #[test]
    fn to_wait_again_or_to_look_at_what_changes_is_no_repetition() {
        let same = |_: usize| json!({"output": "running"});
        assert_eq!(repeat("look", 20, same), (3, true), "the fourth to the sixth are refused, the seventh ends it");
        assert_eq!(repeat("wait_for", 20, same), (0, false));
        assert_eq!(repeat("look", 20, |n| json!({"output": format!("{n} of 20")})), (0, false));
        // What stands still after it has changed is repeated from then on.
        assert_eq!(repeat("look", 6, |n| json!({"output": n.min(2)})), (1, false));
    }
}
