//! A mission with an input, something in between and an output, and a hop that makes the one out of the other: made
//! by commands on the real tables, as far as its execution.

use crate::cast::{self, fresh, person};
use anyhow::{Context, Result, ensure};
use instar_core::asset::content::Content;
use instar_core::asset::lineage::Version;
use instar_core::cascade::Reach;
use instar_core::id::{AssetId, HopId, MissionId, SessionId, StepId};
use instar_core::machine::{self, By};
use instar_core::rune::Actor;
use instar_runtime::asset::schema_of;
use instar_runtime::{Act, Done, Hub, Row};
use instar_store::entity::{asset, hop, mission, tool_call, tool_step};
use instar_testkit::wait;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};
use serde_json::{Value, json};
use std::time::Duration;

const WITHIN: Duration = Duration::from_secs(60);

pub struct Voyage {
    pub hub: Hub,
    pub session: SessionId,
    pub mission: MissionId,
    pub hop: HopId,
    pub steps: Vec<StepId>,
    pub input: AssetId,
    pub middle: AssetId,
    pub output: AssetId,
}

pub fn agent() -> Actor {
    Actor::new(By::Agent, "agt_test")
}

/// What an asset of a role shall be besides what all are.
pub type Tweak = fn(&str, &mut asset::Model);

pub fn plainly(_: &str, _: &mut asset::Model) {}

