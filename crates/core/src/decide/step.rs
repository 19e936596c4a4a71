//! What the result of an attempt means for its step. Each attempt is one tool call.

use super::{Effect, Tries};
use crate::machine::tool_step::Event;
use crate::rune::payload::ResultStatus;

#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    pub status: ResultStatus,
    /// For a success: every mapped output is there and fits its schema.
    pub outputs_fit: bool,
    /// For an error: trying again may help.
    pub retryable: bool,
    pub effect: Effect,
    pub attempts: Tries,
}

pub fn step_attempt(attempt: Attempt) -> Event {
    let again = attempt.effect.repeatable() && attempt.attempts.left();
    let retry = match attempt.status {
        // A misfit is the work of the tool or of its mapping: it would be made again.
        ResultStatus::Success if attempt.outputs_fit => return Event::StepSucceeded,
        ResultStatus::Cancelled => return Event::CancelStep,
        ResultStatus::Success | ResultStatus::Denied | ResultStatus::SandboxViolation => false,
        ResultStatus::Error => attempt.retryable && again,
        ResultStatus::Timeout | ResultStatus::Unknown => again,
    };
    if retry { Event::StepAttemptFailed } else { Event::StepFailed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_completes_repeats_fails_or_cancels_its_step() {
        use Effect::*;
        use Event::*;
        use ResultStatus::*;
        // status, outputs fit, retryable, effect, attempts made of 3
        let cases = [
            (Success, true, false, AtMostOnce, 1, StepSucceeded),
            (Success, true, false, ReadOnly, 3, StepSucceeded),
            (Success, false, true, Idempotent, 1, StepFailed),
            (Error, false, true, Idempotent, 1, StepAttemptFailed),
            (Error, false, true, ReadOnly, 2, StepAttemptFailed),
            (Error, false, true, Idempotent, 3, StepFailed),
            (Error, false, false, Idempotent, 1, StepFailed),
            (Error, false, true, AtMostOnce, 1, StepFailed),
            (Timeout, false, false, Idempotent, 1, StepAttemptFailed),
            (Timeout, false, true, AtMostOnce, 1, StepFailed),
            (Timeout, false, true, ReadOnly, 3, StepFailed),
            (Unknown, false, false, Idempotent, 1, StepAttemptFailed),
            (Unknown, false, true, AtMostOnce, 1, StepFailed),
            (Unknown, false, false, Idempotent, 3, StepFailed),
            (Denied, false, true, ReadOnly, 1, StepFailed),
            (SandboxViolation, false, true, ReadOnly, 1, StepFailed),
            (Cancelled, false, true, ReadOnly, 1, CancelStep),
            (Cancelled, false, false, AtMostOnce, 3, CancelStep),
        ];
        for (status, outputs_fit, retryable, effect, made, expected) in cases {
            let attempt = Attempt { status, outputs_fit, retryable, effect, attempts: Tries { made, max: 3 } };
            assert_eq!(step_attempt(attempt), expected, "{attempt:?}");
        }
    }
}
