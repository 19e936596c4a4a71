//! The older statuses as a total function of the stored ones.

use crate::machine::hop::State as Hop;
use crate::machine::mission::State as Mission;

macro_rules! view {
    ($(#[$doc:meta])* $name:ident { $($variant:ident $token:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($variant),+ }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$variant),+];
            pub const fn token(self) -> &'static str {
                match self { $($name::$variant => $token),+ }
            }
        }
    };
}

view! {
    /// A mission's status in the older vocabulary.
    MissionView {
        Proposed "PROPOSED",
        ReadyForNextHop "READY_FOR_NEXT_HOP",
        BuildingHop "BUILDING_HOP",
        HopReadyToExecute "HOP_READY_TO_EXECUTE",
        ExecutingHop "EXECUTING_HOP",
        Completed "COMPLETED",
        Failed "FAILED",
        Cancelled "CANCELLED",
    }
}

view! {
    /// A hop's status in the older vocabulary.
    HopView {
        Proposed "PROPOSED",
        ReadyToResolve "READY_TO_RESOLVE",
        ReadyToExecute "READY_TO_EXECUTE",
        Executing "EXECUTING",
        Completed "COMPLETED",
        Failed "FAILED",
        Cancelled "CANCELLED",
    }
}

/// What the older vocabulary shows for a mission and its current hop.
pub fn project(mission: Mission, hop: Option<Hop>) -> (MissionView, Option<HopView>) {
    // Without knowing whether its plan was ever accepted, a failed hop counts as under construction
    // and one being planned as not begun.
    let accepted = hop == Some(Hop::Failed);
    refine(mission, hop, accepted)
}

/// The same with one more bit of the hop. It tells a first plan, which the mission still waits for,
/// from one that goes back to the drawing board after its acceptance.
pub fn refine(mission: Mission, hop: Option<Hop>, plan_accepted_once: bool) -> (MissionView, Option<HopView>) {
    let mission = match mission {
        Mission::AwaitingApproval => MissionView::Proposed,
        Mission::InProgress => in_progress(hop, plan_accepted_once),
        Mission::Completed => MissionView::Completed,
        Mission::Failed => MissionView::Failed,
        Mission::Cancelled => MissionView::Cancelled,
    };
    (mission, hop.and_then(hop_view))
}

fn in_progress(hop: Option<Hop>, plan_accepted_once: bool) -> MissionView {
    match hop {
        None | Some(Hop::Completed | Hop::Cancelled | Hop::Deleted) => MissionView::ReadyForNextHop,
        Some(Hop::PlanStarted | Hop::PlanProposed | Hop::Failed) if plan_accepted_once => MissionView::BuildingHop,
        Some(Hop::PlanStarted | Hop::PlanProposed | Hop::Failed) => MissionView::ReadyForNextHop,
        Some(Hop::PlanReady | Hop::ImplStarted) => MissionView::BuildingHop,
        Some(Hop::ImplProposed | Hop::ImplReady) => MissionView::HopReadyToExecute,
        Some(Hop::Executing) => MissionView::ExecutingHop,
    }
}

/// `None`: a deleted hop is not shown.
pub(super) fn hop_view(hop: Hop) -> Option<HopView> {
    Some(match hop {
        Hop::PlanStarted | Hop::PlanProposed => HopView::Proposed,
        Hop::PlanReady | Hop::ImplStarted => HopView::ReadyToResolve,
        Hop::ImplProposed | Hop::ImplReady => HopView::ReadyToExecute,
        Hop::Executing => HopView::Executing,
        Hop::Completed => HopView::Completed,
        Hop::Failed => HopView::Failed,
        Hop::Cancelled => HopView::Cancelled,
        Hop::Deleted => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hop column of the specification's table; it is the same whatever the mission.
    const HOPS: [(Option<&str>, Option<&str>); 11] = [
        (None, None),
        (Some("HOP_PLAN_STARTED"), Some("PROPOSED")),
        (Some("HOP_PLAN_PROPOSED"), Some("PROPOSED")),
        (Some("HOP_PLAN_READY"), Some("READY_TO_RESOLVE")),
        (Some("HOP_IMPL_STARTED"), Some("READY_TO_RESOLVE")),
        (Some("HOP_IMPL_PROPOSED"), Some("READY_TO_EXECUTE")),
        (Some("HOP_IMPL_READY"), Some("READY_TO_EXECUTE")),
        (Some("EXECUTING"), Some("EXECUTING")),
        (Some("COMPLETED"), Some("COMPLETED")),
        (Some("FAILED"), Some("FAILED")),
        (Some("CANCELLED"), Some("CANCELLED")),
    ];

    /// Mission column, hop by hop in the order above: π, and π′ for an accepted and a new plan.
    const MISSIONS: [(&str, [&str; 11]); 5] = [
        ("AWAITING_APPROVAL", ["PROPOSED"; 11]),
        (
            "IN_PROGRESS",
            [
                "READY_FOR_NEXT_HOP",
                "READY_FOR_NEXT_HOP",
                "READY_FOR_NEXT_HOP",
                "BUILDING_HOP",
                "BUILDING_HOP",
                "HOP_READY_TO_EXECUTE",
                "HOP_READY_TO_EXECUTE",
                "EXECUTING_HOP",
                "READY_FOR_NEXT_HOP",
                "BUILDING_HOP",
                "READY_FOR_NEXT_HOP",
            ],
        ),
        ("COMPLETED", ["COMPLETED"; 11]),
        ("FAILED", ["FAILED"; 11]),
        ("CANCELLED", ["CANCELLED"; 11]),
    ];

    #[test]
    fn all_55_pairs_show_what_the_specification_says() {
        for (mission, views) in MISSIONS {
            let stored = Mission::ALL.iter().find(|m| m.token() == mission).expect(mission);
            for ((hop, hop_view), view) in HOPS.into_iter().zip(views) {
                let found = project(*stored, hop.and_then(Hop::parse));
                assert_eq!((found.0.token(), found.1.map(HopView::token)), (view, hop_view), "{mission} × {hop:?}");
            }
        }
    }

    #[test]
    fn the_refined_view_differs_only_for_plans_and_failures_under_a_running_mission() {
        for (mission, views) in MISSIONS {
            let stored = Mission::ALL.iter().find(|m| m.token() == mission).expect(mission);
            for ((hop, hop_view), view) in HOPS.into_iter().zip(views) {
                let turning = matches!(hop, Some("HOP_PLAN_STARTED" | "HOP_PLAN_PROPOSED" | "FAILED"));
                for (accepted, refined) in [(true, "BUILDING_HOP"), (false, "READY_FOR_NEXT_HOP")] {
                    let expected = if mission == "IN_PROGRESS" && turning { refined } else { view };
                    let found = refine(*stored, hop.and_then(Hop::parse), accepted);
                    assert_eq!((found.0.token(), found.1.map(HopView::token)), (expected, hop_view));
                }
            }
        }
    }

    #[test]
    fn a_deleted_hop_is_not_shown() {
        assert_eq!(project(Mission::InProgress, Some(Hop::Deleted)), (MissionView::ReadyForNextHop, None));
    }
}
