//! Every composite state of one session with one agent, one turn and one call.

use crate::chance::mix;
use crate::command::tables;
use crate::guard;
use crate::pair::contradictions;
use crate::world::{Asked, Facts, World};
use instar_core::cascade::{Fact, expand, record};
use instar_core::decide::{Approval, Call, Mode};
use instar_core::id::{Entity, Kind};
use instar_core::machine::{By, Cell, Table, session};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use uuid::Uuid;

const FACTS: &[Fact] = &[
    Fact::Loaded,
    Fact::DriveFatal,
    Fact::LateTooOften,
    Fact::Nudged,
    Fact::NudgeLimit,
    Fact::BudgetTerminates,
    Fact::BudgetStops,
    Fact::AgentBudget,
    Fact::SessionBudget,
    Fact::InterruptInFlight,
    Fact::ErrorThreshold,
];

/// No fact, each alone, all; and each answer of the gate.
fn variants() -> Vec<Facts> {
    let call = |valid, outside_sandbox, side_effects, mode| Call {
        valid,
        outside_sandbox,
        side_effects,
        spec: Approval::Inherit,
        policy_override: Approval::Inherit,
        mode,
    };
    let given = |facts: &[Fact], gate, last| Facts::Given { facts: facts.to_vec(), gate, last };
    let mut all = vec![given(&[], None, false), given(&[], None, true), given(FACTS, None, false)];
    all.push(given(&[Fact::Nudged, Fact::NudgeLimit], None, false));
    all.push(given(&[Fact::AgentBudget, Fact::BudgetStops], None, false));
    all.extend(FACTS.iter().map(|fact| given(&[*fact], None, false)));
    let gates = [
        call(false, false, true, Mode::Auto),
        call(true, true, true, Mode::Auto),
        call(true, false, false, Mode::Auto),
        call(true, false, true, Mode::Auto),
        call(true, false, true, Mode::FullAccess),
        call(true, false, true, Mode::ReadOnly),
    ];
    all.extend(gates.map(|gate| given(&[], Some(gate), false)));
    all
}

/// What tells two worlds apart.
fn key(world: &World) -> Vec<String> {
    let mut key: Vec<String> = world.rows.iter().map(|((machine, _), state)| format!("{machine}={state}")).collect();
    key.extend(world.ending.values().map(|fact| format!("{fact:?}")));
    key.extend(world.control.values().map(|control| format!("{control:?}")));
    key.sort();
    key
}

/// Entities that are there, and one of each kind that is not.
fn candidates(world: &World) -> Vec<Entity> {
    let mut found = world.all.clone();
    if let Some(agent) = world.all.iter().find(|e| e.kind == Kind::Agent)
        && !world.all.iter().any(|e| e.kind == Kind::Turn)
    {
        let turn = Entity::new(Kind::Turn, Uuid::from_u128(u128::from(mix(world.seed, 7))));
        world.give(turn, *agent);
        found.push(turn);
    }
    if world.all.is_empty() {
        found.push(world.session);
    }
    found
}

fn successors(world: &World, variants: &[Facts]) -> Vec<World> {
    let mut found = Vec::new();
    for entity in candidates(world) {
        for table in tables(entity.kind) {
            for event in table.events {
                let from = world.get(table, entity).and_then(|s| table.state(s));
                let on = table.event(event.token).expect("an event");
                let Cell::Moves(row) = table.cell(from, on) else { continue };
                if !guard::passes(world, entity, row.id, event.token) {
                    continue;
                }
                let mut asked: Option<Asked> = None;
                for facts in variants.iter() {
                    // The first variant asks; another one matters only if it answers differently.
                    if asked.as_ref().is_some_and(|asked| !concerns(facts, asked)) {
                        continue;
                    }
                    let mut next = world.clone();
                    next.facts = facts.clone();
                    next.asked = Default::default();
                    let moved = commit(&mut next, entity, table, event.token, event.by[0]);
                    asked.get_or_insert_with(|| next.asked.take());
                    if moved {
                        found.push(next);
                    }
                }
            }
        }
    }
    found
}

fn concerns(given: &Facts, asked: &Asked) -> bool {
    let Facts::Given { facts, gate, last } = given else { return false };
    facts.iter().any(|f| asked.facts.contains(f)) || gate.is_some() && asked.gate || *last && asked.last
}

fn commit(world: &mut World, entity: Entity, table: &'static Table, event: &str, by: By) -> bool {
    let Ok(planned) = expand(world, entity, table, event, by) else { return false };
    if planned.is_empty() || record(&planned).is_err() {
        return false;
    }
    world.write(&planned);
    let wrong = contradictions(world);
    let moves = || planned.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert!(wrong.is_empty(), "{wrong:?} after {:#?}", moves());
    true
}

#[test]
fn every_reachable_state_of_a_tiny_world_is_allowed_and_can_be_closed() {
    let variants = variants();
    let mut seen = BTreeSet::new();
    let mut queue = VecDeque::from([World::new(0, variants[0].clone())]);
    let mut states: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    while let Some(world) = queue.pop_front() {
        for ((machine, _), state) in &world.rows {
            states.entry(machine).or_default().insert(state);
        }
        can_be_closed(&world);
        for next in successors(&world, &variants) {
            if seen.insert(key(&next)) {
                queue.push_back(next);
            }
        }
    }
    println!("{} composite states", seen.len());
    assert!(seen.len() > 100, "{}", seen.len());
    for kind in [Kind::Session, Kind::Agent, Kind::Turn, Kind::ToolCall] {
        for table in tables(kind) {
            let all: BTreeSet<&str> = table.states.iter().map(|s| s.token).collect();
            assert_eq!(states[table.name], all, "{}: states that were reached", table.name);
        }
    }
}

/// Whatever happens, a session can be brought to an end in which everything else has ended.
fn can_be_closed(world: &World) {
    if world.all.is_empty() || world.session_is(&["closed", "archived"]) {
        return;
    }
    let (mut world, session) = (world.clone(), world.session);
    if !world.session_is(&["closing"]) {
        assert!(commit(&mut world, session, &session::TABLE, "close_requested", By::User));
    }
    assert!(guard::live(&world).is_empty(), "{:?} in {:?}", guard::live(&world), key(&world));
    assert!(commit(&mut world, session, &session::TABLE, "cleanup_complete", By::System));
}
