//! What follows from what stands twice: in the list of cascades, and by hand in the builders of the hot path. Here
//! every builder is held to the list. Where one departs from it, the list below says so and why; a departure that is
//! not there, and one that is there and no more in the code, fail alike.

use Departure::{Extra, Missing, Order};
use Of::{Every, One};
use anyhow::{Context, Result, ensure};
use instar_tests::rules::{self, Case, Departure};
use std::collections::BTreeSet;
use std::path::Path;

/// Why a builder may depart from the list.
enum Why {
    /// The move changes nothing: it would only write one row more, such as that of its session with every turn.
    Nothing,
    /// Somebody else sees to it, at once and again until it is done.
    Later(&'static str),
    /// A rune that tells of no move: the list knows moves alone.
    Told,
    /// The log tells the same in another order.
    Order(&'static str),
    /// What decides is in a row, and is no fact that the list asks for.
    Row(&'static str),
}

/// Departures of one sort, of these cases.
struct Known {
    what: &'static [Departure],
    why: Why,
    of: &'static [Of],
}

enum Of {
    /// In every case of the builder.
    Every(&'static str),
    One(&'static str, &'static str),
}

const EXHAUST: Why = Why::Later("`Hub::exhaust`, by whoever found it out, and again by the next call that asks");

const KNOWN: &[Known] = &[
    Known {
        what: &[Missing("S4")],
        why: Why::Nothing,
        of: &[One("claim", ""), One("claim", "of a task"), One("claim", "with a prompt")],
    },
    Known { what: &[Missing("S5")], why: Why::Nothing, of: &[Every("complete"), Every("complete_by_limit")] },
    Known {
        what: &[Missing("T15")],
        why: Why::Nothing,
        of: &[One("message", "to a busy one"), Every("steer"), One("broadcast", "to a busy one")],
    },
    Known {
        what: &[Missing("T8"), Missing("turn.tools_finished")],
        why: Why::Later("the runner's hint to the workers, and the sweep of turns without open calls"),
        of: &[One("result", "the last one")],
    },
    Known {
        what: &[Missing("L10"), Missing("D23"), Missing("agent.terminated")],
        why: Why::Later("the timer `orphans`, which lands with the end"),
        of: &[One("complete", "a parent told to end")],
    },
    Known {
        what: &[Missing("K10"), Missing("plan.task_updated")],
        why: Why::Later("the hint to the task's plan, and the sweep of plans"),
        of: &[
            One("complete", "with a task, told to end"),
            One("fail", "with a task, fatal"),
            One("give_up", "with a task"),
        ],
    },
    Known {
        what: &[Missing("S8"), Missing("session.suspended")],
        why: Why::Later("the scheduler, which counts the errors of sessions"),
        of: &[One("fail", "one error too many")],
    },
    Known {
        what: &[Missing("L15"), Missing("agent.budget_exhausted"), Missing("agent.budget_exhausted")],
        why: EXHAUST,
        of: &[One("interrupt", "at its own limit, to stop"), One("interrupt", "at its own limit, to end")],
    },
    Known {
        what: &[Missing("D21"), Missing("agent.drive_stopped")],
        why: EXHAUST,
        of: &[One("interrupt", "at its own limit, to stop")],
    },
    Known {
        what: &[Missing("L11"), Missing("D23"), Missing("agent.terminated")],
        why: EXHAUST,
        of: &[One("interrupt", "at its own limit, to end")],
    },
    Known {
        what: &[Missing("S7"), Missing("session.suspended")],
        why: EXHAUST,
        of: &[One("interrupt", "at its session's limit")],
    },
    Known {
        what: &[Order],
        why: Why::Order("each call is told whole, with its judgement, before the next"),
        of: &[Every("calls")],
    },
    Known {
        what: &[Order],
        why: Why::Order("whom a task is given to is told before that it is"),
        of: &[Every("assign")],
    },
    Known {
        what: &[Order],
        why: Why::Order("that the agent rests is told before the turn that waits for it"),
        of: &[One("complete", "the last nudge, input waits")],
    },
    Known { what: &[Extra("system.error")], why: Why::Told, of: &[Every("park")] },
    Known { what: &[Extra("memory.candidate")], why: Why::Told, of: &[Every("begin_summary")] },
    Known { what: &[Extra("memory.committed")], why: Why::Told, of: &[Every("end_summary")] },
    Known {
        what: &[Missing("T26"), Missing("turn.queued")],
        why: Why::Row("an errored drive takes no turn: what waits goes on waiting until the agent is relaunched"),
        of: &[
            One("fail", "fatal, input waits"),
            One("fail", "crash, input waits"),
            One("fail", "late too often, input waits"),
            One("fail", "with its provider, input waits"),
            One("give_up", "input waits"),
        ],
    },
    Known {
        what: &[Extra("D5"), Extra("agent.drive_idled")],
        why: Why::Row("the agent has caused itself as much as it may: it rests"),
        of: &[
            One("complete", "after too many letters"),
            One("complete", "too much in a day"),
            One("tell", "one that has had enough"),
            One("tell", "one that has caused enough today"),
        ],
    },
    Known {
        what: &[Missing("T26"), Missing("turn.queued")],
        why: Why::Row("one that rests reads its letters later"),
        of: &[
            One("complete", "after too many letters"),
            One("tell", "one that has had enough"),
            One("tell", "one that has caused enough today"),
            One("tell", "an idle one that has had enough"),
            One("tell", "an idle one that has caused enough today"),
        ],
    },
    Known {
        what: &[Missing("D25"), Missing("agent.drive_started")],
        why: Why::Row("no letter wakes one that rests"),
        of: &[One("tell", "an idle one that has had enough"), One("tell", "an idle one that has caused enough today")],
    },
];

/// Parts of commits that move nothing and say nothing by themselves, or are part of a builder that has a case.
const PARTS: &[&str] = &["counted", "leave_failed", "lift", "limit", "nudge_later", "reserve", "settle"];

impl Of {
    fn means(&self, case: &Case) -> bool {
        match self {
            Of::Every(builder) => case.builder == *builder,
            Of::One(builder, when) => (case.builder, case.when.as_str()) == (*builder, *when),
        }
    }
}

impl Why {
    fn is_given(&self, what: &[Departure]) -> bool {
        match self {
            Why::Nothing => !what.is_empty(),
            Why::Told => what.iter().all(|one| matches!(one, Extra(_))),
            Why::Order(why) => !why.is_empty() && what == [Order],
            Why::Later(who) => !who.is_empty() && what.iter().all(|one| matches!(one, Missing(_))),
            Why::Row(why) => !why.is_empty(),
        }
    }
}

fn known(case: &Case) -> Vec<Departure> {
    let of_case = KNOWN.iter().filter(|known| known.of.iter().any(|of| of.means(case)));
    of_case.flat_map(|known| known.what.iter().copied()).collect()
}

#[test]
fn every_builder_does_what_the_list_says_follows_but_for_the_departures_that_are_known() -> Result<()> {
    let cases = rules::cases();
    let names: BTreeSet<String> = cases.iter().map(Case::name).collect();
    ensure!(names.len() == cases.len(), "two cases have one name");
    let mut wrong = Vec::new();
    for case in &cases {
        let (name, known) = (case.name(), known(case));
        let found = match case.departures() {
            Ok(found) => found,
            Err(why) => {
                wrong.push(why.to_string());
                continue;
            }
        };
        for new in without(&found, &known) {
            wrong.push(format!("{name}: {new:?} is new: the builder and the list of cascades have drifted apart"));
        }
        for gone in without(&known, &found) {
            wrong.push(format!("{name}: {gone:?} is no more: take it off the departures that are known"));
        }
    }
    for known in KNOWN {
        ensure!(known.why.is_given(known.what), "{:?} needs a reason that fits", known.what);
        for of in known.of.iter().filter(|of| !cases.iter().any(|case| of.means(case))) {
            let (Of::Every(builder) | Of::One(builder, _)) = of;
            wrong.push(format!("{builder}: {:?} names a case that is not there", known.what));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Of `all`, what `others` do not have, as often as they do not.
fn without(all: &[Departure], others: &[Departure]) -> Vec<Departure> {
    let mut left = others.to_vec();
    let mut found = Vec::new();
    for one in all {
        match left.iter().position(|other| other == one) {
            Some(at) => drop(left.swap_remove(at)),
            None => found.push(*one),
        }
    }
    found
}

/// What gives or writes a commit, by what its signature names.
const MADE_OF: [&str; 6] = ["Commit", "Accepted", "Born", "Child", "Told", "Engaged"];

#[test]
fn no_builder_is_without_a_case() -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/runtime/src/flow");
    let mut builders = BTreeSet::new();
    for file in std::fs::read_dir(&folder)? {
        let text = std::fs::read_to_string(file?.path())?;
        // Nested ones are methods of what a builder is given.
        for function in text.split("\npub fn ").skip(1) {
            let (name, _) = function.split_once(['(', '<']).context("a name")?;
            let (signature, _) = function.split_once("{\n").context("a body")?;
            let words = signature.split(|c: char| !c.is_alphanumeric());
            if words.into_iter().any(|word| MADE_OF.contains(&word)) {
                builders.insert(name.to_owned());
            }
        }
    }
    ensure!(builders.len() > 30, "the builders are not where they were: {builders:?}");
    let mut known: BTreeSet<String> = rules::cases().iter().map(|case| case.builder.to_owned()).collect();
    known.extend(PARTS.iter().map(|part| (*part).to_owned()));
    let without: Vec<_> = builders.difference(&known).collect();
    ensure!(without.is_empty(), "builders without a case in tests/src/rules: {without:?}");
    let gone: Vec<_> = known.difference(&builders).collect();
    ensure!(gone.is_empty(), "no such builders: {gone:?}");
    Ok(())
}
