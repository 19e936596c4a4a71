//! What every runelog must satisfy, judged in one pass from the runes alone.
//!
//! The same ids stand in the specification, in the tests and in production alerts. Memory: what is
//! live, one byte and an id for what has ended (see [`States`]), and the steps of hops.
//!
//! Not judged here, because a log cannot show it: INV-RUNE-IMMUTABLE and INV-CRC-VALID (INV-HASH
//! stands for both), INV-TOOL-SANDBOX and INV-AGENT-SUPERVISED (what processes do), INV-AGENT-BUDGET
//! (limits are not in the log), INV-RESUME-* and INV-REPLAY-* (what readers do), INV-SNAPSHOT-*,
//! INV-CHECKPOINT-* and INV-MEMORY-PRIVACY (other stores).

mod actor;
mod agent;
mod log;
mod mission;
#[cfg(test)]
mod tests;
mod tool;
mod turn;

use crate::fold::States;
use crate::id::CommandId;
use crate::machine::{Row, Table, by_row};
use crate::rune::{Moved, Rune, Seal};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    Warn,
    Error,
    /// Corruption: stop and look.
    Fatal,
}

impl Severity {
    pub const fn token(self) -> &'static str {
        match self {
            Severity::Warn => "warn",
            Severity::Error => "error",
            Severity::Fatal => "fatal",
        }
    }
}

#[derive(Debug)]
pub struct Invariant {
    pub id: &'static str,
    pub severity: Severity,
    pub statement: &'static str,
}

macro_rules! invariants {
    ($($name:ident $id:literal $severity:ident $statement:literal;)+) => {
        $(pub(crate) static $name: Invariant =
            Invariant { id: $id, severity: Severity::$severity, statement: $statement };)+
        pub static LIST: &[&Invariant] = &[$(&$name),+];
    };
}

invariants! {
    MONOTONIC   "INV-EVENTID-MONOTONIC"         Fatal "numbers strictly increase within one session";
    CONTIGUOUS  "INV-SEGMENT-CONTIGUOUS"        Fatal "no number is missing";
    HASH        "INV-HASH"                      Fatal "a rune is what was written";
    SEAL        "INV-SEAL"                      Fatal "the chain over the runes is the sealed one";
    HEAD        "INV-HEAD"                      Fatal "the log reaches as far as its session says";
    RUNE_KIND   "INV-RUNE-KIND"                 Error "kind and payload are registered, a move rides on the kind its row names, and all runes of its row are in its commit";
    CLOSED_LAST "INV-CLOSED-LAST"               Error "nothing but the archiving follows session.closed";
    TABLE       "INV-TABLE"                     Fatal "every move is a row of its table and starts where the last one ended";
    ACTOR       "INV-ACTOR"                     Error "whoever commits may raise one of the commit's events and every one that cannot be a consequence; no agent decides on its own request";
    PAIR        "INV-PAIR"                      Error "lifecycle and drive of an agent fit together";
    AGENT_ENDS  "INV-AGENT-ENDS"                Error "an agent that was told to end while it was in a turn ends with that turn, however that ends";
    TURN_START  "INV-TURN-START"                Error "no turn begins while its agent is stopped or its session held";
    COORDINATION "INV-COORDINATION"             Error "a mission fits its current hop, a hop its steps";
    STOPPED     "INV-MISSION-STOPPED"           Error "where a person has stopped a hop, nobody else begins, approves or executes one of its mission before a person has";
    EPOCH       "INV-EPOCH"                     Fatal "the epochs under which an agent is written never decrease, and each has one owner";
    TURN_SEQUENTIAL "INV-TURN-SEQUENTIAL"       Error "an agent has one live turn at most";
    TURN_TERMINAL "INV-TURN-TERMINAL"           Error "every turn ends";
    TURN_ONE_END "INV-TURN-ONE-END"             Error "a turn ends once";
    TURN_ORDER  "INV-TURN-ORDER"                Error "turn numbers increase within a session, where the log gives any: a turn is else numbered by its rune";
    TOOL_TERMINAL "INV-TOOL-TERMINAL"           Error "every call has exactly one result";
    CALL_BEFORE_RESULT "INV-TOOL-CALL-BEFORE-RESULT" Error "no result without a call";
    APPROVAL_BEFORE_EXEC "INV-TOOL-APPROVAL-BEFORE-EXEC" Error "a call runs only when it was let through, and as it was approved";
}

/// Where a log breaks an invariant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{id} ({}) at rune {seq}: {message}", .severity.token())]
pub struct Violation {
    pub id: &'static str,
    pub severity: Severity,
    /// The rune at which it shows.
    pub seq: i64,
    pub message: String,
}

