//! Where a failed or invalidated hop goes on.

use super::{NotNow, Tries};
use crate::machine::hop::Event;

/// The part of a hop's life that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HopPhase {
    Plan,
    Resolve,
    Impl,
    Execute,
}

impl HopPhase {
    pub const ALL: [HopPhase; 4] = [HopPhase::Plan, HopPhase::Resolve, HopPhase::Impl, HopPhase::Execute];

    pub const fn token(self) -> &'static str {
        match self {
            HopPhase::Plan => "plan",
            HopPhase::Resolve => "resolve",
            HopPhase::Impl => "impl",
            HopPhase::Execute => "execute",
        }
    }

    pub fn parse(token: &str) -> Option<HopPhase> {
        HopPhase::ALL.into_iter().find(|p| p.token() == token)
    }
}

/// A person wants a failed hop fixed. A plan that failed was never accepted, so there is nothing
/// to go back to but planning.
pub fn fix_hop(failed: HopPhase) -> Result<Event, NotNow> {
    match failed {
        HopPhase::Impl | HopPhase::Execute => Ok(Event::FixHop),
        HopPhase::Resolve => Ok(Event::FixHopResolve),
        HopPhase::Plan => Err(NotNow { advice: "the hop failed while it was planned: use replan_hop" }),
    }
}

/// An asset, tool or resource that an approved implementation needs was lost.
pub fn validation_failed(repairable: bool, repairs: Tries) -> Event {
    if repairable && repairs.left() { Event::ValidationFailed } else { Event::ValidationUnrepairable }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fix_reopens_what_failed_but_never_a_plan() {
        assert_eq!(fix_hop(HopPhase::Impl), Ok(Event::FixHop));
        assert_eq!(fix_hop(HopPhase::Execute), Ok(Event::FixHop));
        assert_eq!(fix_hop(HopPhase::Resolve), Ok(Event::FixHopResolve));
        let refused = fix_hop(HopPhase::Plan).expect_err("phase plan");
        assert!(refused.to_string().contains("replan_hop"));
    }

    #[test]
    fn a_lost_input_is_repaired_while_repairs_are_left() {
        let cases = [
            (true, 0, Event::ValidationFailed),
            (true, 2, Event::ValidationFailed),
            (true, 3, Event::ValidationUnrepairable),
            (false, 0, Event::ValidationUnrepairable),
        ];
        for (repairable, made, expected) in cases {
            assert_eq!(validation_failed(repairable, Tries { made, max: 3 }), expected, "{repairable} {made}");
        }
    }

    #[test]
    fn a_phase_reads_back_what_it_prints() {
        for phase in HopPhase::ALL {
            assert_eq!(HopPhase::parse(phase.token()), Some(phase));
        }
        assert_eq!(HopPhase::parse("dream"), None);
    }
}
