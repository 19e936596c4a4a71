//! Missions with their current hop, hops with their steps. The relations come from the payloads.

use super::{COORDINATION, Report};
use crate::coordination::{hop_allowed, steps_allowed};
use crate::fold::States;
use crate::id::Entity;
use crate::machine::{hop, mission, tool_step};
use crate::rune::Rune;
use crate::rune::payload::{HopPlanProposed, HopPlanStarted, StepCreated};
use std::collections::{BTreeSet, HashMap};

#[derive(Debug, Default)]
pub(super) struct Watch {
    missions: HashMap<Entity, Entity>,
    current: HashMap<Entity, Entity>,
    /// Of a hop, with their place in it.
    steps: HashMap<Entity, Vec<(i64, Entity)>>,
    hops: HashMap<Entity, Entity>,
    touched_missions: BTreeSet<Entity>,
    touched_hops: BTreeSet<Entity>,
}

impl Watch {
    pub(super) fn after(&mut self, rune: &Rune) {
        self.learn(rune);
        for moved in &rune.moves {
            let entity = moved.entity;
            match moved.row.as_str() {
                "H1" | "H2" | "H34" => {
                    if let Some(mission) = self.missions.get(&entity) {
                        self.current.insert(*mission, entity);
                    }
                }
                "M7" | "M17" | "M18" => drop(self.current.remove(&entity)),
                // A failed mission does not hear of it, but has no current hop from here on either.
                "H6" | "H31" | "H32" | "H33" => self.current.retain(|_, hop| *hop != entity),
                _ => {}
            }
            match entity.kind {
                crate::id::Kind::Mission => drop(self.touched_missions.insert(entity)),
                crate::id::Kind::Hop => {
                    self.touched_missions.extend(self.missions.get(&entity));
                    self.touched_hops.insert(entity);
                }
                crate::id::Kind::ToolStep => self.touched_hops.extend(self.hops.get(&entity)),
                _ => {}
            }
        }
    }

    fn learn(&mut self, rune: &Rune) {
        let payload = rune.payload.get();
        match rune.kind.as_str() {
            "hop.plan_started" => {
                if let Ok(p) = serde_json::from_str::<HopPlanStarted>(payload) {
                    self.missions.insert(rune.entity, p.mission_id.into());
                }
            }
            "hop.plan_proposed" => {
                if let Ok(p) = serde_json::from_str::<HopPlanProposed>(payload) {
                    self.missions.insert(rune.entity, p.mission_id.into());
                }
            }
            "step.created" => {
                if let Ok(p) = serde_json::from_str::<StepCreated>(payload) {
                    let steps = self.steps.entry(p.hop_id.into()).or_default();
                    steps.push((p.sequence_order, rune.entity));
                    steps.sort();
                    self.hops.insert(rune.entity, p.hop_id.into());
                }
            }
            _ => {}
        }
    }

    pub(super) fn commit(&mut self, seq: i64, states: &States, report: &mut Report) {
        for mission in std::mem::take(&mut self.touched_missions) {
            let Some(state) = states.get(&mission::TABLE, mission) else { continue };
            let current = self.current.get(&mission).and_then(|hop| states.get(&hop::TABLE, *hop));
            if !hop_allowed(state, current) {
                let hop = current.unwrap_or("missing");
                report.fire(&COORDINATION, seq, format!("{mission} is {state} while its current hop is {hop}"));
            }
        }
        for hop in std::mem::take(&mut self.touched_hops) {
            let Some(state) = states.get(&hop::TABLE, hop) else { continue };
            let steps = self.steps.get(&hop).map_or(&[][..], Vec::as_slice).iter();
            let steps: Vec<&str> = steps
                .filter_map(|(_, step)| states.get(&tool_step::TABLE, *step))
                .filter(|state| *state != tool_step::State::Deleted.token())
                .collect();
            if !steps_allowed(state, &steps) {
                report.fire(&COORDINATION, seq, format!("{hop} is {state} while its steps are {steps:?}"));
            }
        }
    }
}
