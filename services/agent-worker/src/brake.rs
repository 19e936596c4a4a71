//! A model that makes the same call again and again is told so, and in the end stopped.

use instar_core::decide::{Repeated, repeated};
use instar_core::rune::payload::ResultStatus;
use instar_runtime::flow::{Asked, Verdict};
use instar_store::entity::tool_call;
use serde_json::Value;

/// Refuses calls that repeat those right before them too often; `before` are those of the turn so far, in order.
/// The same: the same tool with the same arguments, however they are written. `Some`: why the turn must end.
pub(crate) fn brake(before: &[tool_call::Model], asked: &mut [Asked], max: u32) -> Option<String> {
    let key = |call: &tool_call::Model| (call.name.clone(), call.arguments.clone());
    let mut last: Option<(String, Value)> = before.last().map(key);
    let same = |call: &&tool_call::Model| {
        last.as_ref().is_some_and(|(name, arguments)| call.name == *name && call.arguments == *arguments)
    };
    let mut run = u32::try_from(before.iter().rev().take_while(same).count()).unwrap_or(u32::MAX);
    for call in asked {
        let again = last.as_ref().is_some_and(|(name, arguments)| call.name == *name && call.arguments == *arguments);
        run = if again { run.saturating_add(1) } else { 1 };
        if !again {
            last = Some((call.name.clone(), call.arguments.clone()));
        }
        match repeated(run, max) {
            Repeated::Fine => {}
            Repeated::TooOften => {
                let why = format!(
                    "this is the same call for the {run}th time in a row, with the same arguments; it was not made. \
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
}
