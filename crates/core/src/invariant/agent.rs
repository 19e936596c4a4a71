//! Agents and their pairs of states and epochs.

use super::{EPOCH, PAIR, Report};
use crate::coordination::pair_allowed;
use crate::fold::States;
use crate::id::{AgentId, Entity, Kind};
use crate::machine::{By, agent_drive, agent_lifecycle, by_row, turn};
use crate::rune::Rune;
use std::collections::{BTreeSet, HashMap};

#[derive(Debug, Default)]
pub(super) struct Watch {
    tenures: HashMap<AgentId, Tenure>,
    /// By the commit that is being read.
    touched: BTreeSet<Entity>,
}

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
        }
    }
}
