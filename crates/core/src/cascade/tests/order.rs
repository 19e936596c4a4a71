//! What expansion moves, and in which order.

use crate::cascade::*;
use crate::decide;
use crate::id::Kind;
use crate::machine::{agent_drive, agent_lifecycle, session, tool_call, turn};
use std::collections::{HashMap, HashSet};
use uuid::Uuid;

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
            (Reach::AgentOfTurn | Reach::DriveOfTurn, TURN | QUEUED) => vec![PARENT],
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
fn a_drive_errs_before_its_agent_ends_however_the_turn_failed() {
    let mut fixture = Fixture::new();
    fixture.rows.insert(("turn", TURN), "streaming");
    fixture.rows.extend([RUNS, WAITS].map(|call| (("tool_call", call), "denied")));
    fixture.facts.insert(Fact::KillPending);
    let ways = [
        ("stream_error", Some(Fact::DriveFatal), ["T7", "L7"]),
        ("turn_deadline", Some(Fact::LateTooOften), ["T19", "L7"]),
        ("recovery_exhausted", None, ["T25", "L19"]),
    ];
    for (event, fact, ended) in ways {
        fixture.facts.extend(fact);
        let rows = fixture.moves(TURN, &turn::TABLE, event, By::System);
        assert_eq!(rows, [&ended[..], &["D7", "T28", "L9", "L10", "D23"]].concat(), "{event}");
        fact.map(|fact| fixture.facts.remove(&fact));
    }
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
