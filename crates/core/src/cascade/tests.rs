//! The list against the tables and the specification, and the order that expansion gives.

use super::*;
use crate::decide;
use crate::id::Kind;
use crate::machine::{self, agent_drive, agent_lifecycle, session, tool_call, turn};
use std::collections::BTreeSet;
use uuid::Uuid;

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

#[test]
fn every_cascade_of_the_specification_is_in_the_list() {
    for (cause, effects) in SPECIFIED {
        for effect in effects.split_whitespace() {
            let reached = machine::by_row(effect).expect(effect);
            let mut raised = reached.row(effect).map(|r| reached.events[r.event as usize].token);
            let covered = raised.any(|event| {
                LIST.iter().any(|c| {
                    causes(c).any(|(row, _)| row == *cause)
                        && target(c, cause).name == reached.name
                        && events(c).contains(&event)
                })
            });
            assert!(covered, "{cause} does not lead to {effect}");
        }
    }
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

/// One session with a parent, its child, a turn with two calls and a queued one.
#[derive(Default)]
struct Fixture {
    rows: HashMap<(&'static str, Entity), &'static str>,
    facts: HashSet<Fact>,
    pending: decide::Pending,
}

const fn entity(kind: Kind, id: u128) -> Entity {
    Entity::new(kind, Uuid::from_u128(id))
}
const SESSION: Entity = entity(Kind::Session, 1);
const PARENT: Entity = entity(Kind::Agent, 2);
const CHILD: Entity = entity(Kind::Agent, 3);
const TURN: Entity = entity(Kind::Turn, 4);
const QUEUED: Entity = entity(Kind::Turn, 5);
const RUNS: Entity = entity(Kind::ToolCall, 6);
const WAITS: Entity = entity(Kind::ToolCall, 7);

impl Fixture {
    fn new() -> Fixture {
        let mut fixture = Fixture::default();
        fixture.rows.insert(("session", SESSION), "active");
        for (agent, state) in [(PARENT, "running_turn"), (CHILD, "idle")] {
            fixture.rows.insert(("agent_lifecycle", agent), state);
            fixture.rows.insert(("agent_drive", agent), "running");
        }
        fixture.rows.insert(("turn", TURN), "tool_executing");
        fixture.rows.insert(("turn", QUEUED), "queued");
        fixture.rows.insert(("tool_call", RUNS), "executing");
        fixture.rows.insert(("tool_call", WAITS), "awaiting_approval");
        fixture
    }

    fn moves(&self, entity: Entity, table: &'static Table, event: &str, by: By) -> Vec<&'static str> {
        let planned = expand(self, entity, table, event, by).expect("a move");
        assert!(record(&planned).is_ok(), "{planned:?}");
        planned.iter().map(|p| p.mv.row()).collect()
    }
}

impl View for Fixture {
    fn state(&self, table: &'static Table, entity: Entity) -> Option<&str> {
        self.rows.get(&(table.name, entity)).copied()
    }
    fn related(&self, of: Entity, reach: Reach) -> Vec<Entity> {
        match (reach, of) {
            (Reach::AgentsOfSession, _) => vec![PARENT, CHILD],
            (Reach::ChildrenOfAgent, PARENT) => vec![CHILD],
            (Reach::LiveTurnOfAgent | Reach::QueuedTurnsOfAgent, PARENT) => vec![TURN, QUEUED],
            (Reach::OpenCallsOfTurn, TURN) => vec![RUNS, WAITS],
            (Reach::AgentOfTurn, TURN | QUEUED) => vec![PARENT],
            (Reach::DriveOfAgent | Reach::LifecycleOfAgent, agent) => vec![agent],
            (Reach::TurnOfCall, _) => vec![TURN],
            (Reach::SessionOfAgent | Reach::SessionOfTurn, _) => vec![SESSION],
            _ => vec![],
        }
    }
    fn fact(&self, _: Entity, fact: Fact) -> bool {
        self.facts.contains(&fact)
    }
    fn tries(&self, _: Entity) -> decide::Tries {
        decide::Tries { made: 1, max: 2 }
    }
    fn gate(&self, _: Entity) -> Option<decide::Call> {
        None
    }
    fn finished_tools(&self, _: Entity) -> decide::FinishedTools {
        decide::FinishedTools { provider_calls: 1, provider_calls_max: 10, ended_by_tool: false, pending: self.pending }
    }
    fn attempt(&self, _: Entity) -> decide::Attempt {
        unreachable!("no step")
    }
    fn failed_hop(&self, _: Entity) -> decide::FailedHop {
        unreachable!("no hop")
    }
}

#[test]
fn a_forced_kill_ends_results_then_turns_then_the_agent_then_its_children() {
    let rows = Fixture::new().moves(PARENT, &agent_lifecycle::TABLE, "kill_forced", By::User);
    assert_eq!(rows, ["C12", "C17", "T21", "T28", "L8", "D23", "L10", "D23"]);
}

#[test]
fn a_gentle_kill_asks_the_turn_and_the_agent_ends_with_it() {
    let mut fixture = Fixture::new();
    let rows = fixture.moves(PARENT, &agent_lifecycle::TABLE, "kill", By::User);
    assert_eq!(rows, ["L13", "T27"]);
    fixture.facts.insert(Fact::KillPending);
    let rows = fixture.moves(TURN, &turn::TABLE, "interrupt", By::System);
    assert_eq!(rows, ["C12", "C17", "T10", "L6", "T28", "L9", "D23", "L10", "D23"]);
}

#[test]
fn a_deleted_agent_is_ended_first() {
    let rows = Fixture::new().moves(CHILD, &agent_drive::TABLE, "delete", By::User);
    assert_eq!(rows, ["L9", "D27"]);
}

#[test]
fn a_closing_session_names_itself_first_and_ends_everyone_once() {
    let rows = Fixture::new().moves(SESSION, &session::TABLE, "close_requested", By::User);
    assert_eq!(rows, ["S9", "C12", "C17", "T21", "T28", "L17", "D23", "L17", "D23"]);
}

#[test]
fn a_crash_leaves_what_ran_unknown_and_cancels_what_did_not() {
    let rows = Fixture::new().moves(TURN, &turn::TABLE, "tool_crash", By::System);
    assert_eq!(rows, ["C16", "C17", "T11", "L7"]);
    let mut fatal = Fixture::new();
    fatal.facts.insert(Fact::DriveFatal);
    let rows = fatal.moves(TURN, &turn::TABLE, "tool_crash", By::System);
    assert_eq!(rows, ["C16", "C17", "T11", "L7", "D7"]);
}

#[test]
fn the_last_result_moves_the_turn_on_and_an_earlier_one_does_not() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.moves(RUNS, &tool_call::TABLE, "success", By::System), ["C9"]);
    fixture.rows.insert(("tool_call", WAITS), "denied");
    assert_eq!(fixture.moves(RUNS, &tool_call::TABLE, "success", By::System), ["C9", "T8"]);
    fixture.pending.steer = true;
    assert_eq!(fixture.moves(RUNS, &tool_call::TABLE, "success", By::System), ["C9", "T16", "L6"]);
}

#[test]
fn a_spent_budget_found_in_a_turn_ends_turn_and_agent_in_one_commit() {
    let mut fixture = Fixture::new();
    fixture.facts.insert(Fact::BudgetTerminates);
    let rows = fixture.moves(PARENT, &agent_lifecycle::TABLE, "budget_exhausted", By::System);
    assert_eq!(rows, ["L15", "C12", "C17", "T20", "L6", "T28", "L11", "D23", "L10", "D23"]);
}

#[test]
fn an_ignored_cause_moves_nothing_and_a_refused_one_says_why() {
    let mut fixture = Fixture::new();
    fixture.rows.insert(("agent_drive", CHILD), "stopped");
    let ignored = expand(&fixture, CHILD, &agent_drive::TABLE, "stop", By::User);
    assert!(ignored.is_ok_and(|planned| planned.is_empty()));
    let refused = expand(&fixture, CHILD, &agent_drive::TABLE, "message_received", By::User).expect_err("stopped");
    assert!(refused.advice.contains("relaunch"), "{refused}");
}

#[test]
fn an_event_whose_rune_is_another_machines_cannot_be_committed_alone() {
    let planned = expand(&Fixture::new(), CHILD, &agent_lifecycle::TABLE, "turn_assigned", By::System).expect("a row");
    assert_eq!(record(&planned).expect_err("it rides on turn.started").mv.row(), "L4");
}

#[test]
fn runes_come_in_the_order_of_the_moves_and_riders_stand_on_their_cause() {
    let planned = expand(&Fixture::new(), CHILD, &agent_lifecycle::TABLE, "kill", By::User).expect("a row");
    let entries = record(&planned).expect("carried");
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].kind, "agent.terminated");
    let rows: Vec<&str> = entries[0].moves.iter().map(|m| m.row.as_str()).collect();
    assert_eq!(rows, ["L9", "D23"]);
}

