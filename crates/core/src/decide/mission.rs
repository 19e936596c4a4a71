//! What the end of a hop means for its mission.

use super::{HopPhase, Tries};
use crate::machine::mission::Event;

/// Why a person should look at a mission: a person has stopped its hop, and nothing goes on before a person says so.
pub const STOPPED_BY_PERSON: &str = "stopped_by_person";

/// How far a failure reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// Retried where it happened; nobody above hears of it.
    Transient,
    /// Fails its step and hop; the mission waits for attention.
    Recoverable,
    /// Fails its mission.
    Fatal,
    /// Stops the agent's drive; for step, hop and mission it counts as recoverable.
    DriveFatal,
}

/// What a mission does when its hop has no attempt left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnHopFailure {
    #[default]
    Attention,
    Fail,
}

impl OnHopFailure {
    pub const fn token(self) -> &'static str {
        match self {
            OnHopFailure::Attention => "attention",
            OnHopFailure::Fail => "fail",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct FailedHop {
    pub phase: HopPhase,
    pub class: FailureClass,
    pub attempts: Tries,
    pub on_hop_failure: OnHopFailure,
}

/// A hop is COMPLETED. The mission is done only with its final hop *and* every output READY.
pub const fn hop_finished(is_final: bool, outputs_ready: bool) -> Event {
    match (is_final, outputs_ready) {
        (true, true) => Event::FinalHopCompleted,
        (true, false) => Event::FinalHopIncomplete,
        (false, _) => Event::HopCompleted,
    }
}

/// A hop is FAILED by itself, not through its mission.
pub fn hop_failed(hop: FailedHop) -> Event {
    let given_up = !hop.attempts.left() && hop.on_hop_failure == OnHopFailure::Fail;
    match hop.phase {
        _ if hop.class != FailureClass::Fatal && !given_up => Event::HopFailedRecoverable,
        HopPhase::Execute => Event::HopFailedCritically,
        HopPhase::Plan | HopPhase::Resolve | HopPhase::Impl => Event::HopDesignFailed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mission_is_done_with_its_final_hop_and_every_output() {
        assert_eq!(hop_finished(true, true), Event::FinalHopCompleted);
        assert_eq!(hop_finished(true, false), Event::FinalHopIncomplete);
        assert_eq!(hop_finished(false, true), Event::HopCompleted);
        assert_eq!(hop_finished(false, false), Event::HopCompleted);
    }

    #[test]
    fn only_a_fatal_class_or_a_hop_given_up_fails_the_mission() {
        use FailureClass::*;
        use HopPhase::*;
        use OnHopFailure::*;
        let cases = [
            (Execute, Recoverable, 1, Fail, Event::HopFailedRecoverable),
            (Execute, Recoverable, 3, Attention, Event::HopFailedRecoverable),
            (Execute, Recoverable, 3, Fail, Event::HopFailedCritically),
            (Execute, DriveFatal, 1, Fail, Event::HopFailedRecoverable),
            (Execute, Transient, 1, Fail, Event::HopFailedRecoverable),
            (Execute, Fatal, 1, Attention, Event::HopFailedCritically),
            (Plan, Fatal, 1, Attention, Event::HopDesignFailed),
            (Resolve, Fatal, 1, Attention, Event::HopDesignFailed),
            (Impl, Fatal, 1, Attention, Event::HopDesignFailed),
            (Impl, Recoverable, 3, Fail, Event::HopDesignFailed),
            (Impl, Recoverable, 3, Attention, Event::HopFailedRecoverable),
            (Plan, Recoverable, 1, Fail, Event::HopFailedRecoverable),
        ];
        for (phase, class, made, on_hop_failure, expected) in cases {
            let hop = FailedHop { phase, class, attempts: Tries { made, max: 3 }, on_hop_failure };
            assert_eq!(hop_failed(hop), expected, "{hop:?}");
        }
    }
}
