//! Every state that a mission and its current hop can reach, walked through the tables: what the
//! older vocabulary would have seen on the way is what it allows.

use super::view::hop_view;
use super::{HopView, MissionView, refine};
use crate::coordination::hop_allowed;
use crate::decide::{HopPhase, fix_hop};
use crate::machine::hop::{Event as On, State as Hop, TABLE as HOP};
use crate::machine::mission::{Event as M, State as Mission, TABLE as MISSION};
use crate::machine::{Answer, By, Table, apply};
use std::collections::{BTreeSet, VecDeque};

/// The current hop with what the walk needs to know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Current {
    hop: Hop,
    accepted_once: bool,
    failed: Option<&'static str>,
}

type At = (Mission, Option<Current>);

/// One commit: where it leads, what became of the hop even if it is no longer current, and why.
struct Commit {
    to: At,
    hop: Option<Hop>,
    row: &'static str,
}

fn step<S>(
    table: &'static Table,
    from: Option<&str>,
    event: &str,
    parse: fn(&str) -> Option<S>,
) -> Option<(S, &'static str)> {
    [By::User, By::System, By::Agent].into_iter().find_map(|by| match apply(table, from, event, by) {
        Answer::Moves(mv) => Some((parse(mv.to())?, mv.row())),
        _ => None,
    })
}

fn mission(from: Mission, event: M) -> Option<(Mission, &'static str)> {
    step(&MISSION, Some(from.token()), event.token(), Mission::parse)
}

fn hop(from: Option<Hop>, event: On) -> Option<(Hop, &'static str)> {
    step(&HOP, from.map(Hop::token), event.token(), Hop::parse)
}

fn phase_of(hop: Hop) -> &'static str {
    match hop {
        Hop::PlanStarted | Hop::PlanProposed => "plan",
        Hop::PlanReady => "resolve",
        Hop::Executing => "execute",
        _ => "impl",
    }
}

/// The hop after one of its events, guards included.
fn moved(now: Current, event: On) -> Option<(Current, &'static str)> {
    let phase = now.failed.and_then(HopPhase::parse);
    let guarded = match event {
        On::FixHop | On::FixHopResolve => fix_hop(phase?).ok()? == event,
        On::RetryHop => phase? == HopPhase::Execute,
        On::ReplanHop => matches!(phase?, HopPhase::Plan | HopPhase::Resolve),
        _ => true,
    };
    let (to, row) = hop(Some(now.hop), event).filter(|_| guarded)?;
    let failed = match to {
        Hop::Failed => now.failed.or(Some(phase_of(now.hop))),
        _ => None,
    };
    Some((Current { hop: to, accepted_once: now.accepted_once || row == "H4", failed }, row))
}

/// Every commit possible now. Cascades as the rows name them, written out here so that this walk
/// does not depend on the list it would otherwise be checking.
fn commits((at, current): At) -> Vec<Commit> {
    let mut found = Vec::new();
    let mut push = |to: Mission, next: Option<Current>, hop: Option<Hop>, row: &'static str| {
        found.push(Commit { to: (to, next), hop, row });
    };

    for &event in M::ALL {
        let Some((to, row)) = mission(at, event) else { continue };
        let cascaded = current.and_then(|c| match row {
            "M8" if c.hop == Hop::Executing => None,
            "M8" => moved(c, On::CancelHop),
            "M11" => moved(c, On::MissionFailed).or(Some((c, row))),
            "M12" | "M13" | "M19" => moved(c, On::MissionCancelled).or_else(|| moved(c, On::CancelHop)),
            _ => None,
        });
        match (row, current) {
            ("M2" | "M5" | "M8" | "M11" | "M12" | "M13" | "M19", None) => push(to, None, None, row),
            ("M8" | "M11" | "M12" | "M13" | "M19", Some(_)) => {
                if let Some((c, _)) = cascaded {
                    push(to, Some(c), Some(c.hop), row);
                }
            }
            ("M14", Some(c)) => {
                for event in [On::FixHop, On::FixHopResolve, On::RetryHop, On::ReplanHop] {
                    if let Some((c, _)) = moved(c, event) {
                        push(to, Some(c), Some(c.hop), row);
                    }
                }
            }
            _ => {}
        }
    }

    let Some(now) = current else {
        if at == Mission::InProgress {
            for event in [On::StartHopPlan, On::CreateHopManually] {
                if let Some((to, row)) = hop(None, event) {
                    push(at, Some(Current { hop: to, accepted_once: false, failed: None }), Some(to), row);
                }
            }
        }
        return found;
    };
    if at != Mission::InProgress {
        return found;
    }
    for &event in On::ALL {
        if matches!(event, On::MissionCancelled | On::MissionFailed) {
            continue;
        }
        let Some((next, row)) = moved(now, event) else { continue };
        match next.hop {
            Hop::Completed => {
                push(Mission::InProgress, None, Some(next.hop), row);
                push(Mission::Completed, Some(next), Some(next.hop), row);
            }
            Hop::Failed => {
                push(Mission::InProgress, Some(next), Some(next.hop), row);
                push(Mission::Failed, Some(next), Some(next.hop), row);
            }
            Hop::Cancelled | Hop::Deleted => push(at, None, Some(next.hop), row),
            _ => push(at, Some(next), Some(next.hop), row),
        }
    }
    found
}

