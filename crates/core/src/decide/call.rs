//! Whether a call whose runner died may run again.

use super::Tries;
use crate::machine::tool_call::Event;

/// What running a tool twice would do to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Nothing: it only looks.
    ReadOnly,
    /// The same as once, with the same idempotency key.
    Idempotent,
    /// Harm, perhaps.
    AtMostOnce,
}

impl Effect {
    pub const ALL: [Effect; 3] = [Effect::ReadOnly, Effect::Idempotent, Effect::AtMostOnce];

    pub const fn token(self) -> &'static str {
        match self {
            Effect::ReadOnly => "read_only",
            Effect::Idempotent => "idempotent",
            Effect::AtMostOnce => "at_most_once",
        }
    }

    pub fn parse(token: &str) -> Option<Effect> {
        Effect::ALL.into_iter().find(|e| e.token() == token)
    }

    /// From the two flags of a tool's spec.
    pub const fn of_spec(side_effects: bool, idempotent: bool) -> Effect {
        match (side_effects, idempotent) {
            (false, _) => Effect::ReadOnly,
            (true, true) => Effect::Idempotent,
            (true, false) => Effect::AtMostOnce,
        }
    }

    pub const fn repeatable(self) -> bool {
        matches!(self, Effect::ReadOnly | Effect::Idempotent)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct LostCall {
    pub effect: Effect,
    /// Whether the start of the lost attempt is durable. Without it an at-most-once tool has not
    /// run: its start is committed before its effect, and the next claim's epoch keeps a runner that
    /// was only slow from committing it late.
    pub started: bool,
    pub attempts: Tries,
}

pub fn call_worker_lost(call: LostCall) -> Event {
    let harmless = call.effect.repeatable() || !call.started;
    if harmless && call.attempts.left() { Event::Reclaimed } else { Event::WorkerLost }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_cannot_do_harm_twice_runs_again() {
        use Effect::*;
        let cases = [
            (ReadOnly, true, 1, Event::Reclaimed),
            (Idempotent, true, 2, Event::Reclaimed),
            (Idempotent, false, 2, Event::Reclaimed),
            (AtMostOnce, false, 1, Event::Reclaimed),
            (AtMostOnce, true, 1, Event::WorkerLost),
            (ReadOnly, true, 3, Event::WorkerLost),
            (Idempotent, true, 3, Event::WorkerLost),
            (AtMostOnce, false, 3, Event::WorkerLost),
        ];
        for (effect, started, made, expected) in cases {
            let call = LostCall { effect, started, attempts: Tries { made, max: 3 } };
            assert_eq!(call_worker_lost(call), expected, "{call:?}");
        }
    }

    #[test]
    fn an_effect_reads_back_what_it_prints_and_follows_the_spec_of_the_tool() {
        for effect in Effect::ALL {
            assert_eq!(Effect::parse(effect.token()), Some(effect));
        }
        assert_eq!(Effect::of_spec(false, false), Effect::ReadOnly);
        assert_eq!(Effect::of_spec(true, true), Effect::Idempotent);
        assert_eq!(Effect::of_spec(true, false), Effect::AtMostOnce);
    }
}
