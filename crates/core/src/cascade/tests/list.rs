//! The list against the tables and the specification.

use crate::cascade::*;
use crate::machine::{self, turn};
use std::collections::BTreeSet;

fn events(cascade: &Cascade) -> Vec<&'static str> {
    match cascade.raise {
        Raise::Event(event) => vec![event],
        Raise::Pick(pick) => pick.options().to_vec(),
    }
}

fn causes(cascade: &Cascade) -> impl Iterator<Item = (&'static str, Option<&'static str>)> {
    cascade.causes.split_whitespace().map(|c| c.split_once(':').map_or((c, None), |(row, event)| (row, Some(event))))
}

/// The machine that a cascade raises its event on, which depends on the cause for `Same`.
fn target(cascade: &Cascade, row: &str) -> &'static Table {
    cascade.reach.table().or(machine::by_row(row)).expect("a machine")
}

#[test]
fn every_cause_is_a_row_and_every_event_is_one_of_the_machine_it_reaches() {
    for cascade in LIST {
        for (row, event) in causes(cascade) {
            let table = machine::by_row(row).unwrap_or_else(|| panic!("{row} belongs to no machine"));
            let mut rows = table.row(row);
            let known = rows.any(|r| event.is_none_or(|event| table.events[r.event as usize].token == event));
            assert!(known, "{row} {event:?} is no row");
            for event in events(cascade) {
                let reached = target(cascade, row);
                assert!(reached.event(event).is_some(), "{row}: {} knows no {event}", reached.name);
            }
        }
    }
}

#[test]
fn every_relation_is_followed_by_a_cascade_or_asked_for_by_a_choice() {
    let asked = [Reach::OutputsOfMission, Reach::DependenciesOfTask];
    for reach in Reach::ALL {
        assert!(asked.contains(reach) || LIST.iter().any(|c| c.reach == *reach), "{reach:?} leads nowhere");
    }
}