/// Tool, parameters and results, in which `input`, `middle` and `output` stand for the assets.
pub type Plan = (&'static str, Value, Value);

impl Voyage {
    /// Ready to be executed; the input has no value yet.
    pub async fn ready(hub: &Hub, tweak: Tweak, steps: &[Plan]) -> Result<Voyage> {
        let session = cast::session(hub.store()).await?;
        Voyage::within(hub, session, |_| (), tweak, steps).await
    }

    /// The same in a session that is there, on terms of its own.
    pub async fn within(
        hub: &Hub,
        session: SessionId,
        terms: impl Fn(&mut mission::Model),
        tweak: Tweak,
        steps: &[Plan],
    ) -> Result<Voyage> {
        let (mission, hop, input, middle, output) = (fresh(), fresh(), fresh(), fresh(), fresh());
        let hub = hub.clone();
        let voyage = Voyage { hub, session, mission, hop, steps: Vec::new(), input, middle, output };
        voyage.propose(terms, tweak).await?;
        voyage.implement(steps).await
    }

    pub fn on_mission(&self, event: &'static str, by: Actor) -> Act<'static> {
        Act::new(self.session, self.mission, &machine::mission::TABLE, event, by)
    }

    pub fn on_hop(&self, event: &'static str, by: Actor) -> Act<'static> {
        Act::new(self.session, self.hop, &machine::hop::TABLE, event, by)
    }

    pub fn on_asset(&self, id: AssetId, event: &'static str) -> Act<'static> {
        Act::new(self.session, id, &machine::asset::TABLE, event, person())
    }

    /// Carries a command out and tells whom it concerns.
    pub async fn act(&self, act: Act<'_>) -> Result<()> {
        match act.carry_out(&self.hub).await? {
            Done::Moved { runes } => self.hub.follow(&runes),
            Done::Ignored => anyhow::bail!("it is already so"),
        }
        Ok(())
    }

    async fn propose(&self, terms: impl Fn(&mut mission::Model), tweak: Tweak) -> Result<()> {
        let mut act = self.on_mission("propose_mission", agent());
        let mut mission = cast::mission_row(self.mission, self.session, "AWAITING_APPROVAL");
        terms(&mut mission);
        act = act.bringing(Row::Mission(mission));
        for (id, role) in [(self.input, "input"), (self.middle, "intermediate"), (self.output, "output")] {
            let mut row = cast::asset_row(id, self.session, self.mission, role, "AWAITING_APPROVAL");
            tweak(role, &mut row);
            act = act.bringing(Row::Asset(row)).meaning(Reach::NewAssetsOfMission, self.mission, id);
        }
        self.act(act).await?;
        self.act(self.on_mission("approve_mission", person())).await
    }

    async fn implement(mut self, steps: &[Plan]) -> Result<Voyage> {
        let mut row = cast::hop_row(self.hop, self.session, self.mission, 1, "HOP_PLAN_STARTED");
        (row.is_final, row.inputs, row.outputs) = (true, json!([self.input]), json!([self.output]));
        self.act(self.on_hop("start_hop_plan", agent()).within(self.mission).bringing(Row::Hop(row.clone()))).await?;
        self.act(self.on_hop("propose_hop_plan", agent())).await?;
        self.act(self.on_hop("approve_hop_plan", person())).await?;
        self.act(self.on_hop("start_hop_impl", agent())).await?;
        let mut propose = self.on_hop("propose_hop_impl", agent());
        for (at, (tool, parameters, results)) in steps.iter().enumerate() {
            let id: StepId = fresh();
            let mut step = cast::step_row(id, &row, at as i64 + 1, "READY_TO_EXECUTE");
            step.tool = Some((*tool).to_owned());
            step.parameter_mapping = self.mapped(parameters);
            step.result_mapping = self.mapped(results);
            propose = propose.bringing(Row::Step(step)).meaning(Reach::NewStepsOfHop, self.hop, id);
            self.steps.push(id);
        }
        self.act(propose).await?;
        self.act(self.on_hop("approve_hop_impl", person())).await?;
        Ok(self)
    }

    /// `"middle"` becomes a mapping to that asset, everything else a literal.
    fn mapped(&self, mapping: &Value) -> Value {
        let one = |value: &Value| {
            let asset = match value.as_str() {
                Some("input") => self.input,
                Some("middle") => self.middle,
                Some("output") => self.output,
                _ => return json!({"type": "literal", "value": value}),
            };
            json!({"type": "asset_field", "state_asset_id": asset})
        };
        mapping.as_object().into_iter().flatten().map(|(name, value)| (name.clone(), one(value))).collect()
    }

    pub async fn provide(&self, id: AssetId, value: Value) -> Result<()> {
        let schema = schema_of(&self.asset(id).await?);
        let kept = self.hub.keep(id, &schema, Content::of(&schema, &value)).await?;
        self.act(self.on_asset(id, "provide_value").writing(kept)).await
    }

    pub async fn execute(&self) -> Result<()> {
        self.act(self.on_hop("execute_hop", person())).await
    }

    pub async fn asset(&self, id: AssetId) -> Result<asset::Model> {
        self.hub.store().asset(id).await?.context("asset")
    }

    pub async fn step(&self, at: usize) -> Result<tool_step::Model> {
        self.hub.store().step(self.steps[at]).await?.context("step")
    }

    /// The attempts of a step, oldest first.
    pub async fn calls(&self, at: usize) -> Result<Vec<tool_call::Model>> {
        let of = tool_call::Entity::find().filter(tool_call::Column::StepId.eq(self.steps[at].uuid()));
        let mut calls = of.all(self.hub.store().db()).await?;
        calls.sort_by_key(|call| call.id);
        Ok(calls)
    }

    pub async fn call_is(&self, at: usize, wanted: impl Fn(&tool_call::Model) -> bool) -> Result<tool_call::Model> {
        wait::until_ok(WITHIN, || async {
            let call = self.calls(at).await?.pop().context("no call yet")?;
            ensure!(wanted(&call), "the call is {}", call.status);
            Ok(call)
        })
        .await
    }

    pub async fn hop_is(&self, statuses: &[&str]) -> Result<hop::Model> {
        wait::until_ok(WITHIN, || async {
            let hop = self.hub.store().hop(self.hop).await?.context("hop")?;
            let steps = self.hub.store().steps_of(self.hop).await?;
            let found: Vec<_> = steps.iter().map(|step| (&step.status, &step.error)).collect();
            ensure!(statuses.contains(&hop.status.as_str()), "the hop is {} with {found:?}", hop.status);
            Ok(hop)
        })
        .await
    }

    pub async fn step_is(&self, at: usize, wanted: impl Fn(&tool_step::Model) -> bool) -> Result<tool_step::Model> {
        wait::until_ok(WITHIN, || async {
            let step = self.step(at).await?;
            ensure!(wanted(&step), "the step is {}: {:?}", step.status, step.error);
            Ok(step)
        })
        .await
    }

    pub async fn asset_is(&self, id: AssetId, status: &str) -> Result<asset::Model> {
        wait::until_ok(WITHIN, || async {
            let row = self.asset(id).await?;
            ensure!(row.status == status, "the asset is {}", row.status);
            Ok(row)
        })
        .await
    }

    pub async fn value(&self, asset_id: AssetId, version: i64) -> Result<Value> {
        Ok(self.hub.value(Version { asset_id, version }, Actor::system("test")).await?)
    }

    pub async fn is_sound(&self) -> Result<()> {
        let (_, wrong) = crate::audit::log(self.hub.store(), self.session).await?;
        ensure!(wrong.is_empty(), "{wrong:#?}");
        Ok(())
    }
}
