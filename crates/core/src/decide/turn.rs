//! Which way a turn goes on.

use super::Tries;
use crate::machine::turn::Event;

/// Provider calls one turn may make before it ends without an error.
pub const PROVIDER_CALLS_MAX: u32 = 10;
/// More than this nobody may allow a turn.
pub const PROVIDER_CALLS_LIMIT: u32 = 1_000;
/// Workers one turn may lose before it counts as the one that kills them.
pub const TURN_ATTEMPTS_MAX: u32 = 5;

/// Turns in a row that pass their deadline before their agent needs a person.
pub const LATE_MAX: i64 = 3;

/// What may be asked of a running turn, strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Control {
    Interrupt,
    Pause,
    Steer,
}

/// Controls that are recorded. Several may have come in meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    pub interrupt: bool,
    pub pause: bool,
    pub steer: bool,
}

impl Pending {
    /// The one that takes effect.
    pub fn first(self) -> Option<Control> {
        [(self.interrupt, Control::Interrupt), (self.pause, Control::Pause), (self.steer, Control::Steer)]
            .into_iter()
            .find_map(|(asked, control)| asked.then_some(control))
    }
}

#[derive(Clone, Copy, Debug)]
pub struct FinishedTools {
    pub provider_calls: u32,
    pub provider_calls_max: u32,
    /// A tool declared that nothing is left to say.
    pub ended_by_tool: bool,
    pub pending: Pending,
}

/// Every call of the turn has its result. A pending control goes before the end by limit: who asked
/// for it shall see that it was heard.
pub fn tools_finished(turn: FinishedTools) -> Event {
    match turn.pending.first() {
        Some(Control::Interrupt) => Event::Interrupt,
        Some(Control::Pause) => Event::SessionPaused,
        Some(Control::Steer) => Event::ToolsFinishedSteered,
        None if turn.ended_by_tool || turn.provider_calls >= turn.provider_calls_max => Event::ToolsFinishedLast,
        None => Event::ToolsFinished,
    }
}

/// The lease of a streaming turn's owner expired.
pub fn turn_worker_lost(attempts: Tries) -> Event {
    if attempts.left() { Event::WorkerLost } else { Event::RecoveryExhausted }
}

/// How often the same call may be refused before the turn ends.
const REFUSED_MAX: u32 = 3;

/// What to say to a call that was made before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeated {
    Fine,
    /// The model is told instead.
    TooOften,
    /// It was told and goes on: the turn ends.
    Endless,
}

/// The same call for the `run`th time in a row, where `max` are made; 0: any number.
pub const fn repeated(run: u32, max: u32) -> Repeated {
    match () {
        () if max == 0 || run <= max => Repeated::Fine,
        () if run - max <= REFUSED_MAX => Repeated::TooOften,
        () => Repeated::Endless,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finished_tools_lead_on_unless_a_control_a_limit_or_a_tool_ends_the_turn() {
        // interrupt, pause, steer, ended by a tool, provider calls made of 10
        let cases = [
            ((false, false, false, false, 1), Event::ToolsFinished),
            ((false, false, false, false, 9), Event::ToolsFinished),
            ((false, false, false, false, 10), Event::ToolsFinishedLast),
            ((false, false, false, false, 11), Event::ToolsFinishedLast),
            ((false, false, false, true, 1), Event::ToolsFinishedLast),
            ((false, false, true, false, 1), Event::ToolsFinishedSteered),
            ((false, false, true, true, 10), Event::ToolsFinishedSteered),
            ((false, true, true, false, 1), Event::SessionPaused),
            ((true, false, true, false, 1), Event::Interrupt),
            ((true, true, true, true, 10), Event::Interrupt),
        ];
        for ((interrupt, pause, steer, ended_by_tool, provider_calls), expected) in cases {
            let turn = FinishedTools {
                provider_calls,
                provider_calls_max: PROVIDER_CALLS_MAX,
                ended_by_tool,
                pending: Pending { interrupt, pause, steer },
            };
            assert_eq!(tools_finished(turn), expected, "{turn:?}");
        }
    }

    #[test]
    fn a_turn_that_lost_its_last_worker_is_given_up() {
        for made in 1..TURN_ATTEMPTS_MAX {
            assert_eq!(turn_worker_lost(Tries { made, max: TURN_ATTEMPTS_MAX }), Event::WorkerLost);
        }
        for made in [TURN_ATTEMPTS_MAX, TURN_ATTEMPTS_MAX + 1] {
            assert_eq!(turn_worker_lost(Tries { made, max: TURN_ATTEMPTS_MAX }), Event::RecoveryExhausted);
        }
    }
}