struct Walk {
    reached: BTreeSet<At>,
    missions: BTreeSet<(MissionView, MissionView, &'static str)>,
    hops: BTreeSet<(Option<HopView>, Option<HopView>, &'static str)>,
}

fn view((mission, current): At) -> (MissionView, Option<HopView>) {
    refine(mission, current.map(|c| c.hop), current.is_some_and(|c| c.accepted_once))
}

fn walk() -> Walk {
    let mut walk = Walk { reached: BTreeSet::new(), missions: BTreeSet::new(), hops: BTreeSet::new() };
    let mut queue = VecDeque::from([(Mission::AwaitingApproval, None)]);
    while let Some(at) = queue.pop_front() {
        if !walk.reached.insert(at) {
            continue;
        }
        let shown = view(at);
        let mut next = commits(at);
        // A cancelled hop is current no more, but a person may take it back as it was.
        if at == (Mission::InProgress, None) {
            for accepted_once in [false, true] {
                let (to, row) = hop(Some(Hop::Cancelled), On::ResetHop).expect("H34");
                walk.hops.insert((Some(HopView::Cancelled), hop_view(to), row));
                let current = Current { hop: to, accepted_once, failed: None };
                next.push(Commit { to: (at.0, Some(current)), hop: None, row });
            }
            let (to, row) = hop(Some(Hop::Cancelled), On::DeleteHop).expect("H33");
            walk.hops.insert((Some(HopView::Cancelled), hop_view(to), row));
        }
        for commit in next {
            let after = view(commit.to);
            if shown.0 != after.0 {
                walk.missions.insert((shown.0, after.0, commit.row));
            }
            let hop_after = commit.hop.and_then(hop_view);
            if commit.hop.is_some() && shown.1 != hop_after {
                walk.hops.insert((shown.1, hop_after, commit.row));
            }
            queue.push_back(commit.to);
        }
    }
    walk
}

use HopView as H;
use MissionView as V;

/// Edges of the older vocabulary's mission; a system error may come in any active state, and the
/// goal may be reached early in any but the executing one.
const MISSION_EDGES: [(V, V); 21] = [
    (V::Proposed, V::ReadyForNextHop),
    (V::Proposed, V::Failed),
    (V::Proposed, V::Cancelled),
    (V::ReadyForNextHop, V::BuildingHop),
    (V::ReadyForNextHop, V::Failed),
    (V::ReadyForNextHop, V::Cancelled),
    (V::ReadyForNextHop, V::Completed),
    (V::BuildingHop, V::HopReadyToExecute),
    (V::BuildingHop, V::Failed),
    (V::BuildingHop, V::Cancelled),
    (V::BuildingHop, V::Completed),
    (V::HopReadyToExecute, V::ExecutingHop),
    (V::HopReadyToExecute, V::BuildingHop),
    (V::HopReadyToExecute, V::Cancelled),
    (V::HopReadyToExecute, V::Failed),
    (V::HopReadyToExecute, V::Completed),
    (V::ExecutingHop, V::Completed),
    (V::ExecutingHop, V::ReadyForNextHop),
    (V::ExecutingHop, V::Failed),
    (V::ExecutingHop, V::Cancelled),
    (V::Failed, V::Cancelled),
];

/// Edges of its hop; `None` before it exists and after it was deleted.
const HOP_EDGES: [(Option<H>, Option<H>); 20] = [
    (None, Some(H::Proposed)),
    (Some(H::Proposed), Some(H::ReadyToResolve)),
    (Some(H::Proposed), None),
    (Some(H::Proposed), Some(H::Cancelled)),
    (Some(H::ReadyToResolve), Some(H::ReadyToExecute)),
    (Some(H::ReadyToResolve), Some(H::Failed)),
    (Some(H::ReadyToResolve), Some(H::Proposed)),
    (Some(H::ReadyToResolve), Some(H::Cancelled)),
    (Some(H::ReadyToExecute), Some(H::Executing)),
    (Some(H::ReadyToExecute), Some(H::ReadyToResolve)),
    (Some(H::ReadyToExecute), Some(H::Cancelled)),
    (Some(H::ReadyToExecute), Some(H::Failed)),
    (Some(H::Executing), Some(H::Completed)),
    (Some(H::Executing), Some(H::Failed)),
    (Some(H::Executing), Some(H::Cancelled)),
    (Some(H::Failed), Some(H::ReadyToResolve)),
    (Some(H::Failed), Some(H::Cancelled)),
    (Some(H::Failed), None),
    (Some(H::Cancelled), None),
    (Some(H::Cancelled), Some(H::Proposed)),
];

#[test]
fn every_edge_of_the_older_mission_and_hop_is_produced() {
    let walk = walk();
    for edge in MISSION_EDGES {
        assert!(walk.missions.iter().any(|(a, b, _)| (*a, *b) == edge), "mission {edge:?}");
    }
    for edge in HOP_EDGES {
        assert!(walk.hops.iter().any(|(a, b, _)| (*a, *b) == edge), "hop {edge:?}");
    }
}

#[test]
fn the_edges_that_the_older_vocabulary_does_not_know_are_the_sanctioned_ones() {
    let walk = walk();
    let extra: BTreeSet<_> =
        walk.missions.iter().map(|(a, b, _)| (*a, *b)).filter(|e| !MISSION_EDGES.contains(e)).collect();
    let sanctioned = BTreeSet::from([
        (V::BuildingHop, V::ReadyForNextHop),
        (V::HopReadyToExecute, V::ReadyForNextHop),
        (V::ExecutingHop, V::BuildingHop),
        (V::Failed, V::BuildingHop),
        (V::Failed, V::HopReadyToExecute),
        (V::Failed, V::ReadyForNextHop),
    ]);
    assert_eq!(extra, sanctioned);
    let extra: BTreeSet<_> = walk.hops.iter().map(|(a, b, _)| (*a, *b)).filter(|e| !HOP_EDGES.contains(e)).collect();
    let sanctioned = BTreeSet::from([
        (Some(H::Proposed), Some(H::Failed)),
        (Some(H::ReadyToExecute), Some(H::Completed)),
        (Some(H::Failed), Some(H::Completed)),
        (Some(H::Failed), Some(H::ReadyToExecute)),
        (Some(H::Failed), Some(H::Proposed)),
    ]);
    assert_eq!(extra, sanctioned);
}

#[test]
fn a_reachable_pair_is_an_allowed_one_and_keeps_the_older_rules() {
    let walk = walk();
    assert_eq!(walk.reached.len(), 30, "{:#?}", walk.reached);
    for at in &walk.reached {
        let (mission, current) = *at;
        assert!(hop_allowed(mission.token(), current.map(|c| c.hop.token())), "{at:?}");
        let (mission, hop) = view(*at);
        let kept = match mission {
            // A failed hop that can be mended is the sanctioned exception.
            V::BuildingHop => matches!(hop, Some(H::Proposed | H::ReadyToResolve | H::Failed)),
            V::HopReadyToExecute => hop == Some(H::ReadyToExecute),
            V::ExecutingHop => hop == Some(H::Executing),
            _ => true,
        };
        assert!(kept, "{at:?}");
    }
}

#[test]
fn a_finished_mission_can_be_started_over_as_a_new_one() {
    for from in [Mission::Completed, Mission::Failed, Mission::Cancelled] {
        assert_eq!(mission(from, M::ResetMission), Some((from, "M15")));
    }
}
