//! What the result of an attempt means for its step. Each attempt is one tool call.

use super::{Approval, Effect, Tries};
use crate::machine::tool_step::Event;
use crate::rune::payload::ResultStatus;

/// What a step's call takes from its tool.
#[derive(Clone, Debug)]
pub struct Chosen {
    pub effect: Effect,
    pub approval: Approval,
    /// Of definition and arguments: what an approval is bound to.
    pub digest: String,
}

/// The pause before the attempt after this one, doubled each time. What only looks may be asked again sooner.
pub const fn back_off_ms(effect: Effect, attempt: i64) -> i64 {
    const LONGEST: i64 = 60_000;
    let first: i64 = match effect {
        Effect::ReadOnly => 500,
        Effect::Idempotent | Effect::AtMostOnce => 1_000,
    };
    let doubled = if attempt < 1 {
        0
    } else if attempt > 10 {
        10
    } else {
        attempt - 1
    };
    let pause = first << doubled;
    if pause > LONGEST { LONGEST } else { pause }
}

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

impl Attempt {
    /// It may have taken effect without having said so, and must not take it twice.
    pub fn is_doubtful(self) -> bool {
        !self.effect.repeatable() && matches!(self.status, ResultStatus::Timeout | ResultStatus::Unknown)
    }
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
    fn pauses_double_up_to_a_minute() {
        let pauses = |effect| [0, 1, 2, 3, 7, 40].map(|attempt| back_off_ms(effect, attempt));
        assert_eq!(pauses(Effect::ReadOnly), [500, 500, 1_000, 2_000, 32_000, 60_000]);
        assert_eq!(pauses(Effect::Idempotent), [1_000, 1_000, 2_000, 4_000, 60_000, 60_000]);
    }

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
