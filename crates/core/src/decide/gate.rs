//! What policy says to a tool call: run it, ask a person, or refuse it.

use crate::machine::tool_call::Event;

/// What a tool's spec, or a policy override for it, says about approval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Approval {
    /// Nothing: ask the next in line.
    #[default]
    Inherit,
    Always,
    Never,
}

/// The policy's mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    #[default]
    FullAccess,
    /// Side effects need approval.
    Auto,
    /// Side effects are denied.
    ReadOnly,
}

#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The tool is registered and enabled and the arguments fit its schema.
    pub valid: bool,
    /// A path or host lies outside the policy.
    pub outside_sandbox: bool,
    /// Unknown counts as yes.
    pub side_effects: bool,
    pub spec: Approval,
    pub policy_override: Approval,
    pub mode: Mode,
}

/// The event and the sentence that tells people and the model why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gated {
    pub event: Event,
    pub reason: &'static str,
}

/// Order: invalid, hard deny, spec, override, mode; the first that speaks decides. Only a `never`
/// is not enough to act in read_only: there the denial wins.
pub fn gate(call: Call) -> Gated {
    let answer = |event, reason| Gated { event, reason };
    if !call.valid {
        return answer(Event::InvalidCall, "the tool is unknown or disabled, or its arguments break the schema");
    }
    if call.outside_sandbox {
        return answer(Event::SandboxViolation, "a path or host lies outside the policy");
    }
    let forbidden = call.mode == Mode::ReadOnly && call.side_effects;
    for (approval, ask, approve) in [
        (call.spec, "the tool always asks for approval", "the tool never asks for approval"),
        (call.policy_override, "the policy always asks for this tool", "the policy never asks for this tool"),
    ] {
        match approval {
            Approval::Always => return answer(Event::RequiresApproval, ask),
            Approval::Never if !forbidden => return answer(approved(call.side_effects), approve),
            Approval::Never => {
                return answer(Event::PolicyDenied, "read_only forbids side effects, whatever never says");
            }
            Approval::Inherit => {}
        }
    }
    match (call.side_effects, call.mode) {
        (false, _) => answer(Event::NoApprovalNeeded, "the tool has no side effects"),
        (true, Mode::FullAccess) => answer(Event::AutoApproved, "full_access approves every tool"),
        (true, Mode::Auto) => answer(Event::RequiresApproval, "auto asks before side effects"),
        (true, Mode::ReadOnly) => answer(Event::PolicyDenied, "read_only forbids side effects"),
    }
}

/// An approval is recorded only where there is something to approve.
const fn approved(side_effects: bool) -> Event {
    if side_effects { Event::AutoApproved } else { Event::NoApprovalNeeded }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Approval::*;
    use Mode::*;

    fn call(side_effects: bool, spec: Approval, policy_override: Approval, mode: Mode) -> Call {
        Call { valid: true, outside_sandbox: false, side_effects, spec, policy_override, mode }
    }

    #[test]
    fn the_first_that_speaks_decides() {
        use Event::*;
        let cases = [
            // mode alone
            (call(false, Inherit, Inherit, FullAccess), NoApprovalNeeded),
            (call(false, Inherit, Inherit, Auto), NoApprovalNeeded),
            (call(false, Inherit, Inherit, ReadOnly), NoApprovalNeeded),
            (call(true, Inherit, Inherit, FullAccess), AutoApproved),
            (call(true, Inherit, Inherit, Auto), RequiresApproval),
            (call(true, Inherit, Inherit, ReadOnly), PolicyDenied),
            // an override replaces the mode's answer
            (call(true, Inherit, Never, Auto), AutoApproved),
            (call(true, Inherit, Always, FullAccess), RequiresApproval),
            (call(false, Inherit, Always, Auto), RequiresApproval),
            (call(false, Inherit, Never, Auto), NoApprovalNeeded),
            // the spec goes before the override
            (call(true, Always, Never, FullAccess), RequiresApproval),
            (call(true, Never, Always, Auto), AutoApproved),
            (call(false, Always, Inherit, FullAccess), RequiresApproval),
            // a never does not open read_only; a person still may
            (call(true, Never, Inherit, ReadOnly), PolicyDenied),
            (call(true, Inherit, Never, ReadOnly), PolicyDenied),
            (call(false, Never, Inherit, ReadOnly), NoApprovalNeeded),
            (call(true, Always, Inherit, ReadOnly), RequiresApproval),
            (call(true, Inherit, Always, ReadOnly), RequiresApproval),
        ];
        for (call, expected) in cases {
            assert_eq!(gate(call).event, expected, "{call:?}");
        }
    }

    #[test]
    fn nothing_lets_an_invalid_or_escaping_call_through() {
        for mode in [FullAccess, Auto, ReadOnly] {
            for spec in [Inherit, Always, Never] {
                for policy_override in [Inherit, Always, Never] {
                    let escaping = Call { outside_sandbox: true, ..call(true, spec, policy_override, mode) };
                    assert_eq!(gate(escaping).event, Event::SandboxViolation);
                    assert_eq!(gate(Call { valid: false, ..escaping }).event, Event::InvalidCall);
                }
            }
        }
    }

    #[test]
    fn without_a_person_no_side_effect_happens_in_read_only() {
        for spec in [Inherit, Always, Never] {
            for policy_override in [Inherit, Always, Never] {
                let event = gate(call(true, spec, policy_override, ReadOnly)).event;
                assert!(matches!(event, Event::PolicyDenied | Event::RequiresApproval), "{spec:?} {policy_override:?}");
            }
        }
    }
}
