//! Missions, hops, steps and assets through the real tables: each command with everything it causes is one commit.

use anyhow::{Context, Result, ensure};
use instar_core::cascade::Reach;
use instar_core::id::{AssetId, CallId, Entity, HopId, MissionId, SessionId, StepId};
use instar_core::machine::{self, By};
use instar_core::rune::Actor;
use instar_runtime::{Act, ActError, Done, Hub, Row};
use instar_tests::cast::{self, fresh, person};
use instar_tests::stage::{self, Stage};
use instar_tests::{audit, on_both};
use serde_json::json;

struct Voyage {
    hub: Hub,
    session: SessionId,
    mission: MissionId,
    output: AssetId,
}

fn agent() -> Actor {
    Actor::new(By::Agent, "agt_test")
}

fn kinds(done: Done) -> Vec<String> {
    match done {
        Done::Moved { runes } => runes.into_iter().map(|rune| rune.kind).collect(),
        Done::Ignored => vec![],
    }
}

impl Voyage {
    /// A mission that an agent has proposed.
    async fn proposed(stage: &Stage) -> Result<Voyage> {
        let hub = Hub::new(stage.store.clone(), stage::bus(stage).await?);
        let session = cast::session(hub.store()).await?;
        let (mission, output) = (fresh(), fresh());
        let act = Act::new(session, mission, &machine::mission::TABLE, "propose_mission", agent())
            .bringing(Row::Mission(cast::mission_row(mission, session, "AWAITING_APPROVAL")))
            .bringing(Row::Asset(cast::asset_row(output, session, mission, "output", "AWAITING_APPROVAL")))
            .meaning(Reach::NewAssetsOfMission, mission, output);
        ensure!(kinds(act.carry_out(&hub).await?) == ["mission.proposed", "asset.proposed"]);
        Ok(Voyage { hub, session, mission, output })
    }

    fn on_mission(&self, event: &'static str) -> Act<'static> {
        Act::new(self.session, self.mission, &machine::mission::TABLE, event, person())
    }

    fn on_hop(&self, hop: HopId, event: &'static str, by: Actor) -> Act<'static> {
        Act::new(self.session, hop, &machine::hop::TABLE, event, by)
    }

    /// A hop with a plan that is ready and two accepted steps, of which the last makes the mission's output.
    async fn ready(&self) -> Result<(HopId, [StepId; 2])> {
        let hop = fresh();
        let mut row = cast::hop_row(hop, self.session, self.mission, 1, "HOP_PLAN_STARTED");
        row.is_final = true;
        row.outputs = json!([self.output]);
        let start = self.on_hop(hop, "start_hop_plan", agent()).within(self.mission).bringing(Row::Hop(row.clone()));
        start.carry_out(&self.hub).await?;
        self.on_hop(hop, "propose_hop_plan", agent()).carry_out(&self.hub).await?;
        self.on_hop(hop, "approve_hop_plan", person()).carry_out(&self.hub).await?;
        self.on_hop(hop, "start_hop_impl", agent()).carry_out(&self.hub).await?;
        let steps = [fresh(), fresh()];
        let first = cast::step_row(steps[0], &row, 1, "READY_TO_EXECUTE");
        let mut second = cast::step_row(steps[1], &row, 2, "READY_TO_EXECUTE");
        second.result_mapping = json!({"text": {"type": "asset_field", "state_asset_id": self.output}});
        let propose = self
            .on_hop(hop, "propose_hop_impl", agent())
            .bringing(Row::Step(first))
            .bringing(Row::Step(second))
            .meaning(Reach::NewStepsOfHop, hop, steps[0])
            .meaning(Reach::NewStepsOfHop, hop, steps[1]);
        let told = kinds(propose.carry_out(&self.hub).await?);
        ensure!(told.iter().filter(|kind| *kind == "step.configured").count() == 2, "{told:?}");
        self.on_hop(hop, "approve_hop_impl", person()).carry_out(&self.hub).await?;
        Ok((hop, steps))
    }

    /// A call of a step, to be made in the same commit that starts it.
    fn calling<'a>(&self, act: Act<'a>, step: StepId) -> (Act<'a>, CallId) {
        let id = fresh();
        let mut row = cast::call_row(id, self.session, fresh(), fresh(), "executing");
        (row.turn_id, row.step_id, row.effect) = (None, Some(step.uuid()), "idempotent".into());
        let mut act = act.bringing(Row::Call(row)).meaning(Reach::NewCallOfStep, step, id);
        act.said.gates.insert(
            id.uuid(),
            instar_core::decide::Call {
                valid: true,
                outside_sandbox: false,
                side_effects: false,
                spec: Default::default(),
                policy_override: Default::default(),
                mode: Default::default(),
            },
        );
        (act, id)
    }

    /// The call has succeeded, and what the step makes fits.
    fn succeeded(&self, call: CallId) -> Act<'static> {
        let actor = Actor::system("test");
        let mut act = Act::new(self.session, call, &machine::tool_call::TABLE, "success", actor);
        act.said.attempt = Some(instar_core::decide::Attempt {
            status: Default::default(),
            outputs_fit: true,
            retryable: false,
            effect: instar_core::decide::Effect::Idempotent,
            attempts: instar_core::decide::Tries { made: 1, max: 3 },
        });
        act.telling("tool.result", json!({"status": "success"}))
    }

