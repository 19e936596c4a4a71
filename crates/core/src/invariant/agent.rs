//! Agents and those who act: pairs of states, epochs, actors.

use super::{ACTOR, EPOCH, PAIR, Report, rows};
use crate::coordination::pair_allowed;
use crate::fold::States;
use crate::id::{AgentId, Entity, Kind};
use crate::machine::{By, agent_drive, agent_lifecycle};
use crate::rune::Rune;
use std::collections::{BTreeSet, HashMap};

#[derive(Debug, Default)]
pub(super) struct Watch {
    epochs: HashMap<AgentId, i64>,
    // Of the commit that is being read:
    touched: BTreeSet<Entity>,
    actors: Vec<By>,
    /// Who may raise the events of the commit's moves.
    may: Vec<By>,
    judged: bool,
}

impl Watch {
    pub(super) fn after(&mut self, rune: &Rune, states: &States, report: &mut Report) {
        self.epoch(rune, states, report);
        if rune.actor.id.is_empty() {
            report.fire(
                &ACTOR,
                rune.seq,
                format!("{} was done by a {} without a name", rune.kind, rune.actor.by.token()),
            );
        }
        if !self.actors.contains(&rune.actor.by) {
            self.actors.push(rune.actor.by);
        }
        for moved in &rune.moves {
            if moved.entity.kind == Kind::Agent {
                self.touched.insert(moved.entity);
            }
            for (table, row) in rows(moved) {
                self.may.extend(table.events[row.event as usize].by);
                self.judged = true;
            }
        }
    }

    fn epoch(&mut self, rune: &Rune, states: &States, report: &mut Report) {
        // Epoch 0: no lease was involved.
        let Some(agent) = rune.agent_id.filter(|_| rune.epoch != 0) else { return };
        let highest = self.epochs.entry(agent).or_insert(rune.epoch);
        if rune.epoch < *highest {
            report.fire(&EPOCH, rune.seq, format!("{agent} is written under epoch {} after {highest}", rune.epoch));
        }
        *highest = (*highest).max(rune.epoch);
        if states.get(&agent_drive::TABLE, agent.into()) == Some(agent_drive::State::Deleted.token()) {
            self.epochs.remove(&agent);
        }
    }

    pub(super) fn commit(&mut self, seq: i64, states: &States, report: &mut Report) {
        // A consequence is raised by the system whoever the actor is; the cause must be his.
        for by in std::mem::take(&mut self.actors) {
            if self.judged && !self.may.contains(&by) {
                report.fire(&ACTOR, seq, format!("none of the commit's events is for the {} to raise", by.token()));
            }
        }
        self.may.clear();
        self.judged = false;
        for agent in std::mem::take(&mut self.touched) {
            let lifecycle = states.get(&agent_lifecycle::TABLE, agent).unwrap_or("nothing");
            let drive = states.get(&agent_drive::TABLE, agent).unwrap_or("nothing");
            if !pair_allowed(lifecycle, drive) {
                report.fire(&PAIR, seq, format!("{agent} is {lifecycle} with a drive that is {drive}"));
            }
        }
    }
}
