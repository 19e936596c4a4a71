//! Tool calls: let through before they run, one result each.

use super::{APPROVAL_BEFORE_EXEC, CALL_BEFORE_RESULT, Report, TOOL_TERMINAL};
use crate::fold::States;
use crate::id::Entity;
use crate::machine::{Phase, tool_call};
use crate::rune::Rune;
use crate::rune::payload::{ToolApprovalRequested, ToolApproved};
use std::collections::HashMap;

/// Kinds that only a running call has.
const RUNNING: [&str; 3] = ["tool.started", "tool.progress", "tool.reclaimed"];

#[derive(Debug, Default)]
pub(super) struct Watch {
    /// What a person was asked to approve, with its digest, until he answers.
    asked: HashMap<Entity, Option<String>>,
}

fn phase(states: &States, entity: Entity) -> Option<Phase> {
    states.get(&tool_call::TABLE, entity).and_then(|s| tool_call::TABLE.phase(s))
}

impl Watch {
    pub(super) fn before(&mut self, rune: &Rune, states: &States, report: &mut Report) {
        let call = rune.entity;
        match rune.kind.as_str() {
            "tool.result" => {
                self.asked.remove(&call);
                match phase(states, call) {
                    None => {
                        report.fire(&CALL_BEFORE_RESULT, rune.seq, format!("a result of {call}, which was never made"))
                    }
                    Some(Phase::Terminal) => {
                        report.fire(&TOOL_TERMINAL, rune.seq, format!("a second result of {call}"))
                    }
                    Some(_) => {}
                }
            }
            "tool.approval_requested" => {
                let asked = serde_json::from_str::<ToolApprovalRequested>(rune.payload.get());
                self.asked.insert(call, asked.ok().and_then(|asked| asked.digest));
            }
            "tool.approved" => {
                let given =
                    serde_json::from_str::<ToolApproved>(rune.payload.get()).ok().and_then(|given| given.digest);
                let asked = self.asked.remove(&call).flatten();
                if asked.is_some() && asked != given {
                    let message = format!("{call} was approved as {given:?} and asked for as {asked:?}");
                    report.fire(&APPROVAL_BEFORE_EXEC, rune.seq, message);
                }
            }
            kind if RUNNING.contains(&kind) => {
                let state = states.get(&tool_call::TABLE, call).unwrap_or("nothing");
                if state != tool_call::State::Executing.token() {
                    report.fire(&APPROVAL_BEFORE_EXEC, rune.seq, format!("{kind} of {call}, which is {state}"));
                } else if self.asked.contains_key(&call) {
                    let message = format!("{kind} of {call}, which waited for an approval and had none");
                    report.fire(&APPROVAL_BEFORE_EXEC, rune.seq, message);
                }
            }
            _ => {}
        }
    }

    pub(super) fn finish(&mut self, last: i64, states: &States, report: &mut Report) {
        let calls = states.iter().filter(|(table, ..)| table.name == tool_call::TABLE.name);
        let mut open: Vec<_> = calls.filter(|(_, c, _)| phase(states, *c) != Some(Phase::Terminal)).collect();
        open.sort_by_key(|(_, call, _)| *call);
        for (_, call, state) in open {
            report.fire(&TOOL_TERMINAL, last, format!("{call} has no result and is still {state}"));
        }
    }
}