    async fn status(&self) -> Result<(String, String, Option<HopId>)> {
        let row = self.hub.store().mission(self.mission).await?.context("mission")?;
        Ok((row.status, row.awaits, row.current_hop_id.map(HopId::from)))
    }

    async fn is_sound(&self) -> Result<()> {
        let (_, wrong) = audit::log(self.hub.store(), self.session).await?;
        ensure!(wrong.is_empty(), "{wrong:#?}");
        Ok(())
    }
}

async fn a_mission_goes_from_its_proposal_to_its_output_one_commit_per_step(stage: Stage) -> Result<()> {
    let v = Voyage::proposed(&stage).await?;
    ensure!(v.status().await? == ("AWAITING_APPROVAL".into(), "person".into(), None));
    let told = kinds(v.on_mission("approve_mission").carry_out(&v.hub).await?);
    ensure!(told == ["mission.approved", "asset.accepted"], "{told:?}");
    let (hop, steps) = v.ready().await?;
    ensure!(v.status().await? == ("IN_PROGRESS".into(), "person".into(), Some(hop)));

    let (execute, call) = v.calling(v.on_hop(hop, "execute_hop", person()), steps[0]);
    let told = kinds(execute.carry_out(&v.hub).await?);
    ensure!(told == ["hop.execution_started", "step.started", "tool.call"], "{told:?}");
    ensure!(v.status().await?.1 == "steps");

    let (first, call) = v.calling(v.succeeded(call), steps[1]);
    let told = kinds(first.carry_out(&v.hub).await?);
    let next = ["tool.result", "step.completed", "step.started", "tool.call", "asset.processing_started"];
    ensure!(told == next, "{told:?}");

    let done = kinds(v.succeeded(call).carry_out(&v.hub).await?);
    let end = ["tool.result", "step.completed", "asset.ready", "hop.completed", "asset.promoted", "mission.completed"];
    ensure!(done == end, "{done:?}");
    ensure!(v.status().await? == ("COMPLETED".into(), "nobody".into(), Some(hop)), "{:?}", v.status().await?);
    let row = v.hub.store().hop(hop).await?.context("hop")?;
    ensure!(row.plan_accepted_once && row.attempts == 1 && row.ended_at.is_some(), "{row:?}");
    v.is_sound().await
}