/// A line of agents, each the parent of the next.
struct Line(u128);

impl View for Line {
    fn state(&self, table: &'static Table, _: Entity) -> Option<&str> {
        Some(if table.name == "agent_drive" { "running" } else { "idle" })
    }
    fn related(&self, of: Entity, reach: Reach) -> Vec<Entity> {
        let next = of.id.as_u128() + 1;
        if reach == Reach::ChildrenOfAgent && next < self.0 { vec![entity(Kind::Agent, next)] } else { vec![] }
    }
    fn fact(&self, _: Entity, _: Fact) -> bool {
        false
    }
    fn tries(&self, _: Entity) -> decide::Tries {
        decide::Tries { made: 0, max: 1 }
    }
    fn gate(&self, _: Entity) -> Option<decide::Call> {
        None
    }
    fn finished_tools(&self, _: Entity) -> decide::FinishedTools {
        unreachable!("no turn")
    }
    fn attempt(&self, _: Entity) -> decide::Attempt {
        unreachable!("no step")
    }
    fn failed_hop(&self, _: Entity) -> decide::FailedHop {
        unreachable!("no hop")
    }
}

#[test]
fn a_cascade_that_reaches_too_far_is_refused_as_a_whole() {
    let kill = |line: Line| expand(&line, entity(Kind::Agent, 0), &agent_lifecycle::TABLE, "kill", By::User);
    assert_eq!(kill(Line(DEPTH_MAX as u128)).expect("within").len(), DEPTH_MAX);
    let refused = kill(Line(DEPTH_MAX as u128 + 10)).expect_err("too deep");
    assert!(refused.advice.contains("64"), "{refused}");
}
