//! Missions with their hops, steps and assets, as part of the picture that cascades are worked out on.

use super::entities;
use super::{DOUBTFUL, MISSED_MAX, missed, stopped_hop};
use instar_core::cascade::Reach;
use instar_core::decide::{self, FailureClass, Gates, HopPhase, OnHopFailure, Standing, Tries};
use instar_core::id::{AssetId, Entity, Kind};
use instar_core::machine::{Phase, hop as hop_machine, mission as mission_machine};
use instar_store::MissionRows;
use instar_store::entity::{asset, hop, mission, tool_step};
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};
use uuid::Uuid;

/// How often an implementation may be found invalid before its hop fails.
pub const REPAIRS_MAX: u32 = 3;

#[derive(Clone, Debug, Default)]
pub struct Missions {
    pub missions: BTreeMap<Uuid, mission::Model>,
    pub hops: BTreeMap<Uuid, hop::Model>,
    /// By hop, in sequence order.
    pub steps: Vec<tool_step::Model>,
    /// In order of age.
    pub assets: BTreeMap<Uuid, asset::Model>,
}

/// A row that a command brings along.
#[derive(Clone, Debug)]
pub enum Row {
    Mission(mission::Model),
    Hop(hop::Model),
    Step(tool_step::Model),
    Asset(asset::Model),
    Call(instar_store::entity::tool_call::Model),
    Plan(instar_store::entity::plan::Model),
}

impl Row {
    pub fn entity(&self) -> Entity {
        match self {
            Row::Mission(row) => Entity::new(Kind::Mission, row.id),
            Row::Hop(row) => Entity::new(Kind::Hop, row.id),
            Row::Step(row) => Entity::new(Kind::ToolStep, row.id),
            Row::Asset(row) => Entity::new(Kind::Asset, row.id),
            Row::Call(row) => Entity::new(Kind::ToolCall, row.id),
            Row::Plan(row) => Entity::new(Kind::Plan, row.id),
        }
    }
}

/// Asset ids in a list, as hops keep them.
pub fn asset_ids(list: &Value) -> Vec<Uuid> {
    let texts = list.as_array().into_iter().flatten().filter_map(Value::as_str);
    texts.filter_map(|text| text.parse::<AssetId>().ok()).map(AssetId::uuid).collect()
}

/// Assets that a step's mapping names.
pub fn mapped_assets(mapping: &Value) -> Vec<Uuid> {
    let targets = mapping.as_object().into_iter().flat_map(|map| map.values());
    let named = ["state_asset_id", "asset_id", "state_asset"];
    let named = targets.filter_map(|to| named.iter().find_map(|key| to.get(*key))).filter_map(Value::as_str);
    named.filter_map(|text| text.parse::<AssetId>().ok()).map(AssetId::uuid).collect()
}

/// Why nothing can be written into an asset in this state, and what to do about that.
pub(crate) fn closed(status: &str) -> Option<&'static str> {
    match status {
        "AWAITING_APPROVAL" => Some("it is AWAITING_APPROVAL: accept it first"),
        "EXPIRED" => Some("it is EXPIRED: refresh it first"),
        "deleted" => Some("it is deleted: name another asset"),
        _ => None,
    }
}

impl Missions {
    pub fn of(rows: MissionRows) -> Missions {
        let mut missions = Missions::default();
        missions.add(rows);
        missions
    }

    pub(crate) fn add(&mut self, rows: MissionRows) {
        self.missions.extend(rows.missions.into_iter().map(|row| (row.id, row)));
        self.hops.extend(rows.hops.into_iter().map(|row| (row.id, row)));
        self.assets.extend(rows.assets.into_iter().map(|row| (row.id, row)));
        for step in rows.steps {
            self.put_step(step);
        }
    }

    pub(crate) fn put_step(&mut self, step: tool_step::Model) {
        self.steps.retain(|known| known.id != step.id);
        let at = self.steps.partition_point(|known| (known.hop_id, known.sequence) <= (step.hop_id, step.sequence));
        self.steps.insert(at, step);
    }

    pub fn step(&self, id: Uuid) -> Option<&tool_step::Model> {
        self.steps.iter().find(|step| step.id == id)
    }

    pub(crate) fn step_mut(&mut self, id: Uuid) -> Option<&mut tool_step::Model> {
        self.steps.iter_mut().find(|step| step.id == id)
    }

