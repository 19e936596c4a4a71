//! Agents: their pairs of states, their epochs, and that what they were told while they were in a turn comes true.

use super::{AGENT_ENDS, EPOCH, PAIR, Report, TURN_START};
use crate::coordination::pair_allowed;
use crate::fold::States;
use crate::id::{AgentId, Entity, Kind};
use crate::machine::{By, Phase, agent_drive, agent_lifecycle, by_row, session, turn};
use crate::rune::Rune;
use std::collections::{BTreeSet, HashMap, HashSet};

#[derive(Debug, Default)]
pub(super) struct Watch {
    tenures: HashMap<AgentId, Tenure>,
    /// Agents that shall end with the turn that they are in.
    doomed: HashSet<Entity>,
    // By the commit that is being read:
    touched: BTreeSet<Entity>,
    /// Agents whose live turn ended.
    released: BTreeSet<Entity>,
}

/// An agent in a turn is told to end; it stays in the turn until that ends.
const DOOMS: [&str; 2] = ["L13", "L14"];
/// A turn begins, for its agent.
const BEGINS: &str = "L4";

/// The highest epoch under which an agent was written, and the service that moved it under it.
#[derive(Debug, Default)]
struct Tenure {
    epoch: i64,
    owner: Option<String>,
}

/// Whether a service moves an agent or its turn, which only the owner of its lease may. One without a
/// name is INV-ACTOR's.
fn owns(rune: &Rune) -> bool {
    let held = [turn::TABLE.name, agent_lifecycle::TABLE.name];
    let moves = || rune.moves.iter().filter_map(|moved| by_row(&moved.row)).any(|table| held.contains(&table.name));
    rune.actor.by == By::System && !rune.actor.id.is_empty() && moves()
}

impl Watch {
    pub(super) fn after(&mut self, rune: &Rune, states: &States, report: &mut Report) {
        self.epoch(rune, states, report);
        let agents = rune.moves.iter().map(|moved| moved.entity).filter(|entity| entity.kind == Kind::Agent);
        self.touched.extend(agents);
        for moved in &rune.moves {
            match (moved.entity.kind, moved.row.as_str()) {
                (Kind::Agent, row) if DOOMS.contains(&row) => drop(self.doomed.insert(moved.entity)),
                (Kind::Agent, BEGINS) => begins(rune, moved.entity, states, report),
                (Kind::Turn, _) if turn::TABLE.phase(&moved.to) == Some(Phase::Terminal) => {
                    let waited = moved.from.as_deref() == Some(turn::State::Queued.token());
                    self.released.extend(rune.agent_id.filter(|_| !waited).map(Entity::from));
                }
                _ => {}
            }
        }
    }

    fn epoch(&mut self, rune: &Rune, states: &States, report: &mut Report) {
        // Epoch 0: no lease was involved.
        let Some(agent) = rune.agent_id.filter(|_| rune.epoch != 0) else { return };
        let tenure = self.tenures.entry(agent).or_default();
        if rune.epoch > tenure.epoch {
            *tenure = Tenure { epoch: rune.epoch, owner: None };
        }
        if rune.epoch < tenure.epoch {
            let message = format!("{agent} is written under epoch {} after {}", rune.epoch, tenure.epoch);
            report.fire(&EPOCH, rune.seq, message);
        } else if owns(rune) {
            let owner = tenure.owner.get_or_insert_with(|| rune.actor.id.clone());
            if *owner != rune.actor.id {
                let message = format!("{agent} is moved by {} under epoch {} of {owner}", rune.actor.id, rune.epoch);
                report.fire(&EPOCH, rune.seq, message);
            }
        }
        if states.get(&agent_drive::TABLE, agent.into()) == Some(agent_drive::State::Deleted.token()) {
            self.tenures.remove(&agent);
        }
    }

    pub(super) fn commit(&mut self, seq: i64, states: &States, report: &mut Report) {
        for agent in std::mem::take(&mut self.touched) {
            let lifecycle = states.get(&agent_lifecycle::TABLE, agent).unwrap_or("nothing");
            let drive = states.get(&agent_drive::TABLE, agent).unwrap_or("nothing");
            if !pair_allowed(lifecycle, drive) {
                report.fire(&PAIR, seq, format!("{agent} is {lifecycle} with a drive that is {drive}"));
            }
            let left = lifecycle != agent_lifecycle::State::RunningTurn.token();
            if left && self.doomed.remove(&agent) {
                self.released.remove(&agent);
                ends(agent, lifecycle, seq, report);
            }
        }
        for agent in std::mem::take(&mut self.released) {
            if self.doomed.remove(&agent) {
                let lifecycle = states.get(&agent_lifecycle::TABLE, agent).unwrap_or("nothing");
                ends(agent, lifecycle, seq, report);
            }
        }
    }
}

fn ends(agent: Entity, lifecycle: &str, seq: i64, report: &mut Report) {
    if agent_lifecycle::TABLE.phase(lifecycle) != Some(Phase::Terminal) {
        let message = format!("{agent} was told to end with its turn, which has ended, and is {lifecycle}");
        report.fire(&AGENT_ENDS, seq, message);
    }
}

fn begins(rune: &Rune, agent: Entity, states: &States, report: &mut Report) {
    let drive = states.get(&agent_drive::TABLE, agent);
    if drive.is_some_and(|drive| drive != agent_drive::State::Running.token()) {
        let message = format!("{agent} begins a turn with a drive that is {}", drive.unwrap_or_default());
        report.fire(&TURN_START, rune.seq, message);
    }
    let held = states.get(&session::TABLE, rune.session_id.into());
    if held.is_some_and(|state| state != session::State::Active.token()) {
        let message = format!("{agent} begins a turn while its session is {}", held.unwrap_or_default());
        report.fire(&TURN_START, rune.seq, message);
    }
}
