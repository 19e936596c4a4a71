//! Turns: one at a time, in order, each with one end.

use super::{Report, TURN_ONE_END, TURN_ORDER, TURN_SEQUENTIAL, TURN_TERMINAL};
use crate::fold::States;
use crate::id::{AgentId, Entity, Kind};
use crate::machine::{Phase, turn};
use crate::rune::Rune;
use crate::rune::payload::TurnQueued;
use std::collections::{BTreeMap, HashMap};

const ENDS: [&str; 3] = ["turn.completed", "turn.interrupted", "turn.error"];

#[derive(Debug, Default)]
pub(super) struct Watch {
    number: Option<i64>,
    /// Agents of the turns that have not ended.
    agents: HashMap<Entity, AgentId>,
    /// Turns that have started and not ended, by agent.
    live: BTreeMap<AgentId, Vec<Entity>>,
    touched: Vec<AgentId>,
}

fn phase(states: &States, entity: Entity) -> Option<Phase> {
    states.get(&turn::TABLE, entity).and_then(|s| turn::TABLE.phase(s))
}

impl Watch {
    pub(super) fn before(&mut self, rune: &Rune, states: &States, report: &mut Report) {
        if ENDS.contains(&rune.kind.as_str()) && phase(states, rune.entity) == Some(Phase::Terminal) {
            report.fire(&TURN_ONE_END, rune.seq, format!("{} of {}, which has ended before", rune.kind, rune.entity));
        }
        if rune.kind == "turn.queued"
            && let Ok(queued) = serde_json::from_str::<TurnQueued>(rune.payload.get())
        {
            if let Some(last) = self.number.filter(|last| queued.number != 0 && queued.number <= *last) {
                report.fire(&TURN_ORDER, rune.seq, format!("turn number {} comes after {last}", queued.number));
            }
            self.number = self.number.max(Some(queued.number));
        }
    }

    pub(super) fn after(&mut self, rune: &Rune, states: &States) {
        for moved in rune.moves.iter().filter(|m| m.entity.kind == Kind::Turn) {
            let turn = moved.entity;
            if let Some(agent) = rune.agent_id.filter(|_| rune.entity == turn) {
                self.agents.insert(turn, agent);
            }
            let Some(agent) = self.agents.get(&turn).copied() else { continue };
            let live = self.live.entry(agent).or_default();
            live.retain(|t| *t != turn);
            match states.get(&turn::TABLE, turn).and_then(turn::State::parse) {
                Some(turn::State::Streaming | turn::State::ToolExecuting) => {
                    live.push(turn);
                    self.touched.push(agent);
                }
                Some(turn::State::Queued) | None => {}
                Some(turn::State::Completed | turn::State::Interrupted | turn::State::Error) => {
                    self.agents.remove(&turn);
                }
            }
            if self.live.get(&agent).is_some_and(Vec::is_empty) {
                self.live.remove(&agent);
            }
        }
    }

    pub(super) fn commit(&mut self, seq: i64, report: &mut Report) {
        for agent in std::mem::take(&mut self.touched) {
            if let Some(live) = self.live.get(&agent).filter(|live| live.len() > 1) {
                report.fire(&TURN_SEQUENTIAL, seq, format!("{agent} has {} live turns: {live:?}", live.len()));
            }
        }
    }

    pub(super) fn finish(&mut self, last: i64, states: &States, report: &mut Report) {
        let turns = states.iter().filter(|(table, ..)| table.name == turn::TABLE.name);
        let mut open: Vec<_> = turns.filter(|(_, t, _)| phase(states, *t) != Some(Phase::Terminal)).collect();
        open.sort_by_key(|(_, turn, _)| *turn);
        for (_, turn, state) in open {
            report.fire(&TURN_TERMINAL, last, format!("{turn} is still {state}"));
        }
    }
}