    pub fn steps_of(&self, hop: Uuid) -> impl Iterator<Item = &tool_step::Model> {
        self.steps.iter().filter(move |step| step.hop_id == hop)
    }

    /// The hop that a mission works on.
    pub fn current_hop(&self, mission: &mission::Model) -> Option<&hop::Model> {
        self.hops.get(&mission.current_hop_id?)
    }

    /// The mission that a row belongs to.
    pub fn mission_of(&self, entity: Entity) -> Option<&mission::Model> {
        let id = match entity.kind {
            Kind::Mission => entity.id,
            Kind::Hop => self.hops.get(&entity.id)?.mission_id,
            Kind::ToolStep => self.step(entity.id)?.mission_id,
            Kind::Asset => self.assets.get(&entity.id)?.mission_id,
            _ => return None,
        };
        self.missions.get(&id)
    }

    pub(crate) fn status(&self, entity: Entity) -> Option<&str> {
        Some(match entity.kind {
            Kind::Mission => &self.missions.get(&entity.id)?.status,
            Kind::Hop => &self.hops.get(&entity.id)?.status,
            Kind::ToolStep => &self.step(entity.id)?.status,
            Kind::Asset => &self.assets.get(&entity.id)?.status,
            _ => return None,
        })
    }

    pub(crate) fn version(&self, entity: Entity) -> Option<i64> {
        Some(match entity.kind {
            Kind::Mission => self.missions.get(&entity.id)?.version,
            Kind::Hop => self.hops.get(&entity.id)?.version,
            Kind::ToolStep => self.step(entity.id)?.version,
            Kind::Asset => self.assets.get(&entity.id)?.version,
            _ => return None,
        })
    }

    fn assets_where(&self, fits: impl Fn(&&asset::Model) -> bool) -> Vec<Entity> {
        entities(Kind::Asset, self.assets.values().filter(fits).map(|asset| asset.id))
    }

    /// `None` for a relation that this part of the picture does not know.
    pub(crate) fn related(&self, of: Entity, reach: Reach) -> Option<Vec<Entity>> {
        let hops = |found: Option<Uuid>| entities(Kind::Hop, found.into_iter());
        Some(match reach {
            Reach::MissionsOfSession => entities(Kind::Mission, self.missions.keys().copied()),
            Reach::MissionOfHop => entities(Kind::Mission, self.hops.get(&of.id).map(|hop| hop.mission_id).into_iter()),
            Reach::ExecutingHopsOfSession => {
                let executing = self.hops.values().filter(|hop| hop.status == hop_machine::State::Executing.token());
                entities(Kind::Hop, executing.map(|hop| hop.id))
            }
            Reach::CurrentHopOfMission => hops(self.missions.get(&of.id).and_then(|mission| mission.current_hop_id)),
            Reach::HopOfStep => hops(self.step(of.id).map(|step| step.hop_id)),
            Reach::HopsOfInput => {
                // Only a hop that still moves can lose something; a mission has one at the most.
                let current = self.mission_of(of).and_then(|mission| self.current_hop(mission));
                hops(current.filter(|hop| asset_ids(&hop.inputs).contains(&of.id)).map(|hop| hop.id))
            }
            Reach::StepsOfHop => entities(Kind::ToolStep, self.steps_of(of.id).map(|step| step.id)),
            Reach::AssetsOfMission => self.assets_where(|asset| asset.mission_id == of.id),
            Reach::OutputsOfMission => self.assets_where(|asset| asset.mission_id == of.id && asset.role == "output"),
            Reach::AssetsOfHop => self.assets_where(|asset| asset.hop_id == Some(of.id)),
            Reach::OutputsOfHop => {
                let outputs = self.hops.get(&of.id).map(|hop| asset_ids(&hop.outputs)).unwrap_or_default();
                entities(Kind::Asset, outputs.into_iter())
            }
            Reach::OutputsOfStep => {
                let outputs = self.step(of.id).map(|step| mapped_assets(&step.result_mapping)).unwrap_or_default();
                entities(Kind::Asset, outputs.into_iter())
            }
            _ => return None,
        })
    }

    /// Whether a step's inputs are there. What the step before it makes is READY once that one has succeeded, which
    /// is when the next one is asked about.
    pub(crate) fn has_inputs(&self, step: Uuid) -> bool {
        let Some(step) = self.step(step) else { return false };
        let before: HashSet<Uuid> = self
            .steps_of(step.hop_id)
            .filter(|other| other.status == "EXECUTING" && other.id != step.id)
            .flat_map(|other| mapped_assets(&other.result_mapping))
            .collect();
        mapped_assets(&step.parameter_mapping).iter().all(|id| {
            let status = self.assets.get(id).map(|asset| asset.status.as_str());
            status == Some("READY") || (status == Some("PROCESSING") && before.contains(id))
        })
    }