/// What is known about the log besides its runes.
#[derive(Clone, Debug)]
pub struct Scope {
    /// The seal that the first rune follows. States begin empty, so that only a log from its first
    /// rune on can be judged by its moves.
    pub start: Seal,
    /// Seals to hold the runes against, in order.
    pub seals: Vec<Seal>,
    /// The number of the last rune, as the session's row has it. Read it before the runes: a log may
    /// have grown since.
    pub head: Option<i64>,
    /// The session is closed or drained: what is still live now stays so for ever.
    pub complete: bool,
}

impl Default for Scope {
    fn default() -> Scope {
        Scope { start: Seal::EMPTY, seals: Vec::new(), head: None, complete: false }
    }
}

pub fn check(runes: &[Rune], scope: Scope) -> Vec<Violation> {
    let complete = scope.complete;
    let mut checker = Checker::new(scope.start, scope.seals);
    checker.log.head = scope.head;
    runes.iter().for_each(|rune| checker.push(rune));
    checker.finish(complete)
}

/// Rows of a table that a recorded move may have been: where an id has rows for several events,
/// the record does not tell them apart.
fn rows(moved: &Moved) -> impl Iterator<Item = (&'static Table, &'static Row)> {
    let fits = move |table: &'static Table| {
        let to = table.state(&moved.to);
        let from = moved.from.as_deref().map(|from| table.state(from));
        table.rows.iter().filter(move |row| {
            row.id == moved.row
                && match from {
                    Some(from) => from.is_some_and(|f| row.from.contains(&f)) && row.to.or(from) == to,
                    None => row.from.is_empty() && row.to == to,
                }
        })
    };
    by_row(&moved.row).into_iter().flat_map(move |table| fits(table).map(move |row| (table, row)))
}

/// Collects violations; the watches below only fill it.
#[derive(Debug, Default)]
struct Report {
    found: Vec<Violation>,
}

impl Report {
    fn fire(&mut self, invariant: &'static Invariant, seq: i64, message: String) {
        self.found.push(Violation { id: invariant.id, severity: invariant.severity, seq, message });
    }
}

/// The same as [`check`], a rune at a time.
#[derive(Debug)]
pub struct Checker {
    report: Report,
    states: States,
    /// The commit that the last rune belonged to, and that rune's number.
    commit: Option<(CommandId, i64)>,
    log: log::Watch,
    actor: actor::Watch,
    agent: agent::Watch,
    turn: turn::Watch,
    tool: tool::Watch,
    mission: mission::Watch,
}

impl Checker {
    pub fn new(start: Seal, seals: Vec<Seal>) -> Checker {
        Checker {
            report: Report::default(),
            states: States::new(),
            commit: None,
            log: log::Watch::new(start, seals),
            actor: actor::Watch::default(),
            agent: agent::Watch::default(),
            turn: turn::Watch::default(),
            tool: tool::Watch::default(),
            mission: mission::Watch::default(),
        }
    }

    pub fn push(&mut self, rune: &Rune) {
        if self.commit.is_some_and(|(id, _)| id != rune.command_id) {
            self.end_commit();
        }
        self.commit = Some((rune.command_id, rune.seq));
        let report = &mut self.report;
        self.log.rune(rune, report);
        self.turn.before(rune, &self.states, report);
        self.tool.before(rune, &self.states, report);
        for moved in &rune.moves {
            if let Err(no) = self.states.step(rune.seq, moved) {
                report.fire(&TABLE, rune.seq, no.to_string());
            }
        }
        self.turn.after(rune, &self.states);
        self.actor.after(rune, report);
        self.agent.after(rune, &self.states, report);
        self.mission.after(rune, report);
    }

    fn end_commit(&mut self) {
        if let Some((_, seq)) = self.commit.take() {
            self.log.commit(&mut self.report);
            self.actor.commit(seq, &mut self.report);
            self.agent.commit(seq, &self.states, &mut self.report);
            self.turn.commit(seq, &mut self.report);
            self.mission.commit(seq, &self.states, &mut self.report);
        }
    }

    /// What was found so far, for readers that do not want to wait for the end.
    pub fn found(&self) -> &[Violation] {
        &self.report.found
    }

    pub fn states(&self) -> &States {
        &self.states
    }

    pub fn finish(mut self, complete: bool) -> Vec<Violation> {
        let last = self.commit.map_or(0, |(_, seq)| seq);
        self.end_commit();
        self.log.finish(last, &mut self.report);
        if complete {
            self.turn.finish(last, &self.states, &mut self.report);
            self.tool.finish(last, &self.states, &mut self.report);
        }
        self.report.found
    }
}