/// Consequences that the specification's column of cascades names for the same transaction.
const SPECIFIED: &[(&str, &str)] = &[
    ("S1", "L1"),
    ("S6", "T17 H37"),
    ("S9", "L17 P7 P12 P18 P19 P20 M19"),
    ("S11", "L17 P7 P12 P18 P19 P20 M19"),
    ("S14", "L17 P7 P12 P18 P19 P20 M19"),
    ("S15", "L17 P7 P12 P18 P19 P20 M19"),
    ("S19", "L8"),
    ("L1", "D1"),
    ("L2", "S3"),
    ("L3", "D24"),
    ("L5", "D8"),
    ("L7", "D7"),
    ("L8", "T21 L10 L14 K10 D23"),
    ("L9", "L10 L14 D23"),
    ("L10", "L10 D23"),
    ("L11", "D23 K9"),
    ("L12", "D23"),
    ("L13", "T27"),
    ("L14", "T27"),
    ("L15", "T20"),
    ("L16", "D20"),
    ("L17", "T21 D23"),
    ("D7", "S8"),
    ("D8", "D5"),
    ("D22", "S8"),
    ("T1", "L4 K3 S4"),
    ("T3", "C1"),
    ("T4", "L5 S5"),
    ("T5", "L6"),
    ("T6", "L6"),
    ("T7", "L7"),
    ("T9", "L5 S5"),
    ("T10", "C12 C17 L6"),
    ("T11", "C16 C17 L7"),
    ("T16", "L6"),
    ("T17", "C12 C17 L6"),
    ("T18", "C16 C17 L7"),
    ("T19", "C12 C17 L7 D7"),
    ("T20", "C12 C17 L15 S7 L6"),
    ("T21", "C12 C17 L6"),
    ("T22", "C12 C17 L6"),
    ("T23", "L16"),
    ("T25", "L19 D7"),
    ("C6", "ST8 T8 T9"),
    ("C7", "T8 T9"),
    ("C9", "ST6 T8 T9"),
    ("C10", "ST7 ST8 T8 T9"),
    ("C11", "ST7 ST8 T8 T9"),
    ("C12", "ST9 T8 T9"),
    ("C13", "ST8 T8 T9"),
    ("C14", "ST8 T8 T9"),
    ("C15", "ST8 T8 T9"),
    ("C16", "ST8 T8 T9"),
    ("C17", "T8 T9"),
    ("M1", "AS1"),
    ("M2", "AS2"),
    ("M4", "AS1 AS3 AS20"),
    ("M5", "AS3"),
    ("M8", "H24 H31"),
    ("M11", "H26"),
    ("M12", "H25 AS11 AS3"),
    ("M13", "H31"),
    ("M14", "H28 H29 H30"),
    ("M15", "M1"),
    ("M19", "H25 AS11 AS3"),
    ("H2", "AS1"),
    ("H3", "AS1"),
    ("H4", "AS2"),
    ("H5", "AS3"),
    ("H6", "AS3"),
    ("H7", "AS1 AS3 AS20"),
    ("H8", "M10 M16"),
    ("H10", "ST9"),
    ("H11", "M10 M16"),
    ("H12", "ST1"),
    ("H14", "M10 M16"),
    ("H16", "ST15"),
    ("H17", "ST13 ST3"),
    ("H18", "ST13"),
    ("H19", "ST15"),
    ("H20", "ST5"),
    ("H21", "AS18 M6 M7 M18"),
    ("H22", "M9 M16"),
    ("H23", "ST9 M17"),
    ("H24", "ST9 M17"),
    ("H25", "ST9"),
    ("H26", "ST8"),
    ("H27", "ST9 ST10 M6 M7 M18"),
    ("H28", "ST12 M14"),
    ("H29", "ST11 ST19 M14"),
    ("H30", "M14"),
    ("H31", "ST9 ST10 M17"),
    ("H36", "M10 M16"),
    ("ST1", "ST2"),
    ("ST2", "ST3"),
    ("ST4", "H13 H14 H18"),
    ("ST5", "C1 AS4 AS12"),
    ("ST6", "AS5 ST5 H21"),
    ("ST8", "AS6 H22"),
    ("ST9", "C12 AS11 H23"),
    ("ST11", "AS13"),
    ("ST12", "AS13"),
    ("ST13", "H18"),
    ("ST18", "C12 AS5 ST5 H21"),
    ("AS7", "H18 H36"),
    ("AS8", "H18 H36"),
    ("P3", "K1"),
    ("P6", "K12"),
    ("P7", "K12 H23"),
    ("P11", "K12 H22"),
    ("P12", "K12 H23"),
    ("P13", "K11 K1"),
    ("P14", "H21"),
    ("P15", "K12"),
    ("P16", "K8"),
    ("P17", "K12 H22"),
    ("P18", "K12 H23"),
    ("P19", "K12 H23"),
    ("P20", "H23"),
    ("P21", "H22"),
    ("P22", "K12 H22"),
    ("P23", "K12 H22"),
    ("K2", "D19"),
    ("K4", "P8 P9"),
    ("K5", "K6 P9 P10 P22"),
    ("K6", "P10"),
    ("K7", "P10"),
    ("K8", "P16"),
    ("K11", "K8"),
    ("K12", "T27"),
];

