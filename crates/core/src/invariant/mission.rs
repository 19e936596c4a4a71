//! Missions with their current hop, hops with their steps, what people have stopped. The relations come from the payloads.

use super::{COORDINATION, Report, STOPPED};
use crate::coordination::{hop_allowed, steps_allowed};
use crate::decide::STOPPED_BY_PERSON;
use crate::fold::States;
use crate::id::{Entity, Kind};
use crate::machine::{By, hop, mission, tool_step};
use crate::rune::Rune;
use crate::rune::payload::{HopPlanProposed, HopPlanStarted, MissionAttention, StepCreated};
use std::collections::{BTreeSet, HashMap};

/// Rows by which a hop is begun, proposed, approved or executed.
const FORWARD: [&str; 12] = ["H1", "H2", "H3", "H4", "H9", "H12", "H15", "H20", "H28", "H29", "H30", "H34"];

#[derive(Debug, Default)]
pub(super) struct Watch {
    missions: HashMap<Entity, Entity>,
    current: HashMap<Entity, Entity>,
    /// Of a hop, with their place in it.
    steps: HashMap<Entity, Vec<(i64, Entity)>>,
    hops: HashMap<Entity, Entity>,
    /// Missions whose hop a person has stopped, until a person lets them go on.
    stopped: BTreeSet<Entity>,
    touched_missions: BTreeSet<Entity>,
    touched_hops: BTreeSet<Entity>,
}

impl Watch {
    pub(super) fn after(&mut self, rune: &Rune, report: &mut Report) {
        self.learn(rune);
        self.hold(rune, report);
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
                Kind::Mission => drop(self.touched_missions.insert(entity)),
                Kind::Hop => {
                    self.touched_missions.extend(self.missions.get(&entity));
                    self.touched_hops.insert(entity);
                }
                Kind::ToolStep => self.touched_hops.extend(self.hops.get(&entity)),
                _ => {}
            }
        }
    }

    fn hold(&mut self, rune: &Rune, report: &mut Report) {
        for moved in &rune.moves {
            match (moved.entity.kind, self.missions.get(&moved.entity)) {
                (Kind::Mission, _) if moved.row == "M20" => drop(self.stopped.remove(&moved.entity)),
                (Kind::Hop, Some(mission)) if rune.actor.by == By::User => drop(self.stopped.remove(mission)),
                (Kind::Hop, Some(mission))
                    if FORWARD.contains(&moved.row.as_str()) && self.stopped.contains(mission) =>
                {
                    let (hop, row, by) = (moved.entity, &moved.row, rune.actor.by.token());
                    report.fire(&STOPPED, rune.seq, format!("{row} on {hop} by {by} while {mission} is stopped"));
                }
                _ => {}
            }
        }
        let attention = || serde_json::from_str::<MissionAttention>(rune.payload.get());
        if rune.kind == "mission.attention" && attention().is_ok_and(|told| told.reason == STOPPED_BY_PERSON) {
            self.stopped.insert(rune.entity);
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
