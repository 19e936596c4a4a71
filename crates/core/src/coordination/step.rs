//! Hop × its steps.
//!
//! Steps are compared in sequence order. A CANCELLED step is never live: it stays as the record of
//! an earlier revision or of a manual completion, and is passed over wherever it stands. COMPLETED
//! steps always lead: nothing runs before what was finished, and the table of steps has no way
//! back from COMPLETED except a restart, so that what an earlier revision finished stays in front.

use crate::machine::hop::State as Hop;
use crate::machine::tool_step::State as Step;

/// Which steps a hop may have besides the leading COMPLETED ones.
#[derive(Debug)]
pub struct StepRow {
    pub hop: Hop,
    /// For a FAILED hop: the phase that failed.
    pub phase: Option<&'static str>,
    /// At most one, directly behind the COMPLETED ones.
    pub one: &'static [Step],
    /// Any number, behind that.
    pub rest: &'static [Step],
}

const fn at(hop: Hop, one: &'static [Step], rest: &'static [Step]) -> StepRow {
    StepRow { hop, phase: None, one, rest }
}

const fn failed(phase: &'static str, one: &'static [Step], rest: &'static [Step]) -> StepRow {
    StepRow { hop: Hop::Failed, phase: Some(phase), one, rest }
}

/// Steps whose hop is being implemented. READY_TO_EXECUTE: a repair or a fix reopens only the
/// steps it concerns. FAILED: the configuration of that step.
const IMPLEMENTING: &[Step] =
    &[Step::AwaitingConfiguration, Step::ReadyToConfigure, Step::ReadyToExecute, Step::Failed];

pub static STEPS: &[StepRow] = &[
    at(Hop::PlanStarted, &[], &[]),
    at(Hop::PlanProposed, &[], &[]),
    at(Hop::PlanReady, &[], &[]),
    at(Hop::ImplStarted, &[], IMPLEMENTING),
    at(Hop::ImplProposed, &[], &[Step::AwaitingConfiguration, Step::ReadyToConfigure, Step::ReadyToExecute]),
    at(Hop::ImplReady, &[], &[Step::ReadyToExecute]),
    at(Hop::Executing, &[Step::Executing], &[Step::ReadyToExecute]),
    at(Hop::Completed, &[], &[]),
    failed("plan", &[], &[]),
    failed("resolve", &[], &[]),
    failed("impl", &[], IMPLEMENTING),
    failed("execute", &[Step::Failed], &[Step::ReadyToExecute]),
    at(Hop::Cancelled, &[], &[Step::Failed]),
    // A hop removed after a failure keeps its steps as they were; nothing of it runs.
    at(Hop::Deleted, &[], IMPLEMENTING),
];

impl StepRow {
    fn fits(&self, steps: &[Step]) -> bool {
        let mut left = steps.iter().filter(|s| **s != Step::Cancelled).peekable();
        while left.next_if(|s| **s == Step::Completed).is_some() {}
        left.next_if(|s| self.one.contains(s));
        left.all(|s| self.rest.contains(s))
    }
}

fn parse(steps: &[&str]) -> Option<Vec<Step>> {
    steps.iter().map(|token| Step::parse(token).filter(|s| *s != Step::Deleted)).collect()
}

/// Whether a commit may leave a hop with these steps: all that are not deleted, in sequence order.
/// A FAILED hop may have failed in any phase; [`steps_allowed_after`] is sharper.
pub fn steps_allowed(hop: &str, steps: &[&str]) -> bool {
    let Some(steps) = parse(steps) else { return false };
    STEPS.iter().any(|row| row.hop.token() == hop && row.fits(&steps))
}

/// The same for a FAILED hop whose failed phase is known.
pub fn steps_allowed_after(phase: &str, steps: &[&str]) -> bool {
    let Some(steps) = parse(steps) else { return false };
    STEPS.iter().any(|row| row.phase == Some(phase) && row.fits(&steps))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One letter per step: A, C and R as the three ready states, X executing, D done, F failed,
    /// N cancelled.
    fn steps(letters: &str) -> Vec<&'static str> {
        let state = |letter| match letter {
            'A' => Step::AwaitingConfiguration,
            'C' => Step::ReadyToConfigure,
            'R' => Step::ReadyToExecute,
            'X' => Step::Executing,
            'D' => Step::Completed,
            'F' => Step::Failed,
            'N' => Step::Cancelled,
            other => panic!("{other}"),
        };
        letters.chars().map(|l| state(l).token()).collect()
    }

    #[test]
    fn a_single_step_is_allowed_as_specified_under_every_hop() {
        let expected = [
            ("HOP_PLAN_STARTED", "DN"),
            ("HOP_PLAN_PROPOSED", "DN"),
            ("HOP_PLAN_READY", "DN"),
            ("HOP_IMPL_STARTED", "ACRDFN"),
            ("HOP_IMPL_PROPOSED", "ACRDN"),
            ("HOP_IMPL_READY", "RDN"),
            ("EXECUTING", "RXDN"),
            ("COMPLETED", "DN"),
            ("FAILED", "ACRDFN"),
            ("CANCELLED", "DFN"),
            ("deleted", "ACRDFN"),
        ];
        assert_eq!(expected.map(|(hop, _)| hop).to_vec(), Hop::ALL.iter().map(|h| h.token()).collect::<Vec<_>>());
        for (hop, letters) in expected {
            assert!(steps_allowed(hop, &[]), "{hop} without steps");
            for letter in "ACRXDFN".chars() {
                let allowed = steps_allowed(hop, &steps(&letter.to_string()));
                assert_eq!(allowed, letters.contains(letter), "{hop} × {letter}");
            }
        }
    }

    #[test]
    fn an_executing_hop_has_a_finished_prefix_and_at_most_one_running_step() {
        for good in ["DDXRR", "X", "DD", "RR", "DNXNR", "NDX"] {
            assert!(steps_allowed("EXECUTING", &steps(good)), "{good}");
        }
        for bad in ["XD", "RX", "XX", "DRD", "DXF", "DA"] {
            assert!(!steps_allowed("EXECUTING", &steps(bad)), "{bad}");
        }
    }

    #[test]
    fn a_failed_execution_has_one_failed_step_behind_the_finished_ones() {
        for good in ["DFR", "F", "DDF", "FRR"] {
            assert!(steps_allowed_after("execute", &steps(good)), "{good}");
            assert!(steps_allowed("FAILED", &steps(good)), "{good}");
        }
        for bad in ["FF", "RF", "DXR", "FD", "DFA"] {
            assert!(!steps_allowed_after("execute", &steps(bad)), "{bad}");
        }
        assert!(!steps_allowed_after("plan", &steps("F")));
        assert!(steps_allowed_after("impl", &steps("CFC")));
        assert!(!steps_allowed_after("no such phase", &[]));
    }

    #[test]
    fn a_retry_resumes_behind_what_is_finished() {
        assert!(steps_allowed("HOP_IMPL_READY", &steps("DDRR")));
        assert!(!steps_allowed("HOP_IMPL_READY", &steps("RD")));
    }

    #[test]
    fn a_deleted_step_is_no_live_step_and_a_strange_word_is_no_step() {
        assert!(!steps_allowed("EXECUTING", &["deleted"]));
        assert!(!steps_allowed("EXECUTING", &["DREAMING"]));
        assert!(!steps_allowed("DREAMING", &[]));
    }
}
