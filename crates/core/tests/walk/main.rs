//! Random walks through the composed machines, and every state of a tiny world.
//!
//! A walk commits whatever is legal, and tries what is not. After every commit no pair of states
//! may lie outside the coordination tables; at its end the log must replay to the rows and satisfy
//! every invariant.

mod chance;
mod command;
mod guard;
mod journal;
mod pair;
mod tiny;
mod world;

use command::Outcome;
use instar_core::fold::fold;
use instar_core::id::{Entity, Kind};
use instar_core::invariant::{Scope, check};
use instar_core::machine::{self, By, Phase, session, tool_call, turn};
use instar_core::rune::{Rune, Seal, chain};
use std::collections::{BTreeMap, BTreeSet, HashMap};

const WALKS: u64 = 10_000;
/// Most walks are short, so that there can be many; every sixth goes deep.
const fn steps(seed: u64) -> usize {
    if seed.is_multiple_of(6) { 80 } else { 4 }
}
/// On their own threads: the machines that run this have two cores at least.
const THREADS: u64 = 2;

/// Rows that no commit of a walk can make, with the reason.
const UNWALKED: &[(&str, &str)] = &[];

#[derive(Default)]
struct Tally {
    rows: BTreeMap<&'static str, u64>,
    commits: u64,
    runes: u64,
    refused: u64,
}

impl Tally {
    fn add(&mut self, other: Tally) {
        for (row, n) in other.rows {
            *self.rows.entry(row).or_default() += n;
        }
        self.commits += other.commits;
        self.runes += other.runes;
        self.refused += other.refused;
    }
}

#[test]
fn ten_thousand_walks_keep_every_pair_and_replay_to_their_rows() {
    let walkers: Vec<_> = (0..THREADS)
        .map(|thread| {
            std::thread::spawn(move || {
                let mut tally = Tally::default();
                for seed in (thread..WALKS).step_by(THREADS as usize) {
                    walk(seed, &mut tally);
                }
                tally
            })
        })
        .collect();
    let mut tally = Tally::default();
    for walker in walkers {
        tally.add(walker.join().expect("a walk failed: see its seed above"));
    }
    let all: BTreeSet<&str> = machine::ALL.iter().flat_map(|t| t.rows).map(|row| row.id).collect();
    let never: Vec<&str> = all.iter().copied().filter(|row| !tally.rows.contains_key(row)).collect();
    let rare: Vec<_> = tally.rows.iter().filter(|(_, n)| **n < 20).collect();
    println!("{} commits, {} runes, {} refused", tally.commits, tally.runes, tally.refused);
    println!("{} of {} rows walked; fewer than 20 times: {rare:?}", tally.rows.len(), all.len());
    assert_eq!(never, UNWALKED.iter().map(|(row, _)| *row).collect::<Vec<_>>(), "rows never walked");
}

fn walk(seed: u64, tally: &mut Tally) {
    let mut walker = command::Walker::new(seed, |walker| count(walker, Outcome::Committed, tally));
    for step in 0..steps(seed) {
        let outcome = walker.step();
        let refused = matches!(outcome, Outcome::Refused);
        count(&walker, outcome, tally);
        if refused {
            continue;
        }
        if walker.world.session_is(&["closed"]) {
            break;
        }
        let wrong = pair::contradictions(&walker.world);
        let last = || walker.last.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert!(wrong.is_empty(), "seed {seed} step {step}: {wrong:#?} after {:#?}", last());
    }
    for (event, by) in
        [("close_requested", By::User), ("cleanup_complete", By::System), ("archive_requested", By::System)]
    {
        let outcome = walker.command(walker.world.session, &session::TABLE, event, by);
        count(&walker, outcome, tally);
    }
    finish(seed, &walker, tally);
}

fn count(walker: &command::Walker, outcome: Outcome, tally: &mut Tally) {
    match outcome {
        Outcome::Refused => tally.refused += 1,
        Outcome::Committed => {
            tally.commits += 1;
            for planned in &walker.last {
                *tally.rows.entry(planned.mv.row()).or_default() += 1;
            }
        }
    }
}

fn finish(seed: u64, walker: &command::Walker, tally: &mut Tally) {
    let (world, runes) = (&walker.world, &walker.journal.runes);
    tally.runes += runes.len() as u64;
    let last = || walker.last.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert!(
        world.session_is(&["closed", "archived"]),
        "seed {seed}: not closed: {:#?} after {:#?}",
        guard::live(world),
        last()
    );
    let (states, violations) = fold(runes.iter());
    let log = || runes.iter().map(|r| format!("{} {} {:?}", r.seq, r.kind, r.moves)).collect::<Vec<_>>();
    assert!(violations.is_empty(), "seed {seed}: {violations:#?} in {:#?}", log());
    let rows = world.rows.iter().map(|((name, e), state)| (machine::by_name(name).expect("a machine"), *e, *state));
    let differences = states.diff(rows);
    assert!(differences.is_empty(), "seed {seed}: {differences:#?}");
    one_end_each(seed, world, runes);
    // Sealing a log is the same for every walk, and half of its hashing.
    let sealed = seed.is_multiple_of(16);
    let seal = || chain(Seal::EMPTY, runes.iter().map(|r| (r.seq, r.hash))).expect("no gap");
    let seals = sealed.then(seal).into_iter().collect();
    let found = check(runes, Scope { seals, complete: true, ..Scope::default() });
    assert!(found.is_empty(), "seed {seed}: {found:#?}");
}

fn one_end_each(seed: u64, world: &world::World, runes: &[Rune]) {
    let mut ends: HashMap<Entity, u32> = HashMap::new();
    for rune in runes {
        if ["tool.result", "turn.completed", "turn.interrupted", "turn.error"].contains(&rune.kind.as_str()) {
            *ends.entry(rune.entity).or_default() += 1;
        }
    }
    for e in world.all.iter().filter(|e| [Kind::Turn, Kind::ToolCall].contains(&e.kind)) {
        let table = if e.kind == Kind::Turn { &turn::TABLE } else { &tool_call::TABLE };
        let state = world.get(table, *e).expect("a row");
        assert_eq!(table.phase(state), Some(Phase::Terminal), "seed {seed}: {e} is {state} at the end");
        assert_eq!(ends.get(e), Some(&1), "seed {seed}: ends of {e}");
    }
}