/// Consequences that the column does not name, with what asks for them.
const ADDED: &[(&str, &str, &str)] = &[
    ("S7 S8 S18", "T27", "turns are ended by their workers: the request is durable now, T20 follows"),
    ("L3 L9 L10 L11 L12", "T28", "a queued turn of an agent that ended would wait for ever"),
    ("L3", "D25 D26", "the parent is told by agent.message"),
    ("L3 L11 L12 L17", "L10", "an agent that ended, however, is no parent any more"),
    ("L3 L9 L10 L12 L17", "K9 K10", "K9: the owner terminated or failed"),
    ("D6 D7 D18 D21 D22", "K9 K10", "K9: the owner stopped or erred"),
    ("L5 L6 L7 L19", "L9 L10 L11", "L13, L14 and L15: then L9, L10 or L11"),
    ("L5 L6 L7 L19", "D21", "L15: or D21"),
    ("L5 L6 L7 L19", "T26", "architecture: the next turn is queued in the commit that ends one"),
    ("D4 D13 D25 D26", "T26", "architecture: message and turn are one commit"),
    ("D4 D13", "S2", "the first message is the one to the root agent"),
    ("D13", "T15", "T15 rides on agent.message_received"),
    ("D6", "T27", "the live turn is cancelled, with a grace"),
    ("D21", "T20", "4.7: what is in flight is interrupted"),
    ("D27", "L8 L9 L12", "its lifecycle is ended first"),
    ("T16", "T27", "T16 rides on turn.control_requested"),
    ("C1", "C2 C3 C4 C13 C14 C15", "architecture: awaiting_approval in the commit that makes the call"),
    ("C7 C17", "ST7 ST8 ST9", "a step whose call ended must not wait for it"),
    ("M12 M19", "H31", "4.10: a cancelled mission has no failed hop; H25 leaves that one"),
    ("H12", "ST9 ST10", "4.10: steps of an earlier revision are CANCELLED"),
    ("H20", "H21", "a retry may find every step done"),
    ("H20", "P1 AS4 AS12 AS14", "X69: a plan carries the hop out, and makes what it promises"),
    ("H22 H26", "AS6", "X69: what the plan of a failed hop was making is not made"),
    ("H23 H25", "AS11", "X69: nobody makes it any more"),
    ("P14", "AS5", "X69: what came of the plan is what its hop makes"),
    ("P14", "H22", "H21 has READY outputs: what does not fit its type fails the hop"),
    ("P7 P12 P18 P19 P20", "H22", "X69: H23 only if a person cancelled it"),
    ("H27", "AS15 AS4 AS12 AS14 AS5", "H27: outputs are READY or supplied"),
    ("H23 H25 H26 H27", "P12", "X69: the plan that carries out a hop has nothing left to do"),
    ("ST8", "C12", "H26 fails a step whose call still runs"),
    ("ST20", "AS4 AS12 AS14 AS5", "a step that is done after all has made what ST6 would have"),
    ("K2", "T26", "K3: the owner's turn, cause = task"),
    ("K12", "K6", "K6: a dependency is cancelled"),
    ("P3", "K12", "a draft that is revised leaves out what it no longer names"),
    ("P6 P7 P11 P12 P17 P18 P19 P20 P21 P22 P23", "T27 T28", "4.7: what is in flight for the plan itself ends too"),
    ("K9 K12", "T28", "a queued turn of a task that is taken back would begin all the same"),
    ("K12", "P9 P10", "a plan must not wait for a task that a person cancelled"),
];

/// Whether an entry of the list leads from one row to the other.
fn leads(cascade: &Cascade, cause: &str, effect: &str) -> bool {
    let reached = machine::by_row(effect).expect(effect);
    let mut raised = reached.row(effect).map(|r| reached.events[r.event as usize].token);
    causes(cascade).any(|(row, _)| row == cause)
        && target(cascade, cause).name == reached.name
        && raised.any(|event| events(cascade).contains(&event))
}

fn named() -> impl Iterator<Item = (&'static str, &'static str)> {
    let added = ADDED.iter().map(|(causes, effects, _)| (*causes, *effects));
    SPECIFIED.iter().copied().chain(added).flat_map(|(causes, effects)| {
        causes.split_whitespace().flat_map(move |cause| effects.split_whitespace().map(move |effect| (cause, effect)))
    })
}

#[test]
fn every_cascade_of_the_specification_is_in_the_list() {
    for (cause, effect) in named() {
        assert!(LIST.iter().any(|c| leads(c, cause, effect)), "{cause} does not lead to {effect}");
    }
}

#[test]
fn every_entry_of_the_list_is_specified_or_says_who_asks_for_it() {
    let mut stray = Vec::new();
    for cascade in LIST {
        for (row, _) in causes(cascade) {
            if !named().any(|(cause, effect)| cause == row && leads(cascade, cause, effect)) {
                stray.push(format!("{row} -> {:?} {:?}", cascade.reach, events(cascade)));
            }
        }
    }
    assert!(stray.is_empty(), "{stray:#?}");
}

#[test]
fn every_turn_that_ends_takes_its_agent_along_except_one_that_never_started() {
    for row in turn::TABLE.rows {
        let ends = row.to.is_some_and(|to| turn::TABLE.states[to as usize].phase == machine::Phase::Terminal);
        let event = turn::TABLE.events[row.event as usize].token;
        let led: BTreeSet<&str> = LIST
            .iter()
            .filter(|c| c.reach == Reach::AgentOfTurn && c.order == Order::After)
            .filter(|c| causes(c).any(|(id, on)| id == row.id && on.is_none_or(|on| on == event)))
            .flat_map(events)
            .filter(|event| event.starts_with("turn_") && *event != "turn_assigned" || *event == "recovery_exhausted")
            .collect();
        assert_eq!(led.len(), usize::from(ends && row.id != "T28"), "{} {event}: {led:?}", row.id);
    }
}