    /// One of these assets that nothing can be written into, and why. A step that makes it would have its effect, and
    /// its answer would be lost.
    pub(crate) fn closed_output(&self, outputs: &[Uuid]) -> Option<(&str, &'static str)> {
        outputs.iter().find_map(|id| match self.assets.get(id) {
            Some(asset) => closed(&asset.status).map(|why| (asset.name.as_str(), why)),
            None => closed("deleted").map(|why| ("an asset", why)),
        })
    }

    /// The same for what a step makes.
    pub(crate) fn closed_output_of(&self, step: Uuid) -> Option<(&str, &'static str)> {
        self.closed_output(&mapped_assets(&self.step(step)?.result_mapping))
    }

    /// One that a mapping names and that is not in the making, with its state.
    pub(crate) fn unmade_output(&self, mapping: &Value) -> Option<(&str, &str)> {
        mapped_assets(mapping).iter().find_map(|id| match self.assets.get(id) {
            Some(asset) => (asset.status != "PROCESSING").then_some((asset.name.as_str(), asset.status.as_str())),
            None => Some(("an asset", "deleted")),
        })
    }

    pub(crate) fn failed_hop(&self, hop: Uuid, class: Option<FailureClass>) -> decide::FailedHop {
        let row = self.hops.get(&hop);
        let mission = row.and_then(|hop| self.missions.get(&hop.mission_id));
        let phase = row.and_then(|hop| hop.phase.as_deref()).and_then(HopPhase::parse).unwrap_or(HopPhase::Execute);
        decide::FailedHop {
            phase,
            class: class.unwrap_or(FailureClass::Recoverable),
            attempts: row.zip(mission).map_or(Tries { made: 1, max: 1 }, |(hop, mission)| attempts(mission, hop)),
            on_hop_failure: match mission.map(|mission| mission.on_hop_failure.as_str()) {
                Some("fail") => OnHopFailure::Fail,
                _ => OnHopFailure::Attention,
            },
        }
    }

    /// Whether a step may have taken effect when it failed: to make it again is for a person to say.
    fn is_in_doubt(&self, hop: &hop::Model) -> bool {
        let failed = |step: &&tool_step::Model| step.hop_id == hop.id && step.status == "FAILED";
        let doubtful = |step: &tool_step::Model| step.error.as_ref().is_some_and(|error| error[DOUBTFUL] == true);
        self.steps_of(hop.id).any(|step| failed(&step) && doubtful(step))
    }

    /// What is known of a mission, for who has to act next.
    pub fn standing(&self, mission: &mission::Model) -> Option<Standing> {
        let hop = self.current_hop(mission);
        let executed = hop.is_some_and(|hop| hop.phase.as_deref() == Some(HopPhase::Execute.token()));
        Some(Standing {
            mission: mission_machine::State::parse(&mission.status)?,
            hop: hop.and_then(|hop| hop_machine::State::parse(&hop.status)),
            gates: gates(mission),
            has_agent: mission.agent_id.is_some(),
            question: mission.question.is_some(),
            feedback: mission.feedback.is_some(),
            retryable: executed && hop.is_some_and(|hop| attempts(mission, hop).left() && !self.is_in_doubt(hop)),
            astray: missed(mission) >= MISSED_MAX,
            by_plan: hop.is_some_and(is_by_plan),
            stopped: stopped_hop(mission).is_some(),
        })
    }
}

/// Whether a plan carries the hop out.
pub(crate) fn is_by_plan(hop: &hop::Model) -> bool {
    hop.executor == "plan"
}

/// The executions of a hop.
pub fn attempts(mission: &mission::Model, hop: &hop::Model) -> Tries {
    let count = |n: i64| u32::try_from(n).unwrap_or_default();
    Tries { made: count(hop.attempts), max: count(mission.hop_attempts_max) }
}

pub fn gates(mission: &mission::Model) -> Gates {
    serde_json::from_value(mission.gates.clone()).unwrap_or_default()
}

/// Whether a state is one that something can still come of by itself.
pub(crate) fn is_live(machine: &'static instar_core::machine::Table, state: &str) -> bool {
    machine.phase(state) == Some(Phase::Live)
}