async fn cancelling_a_mission_ends_its_hop_its_steps_and_their_call(stage: Stage) -> Result<()> {
    let v = Voyage::proposed(&stage).await?;
    v.on_mission("approve_mission").carry_out(&v.hub).await?;
    let (hop, steps) = v.ready().await?;
    let (execute, call) = v.calling(v.on_hop(hop, "execute_hop", person()), steps[0]);
    execute.carry_out(&v.hub).await?;
    let told = kinds(v.on_mission("cancel_mission").reason("enough").carry_out(&v.hub).await?);
    for kind in ["mission.cancelled", "hop.cancelled", "step.cancelled", "tool.result"] {
        ensure!(told.iter().any(|told| told == kind), "{kind} in {told:?}");
    }
    let store = v.hub.store();
    ensure!(store.call(call).await?.context("call")?.ended_at.is_some());
    ensure!(store.steps_of(hop).await?.iter().all(|step| step.status == "CANCELLED"));
    v.is_sound().await
}

async fn closing_the_session_cancels_its_missions(stage: Stage) -> Result<()> {
    let v = Voyage::proposed(&stage).await?;
    v.on_mission("approve_mission").carry_out(&v.hub).await?;
    v.ready().await?;
    let close = Act::new(v.session, v.session, &machine::session::TABLE, "close_requested", person());
    let told = kinds(close.carry_out(&v.hub).await?);
    ensure!(told.iter().any(|kind| kind == "mission.cancelled"), "{told:?}");
    ensure!(v.status().await?.0 == "CANCELLED");
    v.is_sound().await
}

async fn of_two_people_who_decide_at_once_one_wins(stage: Stage) -> Result<()> {
    let v = Voyage::proposed(&stage).await?;
    let (yes, no) = tokio::join!(
        v.on_mission("approve_mission").carry_out(&v.hub),
        v.on_mission("reject_mission").carry_out(&v.hub)
    );
    let refused = match (yes, no) {
        (Ok(_), Err(ActError::Refused(no))) | (Err(ActError::Refused(no)), Ok(_)) => no,
        other => anyhow::bail!("not exactly one winner: {other:?}"),
    };
    ensure!(refused.machine == "mission" && refused.from != "AWAITING_APPROVAL", "{refused}");
    v.is_sound().await
}

async fn a_command_against_a_guard_changes_nothing_and_says_what_to_do(stage: Stage) -> Result<()> {
    let v = Voyage::proposed(&stage).await?;
    let hop: HopId = fresh();
    let row = cast::hop_row(hop, v.session, v.mission, 1, "HOP_PLAN_STARTED");
    let early = v.on_hop(hop, "start_hop_plan", agent()).within(v.mission).bringing(Row::Hop(row));
    let Err(ActError::Refused(no)) = early.carry_out(&v.hub).await else { anyhow::bail!("a hop before the approval") };
    ensure!(no.advice.contains("must be IN_PROGRESS"), "{no}");
    v.on_mission("approve_mission").carry_out(&v.hub).await?;
    let Err(ActError::Refused(no)) = v.on_mission("goal_achieved_early").carry_out(&v.hub).await else {
        anyhow::bail!("complete without its output")
    };
    ensure!(no.advice.contains("output output is not READY") && no.allowed.contains(&"cancel_mission"), "{no}");
    let (hop, _) = v.ready().await?;
    let second: HopId = fresh();
    let row = cast::hop_row(second, v.session, v.mission, 2, "HOP_PLAN_STARTED");
    let another = v.on_hop(second, "start_hop_plan", agent()).within(v.mission).bringing(Row::Hop(row));
    ensure!(matches!(another.carry_out(&v.hub).await, Err(ActError::Refused(_))), "a second hop");
    ensure!(v.hub.store().hop(second).await?.is_none());
    let elsewhere = cast::session(v.hub.store()).await?;
    let stray = Act::new(elsewhere, hop, &machine::hop::TABLE, "cancel_hop", person()).carry_out(&v.hub).await;
    ensure!(matches!(stray, Err(ActError::Absent(entity)) if entity == Entity::from(hop)), "of another session");
    v.is_sound().await
}

on_both! {
    a_mission_goes_from_its_proposal_to_its_output_one_commit_per_step;
    cancelling_a_mission_ends_its_hop_its_steps_and_their_call;
    closing_the_session_cancels_its_missions;
    of_two_people_who_decide_at_once_one_wins;
    a_command_against_a_guard_changes_nothing_and_says_what_to_do;
}
