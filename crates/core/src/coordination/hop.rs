//! Mission × its current hop.

use crate::machine::hop::State as Hop;
use crate::machine::mission::State as Mission;

/// What a mission's current hop may be.
#[derive(Debug)]
pub struct HopRow {
    pub mission: Mission,
    /// Whether there may be no current hop.
    pub none: bool,
    pub hops: &'static [Hop],
    /// Seen only inside the transaction that clears the mission's pointer to it.
    pub transient: &'static [Hop],
}

pub static HOPS: &[HopRow] = &[
    HopRow { mission: Mission::AwaitingApproval, none: true, hops: &[], transient: &[] },
    HopRow {
        mission: Mission::InProgress,
        none: true,
        hops: &[
            Hop::PlanStarted,
            Hop::PlanProposed,
            Hop::PlanReady,
            Hop::ImplStarted,
            Hop::ImplProposed,
            Hop::ImplReady,
            Hop::Executing,
            // A recoverable failure: the mission waits for a person or a policy.
            Hop::Failed,
        ],
        transient: &[Hop::Completed, Hop::Cancelled],
    },
    // The final hop stays current; an early completion cancels the live one.
    HopRow { mission: Mission::Completed, none: true, hops: &[Hop::Completed, Hop::Cancelled], transient: &[] },
    HopRow { mission: Mission::Failed, none: true, hops: &[Hop::Failed], transient: &[] },
    // A failed hop is cancelled together with its mission, so FAILED is not seen here.
    HopRow { mission: Mission::Cancelled, none: true, hops: &[Hop::Cancelled], transient: &[] },
];

fn row(mission: &str) -> Option<&'static HopRow> {
    HOPS.iter().find(|row| row.mission.token() == mission)
}

/// Whether a commit may leave a mission with this current hop.
pub fn hop_allowed(mission: &str, hop: Option<&str>) -> bool {
    row(mission).is_some_and(|row| match hop {
        None => row.none,
        Some(token) => row.hops.iter().any(|h| h.token() == token),
    })
}

/// Whether the pair may exist between two moves of one commit, and only there.
pub fn hop_transient(mission: &str, hop: &str) -> bool {
    row(mission).is_some_and(|row| row.transient.iter().any(|h| h.token() == hop))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Letters: none, the six planning and implementing states, Executing, Completed, Failed,
    /// caNcelled, deleted. `x` allowed, `t` inside a transaction only, `.` never.
    const EXPECTED: [(&str, &str); 5] = [
        ("AWAITING_APPROVAL", "x..........."),
        ("IN_PROGRESS", "xxxxxxxxtxt."),
        ("COMPLETED", "x.......x.x."),
        ("FAILED", "x........x.."),
        ("CANCELLED", "x.........x."),
    ];

    #[test]
    fn every_pair_of_mission_and_current_hop_is_answered_as_specified() {
        assert_eq!(EXPECTED.len(), Mission::ALL.len());
        for (mission, cells) in EXPECTED {
            assert_eq!(cells.len(), Hop::ALL.len() + 1);
            let hops = std::iter::once(None).chain(Hop::ALL.iter().map(|h| Some(h.token())));
            for (hop, cell) in hops.zip(cells.chars()) {
                assert_eq!(hop_allowed(mission, hop), cell == 'x', "{mission} × {hop:?}");
                let transient = hop.is_some_and(|h| hop_transient(mission, h));
                assert_eq!(transient, cell == 't', "{mission} × {hop:?}");
            }
        }
    }

    #[test]
    fn a_word_that_is_no_state_is_never_allowed() {
        assert!(!hop_allowed("DREAMING", None));
        assert!(!hop_allowed("IN_PROGRESS", Some("DREAMING")));
    }
}
